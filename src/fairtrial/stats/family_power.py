"""Power of a family of paired differences: which differences it detects, and how many seeds it needs.

Planning is based on the half-width of a difference's interval, which combines the noise and the test. Under normal
noise, the distribution of the half-width in units of the true noise depends only on the design. The true noise is
uncertain, so power is averaged over its possible values; the stated power is then the one realized on average. The
other arms are assumed to be equal; if they differ too, Holm's steps have slightly more power.
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
    """The pairs that are tested together, the adjustment, α, and the wanted power."""

    adjustment: str
    arms: int
    pairs: tuple[IndexPair, ...]
    alpha: float
    power: float

    def detectable(self, half_width: float, n: int) -> float | None:
        """Return the true difference that n seeds detect with the wanted power, given the half-width observed at n."""
        factor = _factor(self, n) if half_width > 0 else None
        return None if factor is None else factor * half_width

    def seeds_for(self, effect: float, half_width: float, n: int) -> int | None:
        """Return the smallest number of seeds that detects a true difference `effect`; None beyond a million."""
        if effect == 0:
            return None
        shifts = self._shifts(effect, half_width, n)
        return smallest(lambda m: _seen(math.sqrt(m) * shifts, _half_widths(self, m)) >= self.power)

    def seeds_for_equivalence(self, margin: float, half_width: float, n: int) -> int | None:
        """Return the smallest number of seeds that finds two equal arms equivalent within ± the margin."""
        shifts = self._shifts(margin, half_width, n)

        def enough(m: int) -> bool:
            inside = math.sqrt(m) * shifts[:, None] - _half_widths(self, m, equivalence=True)
            return float(np.maximum(2 * special.ndtr(inside) - 1, 0).mean()) >= self.power

        return smallest(enough)

    def half_widths(self, n: int, *, equivalence: bool = False) -> Array:
        """Return quantiles of an interval's half-width × √n, in standard deviations of a difference, for equal arms."""
        return _half_widths(self, n, equivalence=equivalence)

    def half_width_of_truth(self, effect: float, half_width: float, n: int, *, margin: bool) -> float:
        """Return the half-width at the true noise, given the observed half-width of an inconclusive pair."""
        wide, narrow = _half_widths(self, n), _half_widths(self, n, equivalence=True)
        usual = math.sqrt(float((wide**2).mean()))
        noise = EstimatedNoise(wide / usual, np.full(NODES, 1 / NODES), wide, narrow, two_sided=True)
        return half_width * noise.share_of_truth(effect, half_width / usual, margin=margin)

    def _shifts(self, effect: float, half_width: float, n: int) -> Array:
        """Return the effect in units of the possible true sds of a difference, given the half-width at n."""
        return np.asarray(effect * _half_widths(self, n) / (half_width * math.sqrt(n)))


def _seen(shifts: Array, half_widths: Array) -> float:
    """Return the probability that an interval excludes zero, averaged over shifts of its center and its half-widths."""
    away = shifts[:, None]
    return float((special.ndtr(away - half_widths) + special.ndtr(-away - half_widths)).mean())


@lru_cache(maxsize=256)
def _factor(plan: FamilyPlan, n: int) -> float | None:
    """Return the difference, in observed half-widths, that n new seeds detect with the wanted power."""
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
    """Return quantiles of an interval's half-width × √n, in standard deviations of a difference, for equal arms."""
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
    """Round large degrees of freedom down to a coarse grid: there Tukey's limit is slow and almost constant."""
    if freedom <= EXACT_FREEDOM:
        return freedom
    steps = math.floor(math.log(freedom / EXACT_FREEDOM) / math.log(1.2))
    return min(MOST_FREEDOM, int(EXACT_FREEDOM * 1.2**steps))


def _scales(freedom: int, levels: Array) -> Array:
    """Return quantiles of an estimated standard deviation whose true value is 1."""
    return np.asarray(np.sqrt(2 * special.gammaincinv(freedom / 2, levels) / freedom))


@lru_cache(maxsize=64)
def _simulated_spreads(arms: int, pairs: tuple[IndexPair, ...], n: int) -> tuple[Array, Array]:
    """Simulate `largest_spreads` for equal arms, as standard deviations, where that of a difference is 1."""
    draws = int(np.clip(2_000_000 // arms**2, LEAST_DRAWS, MOST_DRAWS))
    scatter = _scatter(np.random.default_rng([n, arms, len(pairs)]), draws, arms, n - 1) / 2
    spread = np.einsum("dii->di", scatter)
    own = np.stack([spread[:, i] + spread[:, j] - 2 * scatter[:, i, j] for i, j in pairs], axis=-1)
    residual = (spread.sum(axis=-1) - scatter.sum(axis=(-2, -1)) / arms) / (arms - 1)
    largest, least = largest_spreads(own, residual, pairs)
    return np.sqrt(largest).ravel(), np.sqrt(least).ravel()


def _scatter(rng: np.random.Generator, draws: int, arms: int, freedom: int) -> Array:
    """Draw estimated covariance matrices of `arms` independent arms with these degrees of freedom."""
    if freedom <= max(arms, 32):
        runs = rng.standard_normal((draws, freedom, arms))
        return np.asarray(np.swapaxes(runs, -1, -2) @ runs / freedom)
    root = np.tril(rng.standard_normal((draws, arms, arms)), -1)  # Bartlett's decomposition: avoids drawing runs
    places = np.arange(arms)
    root[:, places, places] = np.sqrt(rng.chisquare(freedom - places, (draws, arms)))
    return np.asarray(root @ np.swapaxes(root, -1, -2) / freedom)


def plan_pairs(pairs: Sequence[tuple[str, str]]) -> tuple[IndexPair, ...]:
    """Number the arms of the pairs, those in most pairs first, so that a plan does not depend on their names."""
    busy = Counter(name for pair in pairs for name in pair)
    place = {name: index for index, name in enumerate(sorted(busy, key=lambda name: (-busy[name], name)))}
    return tuple(sorted((min(pair), max(pair)) for pair in ((place[a], place[b]) for a, b in pairs)))
