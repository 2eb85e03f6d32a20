"""Compare a candidate with a control over many tasks: the difference of their aggregates, with runs as the unit.

The delete-one-run jackknife gives one number per run whose mean is the arm's aggregate (`stats/jackknife.py`). These
numbers are compared like those of any other runs. The t test, effect sizes, detectable difference and seeds needed
therefore all refer to the same aggregate as the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairtrial.core.cautions import FEW_SEEDS, FEW_TASKS, MEDIAN_TASKS, TASK_SCALES
from fairtrial.core.errors import UserError
from fairtrial.core.findings import Comparison, Estimate, FilledCaution, Reason, Reliability, Verdict
from fairtrial.stats.aggregate import JACKKNIFE, as_means
from fairtrial.stats.compare import FEWEST, ComparisonConfig, ComparisonResult, assemble, decide_by, judge, outlook
from fairtrial.stats.inference import Inference
from fairtrial.stats.jackknife import (
    Tables,
    aggregate_value,
    are_still,
    fewest_runs,
    run_values,
    summed_parts,
    table_values,
)
from fairtrial.stats.power import Design
from fairtrial.stats.reliability import Losses, judge_reliability, lost_cautions, with_reliability
from fairtrial.stats.samples import Array, Seed, canonical, frozen_seed
from fairtrial.stats.stratified import BOOTSTRAP, RESAMPLES, infer_difference
from fairtrial.stats.student import from_t
from fairtrial.stats.task_statistics import ENOUGH_TASKS, default_statistic, same_tasks, statistic_named
from fairtrial.stats.verdicts import Decision

BY_TASK = "jackknife by run within each task"
SATTERTHWAITE = "Satterthwaite t"
ENOUGH_FOR_MEDIAN = 10
"""With fewer runs, a median over tasks is too uncertain: its 95 % intervals covered 90 to 98 %."""
PER_RUN = ("mean", "optimality_gap")
"""Statistics that are means of one number per run, so that any test on runs applies to them."""


@dataclass(frozen=True)
class TaskConfig:
    """The settings of a comparison over tasks. `resamples` applies to the stratified bootstrap."""

    statistic: str | None = None
    resamples: int = RESAMPLES
    gamma: float = 1.0

    def named(self, tasks: int) -> str:
        return self.statistic or default_statistic(tasks)


@dataclass(frozen=True)
class TaskComparison:
    """A comparison over tasks with its inference, which a family needs to adjust intervals.

    `unit` is the unit of the losses: `runs`, or `cells` (one run on one task) if seeds differ by task.
    """

    comparison: Comparison
    inference: Inference | None
    losses: Losses
    unit: str


def compare_tasks(
    control: Array | Tables,
    candidate: Array | Tables,
    config: ComparisonConfig,
    how: TaskConfig,
    *,
    names: tuple[str, str],
    seed: Seed = None,
    losses: Losses | None = None,
) -> Comparison:
    """Compare a candidate with a control over the same tasks; see `judge_tasks`."""
    return judge_tasks(control, candidate, config, how, names=names, seed=seed, losses=losses).comparison


def judge_tasks(
    control: Array | Tables,
    candidate: Array | Tables,
    config: ComparisonConfig,
    how: TaskConfig,
    *,
    names: tuple[str, str],
    seed: Seed = None,
    losses: Losses | None = None,
) -> TaskComparison:
    """Compare arms given as one table of runs × tasks each, or as several tables if tasks have separate runs.

    A non-finite value is a lost task, which makes its run incomplete; quality is judged on complete runs. Pass the
    `losses` of all runs if the tables contain only some of them.
    """
    first: Tables = as_tables(control)
    second: Tables = as_tables(candidate)
    _refuse_other_shapes(first, second, paired=config.paired)
    losses = losses or count_task_losses(first, second)
    tasks = sum(table.shape[1] for table in first)
    name = how.named(tasks)
    statistic_named(name)
    if name == "optimality_gap":
        if config.direction == "min":
            raise UserError("an optimality gap needs a metric that is maximized")
        # From here on the gaps are the scores, and smaller is better.
        config = replace(config, direction="min")
        first, name = as_means(first, name, how.gamma)
        second, _ = as_means(second, "optimality_gap", how.gamma)
    if config.failure_value is not None:
        first, second = _filled(first, config.failure_value), _filled(second, config.failure_value)
    over = _OneTable(config, name, frozen_seed(seed)) if len(first) == 1 else _ByTask(config, name)
    kept = _whole_runs(first, second, paired=config.paired)
    judged, reliability = over.judge(*kept), judge_reliability(losses, config.alpha)
    decision = judged.decision if config.failure_value is not None else with_reliability(judged.decision, reliability)
    comparison = over.assemble(*kept, judged, decision, reliability, names)
    comparison = replace(comparison, cautions=(*comparison.cautions, *_cautions(*kept, how.named(tasks), tasks)))
    return TaskComparison(comparison, judged.inference, losses, "runs" if len(first) == 1 else "cells")


def as_tables(scores: Array | Tables) -> list[Array]:
    return [scores] if isinstance(scores, np.ndarray) else list(scores)


def _refuse_other_shapes(control: Tables, candidate: Tables, *, paired: bool) -> None:
    if len(control) != len(candidate):
        raise UserError(f"{len(control)} and {len(candidate)} tables of runs × tasks cannot be compared")
    for first, second in zip(control, candidate, strict=True):
        same_tasks(first, second)
        if paired and len(first) != len(second):
            raise UserError(f"{len(first)} and {len(second)} runs cannot be paired one to one")


def count_task_losses(control: Tables, candidate: Tables) -> Losses:
    """Count lost runs: a run with any lost task is one lost run. If tasks have separate runs, a run is a cell."""
    tables = (control, candidate)
    lost = [sum(int((~np.isfinite(table).all(axis=1)).sum()) for table in each) for each in tables]
    planned = [sum(len(table) for table in each) for each in tables]
    return Losses(lost[0], planned[0], lost[1], planned[1])


def _whole_runs(control: Tables, candidate: Tables, *, paired: bool) -> tuple[list[Array], list[Array]]:
    kept: tuple[list[Array], list[Array]] = ([], [])
    for pair in zip(control, candidate, strict=True):
        whole = [np.isfinite(table).all(axis=1) for table in pair]
        if paired:
            whole = [whole[0] & whole[1]] * 2
        for side, table, complete in zip(kept, pair, whole, strict=True):
            side.append(table[complete])
    return kept


def _filled(tables: Tables, value: float) -> list[Array]:
    """Replace the values of lost tasks with `value`."""
    return [np.where(np.isfinite(table), table, value) for table in tables]


def _open(reason: Reason) -> ComparisonResult:
    return ComparisonResult(None, Decision(Verdict.INCONCLUSIVE, None, None, None, reason.value))


def _scale(tables: Sequence[Array]) -> float:
    return max(float(np.abs(table).max()) for table in tables)


@dataclass(frozen=True)
class _OneTable:
    """Comparison of runs that all have the same tasks: one number per run."""

    config: ComparisonConfig
    name: str
    seed: int

    def judge(self, control: Tables, candidate: Tables) -> ComparisonResult:
        fewest = min(len(control[0]), len(candidate[0]))
        if fewest < fewest_runs(self.name):
            return _open(Reason.TOO_FEW)
        samples = self._values(control, candidate)
        noisy = [samples[1] - samples[0]] if self.config.paired else list(samples)
        if are_still(noisy, _scale([*control, *candidate])):
            return _open(Reason.NO_VARIATION)
        judged = judge(*samples, self.config, self.seed)
        if judged.inference is None or self.config.method != "t":
            return judged
        return replace(judged, inference=replace(judged.inference, method=f"{JACKKNIFE}, {judged.inference.method}"))

    def assemble(
        self,
        control: Tables,
        candidate: Tables,
        judged: ComparisonResult,
        decision: Decision,
        reliability: Reliability,
        names: tuple[str, str],
    ) -> Comparison:
        samples = self._values(control, candidate)
        return assemble(*samples, judged, decision, reliability, self.config, names)

    def _values(self, control: Tables, candidate: Tables) -> tuple[Array, Array]:
        first, second = (
            run_values(table, self.name) if len(table) else np.empty(0) for table in (control[0], candidate[0])
        )
        return first, second


@dataclass(frozen=True)
class _DesignByTask(Design):
    """A design whose n is the runs per task; the degrees of freedom of all tasks together grow in proportion."""

    freedom_per_run: float = 1.0

    def freedom(self, n: int) -> float:  # type: ignore[override]
        return self.freedom_per_run * (n - 1)


@dataclass(frozen=True)
class _ConfigByTask(ComparisonConfig):
    freedom_per_run: float = 1.0

    @property
    def design(self) -> Design:
        return _DesignByTask(self.paired, self.alpha, self.power, self.side, self.freedom_per_run)


@dataclass(frozen=True)
class _ByTask:
    """Comparison of tasks with separate runs: variances add, with Satterthwaite's degrees of freedom."""

    config: ComparisonConfig
    name: str

    def judge(self, control: Tables, candidate: Tables) -> ComparisonResult:
        if min(len(table) for table in [*control, *candidate]) < fewest_runs(self.name):
            return _open(Reason.TOO_FEW)
        noise = self._noise(control, candidate)
        if are_still(noise, _scale([*control, *candidate])):
            return _open(Reason.NO_VARIATION)
        value = aggregate_value(candidate, self.name) - aggregate_value(control, self.name)
        inference = from_t(f"{BY_TASK}, {SATTERTHWAITE}", value, *summed_parts(noise))
        return ComparisonResult(inference, decide_by(inference, self.config))

    def _noise(self, control: Tables, candidate: Tables) -> list[Array]:
        first, second = table_values(control, self.name), table_values(candidate, self.name)
        if self.config.paired:
            return [b - a for a, b in zip(first, second, strict=True)]
        return [*first, *second]

    def assemble(
        self,
        control: Tables,
        candidate: Tables,
        judged: ComparisonResult,
        decision: Decision,
        reliability: Reliability,
        names: tuple[str, str],
    ) -> Comparison:
        """Build the comparison. A run has only one task, so there are no effect sizes by run."""
        config, known = self.config, judged.inference
        runs = [min(len(table) for table in tables) for tables in (control, candidate)]
        values = [
            aggregate_value(tables, self.name) if least else None
            for tables, least in zip((control, candidate), runs, strict=True)
        ]
        n = runs[0] if config.paired else sum(runs)
        comparison = Comparison(
            control=names[0],
            candidate=names[1],
            pairing="paired" if config.paired else "unpaired",
            method=known.method if known else config.method,
            side=config.side,
            direction=config.direction,
            alpha=config.alpha,
            sesoi=config.sesoi,
            n_control=runs[0],
            n_candidate=runs[1],
            mean_control=values[0],
            mean_candidate=values[1],
            sd_control=None,
            sd_candidate=None,
            effect=_estimate(known, values, decision, config, n, config.alpha, config.on_difference()),
            equivalence=_estimate(known, values, decision, config, n, 2 * config.alpha, "two-sided"),
            p_value=known.p_value(config.on_difference()) if known else None,
            verdict=decision.verdict,
            reason=decision.reason,
            significant=decision.significant,
            equivalent=decision.equivalent,
            exceeds_sesoi=decision.exceeds_sesoi,
            not_worse=decision.not_worse,
            reliability=reliability,
            failure_value=config.failure_value,
            tests=dict(known.detail) if known else {},
            cautions=tuple(_few_or_lost(runs, reliability, names)),
        )
        return replace(comparison, **_outlook_by_task(comparison, known, config)) if known else comparison


def _estimate(
    known: Inference | None,
    values: Sequence[float | None],
    decision: Decision,
    config: ComparisonConfig,
    n: int,
    alpha: float,
    side: str,
) -> Estimate:
    if known is not None:
        return known.estimate(alpha, side, n)
    value = None if values[0] is None or values[1] is None else values[1] - values[0]
    return Estimate(value, None, None, 1 - alpha, config.method, n, reason=decision.reason)


def _few_or_lost(runs: Sequence[int], reliability: Reliability, names: tuple[str, str]) -> list[FilledCaution]:
    cautions = lost_cautions(reliability, names)
    return [*cautions, FEW_SEEDS.fill(n=min(runs))] if min(runs) < FEWEST else cautions


def _outlook_by_task(comparison: Comparison, known: Inference, config: ComparisonConfig) -> dict[str, Any]:
    """Compute the outlook from the standard error of the difference and its degrees of freedom."""
    runs = min(comparison.n_control, comparison.n_candidate)
    error, freedom = known.detail["standard_error"], known.detail["df"]
    sd = error * math.sqrt(runs if config.paired else runs / 2)
    own = _ConfigByTask(**vars(config), freedom_per_run=freedom / (runs - 1))
    return outlook(comparison, sd, runs, own)


def stratified_difference(
    control: Array | Tables, candidate: Array | Tables, config: ComparisonConfig, how: TaskConfig, seed: Seed = None
) -> Estimate:
    """Estimate the same difference by rliable's stratified bootstrap, for comparison with published intervals."""
    kept = _whole_runs(as_tables(control), as_tables(candidate), paired=config.paired)
    if any(len({len(table) for table in tables}) > 1 for tables in kept):
        raise UserError("the stratified bootstrap needs the same number of runs on every task")
    first, second = (np.hstack(tables) for tables in kept)
    tasks = first.shape[1]
    name = how.named(tasks)
    function = statistic_named(name, how.gamma)
    n = len(first) if config.paired else len(first) + len(second)
    message = f"{BOOTSTRAP} of the {name} over {tasks} tasks"
    unknown = Estimate(None, None, None, 1 - config.alpha, message, n, reason=Reason.TOO_FEW.value)
    if min(len(first), len(second)) < 2:
        return unknown
    inference = infer_difference(
        canonical(first, second, paired=config.paired), function, how.resamples, frozen_seed(seed)
    )
    if inference is None:
        return replace(unknown, value=float(function(second) - function(first)), reason=Reason.NO_VARIATION.value)
    return replace(inference, method=message).estimate(config.alpha, config.on_difference(), n)


def _cautions(control: Tables, candidate: Tables, name: str, tasks: int) -> list[FilledCaution]:
    cautions: list[FilledCaution] = []
    if name == "iqm" and tasks < ENOUGH_TASKS:
        cautions.append(FEW_TASKS.fill(tasks=tasks))
    pairs = list(zip(control, candidate, strict=True))
    runs = min(len(table) for pair in pairs for table in pair)
    if runs < 2:
        return cautions
    if name == "median" and runs < ENOUGH_FOR_MEDIAN:
        cautions.append(MEDIAN_TASKS.fill(runs=runs))
    sizes = np.concatenate([np.abs(np.concatenate(pair)).mean(axis=0) for pair in pairs])
    if tasks > 1 and sizes.min() * 10 < sizes.max():
        cautions.append(TASK_SCALES.fill())
    return cautions
