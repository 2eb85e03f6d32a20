"""Evidence that may be looked at for ever: a sign e-process over paired differences, without a planned end.

Each difference is divided by the root mean square of those up to it, so the bets do not depend on the unit. Under the
hypothesis that the sign of each difference is a coin toss, the wealth is a nonnegative martingale that starts at 1, and
by Ville's inequality it ever reaches 1/α with probability α at most.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairtrial.stats.samples import Array

BETS = np.array([0.5, 1.0, 2.0, 4.0])
"""How much is staked on a sign, from cautious to bold; the wealth is the mean over them."""


def sign_e_values(differences: Sequence[float] | Array) -> Array:
    """The two-sided evidence after each difference: stop where it reaches 1/α."""
    greater, less = one_sided_e_values(differences)
    return (greater + less) / 2


def one_sided_e_values(differences: Sequence[float] | Array) -> tuple[Array, Array]:
    """The evidence for a positive and for a negative difference, after each of them."""
    values = np.asarray(differences, dtype=np.float64)
    count = np.arange(1, len(values) + 1)
    rms = np.sqrt(np.cumsum(values**2) / count)
    units = np.divide(values, rms, out=np.zeros_like(values), where=rms > 0)  # only zeros so far: nothing to bet on
    staked = BETS[:, None] * units
    log_cosh = np.logaddexp(staked, -staked) - np.log(2.0)
    wealth = [np.exp(np.cumsum(sign * staked - log_cosh, axis=1)).mean(axis=0) for sign in (1.0, -1.0)]
    return wealth[0], wealth[1]
