"""What a family of paired differences can see, and how many seeds it needs: for the test that judges it.

The half-width of a difference's interval is what noise and test make of it together, so everything is planned on it.
Under normal noise its distribution, in units of the true noise, depends on the design alone. The noise itself is known
no better than the runs show it: power is averaged over what it may be, so that the power that was stated is the one
that is realised on average. Other arms are taken to be equal: where they differ too, Holm's steps see a little more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from fairtrial.stats.open_questions import EstimatedNoise
from fairtrial.stats.power import smallest
from fairtrial.stats.samples import Array
from fairtrial.stats.spreads import (
    MAX_SPREAD,
    TUKEY,
    FamilyLimit,
    IndexPair,
    largest_spreads,
    settled,
    shared_tail,
    student_limit,
)

NODES = 64
MOST_DRAWS, LEAST_DRAWS = 4_000, 500
LARGEST_FACTOR = 1e4
EXACT_FREEDOM, MOST_FREEDOM = 60, 1_000


@dataclass(frozen=True)
class FamilyPlan:
    """Which differences are judged together, how, and with what power they should be seen."""

    adjustment: str
    arms: int
    pairs: tuple[IndexPair, ...]
    alpha: float
    power: float

    def detectable(self, half_width: float, n: int) -> float | None:
        """The true difference that n seeds see with the wanted power, given the half-width that they showed."""
        factor = _factor(self, n) if half_width > 0 else None
        return None if factor is None else factor * half_width

    def seeds_for(self, effect: float, half_width: float, n: int) -> int | None:
        """The smallest number of seeds that sees a true difference; None beyond a million."""
        if effect == 0:
            return None
        shifts = self._shifts(effect, half_width, n)
        return smallest(lambda m: _seen(math.sqrt(m) * shifts, _half_widths(self, m)) >= self.power)

    def seeds_for_equivalence(self, margin: float, half_width: float, n: int) -> int | None:
        """The smallest number of seeds that finds two equal arms equivalent within ± the margin."""
        shifts = self._shifts(margin, half_width, n)

        def enough(m: int) -> bool:
            inside = math.sqrt(m) * shifts[:, None] - _half_widths(self, m, equivalence=True)
            return float(np.maximum(2 * special.ndtr(inside) - 1, 0).mean()) >= self.power

        return smallest(enough)

    def half_widths(self, n: int, *, equivalence: bool = False) -> Array:
        """Quantiles of an interval's half-width × √n, in standard deviations of a difference; all arms are alike."""
        return _half_widths(self, n, equivalence=equivalence)

    def half_width_of_truth(self, effect: float, half_width: float, n: int, *, margin: bool) -> float:
        """The half-width that the true noise has on average, given that of a pair that was inconclusive."""
        wide, narrow = _half_widths(self, n), _half_widths(self, n, equivalence=True)
        usual = math.sqrt(float((wide**2).mean()))
        noise = EstimatedNoise(wide / usual, np.full(NODES, 1 / NODES), wide, narrow, two_sided=True)
        return half_width * noise.share_of_truth(effect, half_width / usual, margin=margin)

    def _shifts(self, effect: float, half_width: float, n: int) -> Array:
        """An effect in units of what the standard deviation of a difference may be, given the half-width at n."""
        return np.asarray(effect * _half_widths(self, n) / (half_width * math.sqrt(n)))


def _seen(shifts: Array, half_widths: Array) -> float:
    """The chance that an interval excludes zero, averaged over shifts of its centre and over its half-widths."""
    away = shifts[:, None]
    return float((special.ndtr(away - half_widths) + special.ndtr(-away - half_widths)).mean())


@lru_cache(maxsize=256)
def _factor(plan: FamilyPlan, n: int) -> float | None:
    """How many of its half-widths a difference must be, to be seen with the wanted power by n other seeds."""
    nodes = _half_widths(plan, n)
    low, high = 0.0, 1.0
    while _seen(high * nodes, nodes) < plan.power:
        low, high = high, 2 * high
        if high > LARGEST_FACTOR:
            return None
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _seen(middle * nodes, nodes) >= plan.power else (middle, high)
    return high


@lru_cache(maxsize=256)
def _half_widths(plan: FamilyPlan, n: int, *, equivalence: bool = False) -> Array:
    """Quantiles of an interval's half-width × √n, in standard deviations of a difference, where all arms are alike."""
    levels = (np.arange(NODES) + 0.5) / NODES
    rule, count = settled(plan.adjustment, n), len(plan.pairs)
    tail = plan.alpha if equivalence else plan.alpha / 2
    freedom = (plan.arms - 1) * (n - 1)
    if rule not in (MAX_SPREAD, TUKEY):
        return student_limit(tail / count, n - 1) * _scales(n - 1, levels)
    limit = FamilyLimit(plan.arms, count, _coarse(freedom), narrower=rule == MAX_SPREAD)
    reach = limit.bonferroni(tail) if equivalence else limit.reach(tail)
    if rule == TUKEY:
        return reach * _scales(freedom, levels)
    largest, least = _simulated_spreads(plan.arms, plan.pairs, n)
    own = student_limit(shared_tail(tail, count) if equivalence else tail, n - 1)
    return np.asarray(np.quantile(np.maximum(reach * largest, own * least), levels))


def _coarse(freedom: int) -> int:
    """Tukey's limit takes long to compute and hardly changes any more: few values of many will do, rounded down."""
    if freedom <= EXACT_FREEDOM:
        return freedom
    steps = math.floor(math.log(freedom / EXACT_FREEDOM) / math.log(1.2))
    return min(MOST_FREEDOM, int(EXACT_FREEDOM * 1.2**steps))


def _scales(freedom: int, levels: Array) -> Array:
    """Quantiles of an estimated standard deviation whose true value is 1."""
    return np.asarray(np.sqrt(2 * special.gammaincinv(freedom / 2, levels) / freedom))


@lru_cache(maxsize=64)
def _simulated_spreads(arms: int, pairs: tuple[IndexPair, ...], n: int) -> tuple[Array, Array]:
    """What `largest_spreads` gives for arms that are alike, as standard deviations, where a difference's is 1."""
    draws = int(np.clip(2_000_000 // arms**2, LEAST_DRAWS, MOST_DRAWS))
    scatter = _scatter(np.random.default_rng([n, arms, len(pairs)]), draws, arms, n - 1) / 2
    spread = np.einsum("dii->di", scatter)
    own = np.stack([spread[:, i] + spread[:, j] - 2 * scatter[:, i, j] for i, j in pairs], axis=-1)
    residual = (spread.sum(axis=-1) - scatter.sum(axis=(-2, -1)) / arms) / (arms - 1)
    largest, least = largest_spreads(own, residual, pairs)
    return np.sqrt(largest).ravel(), np.sqrt(least).ravel()


def _scatter(rng: np.random.Generator, draws: int, arms: int, freedom: int) -> Array:
    """Covariance matrices of so many independent arms, estimated with these degrees of freedom."""
    if freedom <= max(arms, 32):
        runs = rng.standard_normal((draws, freedom, arms))
        return np.asarray(np.swapaxes(runs, -1, -2) @ runs / freedom)
    root = np.tril(rng.standard_normal((draws, arms, arms)), -1)  # Bartlett's decomposition: no run is drawn
    places = np.arange(arms)
    root[:, places, places] = np.sqrt(rng.chisquare(freedom - places, (draws, arms)))
    return np.asarray(root @ np.swapaxes(root, -1, -2) / freedom)


def plan_pairs(pairs: Sequence[tuple[str, str]]) -> tuple[IndexPair, ...]:
    """Which of several arms are compared, by number: busier arms first, so that names do not matter to a plan."""
    busy = Counter(name for pair in pairs for name in pair)
    place = {name: index for index, name in enumerate(sorted(busy, key=lambda name: (-busy[name], name)))}
    return tuple(sorted((min(pair), max(pair)) for pair in ((place[a], place[b]) for a, b in pairs)))
