"""The studentized range distribution: the distance between the extreme means of equal arms.

SciPy's adaptive integration is used unless it warns that it did not converge. In that case, the same integral is
computed by a fixed Gauss–Legendre rule, so that callers see neither an inaccurate value nor a warning.
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
"""The upper end of the search for a quantile, in standard errors of a mean."""


@lru_cache(maxsize=256)
def range_quantile(level: float, arms: int, freedom: int) -> float:
    """Return the `level` quantile of the range of equal arms, in standard errors of a mean."""
    from scipy import stats

    return _checked(
        lambda: float(stats.studentized_range.ppf(level, arms, freedom)),
        lambda: _quantile(level, arms, freedom),
    )


def range_p(distance: float, arms: int, freedom: int) -> float:
    """Return the probability that the range of equal arms is at least `distance` standard errors of a mean."""
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
    """Return P(range ≤ distance · s) of normal values, averaged over the distribution of the estimated sd s."""
    width = 1 / math.sqrt(2 * freedom)
    ends = np.unique(np.clip(1 + width * np.arange(-12.0, 40.5), 0.0, None))
    scale, weights = _nodes(ends)
    log_norm = math.log(2) + freedom / 2 * math.log(freedom / 2) - math.lgamma(freedom / 2)
    density = np.exp(log_norm + (freedom - 1) * np.log(scale) - freedom / 2 * scale**2)
    total = float((weights * density * _normal_range(distance * scale, arms)).sum())
    return min(1.0, max(0.0, total))


def _normal_range(distance: Array, arms: int) -> Array:
    """Return P(range ≤ distance) of `arms` standard normal values, integrating over the lowest value z."""
    z, weights = _nodes(np.arange(-9.0, 9.5, 0.5))
    within = special.ndtr(z[None, :] + distance[:, None]) - special.ndtr(z)[None, :]
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return np.asarray(arms * (weights * density * within ** (arms - 1)).sum(1))


def _nodes(ends: Array) -> tuple[Array, Array]:
    """Return nodes and weights of a composite Gauss–Legendre rule on intervals with these ends."""
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
