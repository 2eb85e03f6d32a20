"""Pareto dominance between points, and the probability that a point is on the frontier.

All functions take gains: one row per point, one column per objective, signed so that higher is better.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fairtrial.costs.points import Reading

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

DRAWS = 10_000


def dominance(gains: Array) -> Flags:
    """Return a matrix [i, j]: whether i is at least as good as j in every objective and better in one."""
    ahead, behind = gains[..., :, None, :], gains[..., None, :, :]
    return np.asarray((ahead >= behind).all(-1) & (ahead > behind).any(-1))


def on_frontier(gains: Array) -> Flags:
    """Return for each point whether no other point dominates it."""
    if len(gains) == 0:
        return np.zeros(0, dtype=bool)
    if gains.shape[1] == 2:
        return np.asarray(_two(gains[None])[0])
    return np.asarray(~dominance(gains).any(0))


def dominator(gains: Array, point: int) -> int | None:
    """Return the frontier point that dominates this one and is best in the last objective; None if there is none."""
    ahead = (gains >= gains[point]).all(1) & (gains > gains[point]).any(1) & on_frontier(gains)
    values = np.flatnonzero(ahead)
    return int(values[np.argmax(gains[values, -1])]) if len(values) else None


def membership(draws: Array) -> Array:
    """Return the share of draws (first axis) in which each point is on the frontier."""
    if draws.shape[2] == 2:
        return np.asarray(_two(draws).mean(0))
    columns = [np.ascontiguousarray(draws[..., k]) for k in range(draws.shape[2])]
    return np.array([1 - _beaten(columns, point).mean() for point in range(draws.shape[1])])


def _beaten(columns: Sequence[Array], point: int) -> Flags:
    """Return the draws in which another point dominates this one; loops over objectives to save memory."""
    shape = columns[0].shape
    ahead, better = np.ones(shape, dtype=bool), np.zeros(shape, dtype=bool)
    for column in columns:
        own = column[:, point : point + 1]
        ahead &= column >= own
        better |= column > own
    return np.asarray((ahead & better).any(1))


def _two(draws: Array) -> Flags:
    """Return membership for two objectives in O(n log n): after sorting, compare with the best point so far."""
    order = np.lexsort((-draws[..., 1], -draws[..., 0]), axis=-1)
    first, second = (np.take_along_axis(draws[..., k], order, -1) for k in (0, 1))
    best = np.maximum.accumulate(second, axis=-1)
    before = np.concatenate([np.full((*best.shape[:-1], 1), -np.inf), best[..., :-1]], axis=-1)
    places = np.arange(draws.shape[1])
    leads = np.maximum.accumulate(np.where(second > before, places, 0), axis=-1)
    leader = np.concatenate([np.zeros((*leads.shape[:-1], 1), dtype=leads.dtype), leads[..., :-1]], axis=-1)
    behind_leader = np.take_along_axis(first, leader, -1) > first
    beaten = (before > second) | ((before == second) & behind_leader)
    free: Flags = np.empty_like(beaten)
    np.put_along_axis(free, order, ~beaten, -1)
    return free


def draw_means(readings: Sequence[Sequence[Reading]], draws: int = DRAWS) -> Array:
    """Draw plausible means: each mean plus t(n − 1) standard errors, jointly for readings that share seeds.

    Each seed has one deviate for all readings, so that points that are correlated in the data are correlated in the
    draws. Readings that share seeds, directly or through others, also share the deviate of the spread. A reading with
    fewer than two seeds does not vary.
    """
    flat = [reading for row in readings for reading in row]
    seeds = sorted({seed for reading in flat for seed in reading.by_seed})
    place = {seed: number for number, seed in enumerate(seeds)}
    generator = np.random.default_rng(_content(flat))
    deviates = generator.standard_normal((draws, len(seeds)))
    groups = _groups(flat)
    ranks = {group: generator.random(draws) for group in sorted(set(groups.values()))}
    means = np.empty((draws, len(flat)))
    for column, reading in enumerate(flat):
        means[:, column] = reading.value
        if reading.error is not None:
            rows = [place[seed] for seed in reading.by_seed]
            apart = np.array(list(reading.by_seed.values())) - reading.value
            moved = deviates[:, rows] @ apart / math.sqrt(reading.n * (reading.n - 1))
            means[:, column] += moved / _spread(ranks[groups[min(reading.by_seed)]], reading.n - 1)
    return means.reshape(draws, len(readings), -1)


def _groups(readings: Sequence[Reading]) -> dict[str, str]:
    """Map each seed to the first seed of its group; two seeds are in the same group if a reading has both."""
    leader: dict[str, str] = {}

    def find(seed: str) -> str:
        while leader.setdefault(seed, seed) != seed:
            seed = leader[seed]
        return seed

    for reading in readings:
        first, *others = [find(seed) for seed in sorted(reading.by_seed)] or [""]
        for other in others:
            low, high = sorted((find(first), find(other)))
            leader[high] = low
    return {seed: find(seed) for reading in readings for seed in reading.by_seed}


def _spread(ranks: Array, freedom: int) -> Array:
    """Return √(χ²/ν) at these quantiles; readings that share seeds use the same quantile even if their ν differ."""
    from scipy import special

    return np.asarray(np.sqrt(2 * special.gammaincinv(freedom / 2, ranks) / freedom))


def _content(readings: Sequence[Reading]) -> int:
    """Return a random seed derived from the numbers, independent of their order."""
    messages = sorted(repr((reading.value, sorted(reading.by_seed.items()))) for reading in readings)
    return int.from_bytes(hashlib.sha256("\n".join(messages).encode()).digest()[:8], "big")


def hypervolume(gains: Array, reference: Array) -> float:
    """Return the volume above the reference that the points dominate; points below it in any objective add nothing."""
    above = gains[(gains > reference).all(1)] - reference
    return _volume(above[on_frontier(above)]) if len(above) else 0.0


def _volume(points: Array) -> float:
    """Compute the volume recursively as slabs along the last objective."""
    if points.shape[1] == 1:
        return float(points.max())
    levels = np.unique(points[:, -1])
    total = 0.0
    for low, high in zip([0.0, *levels[:-1]], levels, strict=True):
        slab = points[points[:, -1] >= high, :-1]
        total += float(high - low) * _volume(slab[on_frontier(slab)])
    return total
