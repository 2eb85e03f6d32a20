"""At what expense? Observers and meters that look and never touch."""
