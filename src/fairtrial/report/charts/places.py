"""Geometry of charts: axis limits robust to outliers, non-overlapping labels, and thinning of long lines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fairtrial.core.errors import NothingToDraw

Array = NDArray[np.float64]
Interval = tuple[float, float]
Numbers = Iterable[float | None] | Array

HUGE = 1e100
"""Treated as infinite. Sums and differences of smaller numbers do not overflow."""


def as_numbers(values: Numbers) -> Array:
    """Return an array with NaN for unknown numbers and ±HUGE for infinite ones."""
    numbers = np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=np.float64)
    return np.clip(numbers, -HUGE, HUGE)


def finite(values: Numbers) -> Array:
    numbers = as_numbers(values)
    return numbers[np.abs(numbers) < HUGE]


def known(value: float | None) -> float | None:
    """Return the number, or None if it is unknown, NaN or infinite and cannot be drawn."""
    return float(value) if value is not None and abs(value) < HUGE else None


def open_interval(low: float | None, high: float | None) -> Interval | None:
    """Return an interval with infinity for a missing limit; None if both limits are missing."""
    limits = [None if limit is None or math.isnan(limit) else float(limit) for limit in (low, high)]
    if limits == [None, None]:
        return None
    return (-math.inf if limits[0] is None else limits[0], math.inf if limits[1] is None else limits[1])


def domain_of(core: Numbers, extra: Numbers = (), *, room: float = 1.0, margin: float = 0.05) -> Interval:
    """Return limits that contain all of `core`, and those of `extra` within `room` times its range from it."""
    inner, outer = finite(core), finite(extra)
    if not len(inner):
        raise NothingToDraw("there is nothing to draw: no value is a finite number")
    low, high = float(inner.min()), float(inner.max())
    span = high - low or abs(high) / 10 or 1.0
    near = outer[(outer >= low - room * span) & (outer <= high + room * span)]
    low, high = float(near.min(initial=low)), float(near.max(initial=high))
    beyond = margin * (high - low or span)
    return low - beyond, high + beyond


def spread_out(wanted: Sequence[float], gap: float, limits: Interval) -> list[float]:
    """Return positions near the wanted ones, in the same order, at least `gap` apart and within limits if possible."""
    positions = as_numbers(wanted)
    order = np.argsort(positions, kind="stable")
    steps = gap * np.arange(len(order))
    level = _rising(positions[order] - steps)
    low, high = limits
    placed = np.clip(level, low, max(low, high - gap * (len(order) - 1))) + steps
    result = np.empty(len(order))
    result[order] = placed
    return [float(value) for value in result]


def _rising(values: Array) -> Array:
    """Return the nearest non-decreasing sequence (isotonic regression by pooling adjacent violators)."""
    pools: list[tuple[float, int]] = []
    for value in values:
        mean, size = float(value), 1
        while pools and pools[-1][0] > mean:
            other, count = pools.pop()
            mean, size = (mean * size + other * count) / (size + count), size + count
        pools.append((mean, size))
    return np.repeat([mean for mean, _ in pools], [size for _, size in pools]).astype(np.float64)


def thinned(values: Array, limit: int) -> NDArray[np.intp]:
    """Return indices of points to draw on a long line: per chunk the lowest, highest and first gap; and both ends."""
    if len(values) <= limit:
        return np.arange(len(values))
    gap = ~np.isfinite(values)
    lowest, highest = np.where(gap, np.inf, values), np.where(gap, -np.inf, values)
    kept = {0, len(values) - 1}
    for stretch in np.array_split(np.arange(len(values)), max(1, limit // 3)):
        kept |= {int(stretch[part[stretch].argmax()]) for part in (gap, -lowest, highest)}
    return np.array(sorted(kept))


def cut(x: Array, y: Array, domain: Interval) -> tuple[Array, Array]:
    """Cut a line where it crosses the limits. Clipping a thousand lines in the renderer would be slow."""
    for bound in domain:
        over = y > bound
        at = np.flatnonzero((over[1:] != over[:-1]) & np.isfinite(y[1:]) & np.isfinite(y[:-1]))
        share = (bound - y[at]) / (y[at + 1] - y[at])
        x, y = np.insert(x, at + 1, x[at] + share * (x[at + 1] - x[at])), np.insert(y, at + 1, bound)
    return x, np.where((y >= domain[0]) & (y <= domain[1]), y, np.nan)


def evenly(count: int, limit: int) -> list[int]:
    """Return at most `limit` of `count` indices, evenly spaced."""
    return [int(place) for place in np.unique(np.linspace(0, count - 1, min(count, limit)).round())] if count else []


TICKS = 9
"""Maximum number of tick labels on an axis."""


def round_numbers(domain: Interval) -> list[float]:
    """Return round numbers as ticks for a logarithmic axis, at most TICKS."""
    first, last = (math.floor(math.log10(end)) for end in domain)
    for digits in ((1, 2, 3, 5, 7), (1, 2, 5), (1,)):
        ticks = [float(f"{digit}e{power}") for power in range(first, last + 1) for digit in digits]
        inside = [tick for tick in ticks if domain[0] <= tick <= domain[1]]
        if len(inside) <= TICKS:
            return inside
    return inside[:: math.ceil(len(inside) / TICKS)]
