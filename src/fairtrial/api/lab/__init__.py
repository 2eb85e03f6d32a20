"""The verbs that launch a study to answer one question: sweep, compare, ablation."""
