"""Step times and gradients whose truth is known: tests hold intervals against it, and evidence repeats that."""

from __future__ import annotations

import numpy as np
from scipy import special

from fairtrial.stats.noise_scale import noise_scale
from fairtrial.stats.samples import Array
from fairtrial.stats.speed import Speed, compare_sessions
from fairtrial.stats.timing import Times, lag_one, standard_error

FORGOTTEN = 200
"""Steps after which a series does not know any more where it began."""
TRUE, BATCH, PIECES, DIMENSIONS = 4096, 32, 8, 10_000


def correlated(phi: float, steps: int, repeats: int, seed: int = 1) -> Array:
    """AR(1) times with mean 0, one series per row."""
    noise = np.random.default_rng(seed).standard_normal((repeats, steps + FORGOTTEN))
    found = np.zeros_like(noise)
    for at in range(1, steps + FORGOTTEN):
        found[:, at] = phi * found[:, at - 1] + noise[:, at]
    return found[:, FORGOTTEN:]


def covered(series: Array) -> tuple[Array, Array]:
    """Of each row: whether the interval of its mean holds 0, and how many independent steps it is worth."""
    steps, rho = series.shape[1], lag_one(series)
    effective = steps * (1 - rho) / (1 + rho)
    reach = -special.stdtrit(np.maximum(effective - 1, 1), 0.025) * standard_error(series, effective)
    return np.abs(series.mean(1)) < reach, effective


def false_alarms(phi: float, steps: int, repeats: int, seeds: tuple[int, int]) -> int:
    """How many of so many pairs of equal sessions are called different."""
    before, after = (0.01 + 0.0005 * correlated(phi, steps, repeats, seed) for seed in seeds)
    verdicts = [
        compare_sessions(Times.of(one), Times.of(other), ("before", "after"), 1e-9, 0.05).verdict
        for one, other in zip(before, after, strict=True)
    ]
    return sum(verdict in (Speed.FASTER, Speed.SLOWER) for verdict in verdicts)


def squared_lengths(rng: np.random.Generator, measurements: int, noise: float = TRUE) -> tuple[Array, Array]:
    """Of isotropic Gaussian gradients with |G| = 1 and tr(Σ) = `noise`, drawn from their exact distribution.

    The mean of the pieces differs from G by a normal along it and a χ across it; about that mean the pieces scatter by
    a χ² that is independent of it.
    """
    variance = noise / DIMENSIONS
    along = 1 + np.sqrt(variance / (BATCH * PIECES)) * rng.standard_normal(measurements)
    across = variance / (BATCH * PIECES) * rng.chisquare(DIMENSIONS - 1, measurements)
    large = along**2 + across
    scatter = variance / BATCH * rng.chisquare(DIMENSIONS * (PIECES - 1), measurements)
    return large + scatter / PIECES, large


def noise_scales_covered(repeats: int, seed: int) -> int:
    """How many intervals of so many noise scales, each from 50 measurements, hold the true one."""
    rng, hits = np.random.default_rng(seed), 0
    for _ in range(repeats):
        found = noise_scale(*squared_lengths(rng, 50), BATCH, PIECES)
        assert found.low is not None
        hits += found.low <= TRUE and (found.high is None or found.high >= TRUE)
    return hits
