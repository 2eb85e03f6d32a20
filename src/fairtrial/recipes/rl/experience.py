"""Generalized advantage estimation, and running moments for normalization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy

from fairtrial.recipes.rl.physics import Array

MOST_DEVIATIONS = 10.0


def advantages(rewards: Array, values: Array, not_done: Array, discount: Array, trace: Array) -> Array:
    """Return generalized advantage estimates. Arrays are [runs, steps, environments]; `values` has one more step.

    `not_done` is 0 where an episode ended with this step. `discount` (gamma) and `trace` (lambda) have one value per
    run.
    """
    ahead = discount[:, None, None] * not_done
    surprise = rewards + ahead * values[:, 1:] - values[:, :-1]
    carried = ahead * trace[:, None, None]
    advantages: Array = numpy.empty_like(surprise)
    last = numpy.zeros_like(surprise[:, 0])
    for step in reversed(range(rewards.shape[1])):
        last = surprise[:, step] + carried[:, step] * last
        advantages[:, step] = last
    return advantages


class Moments:
    """Running mean and variance of all values that one run has seen."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count = 0
        self.mean = numpy.zeros(shape)
        self.variance = numpy.ones(shape)

    def see(self, values: Array) -> None:
        """Update the moments with a batch of shape [examples, *shape]."""
        batch, mean, variance = len(values), values.mean(0, dtype=float), values.var(0, dtype=float)
        total = self.count + batch
        gap = mean - self.mean
        spread = self.variance * self.count + variance * batch + gap**2 * self.count * batch / total
        self.mean, self.variance = numpy.asarray(self.mean + gap * batch / total), numpy.asarray(spread / total)
        self.count = total

    @property
    def deviation(self) -> Array:
        deviation: Array = numpy.sqrt(self.variance + 1e-8)
        return deviation

    def state(self) -> dict[str, Any]:
        return {"count": self.count, "mean": self.mean.copy(), "variance": self.variance.copy()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.count = int(state["count"])
        self.mean, self.variance = (numpy.array(state[name]) for name in ("mean", "variance"))
