"""Noise estimates and simultaneous limits for differences between several arms.

All functions work along the last axes, for one study or for thousands of simulated ones, so that benchmarks and
verdicts use the same code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from fairtrial.stats.inference import Inference
from fairtrial.stats.ranges import range_p, range_quantile
from fairtrial.stats.samples import Array

IndexPair = tuple[int, int]
AUTO, MAX_SPREAD, TUKEY, HOLM, BH = "auto", "max-spread", "tukey", "holm", "bh"
ENOUGH_FOR_HOLM = 12
"""From this many seeds (11 degrees of freedom), each pair is tested on its own noise."""


def settled(adjustment: str, seeds: int) -> str:
    """Resolve `auto` for paired t with this many seeds. The choice never depends on the values."""
    if adjustment != AUTO:
        return adjustment
    return MAX_SPREAD if seeds < ENOUGH_FOR_HOLM else HOLM


def residual_variance(layout: Array) -> tuple[Array, int]:
    """Return the residual mean square of a two-way layout (…, arms, seeds), and its degrees of freedom."""
    arms, seeds = layout.shape[-2:]
    left = (
        layout
        - layout.mean(axis=-1, keepdims=True)
        - layout.mean(axis=-2, keepdims=True)
        + layout.mean(axis=(-2, -1), keepdims=True)
    )
    freedom = (arms - 1) * (seeds - 1)
    return np.asarray((left**2).sum(axis=(-2, -1)) / freedom), freedom


def incomplete_residual(layout: Array) -> tuple[float, int] | None:
    """Return the same for one layout with NaN cells, by least squares; None without residual degrees of freedom."""
    known = np.isfinite(layout)
    layout = layout[:, known.sum(axis=0) >= 2]  # a seed with only one arm has no differences
    known = np.isfinite(layout)
    arms, seeds = layout.shape
    if known.all() and arms > 1 and seeds > 1:
        variance, freedom = residual_variance(layout)
        return float(variance), freedom
    arm, seed = np.nonzero(known)
    design = np.zeros((len(arm), arms + seeds))
    design[np.arange(len(arm)), arm] = 1.0
    design[np.arange(len(arm)), arms + seed] = 1.0
    values = layout[known] - np.mean(layout[known]) if known.any() else layout[known]
    fit, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
    freedom = len(values) - int(rank)
    return (float(((values - design @ fit) ** 2).sum()) / freedom, freedom) if freedom > 0 else None


def pair_differences(layout: Array, pairs: Sequence[IndexPair]) -> tuple[Array, Array]:
    """Return mean and variance of second − first, each (…, pairs), for pairs of arms of a layout (…, arms, seeds)."""
    means = np.empty((*layout.shape[:-2], len(pairs)))
    variances = np.empty_like(means)
    for place, (first, second) in enumerate(pairs):
        difference = layout[..., second, :] - layout[..., first, :]
        means[..., place] = difference.mean(axis=-1)
        variances[..., place] = difference.var(axis=-1, ddof=1)
    return means, variances


def largest_spreads(
    own: Array, residual: Array, pairs: Sequence[IndexPair], weights: Array | None = None
) -> tuple[Array, Array]:
    """Return, for each pair, the variances of a difference to test with: the largest of three, and a lower bound.

    `own` is the variance of each pair's differences, (…, pairs); `residual` is `residual_variance` of the layout. The
    three variances are that of the layout, that pooled over all compared pairs, and the pair's own. In many pairs, a
    noisy arm can look quiet in one of them by chance, so a pair's own variance is averaged with the variance pooled
    over the pairs of its noisier arm. In comparisons with a control this has no effect on a candidate, which has only
    one pair.

    The second result, the larger of the pair's own variance and that of its noisier arm, may depend on the runs of a
    single arm. It is therefore used with a limit that has only the degrees of freedom of one pair.
    """
    weights = np.ones(len(pairs)) if weights is None else weights
    by_arm: dict[int, list[int]] = {}
    for place, pair in enumerate(pairs):
        for arm in pair:
            by_arm.setdefault(arm, []).append(place)
    pooled = {arm: _pooled(own[..., places], weights[places]) for arm, places in by_arm.items()}
    noisier = np.stack([np.maximum(pooled[first], pooled[second]) for first, second in pairs], axis=-1)
    layout = np.maximum(2 * residual, _pooled(own, weights))[..., None]
    return np.maximum(layout, (own + noisier) / 2), np.maximum(own, noisier)


def _pooled(variances: Array, weights: Array) -> Array:
    return np.asarray((variances * weights).sum(axis=-1) / weights.sum())


def student_limit(tail: float, freedom: float) -> float:
    return float(-special.stdtrit(freedom, tail))


def shared_tail(tail: float, pairs: int) -> float:
    """Split the tail in two: the noise of one arm can make one pair err on the upper side and another on the lower."""
    return tail / min(pairs, 2)


@dataclass(frozen=True)
class FamilyLimit:
    """A simultaneous limit, in standard errors of a difference, for all pairs that are compared.

    Tukey's limit covers all pairs of the layout, Bonferroni's only the pairs that are compared. `narrower` uses the
    smaller of the two, which depends on the numbers of arms and pairs and never on the data.
    """

    arms: int
    pairs: int
    freedom: int
    narrower: bool

    def reach(self, tail: float) -> float:
        """Return the limit at which each side has an error rate of at most `tail` over the whole family."""
        return _reach(self, tail)

    def bonferroni(self, tail: float) -> float:
        return student_limit(tail / self.pairs, self.freedom)

    def p(self, distance: float) -> float:
        """Return the two-sided p-value of a difference of `distance` standard errors."""
        tukey = range_p(math.sqrt(2) * distance, self.arms, self.freedom)
        single = 2 * float(special.stdtr(self.freedom, -distance))
        return min(tukey, 1.0, self.pairs * single) if self.narrower else tukey


@lru_cache(maxsize=1024)
def _reach(limit: FamilyLimit, tail: float) -> float:
    """Cached, because it is the same for every pair of a family and slow: Tukey's distribution is a double integral."""
    if limit.narrower and 2 * limit.pairs < limit.arms * (limit.arms - 1):  # for all pairs, Tukey's is narrower
        bonferroni = limit.bonferroni(tail)
        if range_p(math.sqrt(2) * bonferroni, limit.arms, limit.freedom) >= 2 * tail:
            return bonferroni
    return range_quantile(1 - 2 * tail, limit.arms, limit.freedom) / math.sqrt(2)


@dataclass(frozen=True)
class JointNoise:
    """The noise of one difference of a family: `limit` applies to the variance `largest`, over `n` pairs of runs.

    If `least` is not None, Student's limit with n − 1 degrees of freedom must also hold for that variance.
    """

    limit: FamilyLimit
    n: int
    largest: float
    least: float | None

    @property
    def error(self) -> float:
        return math.sqrt(self.largest / self.n)

    @property
    def _least_error(self) -> float:
        return math.sqrt((self.least or 0.0) / self.n)

    def reach(self, tail: float) -> float:
        """Return the half-width of a simultaneous interval with error rate `tail` on each side."""
        return max(self.limit.reach(tail) * self.error, student_limit(tail, self.n - 1) * self._least_error)

    def equivalence_reach(self, tail: float) -> float:
        """Return the half-width for two one-sided tests, with Bonferroni's share of the tail on each side."""
        own = student_limit(shared_tail(tail, self.limit.pairs), self.n - 1)
        return max(self.limit.bonferroni(tail) * self.error, own * self._least_error)

    def p(self, value: float) -> float:
        joint = self.limit.p(abs(value) / self.error)
        if not self.least:
            return joint
        return max(joint, 2 * float(special.stdtr(self.n - 1, -abs(value) / self._least_error)))

    def infer(self, value: float, method: str) -> Inference:
        p = self.p(value)
        sided = (p / 2, 1 - p / 2) if value > 0 else (1 - p / 2, p / 2)
        return Inference(
            method,
            value,
            lower=lambda tail: value - self.reach(tail),
            upper=lambda tail: value + self.reach(tail),
            p_greater=sided[0],
            p_less=sided[1],
            p_two_sided=p,
            detail={"df": self.limit.freedom, "standard_error": self.error},
        )
