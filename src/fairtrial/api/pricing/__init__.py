"""The verbs about costs: cost-performance, recommend."""
