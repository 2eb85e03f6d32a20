"""The interval that knows about the stopping: every shift that the sequential test has not rejected.

The mean and the t interval at the stop are biased, because the test stops when the mean happens to be large. A shift is
inside if the same test, with the same looks, applied to the differences minus the shift, would not have been rejected
by now.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from fairtrial.stats.samples import Array
from fairtrial.stats.sequential import sign_flip_looks

GRID = 257
"""Shifts that are tried between the outermost that can matter; each end of the interval is then bisected."""
BISECTIONS = 45


def stopped_interval(
    differences: Sequence[float] | Array, *, planned: int, alpha: Fraction, looks: Sequence[int]
) -> tuple[float, float]:
    """The smallest interval that holds every shift that is not rejected. A side without a limit is infinite.

    A shift beyond all differences makes all signs equal: it is rejected as soon as any data can be, and if it is not,
    no data can be rejected yet and nothing is known.
    """
    values = np.asarray(differences, dtype=np.float64)

    def is_rejected(shift: float) -> bool:
        done = list(sign_flip_looks(values - shift, planned=planned, alpha=alpha, looks=looks))
        return bool(done) and done[-1].rejected

    low, high = float(values.min()), float(values.max())
    margin = (high - low) or abs(high) or 1.0
    if not is_rejected(high + margin):
        return -math.inf, math.inf
    shifts = np.linspace(low - margin / GRID, high + margin / GRID, GRID)
    accepted = [index for index, shift in enumerate(shifts) if not is_rejected(float(shift))]
    if not accepted:  # narrower than the grid: around the value that explains the data best
        center = float(np.median(values))
        return (center, center) if is_rejected(center) else _ends(is_rejected, center, center, shifts)
    return _ends(is_rejected, float(shifts[accepted[0]]), float(shifts[accepted[-1]]), shifts)


def _ends(is_rejected: Callable[[float], bool], first: float, last: float, shifts: Array) -> tuple[float, float]:
    step = float(shifts[1] - shifts[0])
    return _bisect(is_rejected, first, first - step), _bisect(is_rejected, last, last + step)


def _bisect(is_rejected: Callable[[float], bool], inside: float, outside: float) -> float:
    for _ in range(BISECTIONS):
        middle = (inside + outside) / 2
        if is_rejected(middle):
            outside = middle
        else:
            inside = middle
    return inside
