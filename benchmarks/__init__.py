"""Side-by-side measurements against peers. Not tests."""
