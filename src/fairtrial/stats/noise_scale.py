"""Gradient noise scale: at which batch size do noise and signal of a gradient weigh the same?

From gradients of small batches and of the large batch that they make together: the squared length of a gradient is
|G|² + tr(Σ)/b on average, so two batch sizes tell |G|² and tr(Σ) apart without bias. Their ratio is the noise scale.
"""

from __future__ import annotations

import numpy as np

from fairtrial.core.findings import Estimate
from fairtrial.stats.ratios import fieller
from fairtrial.stats.samples import Array


def noise_scale(small: Array, large: Array, batch: int, pieces: int, alpha: float = 0.05) -> Estimate:
    """From squared lengths, one pair per measurement: the mean of `pieces` batches, and that of their mean gradient."""
    noise, signal = two_batches(small, large, batch, pieces)
    return fieller(noise, signal, alpha, "examples")


def two_batches(small: Array, large: Array, batch: int, pieces: int) -> tuple[Array, Array]:
    """Unbiased tr(Σ) and |G|² of each measurement."""
    whole = batch * pieces
    noise = (small - large) / (1 / batch - 1 / whole)
    signal = (whole * large - batch * small) / (whole - batch)
    return np.asarray(noise), np.asarray(signal)
