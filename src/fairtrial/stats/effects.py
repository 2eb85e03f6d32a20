"""Effect sizes: standardized differences, the probability of superiority, and the correlation of pairs."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import special

from fairtrial.core.findings import Estimate, Reason
from fairtrial.stats.power import chi2_quantile
from fairtrial.stats.samples import Array
from fairtrial.stats.student import noncentral_cdf

FAR = 1e4
"""A t statistic beyond which only the noise of the scale matters for its noncentrality limits (relative error 2e-7)."""


def hedges_g(control: Array, candidate: Array, *, paired: bool, alpha: float) -> Estimate:
    """Return the difference in units of the average standard deviation of the arms, corrected for small samples."""
    n, m = len(control), len(candidate)
    scale = (control.std(ddof=1) + candidate.std(ddof=1)) / 2
    if scale == 0:
        return Estimate(None, None, None, 1 - alpha, "Hedges g", n + m, reason=Reason.NO_VARIATION.value)
    value = float((candidate.mean() - control.mean()) / scale)
    if not paired:
        return unpaired_g(value, (n, m), alpha)
    spread = float((candidate - control).std(ddof=1))
    to_effect = spread / (math.sqrt(n) * scale)
    low, high = noncentrality_limits(_one_sample_t(candidate - control), n - 1, alpha)
    # Only the point estimate is biased; the limits are for the true effect and need no correction.
    limits = float(low * to_effect), float(high * to_effect)
    return Estimate(value * _small_sample(n + m - 2), limits[0], limits[1], 1 - alpha, "Hedges g", n)


def unpaired_g(value: float, runs: tuple[int, int], alpha: float) -> Estimate:
    """Return Hedges' g of independent arms from the standardized difference and the numbers of runs alone."""
    n, m = runs
    to_effect = math.sqrt(1 / n + 1 / m)
    low, high = noncentrality_limits(value / to_effect, n + m - 2, alpha)
    limits = float(low * to_effect), float(high * to_effect)
    return Estimate(value * _small_sample(n + m - 2), limits[0], limits[1], 1 - alpha, "Hedges g", n + m)


def d_z(differences: Array, alpha: float) -> Estimate:
    """Return the mean difference in units of the standard deviation of the differences."""
    n = len(differences)
    statistic = _one_sample_t(differences)
    low, high = noncentrality_limits(statistic, n - 1, alpha)
    root = math.sqrt(n)
    return Estimate(statistic / root, low / root, high / root, 1 - alpha, "d_z", n)


def _one_sample_t(differences: Array) -> float:
    spread = float(differences.std(ddof=1))
    mean = float(differences.mean())
    return mean / spread * math.sqrt(len(differences)) if spread else math.copysign(math.inf, mean)


def _small_sample(freedom: int) -> float:
    """Return Hedges' exact bias correction for a standardized difference."""
    return (
        math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom - 1) / 2) - math.log(freedom / 2) / 2)
        if freedom > 1
        else 0.0
    )


def noncentrality_limits(statistic: float, freedom: float, alpha: float) -> tuple[float, float]:
    """Return confidence limits for the noncentrality of an observed t statistic."""
    if math.isinf(statistic):
        return (-math.inf, math.inf)
    if abs(statistic) > FAR:  # the exact limits need slow integrals and differ by 2e-7
        low, high = (
            abs(statistic) * math.sqrt(chi2_quantile(q, freedom) / freedom) for q in (alpha / 2, 1 - alpha / 2)
        )
        return (low, high) if statistic > 0 else (-high, -low)
    return (
        _noncentrality(statistic, freedom, 1 - alpha / 2),
        _noncentrality(statistic, freedom, alpha / 2),
    )


def _noncentrality(statistic: float, freedom: float, share: float) -> float:
    def gap(noncentrality: float) -> float:
        return noncentral_cdf(freedom, noncentrality, statistic) - share

    return _root(gap, statistic, 1 + abs(statistic) / 2)


def _root(gap: Callable[[float], float], start: float, width: float) -> float:
    """Return the root of a decreasing function: widen a bracket around the start until the sign changes inside it."""
    low, high = start - width, start + width
    for _ in range(60):
        if gap(low) > 0 and gap(high) < 0:
            return _brentq(gap, low, high)
        low, high = low - width * (gap(low) <= 0), high + width * (gap(high) >= 0)
        width *= 1.5
    return math.nan


def paired_superiority(gains: Array, alpha: float) -> Estimate:
    """Return the share of pairs that the candidate wins (a tie counts half), with Clopper–Pearson limits."""
    n = len(gains)
    wins = float((gains > 0).sum() + (gains == 0).sum() / 2)
    low = float(special.betaincinv(wins, n - wins + 1, alpha / 2)) if wins > 0 else 0.0
    high = float(special.betaincinv(wins + 1, n - wins, 1 - alpha / 2)) if wins < n else 1.0
    return Estimate(wins / n, low, high, 1 - alpha, "Clopper–Pearson", n)


def unpaired_superiority(worse: Array, better: Array, alpha: float) -> Estimate:
    """Return P(a run of the second arm beats one of the first), ties counting half, with Newcombe's score limits."""
    n, m = len(worse), len(better)
    wins, ties = 0, 0
    block = max(1, 4_000_000 // max(1, n))  # in blocks, because n × m comparisons may not fit in memory
    for start in range(0, m, block):
        gaps = np.subtract.outer(better[start : start + block], worse)
        wins, ties = wins + int((gaps > 0).sum()), ties + int((gaps == 0).sum())
    value = float((wins + ties / 2) / (n * m))
    z = float(special.ndtri(1 - alpha / 2))
    limits = [_newcombe(value, n, m, z * sign) for sign in (-1, 1)]
    return Estimate(value, limits[0], limits[1], 1 - alpha, "Newcombe", n + m)


def _newcombe(value: float, n: int, m: int, z: float) -> float:
    """Return the probability p for which the observed share lies z standard errors (computed at p) from p."""
    if (value == 0 and z < 0) or (value == 1 and z > 0):
        return value
    runs = (n + m) / 2 - 1

    def gap(p: float) -> float:
        variance = p * (1 - p) / (n * m) * (1 + runs * (1 - p) / (2 - p) + runs * p / (1 + p))
        return value - p + z * math.sqrt(variance)

    inside = min(max(value, 1e-9), 1 - 1e-9)  # the variance is 0 at 0 and 1: a root, but not the limit
    return _brentq(gap, *((0.0, inside) if z < 0 else (inside, 1.0)))


def correlation(first: Array, second: Array, alpha: float) -> Estimate:
    """Return the correlation between the arms over seeds; Fisher's interval needs at least four pairs."""
    n = len(first)
    if n < 3 or first.std() == 0 or second.std() == 0:
        reason = Reason.TOO_FEW if n < 3 else Reason.NO_VARIATION
        return Estimate(None, None, None, 1 - alpha, "Pearson", n, reason=reason.value)
    r = float(np.clip(np.corrcoef(first, second)[0, 1], -1, 1))
    if n < 4 or abs(r) > 1 - 1e-12:
        return Estimate(r, None, None, 1 - alpha, "Pearson", n, reason=Reason.TOO_FEW.value)
    reach = float(special.ndtri(1 - alpha / 2)) / math.sqrt(n - 3)
    low, high = math.tanh(math.atanh(r) - reach), math.tanh(math.atanh(r) + reach)
    return Estimate(r, low, high, 1 - alpha, "Pearson, Fisher's interval", n)


def _brentq(function: Callable[[float], float], low: float, high: float) -> float:
    from scipy import optimize  # takes half a second to import, and only effect sizes need it

    return float(optimize.brentq(function, low, high, xtol=1e-12))
