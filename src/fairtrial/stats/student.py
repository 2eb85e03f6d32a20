"""Student's t for paired differences and Welch's t for independent arms: the default, calibrated with few seeds."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from scipy import special

from fairtrial.stats.inference import Inference, Method
from fairtrial.stats.samples import Arms, Array


def paired_parts(differences: Array) -> tuple[Array, Array, int]:
    """Return mean, standard error and degrees of freedom along the last axis, for one or many (simulated) studies."""
    n = differences.shape[-1]
    return differences.mean(axis=-1), differences.std(axis=-1, ddof=1) / np.sqrt(n), n - 1


def welch_parts(first: Array, second: Array) -> tuple[Array, Array, Array]:
    """Return the same for second − first of independent arms whose variances may differ."""
    shares = [sample.var(axis=-1, ddof=1) / sample.shape[-1] for sample in (first, second)]
    total = shares[0] + shares[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = total**2 / sum(
            s**2 / (sample.shape[-1] - 1) for s, sample in zip(shares, (first, second), strict=True)
        )
    return second.mean(axis=-1) - first.mean(axis=-1), np.sqrt(total), freedom


def infer_t(arms: Arms) -> Inference:
    """Infer by the paired t test, or by Welch's for unpaired arms."""
    if arms.paired:
        mean, error, freedom = paired_parts(arms.differences)
        return from_t("paired t", float(mean), float(error), freedom)
    mean, error, own = welch_parts(arms.first, arms.second)
    return from_t("Welch t", float(mean), float(error), float(own))


def t_quantile(share: float, freedom: float) -> float:
    return float(special.stdtrit(freedom, share))


def from_t(method: str, mean: float, error: float, freedom: float) -> Inference:
    def reach(tail: float) -> float:
        return float(-special.stdtrit(freedom, tail)) * error

    statistic = mean / error
    less = float(special.stdtr(freedom, statistic))
    greater = float(special.stdtr(freedom, -statistic))
    return Inference(
        method=method,
        value=mean,
        lower=lambda tail: mean - reach(tail),
        upper=lambda tail: mean + reach(tail),
        p_greater=greater,
        p_less=less,
        p_two_sided=2 * min(greater, less),
        detail={"statistic": statistic, "df": freedom, "standard_error": error},
    )


def noncentral_cdf(freedom: float, shift: float, statistic: float) -> float:
    """Return P(t ≤ statistic) of the noncentral t. SciPy's series sometimes returns NaN; then integrate numerically."""
    share = float(special.nctdtr(freedom, shift, statistic))
    return _integrated_cdf(freedom, shift, statistic) if math.isnan(share) else share


def _integrated_cdf(freedom: float, shift: float, statistic: float) -> float:
    """Average the normal probability over the distribution of the scale estimate."""
    from scipy import integrate

    half = freedom / 2
    log_norm = math.log(2) + half * math.log(half) - math.lgamma(half)

    def density(scale: float) -> float:
        weight = math.exp(log_norm + (freedom - 1) * math.log(scale) - half * scale**2)
        return weight * float(special.ndtr(statistic * scale - shift))

    edge = shift / statistic if statistic else 1.0  # where the normal probability goes from 0 to 1
    width = 10 / abs(statistic) if statistic else 1.0
    reach = 1 + 40 / math.sqrt(freedom)
    places = sorted({0.0, reach, *(p for p in (edge - width, edge, edge + width, 1.0) if 0 < p < reach)})
    parts = [float(integrate.quad(density, a, b, epsabs=1e-13, limit=200)[0]) for a, b in pairwise(places)]
    return min(1.0, max(0.0, sum(parts)))


T = Method(lambda arms, _resamples, _generator: infer_t(arms))
