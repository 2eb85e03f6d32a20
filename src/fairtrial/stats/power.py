"""How many seeds does a question need, and which differences does a design detect?

A standard deviation that was estimated from few runs is itself uncertain. Planned on as if it were the true one, a
study has less power on average than was asked for. Wherever `freedom` is given, the degrees of freedom of that
estimate, power is therefore averaged over the posterior predictive distribution of the noise: σ² = f·s²/χ²_f. For
normal noise the average over repeated pilots is then the power that was asked for.
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
"""Of the quadrature over the distribution of an estimated standard deviation."""
PAIRED, UNPAIRED = "paired", "unpaired"


@dataclass(frozen=True)
class Design:
    """What is asked of a test: pairing, error rates and sides."""

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
    """The chance to detect a standardized effect with n runs per arm: noncentral t.

    For the paired design the effect is in units of the differences' standard deviation, else of the arms'. With
    `freedom` that standard deviation is an estimate, and this is the mean power over what the true one may be.
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
    """The smallest n per arm that detects a standardized effect; None beyond a million."""
    if effect == 0:
        return None
    guess = 0 if freedom is None else _fewer(effect, design, freedom)
    return smallest(lambda n: power_of(effect, n, design, freedom) >= design.power, guess=guess)


def _fewer(effect: float, design: Design, freedom: float) -> int:
    """What a test that knew its own noise would need: a little less than the answer."""
    limit = float(-special.ndtri(design.tail))
    errors = _detectable_errors(design.power, design.side == "two-sided", limit, MOST_SEEDS, freedom)
    runs = ((errors or 0.0) / effect) ** 2 * (1 if design.paired else 2)
    return math.floor(min(runs, MOST_SEEDS))


def seeds_for_equivalence(margin: float, design: Design, freedom: float | None = None) -> int | None:
    """The smallest n per arm that finds two equal arms equivalent within ± a standardized margin."""

    def enough(n: int) -> bool:
        test, shift = design.freedom(n), design.noncentrality(margin, n)
        limit = float(-special.stdtrit(test, design.alpha))
        if freedom is not None:
            return _mean_equivalence(shift, limit, test, freedom) >= design.power
        return 1 - 2 * noncentral_cdf(test, shift, limit) >= design.power

    return smallest(enough)


def _mean_power(shift: float, limit: float, test: float, freedom: float, *, two_sided: bool) -> float:
    """P(Z + shift·W > limit·V), Z normal, with the scales W of the pilot's noise and V of the test's own."""
    noise, scale = _scales(freedom), _scales(test)
    moved, edge = shift * noise.values[:, None], limit * scale.values
    seen = special.ndtr(moved - edge)
    if two_sided:
        seen = seen + special.ndtr(-moved - edge)
    return min(1.0, float(noise.weights @ seen @ scale.weights))


def _mean_equivalence(shift: float, limit: float, test: float, freedom: float) -> float:
    """The same for both one-sided tests around a true difference of zero."""
    noise, scale = _scales(freedom), _scales(test)
    inside = 2 * special.ndtr(shift * noise.values[:, None] - limit * scale.values) - 1
    return float(noise.weights @ np.maximum(inside, 0.0) @ scale.weights)


@dataclass(frozen=True)
class _Scales:
    """Nodes and weights for the mean over s/σ, an estimated standard deviation relative to the true one."""

    values: Array
    weights: Array


@lru_cache(maxsize=4096)
def _scales(freedom: float) -> _Scales:
    """Gauss–Legendre over sqrt(χ²_f / f), whose density is smooth between its outermost quantiles."""
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
    """Noether's n per arm for which P(candidate > control) ≥ probability is seen by a rank-sum test."""
    distance = abs(probability - 0.5)
    if distance == 0:
        return None
    z = float(special.ndtri(1 - design.tail) + special.ndtri(design.power))
    return math.ceil((z / (math.sqrt(6) * distance)) ** 2 - 1e-9)


def smallest(enough: Callable[[int], bool], first: int = 2, most: int = MOST_SEEDS, guess: int = 0) -> int | None:
    """The smallest n from `first` on that is enough, given that more never harms. A guess just below it saves time."""
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
    """The smallest true difference that n runs per arm detect with the wanted power.

    With `freedom` the standard deviation is an estimate, and the difference is the one that is detected with this
    power on average over such estimates. It is larger, as a low estimate costs more than a high one gains.
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
    """The same from an estimated standard error, for any t-like test: paired, Welch's, a jackknife, a family's.

    `test` are the degrees of freedom that the test uses; `freedom` are those of the error, by default the same ones;
    `limit` is the test's own critical value in standard errors, by default Student's at the design's error rate.
    """
    if not (error > 0 and test > 0):
        return None
    edge = float(-special.stdtrit(test, design.tail)) if limit is None else limit
    sizes = _detectable_errors(design.power, design.side == "two-sided", edge, test, freedom or test)
    return None if sizes is None else sizes * error


@lru_cache(maxsize=4096)
def _detectable_errors(power: float, two_sided: bool, limit: float, test: float, freedom: float) -> float | None:
    """In standard errors as estimated: the same for every study of a design, so that it is computed once."""
    return _smallest_size(lambda size: _mean_power(size, limit, test, freedom, two_sided=two_sided), power, limit)


def _smallest_size(power_at: Callable[[float], float], power: float, start: float = 1.0) -> float | None:
    """The size at which a power that grows with it is reached; None beyond a million.

    False position on normal quantiles, where power is nearly linear in the size: a handful of evaluations.
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
        if gap > 0:  # an end that stays for a second time counts half, or it would never be left
            high, above, below, moved = size, gap, below / 2 if moved > 0 else below, 1
        else:
            low, below, above, moved = size, gap, above / 2 if moved < 0 else above, -1
    return size


def noise_of_test(design: Design, freedom: float) -> EstimatedNoise:
    """What a t test with these degrees of freedom may make of its noise."""
    scales = _scales(freedom)
    wide, narrow = (float(-special.stdtrit(freedom, tail)) * scales.values for tail in (design.tail, design.alpha))
    return EstimatedNoise(scales.values, scales.weights, wide, narrow, design.side == "two-sided")


def pooled_freedom(variances: Sequence[float], freedoms: Sequence[float]) -> float:
    """How well the mean of some variances is known, as degrees of freedom, whether or not the arms are equally noisy.

    Welch's estimate with its own correction for small samples, never above the sum: what Satterthwaite's simpler form
    makes of three runs per arm is so low on average that four points too much power would be planned.
    """
    total = sum(variances)
    if not total > 0:
        return float(sum(freedoms))
    shares = sum((variance / total) ** 2 / (known + 2) for variance, known in zip(variances, freedoms, strict=True))
    return min(float(sum(freedoms)), max(float(min(freedoms)), 1 / shares - 2))


def welch_error(variances: Sequence[float], counts: Sequence[int]) -> tuple[float, float]:
    """The standard error of a difference of two means, from the arms' variances and runs, with Welch's freedom."""
    shares = [variance / n for variance, n in zip(variances, counts, strict=True)]
    total = sum(shares)
    if not total > 0:
        return 0.0, float(sum(counts) - len(shares))
    return math.sqrt(total), 1 / sum((share / total) ** 2 / (n - 1) for share, n in zip(shares, counts, strict=True))


def sd_upper(sd: float, freedom: float, assurance: float) -> float:
    """The standard deviation that the true one does not exceed with this assurance."""
    return sd * math.sqrt(freedom / chi2_quantile(1 - assurance, freedom))


def sd_interval(sd: float, freedom: float, alpha: float) -> tuple[float, float]:
    """χ² limits of a standard deviation."""
    return tuple(sd * math.sqrt(freedom / chi2_quantile(q, freedom)) for q in (1 - alpha / 2, alpha / 2))  # type: ignore[return-value]


def chi2_quantile(q: float, freedom: float) -> float:
    return 2 * float(special.gammaincinv(freedom / 2, q))


def paired_sd(sd: float, correlation: float) -> float:
    """The standard deviation of differences between arms of equal spread."""
    return sd * math.sqrt(2 * (1 - correlation))
