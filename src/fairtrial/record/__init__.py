"""What happened? The recorder writes run directories, the store reads them."""
