"""Gradient noise scale: the batch size at which the noise and the signal of a gradient are equal.

It is estimated from gradients of small batches and of the large batch that they form together. The expected squared
norm of a gradient is |G|² + tr(Σ)/b, so two batch sizes give unbiased estimates of |G|² and tr(Σ). The noise scale is
the ratio tr(Σ)/|G|².
"""

from __future__ import annotations

import numpy as np

from fairtrial.core.findings import Estimate
from fairtrial.stats.ratios import fieller
from fairtrial.stats.samples import Array


def noise_scale(small: Array, large: Array, batch: int, pieces: int, alpha: float = 0.05) -> Estimate:
    """Estimate the noise scale from squared gradient norms.

    Each measurement gives a pair: the mean over `pieces` small batches (`small`), and the norm of their mean gradient
    (`large`).
    """
    noise, signal = two_batches(small, large, batch, pieces)
    return fieller(noise, signal, alpha, "examples")


def two_batches(small: Array, large: Array, batch: int, pieces: int) -> tuple[Array, Array]:
    """Return unbiased estimates of tr(Σ) and |G|² for each measurement."""
    whole = batch * pieces
    noise = (small - large) / (1 / batch - 1 / whole)
    signal = (whole * large - batch * small) / (whole - batch)
    return np.asarray(noise), np.asarray(signal)
