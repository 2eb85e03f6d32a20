"""Step time by batch size, t = a + c·B, and the knee a/c, at which half of the step time is fixed cost.

The knee is about speed only. The batch size beyond which more examples no longer improve the gradient is the noise
scale (`noise_scale.py`).
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
    """The fixed seconds of a step, the seconds per example, and their ratio (the knee)."""

    fixed: float
    per_example: float
    knee: Estimate
    misfit: float
    """The largest relative deviation of a measured time from the fitted line."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "fixed_s": self.fixed,
            "per_example_s": self.per_example,
            "knee": self.knee.to_dict(),
            "largest_misfit": self.misfit,
        }


def find_knee(sizes: Sequence[int], times: Array, alpha: float = 0.05) -> Knee | None:
    """Fit step times by round (rows) and batch size (columns), one line per round; None if there is only one size."""
    if len(set(sizes)) < 2 or not len(times):
        return None
    fits = np.array([_line(sizes, each) for each in times])
    knee = fieller(fits[:, 0], fits[:, 1], alpha, "examples")
    middle = times.mean(0)
    fixed, slope = fits.mean(0)
    misfit = float(np.max(np.abs(fixed + slope * np.asarray(sizes) - middle) / middle))
    return Knee(float(fixed), float(slope), knee, misfit)


def _line(sizes: Sequence[int], times: Array) -> tuple[float, float]:
    """Fit by least squares of relative errors, because timing errors grow in proportion to the time."""
    weights = 1 / times
    design = np.stack([weights, np.asarray(sizes) * weights], axis=1)
    fixed, slope = np.linalg.lstsq(design, np.ones(len(sizes)), rcond=None)[0]
    return float(fixed), float(slope)
