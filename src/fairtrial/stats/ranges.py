"""The studentized range: how far apart the outermost of equal arms come to lie.

SciPy's adaptive integral is used as long as it is content. Where it is not, it warns and gives what it has; then the
same integral is taken by a fixed rule of Gauss and Legendre, so that nobody reads a doubtful figure or a warning.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy import special

from fairtrial.stats.samples import Array

LARGEST = 1e4
"""Beyond so many standard errors nothing is expected of equal arms."""


@lru_cache(maxsize=256)
def range_quantile(level: float, arms: int, freedom: int) -> float:
    """How far apart, in standard errors of a mean, equal arms come to lie at most, with a probability of `level`."""
    from scipy import stats

    return _checked(
        lambda: float(stats.studentized_range.ppf(level, arms, freedom)),
        lambda: _quantile(level, arms, freedom),
    )


def range_p(distance: float, arms: int, freedom: int) -> float:
    """How often the outermost of equal arms lie at least so many standard errors of a mean apart."""
    from scipy import stats

    return _checked(
        lambda: float(stats.studentized_range.sf(distance, arms, freedom)),
        lambda: 1 - integrated_cdf(distance, arms, freedom),
    )


def _checked(usual: Callable[[], float], instead: Callable[[], float]) -> float:
    from scipy.integrate import IntegrationWarning

    with warnings.catch_warnings():
        warnings.simplefilter("error", IntegrationWarning)
        try:
            value = usual()
        except IntegrationWarning:
            return instead()
    return value if math.isfinite(value) else instead()


def integrated_cdf(distance: float, arms: int, freedom: float) -> float:
    """P(range ≤ distance · s): the range of normal values, averaged over the distribution of the estimate s of sd."""
    width = 1 / math.sqrt(2 * freedom)
    ends = np.unique(np.clip(1 + width * np.arange(-12.0, 40.5), 0.0, None))
    scale, weights = _nodes(ends)
    log_norm = math.log(2) + freedom / 2 * math.log(freedom / 2) - math.lgamma(freedom / 2)
    density = np.exp(log_norm + (freedom - 1) * np.log(scale) - freedom / 2 * scale**2)
    total = float((weights * density * _normal_range(distance * scale, arms)).sum())
    return min(1.0, max(0.0, total))


def _normal_range(distance: Array, arms: int) -> Array:
    """P(range ≤ distance) of so many standard normal values: the lowest at z, the others within the distance above."""
    z, weights = _nodes(np.arange(-9.0, 9.5, 0.5))
    within = special.ndtr(z[None, :] + distance[:, None]) - special.ndtr(z)[None, :]
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return np.asarray(arms * (weights * density * within ** (arms - 1)).sum(1))


def _nodes(ends: Array) -> tuple[Array, Array]:
    """Places and weights of a rule on pieces with these ends."""
    half = np.diff(ends)[:, None] / 2
    return (ends[:-1, None] + half * (1 + _PLACES)).ravel(), (half * _WEIGHTS).ravel()


_PLACES, _WEIGHTS = np.polynomial.legendre.leggauss(12)


def _quantile(level: float, arms: int, freedom: int) -> float:
    low, high = 0.0, 1.0
    while integrated_cdf(high, arms, freedom) < level and high < LARGEST:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if integrated_cdf(middle, arms, freedom) < level else (low, middle)
    return high
