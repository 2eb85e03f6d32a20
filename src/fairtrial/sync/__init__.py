"""Comparison of the options of two command-line programs, such as a trainer and its benchmark."""
