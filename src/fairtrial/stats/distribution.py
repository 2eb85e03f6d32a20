"""Data for the charts of a comparison: resampled mean differences, and quantiles of the normal distribution."""

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
    """Resampled mean differences, candidate − control, and the bootstrap interval computed from them."""

    draws: Array
    estimate: Estimate


def resample_difference(control: Array, candidate: Array, config: ComparisonConfig, seed: Seed) -> Resampled:
    """Return the resamples behind the bootstrap interval of `config.method`, from the same random stream."""
    arms = canonical(control, candidate, paired=config.paired)
    draws = resampled_differences(arms, config.resamples, arms.stream(seed))
    estimate = config.infer(arms, seed).estimate(config.alpha, config.on_difference(), arms.n)
    return Resampled(-draws if arms.swapped else draws, estimate)


def normal_quantiles(count: int) -> Array:
    """Return the expected order statistics of `count` standard normal values, by Blom's approximation."""
    return np.asarray(special.ndtri((np.arange(1, count + 1) - 0.375) / (count + 0.25)), dtype=np.float64)
