"""A/A tests: time the same work against itself. Any difference is noise, and it limits what an A/B test can detect."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairtrial.stats.power import Design, detectable
from fairtrial.stats.samples import Array
from fairtrial.stats.speed import SpeedComparison, compare_rounds

ALARMS_AMONG = 4
"""The number of rounds in each of the small A/A comparisons in which false alarms are counted."""


@dataclass(frozen=True)
class NoiseFloor:
    """The timing noise of this machine, measured on identical work."""

    compared: SpeedComparison
    round_percent: float
    """The ratio B/A of an A B B A round lies within this many percent of 1 in 95 % of rounds."""
    detectable_percent: dict[int, float | None]
    """By number of rounds: the smallest slowdown that is detected with a power of 80 %."""
    alarms: int
    comparisons: int
    drift_percent: float
    """By how much the mean times of the first and second half of the check differed."""

    def to_dict(self) -> dict[str, Any]:
        detected = {str(rounds): value for rounds, value in self.detectable_percent.items()}
        return {**vars(self), "compared": self.compared.to_dict(), "detectable_percent": detected}


def noise_floor(first: Array, second: Array, rounds: tuple[int, ...] = (4, 8, 16), alpha: float = 0.05) -> NoiseFloor:
    """Compute the noise floor from the times, round by round, of two sides that do the same work."""
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
