"""Looks at the assumptions. What is found is shown; it never switches or hides a test."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import special

from fairtrial.core.cautions import ONE_ARM
from fairtrial.core.findings import FilledCaution
from fairtrial.stats.samples import Array

ENOUGH_FOR_ONE_ARM = 92
"""From this many runs on, 95 % t intervals for one arm cover at least 93 % on log-normal noise."""
SMALL_ARM = 6
UNEQUAL_SMALL, UNEQUAL_LARGE = 1.6, 2.5
"""Ratios of the arms' sizes beyond which Welch errs in more than 6 % on some shape, for small and for larger arms."""


def diagnose(control: Array, candidate: Array, *, paired: bool) -> dict[str, Any]:
    """Shapiro–Wilk on what the test assumes to be normal, Levene across the arms, bimodality per arm."""
    judged = {"differences": candidate - control} if paired else {"control": control, "candidate": candidate}
    control, candidate = np.sort(control), np.sort(candidate)
    return {
        "shapiro_wilk_p": {name: shapiro_wilk(np.sort(sample)) for name, sample in judged.items()},
        "levene_p": levene(control, candidate),
        "bimodality": {"control": bimodality(control), "candidate": bimodality(candidate)},
    }


def shapiro_wilk(sample: Array) -> float | None:
    from scipy import stats

    if len(sample) < 3 or np.ptp(sample) == 0:
        return None
    return float(stats.shapiro((sample - sample.mean()) / sample.std()).pvalue)  # it dislikes tiny units


def levene(first: Array, second: Array) -> float | None:
    """Brown and Forsythe's form, around medians: p-value of equal spread; None where there is none at all."""
    n, m = len(first), len(second)
    if min(n, m) < 3:
        return None
    deviations = [np.abs(sample - np.median(sample)) for sample in (first, second)]
    means = [float(d.mean()) for d in deviations]
    grand = (n * means[0] + m * means[1]) / (n + m)
    within = sum(float(((d - mean) ** 2).sum()) for d, mean in zip(deviations, means, strict=True))
    between = n * (means[0] - grand) ** 2 + m * (means[1] - grand) ** 2
    if within == 0:
        return None
    return float(special.fdtrc(1, n + m - 2, (n + m - 2) * between / within))


def bimodality(sample: Array) -> float | None:
    """Sarle's coefficient with its small-sample correction; above 5/9 hints at two groups of runs."""
    n = len(sample)
    if n < 5 or np.ptp(sample) == 0:
        return None
    centred = sample - sample.mean()
    m2, m3, m4 = (float((centred**k).mean()) for k in (2, 3, 4))
    skew = m3 / m2**1.5 * math.sqrt(n * (n - 1)) / (n - 2)
    kurtosis = (n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * (m4 / m2**2 - 3) + 6)
    return float(skew**2 + 1) / (kurtosis + 3 * (n - 1) ** 2 / ((n - 2) * (n - 3)))


def too_unequal(n: int, m: int) -> bool:
    """Whether arms of these sizes make Welch's test err in more than 6 % on some shape of `stats/noise.py`.

    Found by simulation: `benchmarks/caution_rates.py` shows the rates on both sides of the rule.
    """
    fewer, more = sorted((n, m))
    return more > UNEQUAL_SMALL * fewer if fewer <= SMALL_ARM else more >= UNEQUAL_LARGE * fewer


def one_arm_cautions(n: int) -> list[FilledCaution]:
    """For an interval of one arm with `n` runs; with enough of them it holds whatever the noise."""
    return [ONE_ARM.fill()] if n < ENOUGH_FOR_ONE_ARM else []


def differ_in_shape(diagnostics: Mapping[str, Any], control: Array, candidate: Array) -> bool:
    """Whether the arms' spreads differ by more than chance, or only one of them has any."""
    constant = [np.ptp(sample) == 0 for sample in (control, candidate)]
    levene_p = diagnostics["levene_p"]
    if any(constant):
        return not all(constant)
    return (levene_p is not None and levene_p < 0.05) or variance_ratio_p(control, candidate) < 0.01


def variance_ratio_p(first: Array, second: Array) -> float:
    """Two-sided p of equal variances by their ratio: sharper than Levene at few runs, and only ever a caution."""
    ratio = float(first.var(ddof=1) / second.var(ddof=1))
    tail = float(special.fdtr(len(first) - 1, len(second) - 1, ratio))
    return 2 * min(tail, 1 - tail)
