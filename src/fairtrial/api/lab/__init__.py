"""Verbs that launch a study and answer one question with it: sweep, compare, ablation."""
