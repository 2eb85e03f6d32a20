"""Verbs that make runs and look at them: launch, train, evaluate, watch."""
