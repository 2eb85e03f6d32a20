"""Verbs about money: cost-performance, recommend."""
