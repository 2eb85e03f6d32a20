"""Bootstrap of the mean difference: BCa, percentile and studentized.

For the mean, BCa needs no jackknife, because the influence values are the deviations from the mean. On the same
resamples, the BCa and percentile limits equal those of `scipy.stats.bootstrap`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from scipy import special

from fairtrial.stats.inference import Inference, Method
from fairtrial.stats.samples import Arms, Array
from fairtrial.stats.student import paired_parts, welch_parts

BLOCK = 1 << 21
"""The maximum number of values drawn at once, which bounds memory for any number of runs and resamples."""


def resamples(sample: Array, count: int, rng: np.random.Generator) -> Iterator[Array]:
    """Yield blocks of resampled rows, `count` rows in total."""
    rows = max(1, BLOCK // len(sample))
    for start in range(0, count, rows):
        yield sample[rng.integers(0, len(sample), (min(rows, count - start), len(sample)))]


def resampled_means(sample: Array, count: int, rng: np.random.Generator) -> Array:
    return np.concatenate([rows.mean(axis=1) for rows in resamples(sample, count, rng)])


def resampled_differences(arms: Arms, count: int, rng: np.random.Generator) -> Array:
    """Return resampled mean differences. Unpaired arms are resampled independently."""
    if arms.paired:
        return resampled_means(arms.differences, count, rng)
    first = resampled_means(arms.first, count, rng)
    return resampled_means(arms.second, count, rng) - first


def infer_percentile(arms: Arms, count: int, rng: np.random.Generator) -> Inference:
    return _from_draws("percentile bootstrap", arms, count, rng, bias=0.0, acceleration=0.0)


def infer_bca(arms: Arms, count: int, rng: np.random.Generator) -> Inference:
    """Infer by the bias-corrected and accelerated (BCa) bootstrap."""
    return _from_draws("BCa bootstrap", arms, count, rng, bias=None, acceleration=_acceleration(arms))


def _from_draws(
    method: str, arms: Arms, count: int, rng: np.random.Generator, *, bias: float | None, acceleration: float
) -> Inference:
    value = float(arms.differences.mean()) if arms.paired else float(arms.second.mean() - arms.first.mean())
    draws = np.sort(resampled_differences(arms, count, rng))
    if bias is None:
        bias = float(special.ndtri(_share_below(draws, value)))
    limit = partial(_adjusted_quantile, draws, bias, acceleration)
    below = _p_of_zero(_share_below(draws, 0.0), bias, acceleration, count)
    return Inference(
        method,
        value,
        lower=limit,
        upper=lambda tail: limit(1 - tail),
        p_greater=below,
        p_less=1 - below,
        p_two_sided=2 * min(below, 1 - below),
        detail={"bias": bias, "acceleration": acceleration, "resamples": count},
    )


def _acceleration(arms: Arms) -> float:
    samples = [arms.differences] if arms.paired else [-arms.first, arms.second]
    influence = [sample - sample.mean() for sample in samples]
    cubes = sum(float((u**3).sum()) / len(u) ** 3 for u in influence)
    squares = sum(float((u**2).sum()) / len(u) ** 2 for u in influence)
    return float(cubes / squares**1.5 / 6)


def _share_below(ordered: Array, value: float) -> float:
    """Return the share of draws below a value; draws equal to it count half."""
    left, right = np.searchsorted(ordered, value, "left"), np.searchsorted(ordered, value, "right")
    return float(left + right) / (2 * len(ordered))


def _adjusted_quantile(ordered: Array, bias: float, acceleration: float, q: float) -> float:
    """Return the BCa quantile of sorted draws for a nominal q: the q quantile if bias and acceleration are 0."""
    z = bias + float(special.ndtri(q))
    share = float(special.ndtr(bias + z / (1 - acceleration * z)))
    return _quantile(ordered, share)


def _quantile(ordered: Array, share: float) -> float:
    if math.isnan(share):  # every draw lies on one side of the value, so the limit is undefined
        return math.nan
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    weight = place - below
    low, high = float(ordered[below]), float(ordered[above])
    return low + (high - low) * weight if weight < 0.5 else high - (high - low) * (1 - weight)


def _p_of_zero(share: float, bias: float, acceleration: float, count: int) -> float:
    """Return the nominal q whose limit is zero: the share of draws below zero after the BCa correction."""
    kept = min(max(share, 0.5 / count), 1 - 0.5 / count)
    w = float(special.ndtri(kept)) - bias
    return float(special.ndtr(w / (1 + acceleration * w) - bias))


def infer_studentized(arms: Arms, count: int, rng: np.random.Generator) -> Inference:
    """Infer by the bootstrap-t.

    A resample without spread has an infinite t statistic, so with very few runs the limits can be infinite.
    """
    value, error, _ = paired_parts(arms.differences) if arms.paired else welch_parts(arms.first, arms.second)
    means, errors = _resampled_parts(arms, count, rng)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.nan_to_num((means - value) / errors, nan=0.0, posinf=math.inf, neginf=-math.inf)
    ordered = np.sort(ratios)
    mean, scale = float(value), float(error)
    share = _share_below(ordered, mean / scale)
    less, greater = _kept(share, count), _kept(1 - share, count)
    return Inference(
        "studentized bootstrap",
        mean,
        lower=lambda tail: mean - _outer(ordered, 1 - tail) * scale,
        upper=lambda tail: mean - _outer(ordered, tail) * scale,
        p_greater=greater,
        p_less=less,
        p_two_sided=min(1.0, 2 * min(less, greater)),
        detail={"resamples": count},
    ).agreeing()


def _kept(share: float, count: int) -> float:
    return max(share, 0.5 / count)


def _outer(ordered: Array, share: float) -> float:
    """Return an order statistic without interpolation, because a neighboring value can be infinite."""
    rank = math.ceil(share * len(ordered)) - 1 if share > 0.5 else math.floor(share * len(ordered))
    return float(ordered[min(max(rank, 0), len(ordered) - 1)])


def _resampled_parts(arms: Arms, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    parts: list[Callable[[], Iterator[tuple[Array, Array]]]] = [
        partial(_mean_and_share, sample, count, rng)
        for sample in ([arms.differences] if arms.paired else [arms.first, arms.second])
    ]
    means, shares = zip(*(map(np.concatenate, zip(*part(), strict=True)) for part in parts), strict=True)
    return (means[0] if arms.paired else means[1] - means[0]), np.sqrt(sum(shares))


def _mean_and_share(sample: Array, count: int, rng: np.random.Generator) -> Iterator[tuple[Array, Array]]:
    for rows in resamples(sample, count, rng):
        yield rows.mean(axis=1), rows.var(axis=1, ddof=1) / len(sample)


BCA, PERCENTILE, STUDENTIZED = Method(infer_bca), Method(infer_percentile), Method(infer_studentized)
