"""The delete-one-run jackknife for aggregates over tasks.

A run that is lucky on one task is often lucky on others, so the scores of a run are not independent; the runs are.
`run_values` returns one number (pseudovalue) per run. Their mean is the aggregate, and their standard error is the
jackknife standard error, √((n − 1)/n · Σ(θ̂₍₋ᵢ₎ − θ̄)²). Intervals, effect sizes and power are computed from these
numbers. For the mean over tasks they are the means of the runs.

Tasks that share their runs form a table of runs × tasks. If tasks have separate runs there are several tables, and
their variances add.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fairtrial.stats.samples import DUST, Array
from fairtrial.stats.task_statistics import TRIMMED, olympic, statistic_named

Tables = Sequence[Array]
"""Tables of runs × tasks; each table has different tasks."""
FEWEST_RUNS = {"olympic": 4}
"""An Olympic mean drops two runs per task, and one run must remain after the jackknife deletes another."""
BLOCK = 1 << 22
"""The maximum number of values processed at once, which bounds memory for any number of runs."""


def fewest_runs(statistic: str) -> int:
    """Return the minimum number of runs for estimating the noise of this statistic."""
    return FEWEST_RUNS.get(statistic, 2)


def run_values(table: Array, statistic: str) -> Array:
    """Return one number (pseudovalue) per run of a table. The numbers do not depend on the order of the runs."""
    runs = len(table)
    if statistic == "mean":
        return np.asarray(table.mean(axis=1))
    value = float(statistic_named(statistic)(np.sort(table, axis=0)))
    if runs < fewest_runs(statistic):
        return np.full(runs, value)
    others = without_each_run(table, statistic)
    return np.asarray(value + (runs - 1) * (np.sort(others).mean() - others))


def without_each_run(table: Array, statistic: str) -> Array:
    """Return the statistic of the table without its first run, without its second, and so on."""
    if statistic in TRIMMED:
        return _pooled_without(table, TRIMMED[statistic])
    return {"median": _median_without, "olympic": _olympic_without}[statistic](table)


def _pooled_without(table: Array, share: float) -> Array:
    """Compute trimmed means without each run. Scores are sorted once, because deleting a run keeps them sorted."""
    runs, tasks = table.shape
    order = np.argsort(table, axis=None, kind="stable")
    scores, owner = table.ravel()[order], order // tasks
    left = (runs - 1) * tasks
    cut = int(share * left)
    values = np.empty(runs)
    at_once = max(1, BLOCK // scores.size)
    for start in range(0, runs, at_once):
        gone = np.arange(start, min(runs, start + at_once))
        kept = np.broadcast_to(scores, (len(gone), scores.size))[owner != gone[:, None]].reshape(len(gone), left)
        values[gone] = kept[:, cut : left - cut].mean(axis=1)
    return values


def _median_without(table: Array) -> Array:
    return np.asarray(np.median(_means_without(table), axis=1))


def _means_without(table: Array) -> Array:
    """Return the task means without each run, summed in sorted order so that the order of the runs does not matter."""
    return np.asarray((np.sort(table, axis=0).sum(axis=0) - table) / (len(table) - 1))


def _olympic_without(table: Array) -> Array:
    ordered = np.sort(table, axis=0)
    lowest = np.where(table <= ordered[0], ordered[1], ordered[0])
    highest = np.where(table >= ordered[-1], ordered[-2], ordered[-1])
    return np.asarray(((ordered.sum(axis=0) - table - lowest - highest) / (len(table) - 3)).mean(axis=1))


# Several tables: tasks with separate runs.


def aggregate_value(tables: Tables, statistic: str) -> float:
    """Return the statistic over all tables. Every task has the same weight, however many runs it has."""
    if len({len(table) for table in tables}) == 1:
        return float(statistic_named(statistic)(np.sort(np.hstack(list(tables)), axis=0)))
    if statistic == "median":
        return float(np.median(_task_means(tables)))
    if statistic == "olympic":
        return float(np.mean(np.concatenate([olympic_of_tasks(table) for table in tables])))
    scores, weights = _weighted(tables)
    share = TRIMMED[statistic]
    kept = np.diff(np.clip(np.cumsum(weights), share, 1 - share), prepend=share)
    return float((scores * kept).sum() / (1 - 2 * share))


def olympic_of_tasks(table: Array) -> Array:
    return np.array([float(olympic(column[:, None])) for column in np.sort(table, axis=0).T])


def table_values(tables: Tables, statistic: str) -> list[Array]:
    """Return `run_values` for each table, scaled so that the means of the tables sum to the aggregate over all."""
    if len(tables) == 1:
        return [run_values(tables[0], statistic)]
    tasks = sum(table.shape[1] for table in tables)
    if statistic in ("mean", "olympic"):  # means over tasks: each table contributes by its share of tasks
        return [table.shape[1] / tasks * run_values(table, statistic) for table in tables]
    moved = _median_moved(tables) if statistic == "median" else _pooled_moved(tables, TRIMMED[statistic], tasks)
    value = aggregate_value(tables, statistic)
    return [
        value * table.shape[1] / tasks + each - np.sort(each).mean() for table, each in zip(tables, moved, strict=True)
    ]


def _pooled_moved(tables: Tables, share: float, tasks: int) -> list[Array]:
    """Return the influence of each run on a trimmed mean: the sum of its scores, clipped to the trimming limits."""
    scores, weights = _weighted(tables)
    below = np.cumsum(weights)
    low, high = (scores[min(int(np.searchsorted(below, at - DUST)), len(scores) - 1)] for at in (share, 1 - share))
    return [np.clip(table, low, high).sum(axis=1) / (tasks * (1 - 2 * share)) for table in tables]


def _median_moved(tables: Tables) -> list[Array]:
    """Return the influence of each run on the median of the task means, by deleting one run at a time."""
    means = [np.sort(table, axis=0).mean(axis=0) for table in tables]
    moved = []
    for number, table in enumerate(tables):
        if len(table) < 2:
            moved.append(np.zeros(len(table)))
            continue
        rest = np.concatenate([*means[:number], *means[number + 1 :]])
        others = np.broadcast_to(rest, (len(table), len(rest)))
        without = np.median(np.hstack([_means_without(table), others]), axis=1)
        moved.append(-(len(table) - 1) * without)
    return moved


def _task_means(tables: Tables) -> Array:
    return np.concatenate([np.sort(table, axis=0).mean(axis=0) for table in tables])


def _weighted(tables: Tables) -> tuple[Array, Array]:
    """Return all scores in ascending order with their weights, so that every task has the same total weight."""
    scores = np.concatenate([table.ravel() for table in tables])
    weights = np.concatenate([np.full(table.size, 1 / len(table)) for table in tables])
    order = np.lexsort((weights, scores))
    return scores[order], weights[order] / weights.sum()


def summed_parts(samples: Sequence[Array]) -> tuple[float, float]:
    """Return the standard error and Satterthwaite's degrees of freedom of the sum of the means of independent samples.

    Sums are exact, so neither the order of runs nor the sign of the difference affects the last digit.
    """
    shares = [_variance(sample) / len(sample) for sample in samples]
    total = math.fsum(shares)
    freedom = math.fsum(share**2 / (len(sample) - 1) for share, sample in zip(shares, samples, strict=True))
    return math.sqrt(total), total**2 / freedom if freedom > 0 else math.nan


def _variance(sample: Array) -> float:
    middle = math.fsum(sample) / len(sample)
    return math.fsum((sample - middle) ** 2) / (len(sample) - 1)


def are_still(samples: Sequence[Array], scale: float) -> bool:
    """Return whether values differ only by rounding error, which the jackknife multiplies by the number of runs."""
    return all(float(np.ptp(sample)) <= DUST * scale * len(sample) for sample in samples)
