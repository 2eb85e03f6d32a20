"""Verbs that create and inspect runs: launch, train, evaluate, watch."""
