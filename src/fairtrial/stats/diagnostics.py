"""Checks of the assumptions of a test. The results are reported; they never change or hide a test."""

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
"""With at least this many runs, 95 % t intervals for one arm cover at least 93 % on log-normal noise."""
SMALL_ARM = 6
UNEQUAL_SMALL, UNEQUAL_LARGE = 1.6, 2.5
"""Size ratios of the arms, for small and larger arms, beyond which Welch's false-positive rate can exceed 6 %."""


def diagnose(control: Array, candidate: Array, *, paired: bool) -> dict[str, Any]:
    """Return p-values of Shapiro–Wilk (on what the test assumes to be normal) and Levene, and bimodality per arm."""
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
    return float(stats.shapiro((sample - sample.mean()) / sample.std()).pvalue)  # SciPy fails on tiny values


def levene(first: Array, second: Array) -> float | None:
    """Return the p-value of equal spread by Brown–Forsythe (Levene around medians); None if it is undefined."""
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
    """Return Sarle's coefficient with small-sample correction; values above 5/9 suggest two groups of runs."""
    n = len(sample)
    if n < 5 or np.ptp(sample) == 0:
        return None
    centred = sample - sample.mean()
    m2, m3, m4 = (float((centred**k).mean()) for k in (2, 3, 4))
    skew = m3 / m2**1.5 * math.sqrt(n * (n - 1)) / (n - 2)
    kurtosis = (n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * (m4 / m2**2 - 3) + 6)
    return float(skew**2 + 1) / (kurtosis + 3 * (n - 1) ** 2 / ((n - 2) * (n - 3)))


def too_unequal(n: int, m: int) -> bool:
    """Return whether Welch's false-positive rate exceeds 6 % on some shape of `stats/noise.py` at these arm sizes.

    The rule comes from simulation: `benchmarks/caution_rates.py` shows the rates on both sides of it.
    """
    fewer, more = sorted((n, m))
    return more > UNEQUAL_SMALL * fewer if fewer <= SMALL_ARM else more >= UNEQUAL_LARGE * fewer


def one_arm_cautions(n: int) -> list[FilledCaution]:
    """Return the cautions for an interval of one arm with `n` runs; with enough runs there are none."""
    return [ONE_ARM.fill()] if n < ENOUGH_FOR_ONE_ARM else []


def differ_in_shape(diagnostics: Mapping[str, Any], control: Array, candidate: Array) -> bool:
    """Return whether the spreads of the arms differ significantly, or only one arm varies at all."""
    constant = [np.ptp(sample) == 0 for sample in (control, candidate)]
    levene_p = diagnostics["levene_p"]
    if any(constant):
        return not all(constant)
    return (levene_p is not None and levene_p < 0.05) or variance_ratio_p(control, candidate) < 0.01


def variance_ratio_p(first: Array, second: Array) -> float:
    """Return the two-sided p-value of equal variances by the F test.

    It is more powerful than Levene with few runs, but sensitive to non-normal noise, so it only triggers a caution.
    """
    ratio = float(first.var(ddof=1) / second.var(ddof=1))
    tail = float(special.fdtr(len(first) - 1, len(second) - 1, ratio))
    return 2 * min(tail, 1 - tail)
