"""Simulated studies over tasks, many at once: what `compare_tasks` does to one study, done to thousands."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fairtrial.stats.aggregate import statistic_named

Array = NDArray[np.float64]


def draw_arms(
    rng: np.random.Generator, repeats: int, runs: int, tasks: int, *, shared: float, spread: float = 2.0
) -> tuple[Array, Array]:
    """Two equal arms as (repeats, runs, tasks). Tasks differ in level and noise; `shared` is the share of a run's
    variance that is luck on all its tasks, so that scores of one run on two tasks correlate by that much.
    """
    levels, noise = rng.normal(0, spread, tasks), rng.gamma(4.0, 0.25, tasks)

    def arm() -> Array:
        luck, rest = rng.standard_normal((repeats, runs, 1)), rng.standard_normal((repeats, runs, tasks))
        return np.asarray(levels + noise * (math.sqrt(shared) * luck + math.sqrt(1 - shared) * rest))

    return arm(), arm()


def many_run_values(tables: Array, statistic: str, gamma: float = 1.0) -> Array:
    """The jackknife by its definition: every run is left out in turn; (repeats, runs, tasks) → (repeats, runs)."""
    of, runs = statistic_named(statistic, gamma), tables.shape[1]
    others = np.stack([of(np.delete(tables, run, axis=1)) for run in range(runs)], axis=-1)
    return np.asarray(of(tables)[:, None] + (runs - 1) * (others.mean(axis=-1, keepdims=True) - others))
