"""Verbs about what others can check: artifact, preregister, bundle, verify-bundle, export, deposit."""
