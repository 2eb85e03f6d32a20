"""What charts of a comparison are drawn from: resampled mean differences, and quantiles of a normal distribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from fairtrial.core.findings import Estimate
from fairtrial.stats.bootstrap import resampled_differences
from fairtrial.stats.compare import ComparisonConfig
from fairtrial.stats.samples import Array, Seed, canonical


@dataclass(frozen=True)
class Resampled:
    """Mean differences, candidate − control, of resampled runs, and the interval that a bootstrap makes of them."""

    draws: Array
    estimate: Estimate


def resample_difference(control: Array, candidate: Array, config: ComparisonConfig, seed: Seed) -> Resampled:
    """The resamples behind the interval of `terms.method`, a bootstrap: the same stream, so the very same draws."""
    arms = canonical(control, candidate, paired=config.paired)
    draws = resampled_differences(arms, config.resamples, arms.stream(seed))
    estimate = config.infer(arms, seed).estimate(config.alpha, config.on_difference(), arms.n)
    return Resampled(-draws if arms.swapped else draws, estimate)


def normal_quantiles(count: int) -> Array:
    """Where so many ordered values of a standard normal distribution are expected, by Blom's positions."""
    return np.asarray(special.ndtri((np.arange(1, count + 1) - 0.375) / (count + 0.25)), dtype=np.float64)
