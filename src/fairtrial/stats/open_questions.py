"""Correct the noise estimate of an inconclusive study, which tends to be too high.

The number of seeds needed is reported only for inconclusive studies. With a lower noise estimate, many of these studies
would have reached a verdict, so the estimates of the remaining ones are biased upward: when they were used
uncorrected, a planned power of 80 % became 82 to 97 %. The corrected noise is the one at which inconclusive studies
show, on average, the observed estimate. It depends on the true difference. With a margin, equal arms and arms that
differ by the margin are assumed to be equally likely; otherwise the difference is the planned effect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from fairtrial.stats.samples import Array

SMALLEST_SHARE = 0.05
STEPS = 10
"""Steps of the bisection, which give the share to within a thousandth."""


@dataclass(frozen=True)
class EstimatedNoise:
    """The distribution of a test's noise estimate, if the true standard error of the difference is 1.

    `estimates` are possible estimated standard errors, with their `weights`. For each of them, a difference beyond
    `wide` is significant, and one at least `narrow` inside the margin is equivalent to zero.
    """

    estimates: Array
    weights: Array
    wide: Array
    narrow: Array
    two_sided: bool

    def share_of_truth(self, effect: float, error: float, *, margin: bool) -> float:
        """Return the ratio of true to estimated standard error, for an inconclusive study that estimated `error`."""
        if not (error > 0 and effect > 0):
            return 1.0
        truths = (0.0, effect) if margin else (effect,)
        low, high = SMALLEST_SHARE, 1.0
        for _ in range(STEPS):
            middle = (low + high) / 2
            overestimated = self._overestimated(effect, middle * error, truths, margin=margin)
            low, high = (middle, high) if middle * overestimated < 1 else (low, middle)
        return high

    def _overestimated(self, effect: float, error: float, truths: Sequence[float], *, margin: bool) -> float:
        """Return the root mean square of the estimates of inconclusive studies; 0 if no study would be inconclusive.

        With 0, the caller rejects this noise level as too low, because this study was inconclusive.
        """
        inside = np.maximum(effect / error - self.narrow, 0.0) if margin else np.zeros_like(self.wide)
        chances = sum(self._inconclusive(inside, truth / error) for truth in truths) * self.weights
        total = float(chances.sum())
        return math.sqrt(float(chances @ self.estimates**2) / total) if total > 0 else 0.0

    def _inconclusive(self, inside: Array, truth: float) -> Array:
        """Return, for each estimate, P(the difference is neither significant nor within `inside` of zero)."""
        lowest = -self.wide if self.two_sided else np.full_like(self.wide, -np.inf)
        below = special.ndtr(np.minimum(-inside, self.wide) - truth) - special.ndtr(lowest - truth)
        above = special.ndtr(self.wide - truth) - special.ndtr(np.maximum(inside, lowest) - truth)
        return np.asarray(np.maximum(below, 0.0) + np.maximum(above, 0.0))
