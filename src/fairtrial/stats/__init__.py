"""Is it true? Pure functions from numbers to findings."""
