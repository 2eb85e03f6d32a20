"""A configuration as a point: how good it was, how long it took, how much memory it needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

STILL = 1e-12
"""Values that differ by less than this, relative to their size, differ by rounding."""
TIE = 1e-9
"""Means that differ by no more than this, relative to the numbers that they come from, are equal in a ranking."""


@dataclass(frozen=True)
class Reading:
    """A mean, and the value of each seed where they are known."""

    value: float
    by_seed: Mapping[str, float] = field(default_factory=dict)

    @property
    def n(self) -> int:
        return len(self.by_seed)

    @cached_property
    def error(self) -> float | None:
        """The standard error of the mean; None where the seeds say nothing about noise."""
        if self.n < 2:
            return None
        spread = math.fsum((each - self.value) ** 2 for each in self.by_seed.values())
        error = math.sqrt(spread / (self.n - 1) / self.n)
        return error if error > STILL * max(map(abs, self.by_seed.values())) else None

    @property
    def size(self) -> float:
        """How large the numbers are that the mean comes from: rounding is relative to them, not to the mean."""
        return max(map(abs, self.by_seed.values()), default=abs(self.value))

    def scaled(self, factor: float) -> Reading:
        return Reading(self.value * factor, {seed: each * factor for seed, each in self.by_seed.items()})


def levelled(values: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """The same values, where those that differ only by rounding are one and the same: the lowest of them.

    Neighbours in order are equal if they differ by at most `TIE` times the larger of their sizes, and equality carries
    on from neighbour to neighbour: it does not depend on the order of the points or on the sign of the values, and no
    point can be equal to two others that are unequal. Values without such a neighbour stay what they are, bit for bit.
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
    """One number, numbers by seed, or a list of numbers whose seeds no other point is known to share."""
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
    """One configuration. `hours` are those on `device`; memory is in gigabytes, None where it is not known.

    `accuracy` stands for the metric, whatever its name. Hours and metric are a number each, a list with one number per
    seed, or a mapping from seed to number; only a mapping says which seeds are shared with other points.
    """

    name: str
    hours: Given
    accuracy: Given
    memory: float | None = None
    device: str = "a100-80gb"
    settings: Mapping[str, Any] = field(default_factory=dict)
    memory_basis: str = "given"
    lost: int = 0
    """Runs that ended without a number; each counts as the worst value seen."""

    @cached_property
    def time(self) -> Reading:
        return read(self.hours, self.name)

    @cached_property
    def quality(self) -> Reading:
        return read(self.accuracy, self.name)
