"""Shared types and contracts. Every other package may import this one; it imports none of them."""
