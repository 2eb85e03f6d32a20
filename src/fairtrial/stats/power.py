"""Power analysis: how many seeds a comparison needs, and which differences a design detects.

A standard deviation estimated from few runs is itself uncertain. If it is treated as the true one, the study has less
power on average than planned. Therefore, if `freedom` (the degrees of freedom of that estimate) is given, power is
averaged over the posterior predictive distribution of the noise: σ² = f·s²/χ²_f. For normal noise, the average over
repeated pilots is then the planned power.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from fairtrial.stats.open_questions import EstimatedNoise
from fairtrial.stats.samples import Array
from fairtrial.stats.student import noncentral_cdf

MOST_SEEDS = 1_000_000
NODES = 40
"""Quadrature nodes over the distribution of an estimated standard deviation."""
PAIRED, UNPAIRED = "paired", "unpaired"


@dataclass(frozen=True)
class Design:
    """The design of a test: pairing, error rate, power and side."""

    paired: bool
    alpha: float = 0.05
    power: float = 0.8
    side: str = "two-sided"

    @property
    def name(self) -> str:
        return PAIRED if self.paired else UNPAIRED

    @property
    def tail(self) -> float:
        return self.alpha / 2 if self.side == "two-sided" else self.alpha

    def freedom(self, n: int) -> int:
        return n - 1 if self.paired else 2 * (n - 1)

    def noncentrality(self, effect: float, n: int) -> float:
        return effect * math.sqrt(n if self.paired else n / 2)


def power_of(effect: float, n: int, design: Design, freedom: float | None = None) -> float:
    """Return the probability of detecting a standardized effect with n runs per arm, by the noncentral t.

    The effect is in units of the standard deviation of the differences (paired) or of the arms (unpaired). With
    `freedom`, that standard deviation is an estimate, and the power is averaged over its possible true values.
    """
    test, shift = design.freedom(n), design.noncentrality(abs(effect), n)
    limit = float(-special.stdtrit(test, design.tail))
    if freedom is not None:
        return _mean_power(shift, limit, test, freedom, two_sided=design.side == "two-sided")
    seen = 1 - noncentral_cdf(test, shift, limit)
    if design.side == "two-sided":
        seen += noncentral_cdf(test, shift, -limit)
    return min(1.0, seen)


def seeds_for(effect: float, design: Design, freedom: float | None = None) -> int | None:
    """Return the smallest n per arm that detects a standardized effect; None beyond a million."""
    if effect == 0:
        return None
    guess = 0 if freedom is None else _fewer(effect, design, freedom)
    return smallest(lambda n: power_of(effect, n, design, freedom) >= design.power, guess=guess)


def _fewer(effect: float, design: Design, freedom: float) -> int:
    """Return a guess just below the answer: the n that a test with known noise would need."""
    limit = float(-special.ndtri(design.tail))
    errors = _detectable_errors(design.power, design.side == "two-sided", limit, MOST_SEEDS, freedom)
    runs = ((errors or 0.0) / effect) ** 2 * (1 if design.paired else 2)
    return math.floor(min(runs, MOST_SEEDS))


def seeds_for_equivalence(margin: float, design: Design, freedom: float | None = None) -> int | None:
    """Return the smallest n per arm that finds two equal arms equivalent within ± a standardized margin."""

    def enough(n: int) -> bool:
        test, shift = design.freedom(n), design.noncentrality(margin, n)
        limit = float(-special.stdtrit(test, design.alpha))
        if freedom is not None:
            return _mean_equivalence(shift, limit, test, freedom) >= design.power
        return 1 - 2 * noncentral_cdf(test, shift, limit) >= design.power

    return smallest(enough)


def _mean_power(shift: float, limit: float, test: float, freedom: float, *, two_sided: bool) -> float:
    """Return P(Z + shift·W > limit·V), with Z normal, W the scale of the pilot's noise and V that of the test's."""
    noise, scale = _scales(freedom), _scales(test)
    moved, edge = shift * noise.values[:, None], limit * scale.values
    seen = special.ndtr(moved - edge)
    if two_sided:
        seen = seen + special.ndtr(-moved - edge)
    return min(1.0, float(noise.weights @ seen @ scale.weights))


def _mean_equivalence(shift: float, limit: float, test: float, freedom: float) -> float:
    """Return the same for two one-sided tests with a true difference of zero."""
    noise, scale = _scales(freedom), _scales(test)
    inside = 2 * special.ndtr(shift * noise.values[:, None] - limit * scale.values) - 1
    return float(noise.weights @ np.maximum(inside, 0.0) @ scale.weights)


@dataclass(frozen=True)
class _Scales:
    """Quadrature nodes and weights for the mean over s/σ, the ratio of estimated to true standard deviation."""

    values: Array
    weights: Array


@lru_cache(maxsize=4096)
def _scales(freedom: float) -> _Scales:
    """Return a Gauss–Legendre rule over sqrt(χ²_f / f), whose density is smooth between its extreme quantiles."""
    points, weights = _legendre()
    low, high = (
        math.sqrt(2 * float(inverse(freedom / 2, 1e-13)) / freedom)
        for inverse in (special.gammaincinv, special.gammainccinv)
    )
    values = low + (high - low) * (points + 1) / 2
    logs = (freedom - 1) * np.log(values) - freedom * values**2 / 2
    density = np.exp(logs - logs.max()) * weights
    return _Scales(values, density / density.sum())


@lru_cache(maxsize=1)
def _legendre() -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(NODES)


def seeds_for_superiority(probability: float, design: Design) -> int | None:
    """Return Noether's n per arm for a rank-sum test to detect P(candidate > control) ≥ `probability`."""
    distance = abs(probability - 0.5)
    if distance == 0:
        return None
    z = float(special.ndtri(1 - design.tail) + special.ndtri(design.power))
    return math.ceil((z / (math.sqrt(6) * distance)) ** 2 - 1e-9)


def smallest(enough: Callable[[int], bool], first: int = 2, most: int = MOST_SEEDS, guess: int = 0) -> int | None:
    """Return the smallest n ≥ `first` that is enough; None beyond `most`.

    `enough` must be monotonic in n. A guess just below the answer saves time.
    """
    low = guess if guess >= first and not enough(guess) else first - 1
    step = 1
    while not enough(high := low + step):
        low, step = high, 2 * step
        if low > most:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def detectable(n: int, sd: float, design: Design, freedom: float | None = None) -> float | None:
    """Return the smallest true difference that n runs per arm detect with the wanted power.

    With `freedom`, the standard deviation is an estimate, and the power is the average over such estimates. The
    difference is then larger, because a low estimate loses more power than a high one gains.
    """
    if n < 2 or not sd > 0:
        return None
    if freedom is not None:
        return detectable_from(sd * math.sqrt((1 if design.paired else 2) / n), design.freedom(n), design, freedom)
    size = _smallest_size(lambda size: power_of(size, n, design), design.power)
    return None if size is None else size * sd


def detectable_from(
    error: float, test: float, design: Design, freedom: float | None = None, limit: float | None = None
) -> float | None:
    """Return the same from an estimated standard error, for any t-like test: paired, Welch, jackknife or family.

    `test` is the degrees of freedom of the test. `freedom` is that of the standard error, by default the same. `limit`
    is the critical value in standard errors, by default Student's at the design's error rate.
    """
    if not (error > 0 and test > 0):
        return None
    edge = float(-special.stdtrit(test, design.tail)) if limit is None else limit
    sizes = _detectable_errors(design.power, design.side == "two-sided", edge, test, freedom or test)
    return None if sizes is None else sizes * error


@lru_cache(maxsize=4096)
def _detectable_errors(power: float, two_sided: bool, limit: float, test: float, freedom: float) -> float | None:
    """Return the detectable difference in estimated standard errors. It depends only on the design, so it is cached."""
    return _smallest_size(lambda size: _mean_power(size, limit, test, freedom, two_sided=two_sided), power, limit)


def _smallest_size(power_at: Callable[[float], float], power: float, start: float = 1.0) -> float | None:
    """Return the effect size at which an increasing power function reaches `power`; None beyond a million.

    Uses false position on normal quantiles, where power is nearly linear in the size, so few evaluations are needed.
    """

    def missing(size: float) -> float:
        return float(special.ndtri(min(1 - 1e-15, power_at(size))) - special.ndtri(power))

    low, high = 0.0, start
    below, above = missing(low), missing(high)
    if below >= 0:
        return low
    while above < 0:
        low, high, below = high, high * 2, above
        if high > 1e6:
            return None
        above = missing(high)
    size, moved = high, 0
    while high - low > 1e-10 * high:
        size = (low * above - high * below) / (above - below)
        gap = missing(size)
        if abs(gap) < 1e-11:
            break
        if gap > 0:  # Illinois rule: halve the weight of an end that stays twice, so it cannot stall
            high, above, below, moved = size, gap, below / 2 if moved > 0 else below, 1
        else:
            low, below, above, moved = size, gap, above / 2 if moved < 0 else above, -1
    return size


def noise_of_test(design: Design, freedom: float) -> EstimatedNoise:
    """Return the distribution of the noise estimate of a t test with these degrees of freedom."""
    scales = _scales(freedom)
    wide, narrow = (float(-special.stdtrit(freedom, tail)) * scales.values for tail in (design.tail, design.alpha))
    return EstimatedNoise(scales.values, scales.weights, wide, narrow, design.side == "two-sided")


def pooled_freedom(variances: Sequence[float], freedoms: Sequence[float]) -> float:
    """Return the degrees of freedom of the mean of several estimated variances, which may differ in truth.

    Uses Welch's estimate with its small-sample correction, at most the sum of `freedoms`. Satterthwaite's simpler form
    is too low on average: with three runs per arm, the planned power would be four points too high.
    """
    total = sum(variances)
    if not total > 0:
        return float(sum(freedoms))
    shares = sum((variance / total) ** 2 / (known + 2) for variance, known in zip(variances, freedoms, strict=True))
    return min(float(sum(freedoms)), max(float(min(freedoms)), 1 / shares - 2))


def welch_error(variances: Sequence[float], counts: Sequence[int]) -> tuple[float, float]:
    """Return the standard error of a difference of two means and Welch's degrees of freedom."""
    shares = [variance / n for variance, n in zip(variances, counts, strict=True)]
    total = sum(shares)
    if not total > 0:
        return 0.0, float(sum(counts) - len(shares))
    return math.sqrt(total), 1 / sum((share / total) ** 2 / (n - 1) for share, n in zip(shares, counts, strict=True))


def sd_upper(sd: float, freedom: float, assurance: float) -> float:
    """Return an upper confidence limit for the standard deviation, at confidence `assurance`."""
    return sd * math.sqrt(freedom / chi2_quantile(1 - assurance, freedom))


def sd_interval(sd: float, freedom: float, alpha: float) -> tuple[float, float]:
    """Return the χ² confidence limits of a standard deviation."""
    return tuple(sd * math.sqrt(freedom / chi2_quantile(q, freedom)) for q in (1 - alpha / 2, alpha / 2))  # type: ignore[return-value]


def chi2_quantile(q: float, freedom: float) -> float:
    return 2 * float(special.gammaincinv(freedom / 2, q))


def paired_sd(sd: float, correlation: float) -> float:
    """Return the standard deviation of paired differences between arms with equal standard deviations."""
    return sd * math.sqrt(2 * (1 - correlation))
