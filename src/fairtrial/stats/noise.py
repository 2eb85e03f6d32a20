"""The panel of noise shapes on which intervals are tested: the kinds of seed noise found in real training runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fairtrial.stats.samples import Array

Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]
COLLAPSE = 0.2
DEPTH = 10.0
"""How far a collapsed run drops, in standard deviations of the other runs."""
HIGHEST_COLLAPSE = 0.3
LOG_SIGMA = 0.8


@dataclass(frozen=True)
class Shape:
    """A distribution of seed noise and its true mean."""

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
    """Return normal noise in which a share `rate` of runs collapses. The same draws can be used for every rate."""
    return noise - DEPTH * (chances < rate)


def _collapsing(rng: np.random.Generator, size: tuple[int, ...]) -> Array:
    return collapsed(rng.standard_normal(size), rng.random(size), COLLAPSE)


def collapse_rates(runs: tuple[int, int], ratio: float) -> list[float]:
    """Return the collapse rates to scan: from an expected quarter of a run in the larger arm to 30 %.

    Coverage is lowest where about one run is expected to collapse. The rates are therefore dense (each `ratio` times
    the one before) up to two expected runs of the smaller arm, and double beyond.
    """
    rates, rate = [], 1 / (4 * max(runs))
    while rate < HIGHEST_COLLAPSE * (1 - 1e-9):
        rates.append(rate)
        rate *= ratio if rate * min(runs) < 2 * (1 - 1e-9) else max(2.0, ratio)
    return [*rates, HIGHEST_COLLAPSE]


SHAPES = (
    Shape("normal", "normal noise", 0.0, _normal),
    Shape("log-normal", "a long tail to one side", math.exp(LOG_SIGMA**2 / 2), _log_normal),
    Shape("heavy tails", "occasional outliers, t with 3 degrees of freedom", 0.0, _heavy),
    Shape("two peaks", "runs that end at one of two values, close together", 0.0, _peaks(2.0)),
    Shape("far peaks", "runs that end at one of two values, far apart", 0.0, _peaks(10.0)),
    Shape("collapsing", "one run in five collapses", -DEPTH * COLLAPSE, _collapsing),
)
