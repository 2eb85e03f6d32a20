"""Verbs that compare arms: analyze, variance, power."""
