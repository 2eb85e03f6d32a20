"""Verbs about time: bench, profile, doctor, sync."""
