"""Many tasks at once: aggregates over runs × tasks, with intervals that hold at few runs.

Runs are resampled within each task. A resample of n runs varies less than n fresh runs would, by √((n − 1)/n); with
three to five runs that is much, and intervals that ignore it cover 86–90 % where they say 95 %. So deviations are
scaled up. The scaled interval is good from 20 tasks on, where the many tasks make up for the few runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fairtrial.analyse.inference import Inference
from fairtrial.analyse.samples import Array, Seed, is_still, row_order
from fairtrial.analyse.student import from_t, paired_parts
from fairtrial.core.cautions import FEW_TASKS, ONE_ARM
from fairtrial.core.errors import InvalidOptions, UserError, unknown
from fairtrial.core.findings import Estimate, FilledCaution, Reason

RESAMPLES = 50_000
BOOTSTRAP = "stratified bootstrap"
ENOUGH_TASKS = 20
BLOCK = 1 << 18
"""Numbers resampled at once: a block stays in the processor's cache."""

Statistic = Callable[[Array], Array]
Rows = np.ndarray[tuple[int, ...], np.dtype[np.unsignedinteger[Any]]]


def iqm(scores: Array) -> Array:
    """Mean of the middle half of all scores; (…, runs, tasks) → (…)."""
    flat = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    cut = int(0.25 * flat.shape[-1])
    return np.asarray(flat[..., cut : flat.shape[-1] - cut].mean(axis=-1))


def mean(scores: Array) -> Array:
    return np.asarray(scores.mean(axis=-2).mean(axis=-1))


def median(scores: Array) -> Array:
    """Median over tasks of the mean over runs."""
    return np.asarray(np.median(scores.mean(axis=-2), axis=-1))


def optimality_gap(scores: Array, gamma: float = 1.0) -> Array:
    """By how much the runs miss γ on average; what lies above it does not make up for what lies below."""
    return np.asarray(gamma - np.minimum(scores, gamma).mean(axis=(-2, -1)))


STATISTICS: dict[str, Statistic] = {"iqm": iqm, "mean": mean, "median": median, "optimality_gap": optimality_gap}


def statistic_named(name: str, gamma: float = 1.0) -> Statistic:
    if name not in STATISTICS:
        raise InvalidOptions(unknown("statistic", name, STATISTICS))
    return (lambda scores: optimality_gap(scores, gamma)) if name == "optimality_gap" else STATISTICS[name]


def default_statistic(tasks: int) -> str:
    """What intervals hold for: IQM over many tasks, the mean over few."""
    return "iqm" if tasks >= ENOUGH_TASKS else "mean"


def aggregate(
    scores: Array,
    *,
    statistic: str = "iqm",
    level: float = 0.95,
    resamples: int = RESAMPLES,
    rng: Seed = None,
    gamma: float = 1.0,
) -> Estimate:
    """One number over runs × tasks with its interval. `rng` is a seed or a generator; without one, seed 0."""
    table, function = as_scores(scores, "scores"), statistic_named(statistic, gamma)
    if not 0.5 < level < 1:
        raise InvalidOptions(f"level must lie between 0.5 and 1, not {level!r}")
    if resamples < 100:
        raise InvalidOptions(f"resamples must be at least 100, not {resamples}")
    runs, tasks = table.shape
    value = float(function(table))
    cautions = tuple(cautions_of(statistic, tasks))
    unknown = Estimate(value, None, None, level, statistic, runs, reason=Reason.TOO_FEW.value, cautions=cautions)
    if runs < 2:
        return unknown
    inference = _infer(table, statistic, function, resamples, generator_of(rng))
    if inference is None:
        return replace(unknown, reason=Reason.NO_VARIATION.value)
    low, high = inference.interval(1 - level)
    return replace(unknown, low=low, high=high, method=f"{statistic}, {inference.method}", reason=None)


def cautions_of(statistic: str, tasks: int) -> list[FilledCaution]:
    if tasks >= ENOUGH_TASKS:
        return []
    return [ONE_ARM.fill() if statistic == "mean" else FEW_TASKS.fill(tasks=tasks, statistic=statistic)]


def _infer(table: Array, name: str, function: Statistic, resamples: int, rng: np.random.Generator) -> Inference | None:
    """None where no resample moves the statistic: then nothing is known about its noise."""
    if name == "mean" and table.shape[1] < ENOUGH_TASKS:
        means = np.sort(table.mean(axis=1))
        if is_still(means, float(np.abs(table).max())):
            return None
        middle, error, freedom = paired_parts(means)
        return from_t("Student's t over runs", float(middle), float(error), freedom)
    draws = resampled(table, function, resamples, rng)
    return from_draws(float(function(table)), draws, widening_of(len(table)), float(np.abs(table).max()))


def from_draws(value: float, draws: Array, widening: float, scale: float) -> Inference | None:
    """Limits from resampled values whose deviations are scaled up; None where they do not vary."""
    if is_still(draws, scale):
        return None
    ordered = np.sort(value + widening * (draws - value))
    below = float((np.searchsorted(ordered, 0.0, "left") + np.searchsorted(ordered, 0.0, "right")) / (2 * len(draws)))
    below = min(max(below, 0.5 / len(draws)), 1 - 0.5 / len(draws))
    return Inference(
        BOOTSTRAP, value,
        lower=lambda tail: float(np.quantile(ordered, tail)),
        upper=lambda tail: float(np.quantile(ordered, 1 - tail)),
        p_greater=below, p_less=1 - below, p_two_sided=2 * min(below, 1 - below),
        detail={"resamples": len(draws), "widening": widening},
    )  # fmt: skip


def widening_of(runs: int) -> float:
    return math.sqrt(runs / (runs - 1))


def generator_of(seed: Seed) -> np.random.Generator:
    return seed if isinstance(seed, np.random.Generator) else np.random.default_rng([int(seed or 0), 0])


def as_scores(scores: Array, name: str) -> Array:
    """A finite table of runs × tasks in canonical order, or a sentence on what is wrong with it."""
    try:
        table = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{name} must be a table of numbers, runs × tasks, without gaps") from None
    if table.ndim != 2 or 0 in table.shape:
        raise UserError(f"{name} must be a table of runs × tasks, not of shape {table.shape}")
    if not np.isfinite(table).all():
        count = int((~np.isfinite(table)).sum())
        raise UserError(
            f"{name} holds {count} value(s) that are not finite",
            hint="A run without a result is an outcome: set it to the worst score that it can have.",
        )
    return table[row_order(table)]


def resampled(table: Array, function: Statistic, resamples: int, rng: np.random.Generator) -> Array:
    """The statistic of tables whose runs were drawn anew within each task."""
    draws = [function(table[rows, np.arange(table.shape[1])]) for rows in resampled_rows(table.shape, resamples, rng)]
    return np.concatenate(draws)


def resampled_rows(shape: tuple[int, ...], resamples: int, rng: np.random.Generator) -> Iterator[Rows]:
    """Blocks of row numbers, drawn anew for each task."""
    runs, tasks = shape
    block = max(1, BLOCK // (runs * tasks))
    kind = np.uint8 if runs <= 256 else np.uint16
    for start in range(0, resamples, block):
        yield rng.integers(0, runs, (min(block, resamples - start), runs, tasks), dtype=kind)


def probability_of_improvement(
    control: Array, candidate: Array, *, level: float = 0.95, resamples: int = 2000, rng: Seed = None
) -> Estimate:
    """How often a run of the candidate beats one of the control, averaged over tasks, ties halved."""
    first, second = as_scores(control, "control"), as_scores(candidate, "candidate")
    same_tasks(first, second)
    # wins[t, i, j]: run i of the candidate against run j of the control on task t.
    gaps = second.T[:, :, None] - first.T[:, None, :]
    wins = (np.sign(gaps) + 1) / 2
    value = float(wins.mean(axis=(1, 2)).mean())
    n, m = len(first), len(second)
    if min(n, m) < 2:
        return Estimate(value, None, None, level, "probability of improvement", n + m, reason=Reason.TOO_FEW.value)
    generator = generator_of(rng)
    drawn = [_multiplicities(len(table), table.shape[1], resamples, generator) for table in (second, first)]
    draws = np.einsum("bti,tij,btj->b", drawn[0], wins, drawn[1], optimize="optimal") / (n * m * wins.shape[0])
    if np.ptp(draws) == 0:  # every task is won or lost by all runs: nothing is left to resample
        name, why = "probability of improvement", Reason.NO_VARIATION.value
        return Estimate(value, None, None, level, name, n + m, reason=why)
    ordered = np.clip(value + widening_of(min(n, m)) * (draws - value), 0, 1)
    low, high = (float(x) for x in np.quantile(ordered, [(1 - level) / 2, (1 + level) / 2]))
    return Estimate(value, low, high, level, "probability of improvement, stratified bootstrap", n + m)


def _multiplicities(runs: int, tasks: int, resamples: int, rng: np.random.Generator) -> Array:
    """How often each run occurs in each resample of each task: all that a resample is."""
    return rng.multinomial(runs, [1 / runs] * runs, size=(resamples, tasks)).astype(np.float64)


def same_tasks(first: Array, second: Array) -> None:
    if first.shape[1] != second.shape[1]:
        raise UserError(f"the arms were run on {first.shape[1]} and {second.shape[1]} tasks; they must be the same")


def performance_profile(
    scores: Array, taus: Array, *, level: float = 0.95, resamples: int = 2000, rng: Seed = None
) -> tuple[Array, Array, Array]:
    """The share of runs above each τ, averaged over tasks, with a band from whole resampled tables."""
    table, thresholds = as_scores(scores, "scores"), np.asarray(taus, dtype=np.float64)
    above = table[:, :, None] > thresholds
    value = above.mean(axis=(0, 1))
    if len(table) < 2:
        return value, np.full_like(value, np.nan), np.full_like(value, np.nan)
    counts = _multiplicities(len(table), table.shape[1], resamples, generator_of(rng))
    draws = np.tensordot(counts, above.transpose(1, 0, 2).astype(float), axes=2) / table.size
    spread = np.clip(value + widening_of(len(table)) * (draws - value), 0, 1)
    low, high = np.quantile(spread, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return value, low, high


def mean_curve(
    curves: Array, *, level: float = 0.95, resamples: int = 2000, rng: Seed = None
) -> tuple[Array, Array, Array]:
    """The mean of runs × points with a pointwise band from resampled whole runs, widened to Student's t."""
    from scipy import special

    runs = len(curves)
    middle = curves.mean(axis=0)
    if runs < 2:
        return middle, np.full_like(middle, np.nan), np.full_like(middle, np.nan)
    tail = (1 - level) / 2
    counts = generator_of(rng).multinomial(runs, [1 / runs] * runs, size=resamples) / runs
    widening = widening_of(runs) * float(special.stdtrit(runs - 1, tail) / special.ndtri(tail))
    draws = middle + widening * (counts @ curves - middle)
    low, high = np.quantile(draws, [tail, 1 - tail], axis=0)
    return middle, low, high
