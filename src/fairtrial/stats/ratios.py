"""Ratios of means with Fieller's interval, which is unbounded if the denominator may be zero."""

from __future__ import annotations

import math

from scipy import special

from fairtrial.core.findings import Estimate
from fairtrial.stats.samples import Array

LEAST = 3
TOO_FEW = "fewer than 3 measurements"
UNBOUNDED = "the denominator may be zero: there is no upper limit"


def fieller(above: Array, below: Array, alpha: float, unit: str | None = None) -> Estimate:
    """Estimate mean(`above`) / mean(`below`) from paired measurements, for a ratio that cannot be negative.

    The interval contains every ratio that the pairs do not reject; its ends are the roots of a quadratic. If the
    denominator is not significantly positive, there is no upper limit (None).
    """
    n, method = len(above), "Fieller"
    x, y = float(above.mean()) if n else 0.0, float(below.mean()) if n else 0.0
    value = max(0.0, x / y) if y > 0 else None
    if n < LEAST:
        return Estimate(value, None, None, 1 - alpha, method, n, unit, reason=TOO_FEW)
    t2 = float(special.stdtrit(n - 1, alpha / 2)) ** 2 / n
    xx, yy = float(above.var(ddof=1)) * t2, float(below.var(ddof=1)) * t2
    xy = float(((above - x) * (below - y)).sum() / (n - 1)) * t2
    a, b, c = y * y - yy, x * y - xy, x * x - xx  # a R² − 2 b R + c ≤ 0
    root = math.sqrt(max(0.0, b * b - a * c))
    if a > 0 and y > 0:
        low, high = max(0.0, (b - root) / a), (b + root) / a
        return Estimate(value, low, max(high, 0.0), 1 - alpha, method, n, unit)
    # Only ratios between the roots are rejected. If one root is negative, the interval begins at the other.
    larger = (b - root) / a if a < 0 < c else 0.0
    return Estimate(value, max(0.0, larger), None, 1 - alpha, method, n, unit, reason=UNBOUNDED)
