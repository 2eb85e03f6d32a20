"""A/A: the same work against itself. What differs is noise, and what it cannot be told apart from is not seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairtrial.stats.power import Design, detectable
from fairtrial.stats.samples import Array
from fairtrial.stats.speed import SpeedComparison, compare_rounds

ALARMS_AMONG = 4
"""Rounds in each of the small comparisons that false alarms are counted over."""


@dataclass(frozen=True)
class NoiseFloor:
    """What this machine does to times of equal work."""

    compared: SpeedComparison
    round_percent: float
    """95 % of rounds of A B B A lie within this many percent of 1."""
    detectable_percent: dict[int, float | None]
    """By number of rounds: the smallest slowdown that is seen four times out of five."""
    alarms: int
    comparisons: int
    drift_percent: float
    """By how much the speed of the two halves of the check differed."""

    def to_dict(self) -> dict[str, Any]:
        detected = {str(rounds): value for rounds, value in self.detectable_percent.items()}
        return {**vars(self), "compared": self.compared.to_dict(), "detectable_percent": detected}


def noise_floor(first: Array, second: Array, rounds: tuple[int, ...] = (4, 8, 16), alpha: float = 0.05) -> NoiseFloor:
    """From the times of two sides that do the same, round by round."""
    logs = np.log(second) - np.log(first)
    sd = float(logs.std(ddof=1))
    effects = {n: detectable(n, sd, Design(paired=True, alpha=alpha)) for n in rounds}
    groups = [slice(at, at + ALARMS_AMONG) for at in range(0, len(logs) - ALARMS_AMONG + 1, ALARMS_AMONG)]
    judged = [compare_rounds(first[part], second[part], ("A", "A again"), 1e-9, alpha) for part in groups]
    alarms = sum(each.ratio.limits is not None and not _holds_one(each) for each in judged)
    half = len(first) // 2
    whole = np.log(first) + np.log(second)
    drift = float(np.expm1(abs(whole[half:].mean() - whole[:half].mean()) / 2))
    return NoiseFloor(
        compare_rounds(first, second, ("A", "A again"), 0.05, alpha),
        100 * math.expm1(1.96 * sd),
        {n: None if effect is None else 100 * math.expm1(effect) for n, effect in effects.items()},
        alarms,
        len(groups),
        100 * drift,
    )


def _holds_one(compared: SpeedComparison) -> bool:
    low, high = compared.ratio.limits or (0.0, math.inf)
    return low <= 1 <= high
