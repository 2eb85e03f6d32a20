"""The training loop that drives every recipe."""
