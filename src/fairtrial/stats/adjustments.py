"""Rules for a family of comparisons that each have a test of their own: adjusted p-values, and levels that agree.

`families.py` applies them. The two rules for paired t that share one limit take their noise from the whole layout; here
they are only named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Adjustment:
    """How several comparisons are judged together, chosen with `--family`.

    `adjust(p_values)` returns the adjusted p of each. `levels(p_values, alpha)` returns the error rate of each one's
    own interval, which must exclude zero exactly where the adjusted p is at most α.

        BONFERRONI = Adjustment(
            adjust=lambda p_values: [min(1.0, len(p_values) * p) for p in p_values],
            levels=lambda p_values, alpha: [alpha / len(p_values)] * len(p_values),
        )
    """

    adjust: Callable[[Sequence[float]], list[float]]
    levels: Callable[[Sequence[float], float], list[float]]


@dataclass(frozen=True)
class JointLimit:
    """One limit for all pairs at once. `method` is what an interval is called by it, `name` what a sentence says."""

    method: str
    name: str


AUTOMATIC = JointLimit("chosen by the number of seeds", "the automatic rule")
LARGEST_SPREAD = JointLimit("largest spread", "the rule of the largest spread")
TUKEY_POOLED = JointLimit("Tukey, pooled within seeds", "Tukey's limit")


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down: keeps the chance of any false alarm in the family below α."""
    count = len(p_values)
    adjusted = [0.0] * count
    worst = 0.0
    for rank, index in enumerate(np.argsort(p_values, kind="stable")):
        worst = max(worst, min(1.0, (count - rank) * p_values[index]))
        adjusted[index] = worst
    return adjusted


def holm_levels(p_values: Sequence[float], alpha: float) -> list[float]:
    """The share of α of each one's own step; those that come after the first failure share its step.

    An interval at this error rate excludes zero exactly when the adjusted p is at most α. Equal p have equal steps.
    """
    count, ordered = len(p_values), sorted(p_values)
    failed = next((rank for rank, p in enumerate(ordered) if (count - rank) * p > alpha), count - 1)
    return [alpha / (count - min(ordered.index(p), failed)) for p in p_values]


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Keeps the expected share of false alarms among all alarms below α."""
    count = len(p_values)
    adjusted = [0.0] * count
    best = 1.0
    for rank, index in reversed(list(enumerate(np.argsort(p_values, kind="stable"), 1))):
        best = min(best, p_values[index] * count / rank)
        adjusted[index] = best
    return adjusted


def benjamini_hochberg_levels(p_values: Sequence[float], alpha: float) -> list[float]:
    """One error rate for all: α times the share that is significant. It excludes zero exactly for those."""
    count = len(p_values)
    significant = sum(p <= alpha for p in benjamini_hochberg(p_values))
    return [alpha * max(1, significant) / count] * count


HOLM_STEP_DOWN = Adjustment(holm, holm_levels)
BENJAMINI_HOCHBERG = Adjustment(benjamini_hochberg, benjamini_hochberg_levels)
