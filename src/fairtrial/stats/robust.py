"""Sensitivity analysis: two robust estimates next to the mean, to show whether a verdict depends on a few runs.

The Hodges–Lehmann shift is the median of all pairwise means (or of all differences between runs of two arms). The
trimmed difference drops the lowest and highest fifth of the runs and uses Yuen's standard error. Neither replaces the
main result, because a mean over seeds includes the bad ones on purpose. They only show when it depends on a few runs.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from fairtrial.core.findings import Estimate, Reason, RobustEstimates, Sensitivity
from fairtrial.stats.inference import Inference
from fairtrial.stats.permutation import infer_shift
from fairtrial.stats.samples import DUST, Arms, Array, canonical, is_still
from fairtrial.stats.student import from_t, infer_t

FEWEST = 5
MOST_SHIFTED = 300
"""The largest number of runs per arm for which all pairwise means are computed."""
TRIMMED_PARTS = 5
"""One of this many parts is trimmed on each side: 20 %."""
CLEARLY = 3.0
"""A p-value contradicts a significant result only if it exceeds α by this factor.

A slightly larger p-value can be due to the lower power of the robust method: with normal noise and five seeds, one
comparison in three would be flagged falsely.
"""


def sensitivity(control: Array, candidate: Array, *, paired: bool, alpha: float, side: str) -> Sensitivity:
    """Return a lazily computed sensitivity analysis of candidate − control; `side` refers to that difference."""
    return Sensitivity(partial(robust_estimates, control, candidate, paired=paired, alpha=alpha, side=side))


def robust_estimates(control: Array, candidate: Array, *, paired: bool, alpha: float, side: str) -> RobustEstimates:
    """Return the Hodges–Lehmann and trimmed differences of two finite samples, and whether they contradict the mean."""
    if min(len(control), len(candidate)) < FEWEST:
        return RobustEstimates(None, None, reason=f"fewer than {FEWEST} runs per arm")
    scale = max(float(np.abs(control).max()), float(np.abs(candidate).max()))
    if all(is_still(sample, scale) for sample in ([candidate - control] if paired else [control, candidate])):
        return RobustEstimates(None, None, reason=Reason.NO_VARIATION.value)
    arms = canonical(control, candidate, paired=paired)
    trimmed = infer_trimmed(arms)
    shift = infer_shift(arms) if max(arms.runs) <= MOST_SHIFTED else None
    mean = infer_t(arms)
    contradictions = {_contradiction(mean, each, alpha, side, arms) for each in (shift, trimmed) if each is not None}
    return RobustEstimates(
        hodges_lehmann=_skipped(arms, alpha) if shift is None else _estimate(shift, arms, alpha, side),
        trimmed=_still(arms, alpha) if trimmed is None else _estimate(trimmed, arms, alpha, side),
        disagrees=next((way for way in ("sign", "significance") if way in contradictions), None),
    )


def infer_trimmed(arms: Arms) -> Inference | None:
    """Infer the difference of 20 % trimmed means by Yuen's test; for pairs, the trimmed mean of the differences.

    Return None if the values do not vary after trimming.
    """
    samples = [arms.differences] if arms.paired else [arms.first, arms.second]
    parts = [_yuen_parts(np.sort(sample)) for sample in samples]
    variance = sum(part[1] for part in parts)
    scale = max(float(np.abs(sample).max()) for sample in (arms.first, arms.second))
    if math.sqrt(variance) <= DUST * scale:
        return None
    freedom = variance**2 / sum(part[1] ** 2 / (part[2] - 1) for part in parts)
    value = parts[0][0] if arms.paired else parts[1][0] - parts[0][0]
    return from_t("20 % trimmed, Yuen", value, math.sqrt(variance), freedom)


def _yuen_parts(ordered: Array) -> tuple[float, float, int]:
    """Return the trimmed mean, its squared standard error, and the number of values that remain."""
    n = len(ordered)
    cut = n // TRIMMED_PARTS
    left = n - 2 * cut
    winsorized = np.clip(ordered, ordered[cut], ordered[n - cut - 1])
    error = (n - 1) * float(winsorized.var(ddof=1)) / (left * (left - 1))
    return float(ordered[cut : n - cut].mean()), error, left


def _contradiction(mean: Inference, other: Inference, alpha: float, side: str, arms: Arms) -> str | None:
    own = {"greater": "less", "less": "greater"}.get(side, side) if arms.swapped else side
    p_mean, p_other = mean.p_value(own), other.p_value(own)
    if mean.value * other.value < 0 and min(p_mean, p_other) <= alpha:
        return "sign"
    low, high = sorted((p_mean, p_other))
    return "significance" if low <= alpha and high > CLEARLY * alpha else None


def _estimate(inference: Inference, arms: Arms, alpha: float, side: str) -> Estimate:
    if arms.symmetric:
        inference = inference.symmetric()
    elif arms.swapped:
        inference = inference.negated()
    return inference.estimate(alpha, side, arms.n)


def _skipped(arms: Arms, alpha: float) -> Estimate:
    reason = f"not computed for more than {MOST_SHIFTED} runs per arm"
    return Estimate(None, None, None, 1 - alpha, "Hodges–Lehmann", arms.n, reason=reason)


def _still(arms: Arms, alpha: float) -> Estimate:
    return Estimate(None, None, None, 1 - alpha, "20 % trimmed, Yuen", arms.n, reason=Reason.NO_VARIATION.value)
