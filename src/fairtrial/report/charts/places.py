"""Where things go: axis limits that no stray value can spoil, labels that do not overlap, fewer points for long lines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fairtrial.core.errors import UserError

Array = NDArray[np.float64]
Interval = tuple[float, float]


def finite(values: Iterable[float | None]) -> list[float]:
    return [float(value) for value in values if value is not None and math.isfinite(value)]


def known(value: float | None) -> float | None:
    """A number that can be drawn, or None: charts have no word for NaN and infinity."""
    return float(value) if value is not None and math.isfinite(value) else None


def open_interval(low: float | None, high: float | None) -> Interval | None:
    """An interval with infinity where a limit is missing; None where there is no interval at all."""
    limits = [None if limit is None or math.isnan(limit) else float(limit) for limit in (low, high)]
    if limits == [None, None]:
        return None
    return (-math.inf if limits[0] is None else limits[0], math.inf if limits[1] is None else limits[1])


def domain_of(core: Iterable[float | None], extra: Iterable[float | None] = (), *, room: float = 1.0) -> Interval:
    """Limits that hold all of `core`, and `extra` as far as `room` times the range of `core` on either side."""
    inner = finite(core)
    if not inner:
        raise UserError("there is nothing to draw: no value is a finite number")
    low, high = min(inner), max(inner)
    span = high - low or abs(high) / 10 or 1.0
    outer = [min(max(value, low - room * span), high + room * span) for value in finite(extra)]
    low, high = min([low, *outer]), max([high, *outer])
    margin = 0.05 * (high - low or span)
    return low - margin, high + margin


def spread_out(wanted: Sequence[float], gap: float, limits: Interval) -> list[float]:
    """Positions near the wanted ones, in their order, at least `gap` apart and within limits while there is room."""
    order = np.argsort(np.asarray(wanted, dtype=np.float64), kind="stable")
    steps = gap * np.arange(len(order))
    level = _rising(np.asarray(wanted, dtype=np.float64)[order] - steps)
    low, high = limits
    placed = np.clip(level, low, max(low, high - gap * (len(order) - 1))) + steps
    result = np.empty(len(order))
    result[order] = placed
    return [float(value) for value in result]


def _rising(values: Array) -> Array:
    """The nearest sequence that never falls: neighbours out of order are pooled at their mean."""
    pools: list[tuple[float, int]] = []
    for value in values:
        mean, size = float(value), 1
        while pools and pools[-1][0] > mean:
            other, count = pools.pop()
            mean, size = (mean * size + other * count) / (size + count), size + count
        pools.append((mean, size))
    return np.repeat([mean for mean, _ in pools], [size for _, size in pools]).astype(np.float64)


def thinned(values: Array, limit: int) -> NDArray[np.intp]:
    """Which points of a long line to draw: the lowest and the highest of each stretch, and both ends."""
    if len(values) <= limit:
        return np.arange(len(values))
    kept = [np.array([0, len(values) - 1])]
    for stretch in np.array_split(np.arange(len(values)), max(1, limit // 2 - 1)):
        part = values[stretch]
        gaps = stretch[~np.isfinite(part)][:1]
        kept.append(gaps)
        if len(gaps) == 0 or np.isfinite(part).any():
            kept.append(stretch[[np.nanargmin(part), np.nanargmax(part)]])
    return np.unique(np.concatenate(kept))


def evenly(count: int, limit: int) -> list[int]:
    """At most `limit` of `count` places, spread evenly."""
    return [int(place) for place in np.unique(np.linspace(0, count - 1, min(count, limit)).round())] if count else []
