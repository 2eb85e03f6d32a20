"""A confidence interval that accounts for sequential stopping: every shift that the sequential test does not reject.

The mean and the t interval at the stopping time are biased, because the test stops when the mean happens to be large. A
shift is inside the interval if the same test, with the same looks, applied to the differences minus the shift, would
not have rejected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from fairtrial.stats.samples import Array
from fairtrial.stats.sequential import sign_flip_looks

GRID = 257
"""The number of shifts on the search grid; each end of the interval is then refined by bisection."""
BISECTIONS = 45


def stopped_interval(
    differences: Sequence[float] | Array, *, planned: int, alpha: Fraction, looks: Sequence[int]
) -> tuple[float, float]:
    """Return the smallest interval that contains every shift that is not rejected. A side without a limit is infinite.

    A shift beyond all differences makes all signs equal, so it is rejected as soon as any data can be. If it is not
    rejected, no data can be rejected yet, and the interval is infinite.
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
    if not accepted:  # narrower than the grid: search around the median
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
