"""The panel of noise shapes that intervals are held against: the kinds that seeds of real trainings show."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fairtrial.stats.samples import Array

Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]
COLLAPSE = 0.2
DEPTH = 10.0
"""How far a collapsed run falls, in standard deviations of the others."""
HIGHEST_COLLAPSE = 0.3
LOG_SIGMA = 0.8


@dataclass(frozen=True)
class Shape:
    """A distribution of runs around what a variant can do, and its true mean."""

    name: str
    text: str
    mean: float
    draw: Draw


def _normal(rng: np.random.Generator, size: tuple[int, ...]) -> Array:
    return rng.standard_normal(size)


def _log_normal(rng: np.random.Generator, size: tuple[int, ...]) -> Array:
    return np.exp(LOG_SIGMA * rng.standard_normal(size))


def _heavy(rng: np.random.Generator, size: tuple[int, ...]) -> Array:
    return rng.standard_t(3, size)


def _peaks(apart: float) -> Draw:
    def draw(rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        return apart * (2 * rng.integers(0, 2, size) - 1) + rng.standard_normal(size)

    return draw


def collapsed(noise: Array, chances: Array, rate: float) -> Array:
    """Normal noise of which a share collapses; the same noise and chances serve every rate."""
    return noise - DEPTH * (chances < rate)


def _collapsing(rng: np.random.Generator, size: tuple[int, ...]) -> Array:
    return collapsed(rng.standard_normal(size), rng.random(size), COLLAPSE)


def collapse_rates(runs: tuple[int, int], ratio: float) -> list[float]:
    """The rates to scan: from a quarter of a run in the larger arm to 30 %.

    Coverage is lowest where about one run is expected to collapse, so the rates are dense up to two runs of the
    smaller arm (each `ratio` times the one before) and double from there on.
    """
    rates, rate = [], 1 / (4 * max(runs))
    while rate < HIGHEST_COLLAPSE * (1 - 1e-9):
        rates.append(rate)
        rate *= ratio if rate * min(runs) < 2 * (1 - 1e-9) else max(2.0, ratio)
    return [*rates, HIGHEST_COLLAPSE]


SHAPES = (
    Shape("normal", "normal noise", 0.0, _normal),
    Shape("log-normal", "a long tail to one side", math.exp(LOG_SIGMA**2 / 2), _log_normal),
    Shape("heavy tails", "now and then far out, t with 3 degrees of freedom", 0.0, _heavy),
    Shape("two peaks", "runs that end in one of two near places", 0.0, _peaks(2.0)),
    Shape("far peaks", "runs that end in one of two far places", 0.0, _peaks(10.0)),
    Shape("collapsing", "one run in five collapses", -DEPTH * COLLAPSE, _collapsing),
)
