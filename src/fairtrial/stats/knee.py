"""Time against batch size: t = a + c·B, and the knee a/c, at which half of a step is its fixed cost.

A knee is about speed alone. From which batch size on more examples teach no more is another question, and the noise
scale is the answer to that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairtrial.core.findings import Estimate
from fairtrial.stats.ratios import fieller
from fairtrial.stats.samples import Array


@dataclass(frozen=True)
class Knee:
    """Fixed seconds of a step, seconds per example, and their ratio."""

    fixed: float
    per_example: float
    knee: Estimate
    misfit: float
    """The largest distance of a measured size from the line, as a part of its time."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "fixed_s": self.fixed,
            "per_example_s": self.per_example,
            "knee": self.knee.to_dict(),
            "largest_misfit": self.misfit,
        }


def find_knee(sizes: Sequence[int], times: Array, alpha: float = 0.05) -> Knee | None:
    """From step times by round (rows) and size (columns), each round a line of its own; None with one size only."""
    if len(set(sizes)) < 2 or not len(times):
        return None
    fits = np.array([_line(sizes, each) for each in times])
    knee = fieller(fits[:, 0], fits[:, 1], alpha, "examples")
    middle = times.mean(0)
    fixed, slope = fits.mean(0)
    misfit = float(np.max(np.abs(fixed + slope * np.asarray(sizes) - middle) / middle))
    return Knee(float(fixed), float(slope), knee, misfit)


def _line(sizes: Sequence[int], times: Array) -> tuple[float, float]:
    """Least squares of relative errors: a large batch is not more exact than a small one, only slower."""
    weights = 1 / times
    design = np.stack([weights, np.asarray(sizes) * weights], axis=1)
    fixed, slope = np.linalg.lstsq(design, np.ones(len(sizes)), rcond=None)[0]
    return float(fixed), float(slope)
