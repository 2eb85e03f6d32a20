"""Aggregates over runs × tasks, with intervals over runs that keep their coverage when there are few runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fairtrial.core.cautions import FEW_TASKS
from fairtrial.core.errors import InvalidOptions, UserError, unknown
from fairtrial.core.findings import Estimate, FilledCaution, Reason
from fairtrial.stats.diagnostics import one_arm_cautions
from fairtrial.stats.improvement import improvement, resampled_improvement
from fairtrial.stats.inference import Inference
from fairtrial.stats.jackknife import (
    Tables,
    aggregate_value,
    are_still,
    fewest_runs,
    summed_parts,
    table_values,
)
from fairtrial.stats.samples import Array, Seed, row_order
from fairtrial.stats.stratified import RESAMPLES, generator_of, infer_one, widening_of
from fairtrial.stats.student import from_t
from fairtrial.stats.task_statistics import (
    ENOUGH_TASKS,
    STATISTICS,
    default_statistic,
    iqm,
    mean,
    median,
    olympic,
    optimality_gap,
    same_tasks,
    statistic_named,
    trimmed,
)

__all__ = [
    "ENOUGH_TASKS", "RESAMPLES", "STATISTICS", "aggregate", "default_statistic", "iqm", "mean", "mean_curve", "median",
    "olympic", "optimality_gap", "performance_profile", "probability_of_improvement", "profile_of_tables",
    "statistic_named", "trimmed",
]  # fmt: skip

JACKKNIFE = "jackknife by run"
METHODS = ("jackknife", "bootstrap")


def aggregate(
    scores: Array,
    *,
    statistic: str = "iqm",
    level: float = 0.95,
    method: str = "jackknife",
    resamples: int | None = None,
    rng: Seed = None,
    gamma: float = 1.0,
) -> Estimate:
    """Aggregate a table of runs × tasks to one number with a confidence interval.

    The default interval is a jackknife over runs. `method="bootstrap"` uses rliable's stratified bootstrap instead,
    which treats the tasks of one run as independent. `resamples` and `rng` (a seed or a generator) apply only to the
    bootstrap.

    >>> print(fairtrial.aggregate([[0.8, 0.6], [0.7, 0.9], [0.9, 0.8], [0.8, 0.7]], statistic="mean"))
    0.775 [0.6723, 0.8777] at 0.95, mean, jackknife by run, n = 4
    """
    table = as_scores(scores, "scores")
    _check(level, method, resamples)
    if method == "jackknife":
        return aggregate_tables([table], statistic, level, gamma)
    unknown = _unknown([table], statistic, level, gamma)
    if len(table) < 2:
        return unknown
    inference = infer_one(table, statistic_named(statistic, gamma), resamples or RESAMPLES, generator_of(rng))
    return _with_limits(unknown, inference)


def _check(level: float, method: str, resamples: int | None) -> None:
    if not 0.5 < level < 1:
        raise InvalidOptions(f"level must lie between 0.5 and 1, not {level!r}")
    if method not in METHODS:
        raise InvalidOptions(unknown("method", str(method), METHODS))
    if resamples is not None and method != "bootstrap":
        raise InvalidOptions("resamples only applies to method='bootstrap'; the jackknife does not resample")
    if resamples is not None and resamples < 100:
        raise InvalidOptions(f"resamples must be at least 100, not {resamples}")


def aggregate_tables(tables: Tables, statistic: str, level: float = 0.95, gamma: float = 1.0) -> Estimate:
    """Aggregate one or more finite tables by the jackknife. Tasks with separate runs are in separate tables."""
    unknown = _unknown(tables, statistic, level, gamma)
    tables, statistic = as_means(tables, statistic, gamma)
    if min(len(table) for table in tables) < fewest_runs(statistic):
        return unknown
    samples = table_values(tables, statistic)
    if are_still(samples, max(float(np.abs(table).max()) for table in tables)):
        return replace(unknown, reason=Reason.NO_VARIATION.value)
    return _with_limits(unknown, from_t(JACKKNIFE, unknown.value or 0.0, *summed_parts(samples)))


def as_means(tables: Tables, statistic: str, gamma: float) -> tuple[Tables, str]:
    """Rewrite the optimality gap as a mean: it is the mean of the gaps of all scores."""
    if statistic != "optimality_gap":
        return tables, statistic
    return [np.maximum(gamma - table, 0.0) for table in tables], "mean"


def _unknown(tables: Tables, statistic: str, level: float, gamma: float) -> Estimate:
    """Return the point estimate without an interval."""
    statistic_named(statistic)
    if statistic == "optimality_gap" and len(tables) == 1:
        value = float(optimality_gap(tables[0], gamma))
    else:
        value = aggregate_value(*as_means(tables, statistic, gamma))
    runs, tasks = min(len(table) for table in tables), sum(table.shape[1] for table in tables)
    cautions = tuple(cautions_of(statistic, runs, tasks))
    return Estimate(value, None, None, level, statistic, runs, reason=Reason.TOO_FEW.value, cautions=cautions)


def _with_limits(unknown: Estimate, inference: Inference | None) -> Estimate:
    """Add the interval of an inference. None means that no run changes the statistic, so its noise is unknown."""
    if inference is None:
        return replace(unknown, reason=Reason.NO_VARIATION.value)
    low, high = inference.interval(1 - unknown.level)
    return replace(unknown, low=low, high=high, method=f"{unknown.method}, {inference.method}", reason=None)


def cautions_of(statistic: str, runs: int, tasks: int) -> list[FilledCaution]:
    few = [FEW_TASKS.fill(tasks=tasks)] if statistic == "iqm" and tasks < ENOUGH_TASKS else []
    return [*few, *one_arm_cautions(runs)]


def as_scores(scores: Array, name: str) -> Array:
    """Return a finite table of runs × tasks in canonical order; raise UserError if the input is not one."""
    try:
        table = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{name} must be a table of numbers, runs × tasks, without missing values") from None
    if table.ndim != 2 or 0 in table.shape:
        raise UserError(f"{name} must be a table of runs × tasks, not of shape {table.shape}")
    if not np.isfinite(table).all():
        count = int((~np.isfinite(table)).sum())
        raise UserError(
            f"{name} contains values that are not finite ({count} of them)",
            hint="A run without a result is an outcome: replace its value with the worst possible score.",
        )
    return table[row_order(table)]


def probability_of_improvement(
    control: Array,
    candidate: Array,
    *,
    paired: bool = False,
    level: float = 0.95,
    method: str = "jackknife",
    resamples: int | None = None,
    rng: Seed = None,
) -> Estimate:
    """Return how often a run of the candidate beats one of the control, averaged over tasks; a tie counts half.

    `paired`: run i of one arm is paired with run i of the other. `method`, `resamples` and `rng`: see `aggregate`.
    """
    _check(level, method, resamples)
    if paired:
        as_scores(control, "control"), as_scores(candidate, "candidate")
        first, second = np.asarray(control, dtype=np.float64), np.asarray(candidate, dtype=np.float64)
        if len(first) != len(second):
            raise UserError(f"{len(first)} and {len(second)} runs cannot be paired one to one")
        order = row_order(np.hstack([first, second]))
        first, second = first[order], second[order]
    else:
        first, second = as_scores(control, "control"), as_scores(candidate, "candidate")
    same_tasks(first, second)
    if method == "bootstrap":
        return resampled_improvement(first, second, level=level, resamples=resamples or 2000, rng=rng)
    return improvement([first], [second], paired=paired, level=level)


def performance_profile(scores: Array, taus: Array, *, level: float = 0.95) -> tuple[Array, Array, Array]:
    """Return the share of runs above each τ, averaged over tasks, with a pointwise Student's t band over runs."""
    return profile_of_tables([as_scores(scores, "scores")], taus, level=level)


def profile_of_tables(tables: Tables, taus: Array, *, level: float = 0.95) -> tuple[Array, Array, Array]:
    """Return the performance profile of one or more finite tables. Tasks with separate runs are in separate tables."""
    from scipy import special

    thresholds = np.asarray(taus, dtype=np.float64)
    tasks = sum(table.shape[1] for table in tables)
    shares = [(table[:, :, None] > thresholds).sum(axis=1) / tasks for table in tables]
    value = np.sum([share.mean(axis=0) for share in shares], axis=0)
    if min(len(table) for table in tables) < 2:
        return value, np.full_like(value, np.nan), np.full_like(value, np.nan)
    variances = np.array([share.var(axis=0, ddof=1) / len(share) for share in shares])
    total = variances.sum(axis=0)
    parts = (variances**2 / np.array([[len(share) - 1] for share in shares])).sum(axis=0)
    freedom = np.divide(total**2, parts, out=np.full_like(total, np.inf), where=parts > 0)
    reach = -special.stdtrit(freedom, (1 - level) / 2) * np.sqrt(total)
    return value, np.clip(value - reach, 0, 1), np.clip(value + reach, 0, 1)


def mean_curve(
    curves: Array, *, level: float = 0.95, resamples: int = 2000, rng: Seed = None
) -> tuple[Array, Array, Array]:
    """Return the mean of runs × points with a pointwise band: a bootstrap of whole runs, widened to Student's t."""
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
