"""What to choose? Prices, and what hours on a device come to."""
