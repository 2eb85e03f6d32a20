"""A configuration as a point: its metric, its hours and the memory that it needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

STILL = 1e-12
"""Relative difference below which values differ only by rounding."""
TIE = 1e-9
"""Relative difference up to which means are equal in a ranking; relative to the numbers that they are computed from."""


@dataclass(frozen=True)
class Reading:
    """A mean, and the value per seed if known."""

    value: float
    by_seed: Mapping[str, float] = field(default_factory=dict)

    @property
    def n(self) -> int:
        return len(self.by_seed)

    @cached_property
    def error(self) -> float | None:
        """The standard error of the mean; None with fewer than two seeds or without variation."""
        if self.n < 2:
            return None
        spread = math.fsum((each - self.value) ** 2 for each in self.by_seed.values())
        error = math.sqrt(spread / (self.n - 1) / self.n)
        return error if error > STILL * max(map(abs, self.by_seed.values())) else None

    @property
    def size(self) -> float:
        """The magnitude of the numbers behind the mean; rounding errors are relative to it, not to the mean."""
        return max(map(abs, self.by_seed.values()), default=abs(self.value))

    def scaled(self, factor: float) -> Reading:
        return Reading(self.value * factor, {seed: each * factor for seed, each in self.by_seed.items()})


def levelled(values: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """Replace values that differ only by rounding with the lowest of them.

    Neighbors in sorted order are equal if they differ by at most `TIE` times the larger of their sizes. Equality is
    transitive: it does not depend on the order of the points or on the sign of the values, and no point can be equal to
    two others that are unequal. Values without an equal neighbor stay bit-identical.
    """
    largest: dict[float, float] = {}
    for value, size in zip(values, sizes, strict=True):
        largest[value] = max(size, largest.get(value, 0.0))
    lowest: dict[float, float] = {}
    before: float | None = None
    for value in sorted(largest):
        equal = before is not None and value - before <= TIE * max(largest[value], largest[before])
        lowest[value] = lowest[before] if equal and before is not None else value
        before = value
    return [lowest.get(value, value) for value in values]


Given = float | Iterable[float] | Mapping[str, float]


def read(given: Given, owner: str) -> Reading:
    """Return a reading from one number, numbers by seed, or a list of numbers with seeds that no other point shares."""
    if isinstance(given, Mapping):
        by_seed = {str(seed): float(each) for seed, each in given.items()}
    elif isinstance(given, Iterable):
        by_seed = {f"{owner} #{place}": float(each) for place, each in enumerate(given, 1)}
    else:
        return Reading(float(given))
    if not by_seed:
        return Reading(math.nan)
    return Reading(math.fsum(by_seed.values()) / len(by_seed), by_seed)


@dataclass(frozen=True)
class CostPoint:
    """One configuration. `hours` are the hours on `device`; memory is in gigabytes, None if unknown.

    `accuracy` is the metric, regardless of its name. Hours and metric are each a number, a list with one number per
    seed, or a mapping from seed to number; only a mapping shows which seeds are shared with other points.

    >>> fairtrial.CostPoint("small", hours=1, accuracy=0.80, memory=8).name
    'small'
    """

    name: str
    hours: Given
    accuracy: Given
    memory: float | None = None
    device: str = "a100-80gb"
    settings: Mapping[str, Any] = field(default_factory=dict)
    memory_basis: str = "given"
    lost: int = 0
    """Runs that ended without a number; each is scored as the worst observed value."""

    @cached_property
    def time(self) -> Reading:
        return read(self.hours, self.name)

    @cached_property
    def quality(self) -> Reading:
        return read(self.accuracy, self.name)
