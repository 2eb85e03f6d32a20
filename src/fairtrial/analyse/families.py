"""Several arms on shared seeds: differences that are judged together.

Each pair alone would be wrong in one of twenty cases; fifteen pairs together would nearly always find something.
Tukey's limit holds for all differences at once. It takes its noise from what is left of the arms × seeds layout
when arms and seeds are accounted for, so that even three seeds give it several degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from fairtrial.analyse.inference import Inference
from fairtrial.analyse.samples import Array

ADJUSTMENTS = ("tukey", "holm", "bh", "none")


def residual_variance(layout: Array) -> tuple[Array, int]:
    """Mean square of what arms and seeds do not explain, and its degrees of freedom; layout is (…, arms, seeds)."""
    arms, seeds = layout.shape[-2:]
    left = (
        layout
        - layout.mean(axis=-1, keepdims=True)
        - layout.mean(axis=-2, keepdims=True)
        + layout.mean(axis=(-2, -1), keepdims=True)
    )
    freedom = (arms - 1) * (seeds - 1)
    return np.asarray((left**2).sum(axis=(-2, -1)) / freedom), freedom


@lru_cache(maxsize=256)
def tukey_quantile(level: float, arms: int, freedom: int) -> float:
    """How far apart, in standard errors of a mean, the two outermost of equal arms come to lie."""
    from scipy import stats

    return float(stats.studentized_range.ppf(level, arms, freedom))


def infer_tukey(layout: Array, first: int, second: int) -> Inference:
    """second − first, with limits that hold for all pairs of the layout at once."""
    from scipy import stats

    arms, seeds = layout.shape
    variance, freedom = residual_variance(layout)
    error = math.sqrt(float(variance) / seeds)
    value = float(layout[second].mean() - layout[first].mean())

    def reach(tail: float) -> float:
        return tukey_quantile(1 - 2 * tail, arms, freedom) * error

    p = float(stats.studentized_range.sf(abs(value) / error, arms, freedom))
    sided = (p / 2, 1 - p / 2) if value > 0 else (1 - p / 2, p / 2)
    return Inference(
        "Tukey, pooled within seeds", value,
        lower=lambda tail: value - reach(tail), upper=lambda tail: value + reach(tail),
        p_greater=sided[0], p_less=sided[1], p_two_sided=p,
        detail={"df": freedom, "standard_error": error * math.sqrt(2)},
    )  # fmt: skip


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down: keeps the chance of any false alarm in the family below α."""
    count = len(p_values)
    adjusted = [0.0] * count
    worst = 0.0
    for rank, index in enumerate(np.argsort(p_values, kind="stable")):
        worst = max(worst, min(1.0, (count - rank) * p_values[index]))
        adjusted[index] = worst
    return adjusted


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Keeps the expected share of false alarms among all alarms below α."""
    count = len(p_values)
    adjusted = [0.0] * count
    best = 1.0
    for rank, index in reversed(list(enumerate(np.argsort(p_values, kind="stable"), 1))):
        best = min(best, p_values[index] * count / rank)
        adjusted[index] = best
    return adjusted


ADJUST = {"holm": holm, "bh": benjamini_hochberg}
