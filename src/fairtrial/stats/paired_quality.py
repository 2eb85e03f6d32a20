"""Test whether a share or a mean got worse on the same units, with paired tests that are exact at small n.

Both quantities are tested, so each test uses half of the error rate. When nothing changed, the probability of any false
alarm is at most α.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special, stats

from fairtrial.stats.permutation import infer_sign_flip
from fairtrial.stats.samples import Arms, Array

QUESTIONS = 2
FLIPS = 20_000


@dataclass(frozen=True)
class QualityChange:
    """One quantity of A and of B on the same `n` units. The interval is for B − A."""

    name: str
    a: float
    b: float
    difference: float
    low: float | None
    high: float | None
    p: float
    n: int
    level: float
    method: str

    @property
    def falls(self) -> bool:
        """Whether B is significantly lower than A."""
        return self.difference < 0 and self.p <= (1 - self.level) / QUESTIONS

    def to_dict(self) -> dict[str, Any]:
        return {
            "a": self.a, "b": self.b, "difference": self.difference, "low": self.low, "high": self.high, "p": self.p,
            "n": self.n, "level": self.level, "method": self.method, "falls": self.falls,
        }  # fmt: skip


def compare_shares(name: str, a: Array, b: Array, level: float) -> QualityChange:
    """Compare the shares of units that are 1, by McNemar's exact test with Bonett and Price's interval.

    That interval has a positive width even if no unit differs.
    """
    n, lost, won = len(a), int(np.sum((a == 1) & (b == 0))), int(np.sum((a == 0) & (b == 1)))
    p = float(stats.binomtest(lost, lost + won).pvalue) if lost + won else 1.0
    down, up = (lost + 1) / (n + 2), (won + 1) / (n + 2)
    z = float(special.ndtri(1 - (1 - level) / QUESTIONS / 2))
    half = z * math.sqrt((down + up - (up - down) ** 2) / (n + 2))
    low, high = max(-1.0, up - down - half), min(1.0, up - down + half)
    means = float(a.mean()), float(b.mean())
    return QualityChange(name, *means, (won - lost) / n, low, high, p, n, level, "McNemar exact")


def compare_means(name: str, a: Array, b: Array, level: float) -> QualityChange:
    """Compare the means of any values by a sign-flip test, which assumes only symmetric differences."""
    arms = Arms(a, b, paired=True, swapped=False, symmetric=False)
    inference = infer_sign_flip(arms, FLIPS, np.random.default_rng(0))
    limits = inference.interval((1 - level) / QUESTIONS)
    low, high = (None if math.isinf(each) else each for each in limits)
    means = float(a.mean()), float(b.mean())
    return QualityChange(
        name, *means, inference.value, low, high, inference.p_two_sided, len(a), level, inference.method
    )
