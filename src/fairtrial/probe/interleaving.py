"""Interleaved timing, so that a drift of the machine's speed affects all sides equally."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

Block = Callable[[], float]
Key = TypeVar("Key")


def abba(sides: Sequence[Block], rounds: int, on_round: Callable[[int], None] = lambda _: None) -> list[list[float]]:
    """Return the seconds per round of both sides, in the order A B B A, then B A A B, and so on.

    A linear drift has the same effect on both sides of a round.
    """
    times: list[list[float]] = [[], []]
    for number in range(rounds):
        order = (0, 1, 1, 0) if number % 2 == 0 else (1, 0, 0, 1)
        taken = [0.0, 0.0]
        for side in order:
            taken[side] += sides[side]()
        for side in (0, 1):
            times[side].append(taken[side])
        on_round(number + 1)
    return times


def shuffled(contestants: Mapping[Key, Block], rounds: int, seed: int) -> list[dict[Key, float]]:
    """Time every contestant once per round, in random order; return the seconds by contestant for every round."""
    shuffle = random.Random(seed).shuffle  # noqa: S311 — not used for cryptography
    seconds = []
    for _ in range(rounds):
        order: Sequence[Key] = list(contestants)
        shuffle(order)  # type: ignore[arg-type]
        taken = {name: contestants[name]() for name in order}
        seconds.append({name: taken[name] for name in contestants})
    return seconds
