"""Verbs that compare variants: analyze, variance, power."""
