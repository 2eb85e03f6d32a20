"""How? The one training loop."""
