"""Statistics: pure functions that turn numbers into estimates, tests and verdicts."""
