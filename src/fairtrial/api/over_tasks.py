"""analyze --tasks: runs × tasks per arm, and each candidate's aggregate against the control's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fairtrial.analyse.aggregate import ENOUGH_TASKS, aggregate, default_statistic, probability_of_improvement
from fairtrial.analyse.aggregate import RESAMPLES as TASK_RESAMPLES
from fairtrial.analyse.compare import Terms
from fairtrial.analyse.families import ADJUST, adjust_comparisons
from fairtrial.analyse.ranking import rank_arms
from fairtrial.analyse.samples import Array
from fairtrial.analyse.summaries import Summarised, SummaryRule, describe
from fairtrial.analyse.tasks import TaskTerms, compare_tasks
from fairtrial.api.analysis import Analysis, ArmAccount, Question
from fairtrial.api.context import fairness_of, in_context, shared_cautions
from fairtrial.api.gather import Gathered
from fairtrial.api.numbers import Numbers, number_runs
from fairtrial.core.cautions import RAW_SCORES
from fairtrial.core.errors import UserError
from fairtrial.core.findings import FilledCaution
from fairtrial.core.scores import NORMALIZED, SCALE
from fairtrial.core.specs import split_and_quantity
from fairtrial.record.store import Store


def over_tasks(
    gathered: Gathered, control: str, rule: SummaryRule, terms: Terms, question: Question, store: Store
) -> Analysis:
    """Runs × tasks per arm; each candidate's aggregate against the control's."""
    tasks = list(dict.fromkeys(str(t.task) for traces in gathered.arms.values() for t in traces))
    _refuse_what_tasks_cannot(question, len(tasks))
    by_task = {task: number_runs(gathered, gathered.metric, gathered.direction, rule, task)[0] for task in tasks}
    if any(n.censored for numbers in by_task.values() for arm in numbers.values() for n in arm.values()):
        raise UserError("some runs never reached the threshold: times over tasks cannot be averaged")
    seeds = _seeds(by_task, list(gathered.arms), terms.paired)
    tables = {arm: _table(by_task, arm, seeds[arm]) for arm in gathered.arms}
    how = TaskTerms(question.statistic, question.resamples or TASK_RESAMPLES, _gamma(question, gathered.metric))
    others = [arm for arm in gathered.arms if arm != control]
    fairness = {arm: fairness_of(gathered, control, arm) for arm in others}
    found = []
    for arm in others:
        plain = compare_tasks(tables[control], tables[arm], terms, how, names=(control, arm), seed=question.seed)
        metric = f"{how.named(len(tasks))} of {rule.label(gathered.metric)}"
        found.append(replace(in_context(plain, gathered, fairness[arm], store), metric=metric))
    family = question.family if question.family in ADJUST else "holm"
    return Analysis(
        source=gathered.source, metric=gathered.metric, direction=gathered.direction,
        direction_source=gathered.direction_source,
        summary=describe(rule, {}), control=control,
        arms=[_task_account(arm, tables[arm], seeds[arm], by_task) for arm in gathered.arms],
        comparisons=adjust_comparisons(found, family, terms.alpha), fairness=fairness,
        tasks=_task_findings(tables, control, tasks, terms, how, question.seed),
        cautions=[*shared_cautions(gathered, {}, {}, paired=terms.paired), *_raw_scores(gathered)],
        curves=gathered.arms,
    )  # fmt: skip


def _gamma(question: Question, metric: str) -> float:
    return question.gamma if question.gamma is not None else SCALE if metric.endswith(NORMALIZED) else 1.0


def _raw_scores(gathered: Gathered) -> list[FilledCaution]:
    """Scores of different tasks mean different things, and here there are some that do not."""
    split, _ = split_and_quantity(gathered.metric)
    better = f"{split}_{NORMALIZED}"
    curves = [trace.curves for traces in gathered.arms.values() for trace in traces]
    raw = gathered.metric != better and bool(curves) and all(better in each for each in curves)
    return [RAW_SCORES.fill(metric=gathered.metric, better=better)] if raw else []


def _refuse_what_tasks_cannot(question: Question, tasks: int) -> None:
    resampled = (question.statistic or default_statistic(tasks)) != "mean" or tasks >= ENOUGH_TASKS
    asked = {
        "--certify": question.certify, "--power.enabled": question.power, "--ttest.enabled": question.ttest,
        "a second --metric": len(question.metrics) > 1, "--family tukey": question.family == "tukey",
        "--method": question.method not in (None, "t") and resampled,
    }  # fmt: skip
    given = [option for option, is_given in asked.items() if is_given]
    if given:
        raise UserError(f"{given[0]} does not apply over tasks", hint="Leave it out, or compare one task.")


def _seeds(by_task: Mapping[str, Numbers], arms: Sequence[str], paired: bool) -> dict[str, list[str]]:
    """The rows of each table: every seed that was run on some task; paired, those that every arm has."""
    own = {arm: {seed for numbers in by_task.values() for seed in numbers.get(arm, {})} for arm in arms}
    if not paired:
        return {arm: sorted(seeds) for arm, seeds in own.items()}
    shared = sorted(set.intersection(*own.values()))
    if not shared:
        raise UserError("the arms share no seed", hint="Compare them with --unpaired.")
    return dict.fromkeys(arms, shared)


_ABSENT = Summarised(None, "not run on this task")


def _table(by_task: Mapping[str, Numbers], arm: str, seeds: Sequence[str]) -> Array:
    """Runs × tasks; a task that a run lost or never had is NaN, and the verdict must survive it."""
    return np.array([[n.get(arm, {}).get(seed, _ABSENT).number for n in by_task.values()] for seed in seeds])


def _task_account(arm: str, table: Array, seeds: Sequence[str], by_task: Mapping[str, Numbers]) -> ArmAccount:
    cells = {
        (task, seed): numbers.get(arm, {}).get(seed, _ABSENT) for task, numbers in by_task.items() for seed in seeds
    }
    left_out = [
        {"run": f"{arm}, {task}, seed {seed}", "seed": seed, "reason": number.reason}
        for (task, seed), number in cells.items() if number.value is None
    ]  # fmt: skip
    complete = [bool(np.isfinite(row).all()) for row in table]
    whole = table[np.array(complete, dtype=bool)].mean(axis=1)
    started = sum(number is not _ABSENT for number in cells.values())
    means = {seed: float(row.mean()) if ok else None for seed, row, ok in zip(seeds, table, complete, strict=True)}
    return ArmAccount(
        arm, len(cells), started, sum(number.value is not None for number in cells.values()),
        len(whole) * table.shape[1],
        float(whole.mean()) if len(whole) else None, float(whole.std(ddof=1)) if len(whole) > 1 else None,
        means, left_out,
    )  # fmt: skip


def _task_findings(
    tables: Mapping[str, Array], control: str, tasks: Sequence[str], terms: Terms, how: TaskTerms, seed: int
) -> dict[str, Any]:
    """Aggregates of each arm and the probability of improvement, where no run is missing a task."""
    level, statistic = 1 - terms.alpha, how.named(len(tasks))
    whole = {arm: table[np.isfinite(table).all(axis=1)] for arm, table in tables.items()}
    sign = 1.0 if terms.direction == "max" else -1.0

    def aggregates(table: Array) -> dict[str, Any]:
        names = dict.fromkeys(["iqm", "mean", "median", statistic])
        return {
            name: aggregate(table, statistic=name, level=level, rng=seed, gamma=how.gamma).to_dict() for name in names
        }

    return {
        "tasks": list(tasks),
        "statistic": statistic,
        "aggregates": {arm: aggregates(table) for arm, table in whole.items() if len(table)},
        "probability_of_improvement": {
            arm: _improvement(sign * whole[control], sign * table, level, seed)
            for arm, table in whole.items() if arm != control and len(table) and len(whole[control])
        },
        "ranking": [rank.to_dict() for rank in rank_arms(tables, statistic, terms.direction, how.gamma)],
        "scores": {arm: table.tolist() for arm, table in tables.items()},
    }  # fmt: skip


def _improvement(control: Array, candidate: Array, level: float, seed: int) -> dict[str, Any]:
    return probability_of_improvement(control, candidate, level=level, rng=seed).to_dict()
