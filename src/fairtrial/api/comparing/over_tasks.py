"""analyze --tasks: compare each candidate's aggregate over runs × tasks with that of the control."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fairtrial.api.comparing.analysis import Analysis, ArmAccount, Question
from fairtrial.api.comparing.context import fairness_of, in_context, shared_cautions
from fairtrial.api.comparing.gather import RunSet
from fairtrial.api.comparing.numbers import RunScores, logging_cautions, number_runs
from fairtrial.api.comparing.shown_comparisons import comparisons_on_view
from fairtrial.core.cautions import INCOMPLETE_GRID, RAW_SCORES, SHARED_LUCK, TASKS_LEFT_OUT
from fairtrial.core.errors import UserError
from fairtrial.core.findings import Comparison, FilledCaution
from fairtrial.core.formatting import counted
from fairtrial.core.scores import NORMALIZED, SCALE
from fairtrial.core.specs import split_and_quantity
from fairtrial.stats.aggregate import aggregate_tables
from fairtrial.stats.compare import ComparisonConfig
from fairtrial.stats.families import POOLED, adjust_comparisons, stepwise
from fairtrial.stats.improvement import improvement
from fairtrial.stats.ranking import rank_arms
from fairtrial.stats.reliability import Losses, with_losses
from fairtrial.stats.samples import Array
from fairtrial.stats.seed_effect import seed_effect_cautions
from fairtrial.stats.stratified import RESAMPLES as TASK_RESAMPLES
from fairtrial.stats.stratified import share_luck
from fairtrial.stats.summaries import SummaryRule, describe
from fairtrial.stats.task_grid import TaskGrid, lay_out
from fairtrial.stats.task_statistics import default_statistic
from fairtrial.stats.tasks import PER_RUN, TaskConfig, compare_tasks, stratified_difference

STRATIFIED = "percentile"
"""The --method that adds the stratified bootstrap to the verdict."""
MOST_NAMED = 5


def over_tasks(
    run_set: RunSet, control: str, rule: SummaryRule, config: ComparisonConfig, question: Question
) -> Analysis:
    """Compare each candidate's aggregate over runs × tasks with that of the control."""
    by_task = _by_task(run_set, rule)
    grid = _grid(by_task, list(run_set.arms), paired=config.paired)
    _refuse_what_tasks_cannot(question, len(grid.tasks), shared=grid.shared)
    stratified = config.method == STRATIFIED or (question.resamples is not None and question.method is None)
    config = replace(config, method="t") if stratified else config
    how = TaskConfig(question.statistic, question.resamples or TASK_RESAMPLES, _gamma(question, run_set.metric))
    others = [arm for arm in run_set.arms if arm != control]
    fairness = {arm: fairness_of(run_set, control, arm) for arm in others}

    def again(index: int, alpha: float) -> Comparison:
        return _quality(grid, (control, others[index]), replace(config, alpha=alpha), how, question.seed)

    metric = f"{how.named(len(grid.tasks))} of {rule.label(run_set.metric)}"
    judged = adjust_comparisons(again, len(others), stepwise(question.family), config.alpha)
    comparisons = [
        replace(
            in_context(_with_losses(each, grid, config, len(others)), run_set, fairness[each.candidate]), metric=metric
        )
        for each in judged
    ]
    asked = question.asked(run_set.metric, f"{rule}, {how.named(len(grid.tasks))} over tasks")
    tasks = _task_findings(grid, control, config, how)
    if stratified:
        tasks["stratified_bootstrap"] = {
            arm: stratified_difference(grid.tables(control), grid.tables(arm), config, how, question.seed).to_dict()
            for arm in others
        }
    cautions = [
        *shared_cautions(run_set, {}, {}, paired=config.paired),
        *_raw_scores(run_set),
        *logging_cautions(run_set, rule),
        *_constant_scores(grid, run_set.metric),
    ]
    return Analysis(
        source=run_set.source,
        metric=run_set.metric,
        direction=run_set.direction,
        direction_source=run_set.direction_source,
        summary=describe(rule, {}),
        control=control,
        arms=[_task_account(arm, grid, by_task, run_set) for arm in run_set.arms],
        comparisons=comparisons,
        fairness=fairness,
        tasks=tasks,
        cautions=[*cautions, *_grid_cautions(grid, stratified=stratified)],
        curves=run_set.arms,
        on_view=[comparisons_on_view(comparisons, run_set, asked)],
    )


def _by_task(run_set: RunSet, rule: SummaryRule) -> dict[str, RunScores]:
    """Return task → scores of its runs. A run without a seed is identified by its name, which tasks may share."""
    tasks = list(dict.fromkeys(str(t.task) for traces in run_set.arms.values() for t in traces))
    summaries = {}
    for task in tasks:
        own = {arm: [t for t in traces if str(t.task) == task] for arm, traces in run_set.arms.items()}
        scores, _ = number_runs(replace(run_set, arms=own), run_set.metric, run_set.direction, rule, task)
        summaries[task] = {
            arm: {name.removeprefix(f"{arm}/{task}/"): number for name, number in each.items()}
            for arm, each in scores.items()
        }
    if any(n.censored for scores in summaries.values() for arm in scores.values() for n in arm.values()):
        raise UserError("some runs never reached the threshold, so times cannot be averaged over tasks")
    return summaries


def _grid(by_task: Mapping[str, RunScores], arms: Sequence[str], *, paired: bool) -> TaskGrid:
    cells = {
        arm: {task: {seed: n.number for seed, n in scores.get(arm, {}).items()} for task, scores in by_task.items()}
        for arm in arms
    }
    grid = lay_out(cells, paired=paired)
    if not grid.tasks:
        raise UserError("no task was run by every variant", hint="Choose variants with --candidate.")
    return grid


def _quality(
    grid: TaskGrid, names: tuple[str, str], config: ComparisonConfig, how: TaskConfig, seed: int
) -> Comparison:
    """Compare the aggregates of two arms over runs that completed all tasks; losses are accounted for later."""
    none_lost = Losses(0, grid.losses(names[0])[1], 0, grid.losses(names[1])[1])
    tables = grid.tables(names[0]), grid.tables(names[1])
    return compare_tasks(*tables, config, how, names=names, seed=seed, losses=none_lost)


def _with_losses(comparison: Comparison, grid: TaskGrid, config: ComparisonConfig, comparisons: int) -> Comparison:
    losses = Losses(*grid.losses(comparison.control), *grid.losses(comparison.candidate))
    return with_losses(comparison, losses, config.alpha / comparisons)


def _gamma(question: Question, metric: str) -> float:
    return question.gamma if question.gamma is not None else SCALE if metric.endswith(NORMALIZED) else 1.0


def _constant_scores(grid: TaskGrid, metric: str) -> list[FilledCaution]:
    """Return cautions about arms whose runs have the same scores on every task; on a single task that is normal."""
    constant_scores: list[FilledCaution] = []
    for arm in grid.cells:
        tasks = [scores for table in grid.tables(arm) for scores in table.T]
        if all(seed_effect_cautions(arm, metric, scores) for scores in tasks):
            constant_scores += seed_effect_cautions(arm, metric, tasks[0])
    return constant_scores


def _raw_scores(run_set: RunSet) -> list[FilledCaution]:
    """Return a caution about averaging raw scores over tasks if all runs also logged normalized scores."""
    split, _ = split_and_quantity(run_set.metric)
    better = f"{split}_{NORMALIZED}"
    curves = [trace.curves for traces in run_set.arms.values() for trace in traces]
    raw = run_set.metric != better and bool(curves) and all(better in each for each in curves)
    return [RAW_SCORES.fill(metric=run_set.metric, better=better)] if raw else []


def _grid_cautions(grid: TaskGrid, *, stratified: bool) -> list[FilledCaution]:
    grid_cautions: list[FilledCaution] = []
    if grid.left_out:
        more = f" and {len(grid.left_out) - MOST_NAMED} more" if len(grid.left_out) > MOST_NAMED else ""
        grid_cautions.append(
            TASKS_LEFT_OUT.fill(count=len(grid.left_out), tasks=", ".join(grid.left_out[:MOST_NAMED]) + more)
        )
    absent = sum(len(grid.incomplete(arm)) for arm in grid.cells)
    if absent:
        grid_cautions.append(INCOMPLETE_GRID.fill(count=absent))
    whole = [_whole(table) for arm in grid.cells for table in grid.tables(arm)]
    if stratified and grid.shared and any(len(table) > 1 and share_luck(table) for table in whole):
        grid_cautions.append(SHARED_LUCK.fill())
    return grid_cautions


def _whole(table: Array) -> Array:
    return np.asarray(table[np.isfinite(table).all(axis=1)])


def _refuse_what_tasks_cannot(question: Question, tasks: int, *, shared: bool) -> None:
    """Raise for options that do not apply over tasks.

    Tests of one number per run need a mean over tasks, and so runs that cover all tasks.
    """
    per_run = shared and (question.statistic or default_statistic(tasks)) in PER_RUN
    method = question.method not in (None, "t", STRATIFIED) and (not per_run or question.method == "bca")
    asked = {
        "--certify": question.certify,
        "--power.enabled": question.power,
        "--ttest.enabled": question.ttest,
        "a second --metric": len(question.metrics) > 1,
        f"--family {question.family}": question.family in POOLED,
        f"--method {question.method}": method,
    }
    given = [option for option, is_given in asked.items() if is_given]
    if given:
        raise UserError(f"{given[0]} does not apply over tasks", hint="Omit it, or compare one task.")


def _task_account(arm: str, grid: TaskGrid, by_task: Mapping[str, RunScores], run_set: RunSet) -> ArmAccount:
    """Return the account of an arm. It counts cells; a cell here is one run on one task."""
    scores = [(task, seed, n) for task, each in by_task.items() for seed, n in each.get(arm, {}).items()]
    left_out: list[Mapping[str, str | None]] = [
        {"run": f"{arm}, {task}, seed {seed}", "seed": seed, "reason": n.reason}
        for task, seed, n in scores
        if n.value is None
    ]
    left_out += [
        {"run": f"{arm}, seed {seed}", "seed": seed, "reason": f"not run on {counted(count, 'task')}; not scored"}
        for seed, count in grid.incomplete(arm).items()
    ]
    whole = [_whole(table) for table in grid.tables(arm)]
    means, values = _means_of_runs(arm, grid)
    started = len(run_set.arms[arm])
    planned = started + sum(grid.incomplete(arm).values())
    return ArmAccount(
        arm,
        planned,
        started,
        sum(n.value is not None for _, _, n in scores),
        sum(table.size for table in whole),
        float(np.mean(means)) if len(means) else None,
        float(np.std(means, ddof=1)) if len(means) > 1 else None,
        values,
        left_out,
    )


def _means_of_runs(arm: str, grid: TaskGrid) -> tuple[Array, dict[str, float | None]]:
    """Return the mean over tasks of every run if runs cover all tasks; None for a run that lost a task."""
    if not grid.shared:
        return np.empty(0), {}
    table = grid.tables(arm)[0]
    means = table.mean(axis=1) if len(table) else np.empty(0)
    values = {
        seed: float(value) if np.isfinite(value) else None for seed, value in zip(grid.rows[arm][0], means, strict=True)
    }
    return np.sort(means[np.isfinite(means)]), values


def _task_findings(grid: TaskGrid, control: str, config: ComparisonConfig, how: TaskConfig) -> dict[str, Any]:
    """Return the aggregates and the probability of improvement of each arm, over runs that completed all tasks."""
    level, statistic = 1 - config.alpha, how.named(len(grid.tasks))
    tables = {arm: grid.tables(arm) for arm in grid.cells}
    whole = {arm: [_whole(table) for table in each] for arm, each in tables.items()}
    known = {arm: each for arm, each in whole.items() if min(map(len, each))}
    names = dict.fromkeys(["iqm", "mean", "median", statistic])
    return {
        "tasks": grid.tasks,
        "statistic": statistic,
        "layout": "runs on all tasks" if grid.shared else "seeds by task",
        "runs": {arm: [len(table) for table in each] for arm, each in whole.items()},
        "aggregates": {
            arm: {name: aggregate_tables(each, name, level, how.gamma).to_dict() for name in names}
            for arm, each in known.items()
        },
        "probability_of_improvement": {
            arm: improvement
            for arm in known
            if arm != control and (improvement := _improvement(tables[control], tables[arm], config, level)) is not None
        },
        "ranking": [rank.to_dict() for rank in rank_arms(tables, statistic, config.direction, how.gamma)],
        "scores": {arm: each[0].tolist() for arm, each in tables.items()} if grid.shared else None,
        "scores_by_task": None if grid.shared else {arm: _scores_by_task(grid, arm) for arm in grid.cells},
    }


def _scores_by_task(grid: TaskGrid, arm: str) -> dict[str, list[float]]:
    return {
        task: [grid.cells[arm][task][seed] for seed in seeds]
        for group, seeds in zip(grid.groups, grid.rows[arm], strict=True)
        for task in group
    }


def _improvement(
    control: Sequence[Array], candidate: Sequence[Array], config: ComparisonConfig, level: float
) -> dict[str, Any] | None:
    sign = 1.0 if config.direction == "max" else -1.0
    sides: tuple[list[Array], list[Array]] = ([], [])
    for pair in zip(control, candidate, strict=True):
        whole = [np.isfinite(table).all(axis=1) for table in pair]
        whole = [whole[0] & whole[1]] * 2 if config.paired else whole
        for side, table, complete in zip(sides, pair, whole, strict=True):
            side.append(sign * table[complete])
    if not min(len(table) for side in sides for table in side):
        return None
    return improvement(*sides, paired=config.paired, level=level).to_dict()
