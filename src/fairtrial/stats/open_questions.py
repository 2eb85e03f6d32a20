"""The noise behind an open question: a study that is inconclusive tends to overestimate its own.

How many seeds a question needs is printed where a study is inconclusive. With a lower estimate of the noise many of
these studies would have had a verdict, so the estimates that are left are too high: planned on as they are, 80 %
asked for became 82 to 97 %. Here the noise is the one whose inconclusive studies show, on average, what was seen.
That depends on the true difference. Where a margin is asked about, equal arms and arms that differ by the margin are
taken to be as likely; else the difference is the one that the plan is about.
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
"""Of the bisection: the share is known to a thousandth."""


@dataclass(frozen=True)
class EstimatedNoise:
    """What a test may make of its noise, where the true standard error of the difference is 1.

    `estimates` are standard errors that it may estimate, with their `weights`. For each of them, a difference beyond
    `wide` is significant, and one that stays `narrow` inside a margin is equivalent to zero.
    """

    estimates: Array
    weights: Array
    wide: Array
    narrow: Array
    two_sided: bool

    def share_of_truth(self, effect: float, error: float, *, margin: bool) -> float:
        """True over estimated standard error, for a study that estimated `error` and was inconclusive."""
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
        """The root mean square of the estimates of inconclusive studies; 0 where no study is inconclusive.

        So little noise that every study would have a verdict is too little: this one had none.
        """
        inside = np.maximum(effect / error - self.narrow, 0.0) if margin else np.zeros_like(self.wide)
        chances = sum(self._inconclusive(inside, truth / error) for truth in truths) * self.weights
        total = float(chances.sum())
        return math.sqrt(float(chances @ self.estimates**2) / total) if total > 0 else 0.0

    def _inconclusive(self, inside: Array, truth: float) -> Array:
        """The chance of a difference that is neither significant nor within `inside` of zero, for each estimate."""
        lowest = -self.wide if self.two_sided else np.full_like(self.wide, -np.inf)
        below = special.ndtr(np.minimum(-inside, self.wide) - truth) - special.ndtr(lowest - truth)
        above = special.ndtr(self.wide - truth) - special.ndtr(np.maximum(inside, lowest) - truth)
        return np.asarray(np.maximum(below, 0.0) + np.maximum(above, 0.0))
