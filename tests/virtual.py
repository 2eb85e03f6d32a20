"""Time that passes only when it is told to: what is measured on it is exact."""

from __future__ import annotations


class VirtualTime:
    """A clock, and a sleep that moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds
