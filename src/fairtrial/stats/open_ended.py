"""Anytime-valid evidence without a planned end: a sign e-process over paired differences.

Each difference is divided by the root mean square of the differences up to it, so the bets do not depend on the unit.
Under the null hypothesis that the sign of each difference is a coin toss, the wealth is a nonnegative martingale that
starts at 1. By Ville's inequality, the probability that it ever reaches 1/α is at most α.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairtrial.stats.samples import Array

BETS = np.array([0.5, 1.0, 2.0, 4.0])
"""The stakes on a sign, from cautious to bold; the wealth is the mean over them."""


def sign_e_values(differences: Sequence[float] | Array) -> Array:
    """Return the two-sided e-value after each difference; stop when it reaches 1/α."""
    greater, less = one_sided_e_values(differences)
    return (greater + less) / 2


def one_sided_e_values(differences: Sequence[float] | Array) -> tuple[Array, Array]:
    """Return the e-values for a positive and for a negative difference, after each difference."""
    values = np.asarray(differences, dtype=np.float64)
    count = np.arange(1, len(values) + 1)
    rms = np.sqrt(np.cumsum(values**2) / count)
    units = np.divide(values, rms, out=np.zeros_like(values), where=rms > 0)  # all zeros so far: no bet
    staked = BETS[:, None] * units
    log_cosh = np.logaddexp(staked, -staked) - np.log(2.0)
    wealth = [np.exp(np.cumsum(sign * staked - log_cosh, axis=1)).mean(axis=0) for sign in (1.0, -1.0)]
    return wealth[0], wealth[1]
