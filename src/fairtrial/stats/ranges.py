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
NEAR = 1e-6
"""The relative error of a probability from which one Newton step reaches SciPy's quantile to ten digits."""


@lru_cache(maxsize=256)
def range_quantile(level: float, arms: int, freedom: int) -> float:
    """Return the `level` quantile of the range of equal arms, in standard errors of a mean."""
    from scipy import stats

    return _checked(
        lambda: (
            _corrected(_quantile(level, arms, freedom, coarse=True), level, arms, freedom)
            or float(stats.studentized_range.ppf(level, arms, freedom))
        ),
        lambda: _quantile(level, arms, freedom),
    )


def _corrected(near: float, level: float, arms: int, freedom: int) -> float | None:
    """Return SciPy's quantile by one Newton step from a value near it, or None if the value is not near.

    SciPy searches from far away and takes about 14 integrals, of some milliseconds each.
    """
    from scipy import stats

    error = float(stats.studentized_range.cdf(near, arms, freedom)) - level
    if not abs(error) < NEAR * min(level, 1 - level):
        return None
    step = 1e-4 * near
    below, above = (integrated_cdf(near + side, arms, freedom, coarse=True) for side in (-step, step))
    return near - error * 2 * step / (above - below)


@lru_cache(maxsize=1024)
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


def integrated_cdf(distance: float, arms: int, freedom: float, *, coarse: bool = False) -> float:
    """Return P(range ≤ distance · s) of normal values, averaged over the distribution of the estimated sd s.

    The coarse rule has a twentieth of the nodes and is good enough for a start of a search.
    """
    width = 1 / math.sqrt(2 * freedom)
    places = np.arange(-8.0, 13.0, 2.0) if coarse else np.arange(-12.0, 40.5)
    ends = np.unique(np.clip(1 + width * places, 0.0, None))
    scale, weights = _nodes(ends)
    log_norm = math.log(2) + freedom / 2 * math.log(freedom / 2) - math.lgamma(freedom / 2)
    density = np.exp(log_norm + (freedom - 1) * np.log(scale) - freedom / 2 * scale**2)
    total = float((weights * density * _normal_range(distance * scale, arms, 1.5 if coarse else 0.5)).sum())
    return min(1.0, max(0.0, total))


def _normal_range(distance: Array, arms: int, spacing: float) -> Array:
    """Return P(range ≤ distance) of `arms` standard normal values, integrating over the lowest value z."""
    z, weights = _nodes(np.arange(-9.0, 9.5, spacing))
    within = special.ndtr(z[None, :] + distance[:, None]) - special.ndtr(z)[None, :]
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return np.asarray(arms * (weights * density * within ** (arms - 1)).sum(1))


def _nodes(ends: Array) -> tuple[Array, Array]:
    """Return nodes and weights of a composite Gauss–Legendre rule on intervals with these ends."""
    half = np.diff(ends)[:, None] / 2
    return (ends[:-1, None] + half * (1 + _PLACES)).ravel(), (half * _WEIGHTS).ravel()


_PLACES, _WEIGHTS = np.polynomial.legendre.leggauss(12)


def _quantile(level: float, arms: int, freedom: int, *, coarse: bool = False) -> float:
    from scipy.optimize import brentq

    def excess(distance: float) -> float:
        return integrated_cdf(distance, arms, freedom, coarse=coarse) - level

    high = 1.0
    while excess(high) < 0 and high < LARGEST:
        high *= 2
    return high if excess(high) < 0 else float(brentq(excess, 0.0, high, xtol=1e-12, rtol=1e-12))
