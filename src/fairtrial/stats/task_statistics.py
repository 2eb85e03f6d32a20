"""Aggregate statistics over runs × tasks, as point estimates. Each takes (…, runs, tasks) and returns (…).

Mean, median, IQM and optimality gap equal rliable's to the last digits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fairtrial.core.errors import InvalidOptions, UserError, unknown
from fairtrial.stats.samples import Array

ENOUGH_TASKS = 20
TRIMMED = {"mean": 0.0, "trimmed": 0.1, "iqm": 0.25}
"""The share of all scores that is trimmed at each end before averaging."""

Statistic = Callable[[Array], Array]


def iqm(scores: Array) -> Array:
    """Return the interquartile mean: the mean of the middle half of all scores."""
    return _pooled(scores, TRIMMED["iqm"])


def trimmed(scores: Array) -> Array:
    """Return the mean of all scores except the lowest and highest tenth."""
    return _pooled(scores, TRIMMED["trimmed"])


def _pooled(scores: Array, share: float) -> Array:
    flat = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    cut = int(share * flat.shape[-1])
    return np.asarray(flat[..., cut : flat.shape[-1] - cut].mean(axis=-1))


def mean(scores: Array) -> Array:
    return np.asarray(scores.mean(axis=-2).mean(axis=-1))


def median(scores: Array) -> Array:
    """Return the median over tasks of the mean over runs."""
    return np.asarray(np.median(scores.mean(axis=-2), axis=-1))


def olympic(scores: Array) -> Array:
    """Return the mean over tasks of each task's mean without its best and worst run; with two runs none is dropped."""
    ordered = np.sort(scores, axis=-2)
    kept = ordered[..., 1:-1, :] if scores.shape[-2] > 2 else ordered
    return mean(kept)


def optimality_gap(scores: Array, gamma: float = 1.0) -> Array:
    """Return the average amount by which scores fall short of γ; scores above γ do not compensate for those below."""
    return np.asarray(gamma - np.minimum(scores, gamma).mean(axis=(-2, -1)))


STATISTICS: dict[str, Statistic] = {
    "iqm": iqm,
    "mean": mean,
    "median": median,
    "trimmed": trimmed,
    "olympic": olympic,
    "optimality_gap": optimality_gap,
}


def statistic_named(name: str, gamma: float = 1.0) -> Statistic:
    if name not in STATISTICS:
        raise InvalidOptions(unknown("statistic", name, STATISTICS))
    return (lambda scores: optimality_gap(scores, gamma)) if name == "optimality_gap" else STATISTICS[name]


def default_statistic(tasks: int) -> str:
    """Return `iqm` for many tasks and `mean` for few, where the middle half would have only a handful of scores."""
    return "iqm" if tasks >= ENOUGH_TASKS else "mean"


def same_tasks(first: Array, second: Array) -> None:
    if first.shape[1] != second.shape[1]:
        raise UserError(f"the arms have {first.shape[1]} and {second.shape[1]} tasks; both need the same tasks")
