"""Do two programs still agree? Options of one command line held against those of another."""
