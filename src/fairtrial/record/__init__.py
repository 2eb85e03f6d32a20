"""Recording and reading of runs. The recorder writes run directories and the store reads them."""
