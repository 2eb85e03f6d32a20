"""Multiple-testing adjustments: adjusted p-values, and interval levels that agree with them.

`families.py` applies them. The two rules for paired t tests that use one joint limit estimate their noise from the
whole layout; they are only named here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Adjustment:
    """A multiple-testing adjustment for a family of comparisons, selected with `--family`.

    `adjust(p_values)` returns the adjusted p-value of each comparison. `levels(p_values, alpha)` returns the error rate
    of each comparison's own interval, which must exclude zero exactly if the adjusted p-value is at most α.

        BONFERRONI = Adjustment(
            adjust=lambda p_values: [min(1.0, len(p_values) * p) for p in p_values],
            levels=lambda p_values, alpha: [alpha / len(p_values)] * len(p_values),
        )
    """

    adjust: Callable[[Sequence[float]], list[float]]
    levels: Callable[[Sequence[float], float], list[float]]


@dataclass(frozen=True)
class JointLimit:
    """A joint limit for all pairs. `method` is the name of its intervals in results; `name` is its name in messages."""

    method: str
    name: str


AUTOMATIC = JointLimit("chosen by the number of seeds", "the automatic rule")
LARGEST_SPREAD = JointLimit("largest spread", "the rule of the largest spread")
TUKEY_POOLED = JointLimit("Tukey, pooled within seeds", "Tukey's limit")


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's step-down, which controls the family-wise error rate at α."""
    count = len(p_values)
    adjusted = [0.0] * count
    worst = 0.0
    for rank, index in enumerate(np.argsort(p_values, kind="stable")):
        worst = max(worst, min(1.0, (count - rank) * p_values[index]))
        adjusted[index] = worst
    return adjusted


def holm_levels(p_values: Sequence[float], alpha: float) -> list[float]:
    """Return the error rate of each comparison's Holm step; those after the first failure use its step.

    An interval at this error rate excludes zero exactly if the adjusted p-value is at most α. Equal p-values have equal
    steps.
    """
    count, ordered = len(p_values), sorted(p_values)
    failed = next((rank for rank, p in enumerate(ordered) if (count - rank) * p > alpha), count - 1)
    return [alpha / (count - min(ordered.index(p), failed)) for p in p_values]


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Benjamini and Hochberg's procedure, which controls the false discovery rate at α."""
    count = len(p_values)
    adjusted = [0.0] * count
    best = 1.0
    for rank, index in reversed(list(enumerate(np.argsort(p_values, kind="stable"), 1))):
        best = min(best, p_values[index] * count / rank)
        adjusted[index] = best
    return adjusted


def benjamini_hochberg_levels(p_values: Sequence[float], alpha: float) -> list[float]:
    """Return one error rate for all intervals: α times the share of significant comparisons.

    Intervals at this rate exclude zero exactly for the significant comparisons.
    """
    count = len(p_values)
    significant = sum(p <= alpha for p in benjamini_hochberg(p_values))
    return [alpha * max(1, significant) / count] * count


HOLM_STEP_DOWN = Adjustment(holm, holm_levels)
BENJAMINI_HOCHBERG = Adjustment(benjamini_hochberg, benjamini_hochberg_levels)
