"""What the reference documents and the command specification promise, tried point by point."""
