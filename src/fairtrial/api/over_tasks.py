"""analyze --tasks: runs × tasks per arm, and each candidate's aggregate against the control's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fairtrial.analyse.aggregate import aggregate, default_statistic, probability_of_improvement
from fairtrial.analyse.compare import Terms
from fairtrial.analyse.families import ADJUST
from fairtrial.analyse.samples import Array
from fairtrial.analyse.summaries import SummaryRule, describe
from fairtrial.analyse.tasks import TaskTerms, compare_tasks
from fairtrial.analyse.verdicts import conclude
from fairtrial.api.analysis import Analysis, ArmAccount, Question
from fairtrial.api.context import fairness_of
from fairtrial.api.gather import Gathered
from fairtrial.api.numbers import Numbers, number_runs
from fairtrial.core.errors import UserError
from fairtrial.core.findings import Comparison, Verdict


def over_tasks(gathered: Gathered, control: str, rule: SummaryRule, terms: Terms, question: Question) -> Analysis:
    """Runs × tasks per arm; each candidate's aggregate against the control's."""
    tasks = list(dict.fromkeys(t.task for traces in gathered.arms.values() for t in traces))
    by_task = {task: number_runs(gathered, gathered.metric, gathered.direction, rule, task)[0] for task in tasks}
    tables = _tables(by_task, list(gathered.arms), terms.paired)
    how = TaskTerms(question.statistic)
    name = question.statistic or default_statistic(len(tasks))
    others = [arm for arm in gathered.arms if arm != control]
    found = [
        replace(
            compare_tasks(tables[control], tables[arm], terms, how, names=(control, arm), seed=question.seed),
            metric=f"{name} of {rule.label(gathered.metric)}",
        )
        for arm in others
    ]
    if len(found) > 1:
        found = _adjusted_tasks(found, terms)
    fairness = {arm: fairness_of(gathered, control, arm) for arm in others}
    return Analysis(
        source=gathered.source, metric=gathered.metric, direction=gathered.direction,
        summary=describe(rule, None), control=control,
        arms=[_task_account(arm, tables[arm], by_task) for arm in gathered.arms],
        comparisons=found, fairness=fairness,
        tasks=_task_findings(tables, control, [str(task) for task in tasks], terms, question),
        curves=gathered.arms,
    )  # fmt: skip


def _adjusted_tasks(found: Sequence[Comparison], terms: Terms) -> list[Comparison]:
    known = [each.p_value for each in found if each.p_value is not None]
    adjusted = iter(ADJUST["holm"](known))
    return [_by_adjusted(each, next(adjusted), terms) if each.p_value is not None else each for each in found]


def _by_adjusted(found: Comparison, p: float, terms: Terms) -> Comparison:
    changed = replace(found, adjusted_p=p, adjustment="holm")
    if found.verdict is Verdict.INCONCLUSIVE or found.equivalent:
        return changed
    decision = conclude(p <= terms.alpha, (found.gain or 0) > 0, found.equivalent, found.exceeds_sesoi)
    return replace(changed, verdict=decision.verdict, reason=decision.reason, significant=decision.significant)


def _tables(by_task: Mapping[Any, Numbers], arms: Sequence[str], paired: bool) -> dict[str, Array]:
    """Runs × tasks. Rows are the seeds of any task; a run that is not there at all cannot be compared."""
    tables = {}
    shared = None
    for arm in arms:
        seeds = [set(numbers.get(arm, {})) for numbers in by_task.values()]
        everywhere = set.intersection(*seeds)
        if not everywhere:
            raise UserError(f"{arm} has no seed that was run on every task")
        shared = everywhere if shared is None else shared & everywhere
        tables[arm] = everywhere
    if paired and not shared:
        raise UserError("the arms share no seed on every task", hint="Compare them with --unpaired.")
    rows = {arm: sorted(shared if paired and shared else tables[arm]) for arm in arms}
    return {
        arm: np.array([[numbers[arm][seed].number for numbers in by_task.values()] for seed in rows[arm]])
        for arm in arms
    }


def _task_account(arm: str, table: Array, by_task: Mapping[Any, Numbers]) -> ArmAccount:
    left_out = [
        {"run": f"{arm}, {task}, seed {seed}", "seed": seed, "reason": number.reason}
        for task, numbers in by_task.items()
        for seed, number in numbers.get(arm, {}).items()
        if number.value is None
    ]
    whole = table[np.isfinite(table).all(axis=1)].mean(axis=1)
    total = sum(len(numbers.get(arm, {})) for numbers in by_task.values())
    values = {str(row): float(value) for row, value in enumerate(whole, 1)}
    return ArmAccount(
        arm, total, total, total - len(left_out), len(whole) * table.shape[1],
        float(whole.mean()) if len(whole) else None, float(whole.std(ddof=1)) if len(whole) > 1 else None,
        values, left_out,
    )  # fmt: skip


def _task_findings(
    tables: Mapping[str, Array], control: str, tasks: Sequence[str], terms: Terms, question: Question
) -> dict[str, Any]:
    """Aggregates of each arm and the probability of improvement, where no run is missing a task."""
    level = 1 - terms.alpha
    whole = {arm: table[np.isfinite(table).all(axis=1)] for arm, table in tables.items()}
    sign = 1.0 if terms.direction == "max" else -1.0

    def aggregates(table: Array) -> dict[str, Any]:
        statistics = ("iqm", "mean", "median")
        return {s: aggregate(table, statistic=s, level=level, rng=question.seed).to_dict() for s in statistics}

    return {
        "tasks": list(tasks),
        "statistic": question.statistic or default_statistic(len(tasks)),
        "aggregates": {arm: aggregates(table) for arm, table in whole.items() if len(table)},
        "probability_of_improvement": {
            arm: _improvement(sign * whole[control], sign * table, level, question.seed)
            for arm, table in whole.items() if arm != control and len(table) and len(whole[control])
        },
        "scores": {arm: table.tolist() for arm, table in tables.items()},
    }  # fmt: skip


def _improvement(control: Array, candidate: Array, level: float, seed: int) -> dict[str, Any]:
    return probability_of_improvement(control, candidate, level=level, rng=seed).to_dict()
