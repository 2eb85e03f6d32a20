"""Measurement of time and memory, with observers that never change the training."""
