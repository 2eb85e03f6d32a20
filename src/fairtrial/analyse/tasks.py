"""Candidate against control over many tasks: the difference of their aggregates."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from fairtrial.analyse.aggregate import (
    BOOTSTRAP,
    ENOUGH_TASKS,
    RESAMPLES,
    Statistic,
    default_statistic,
    from_draws,
    resampled_rows,
    same_tasks,
    statistic_named,
    widening_of,
)
from fairtrial.analyse.compare import Judged, Terms, assemble, decide_by, judge
from fairtrial.analyse.inference import Inference
from fairtrial.analyse.samples import Arms, Array, Seed, canonical, frozen_seed
from fairtrial.analyse.verdicts import Decision, stand_both
from fairtrial.core.cautions import FEW_TASKS, SHARED_LUCK, TASK_SCALES
from fairtrial.core.errors import UserError
from fairtrial.core.findings import Attrition, Comparison, FilledCaution, Reason, Verdict


@dataclass(frozen=True)
class TaskTerms:
    """What is asked of a comparison over tasks."""

    statistic: str | None = None
    resamples: int = RESAMPLES
    gamma: float = 1.0

    def named(self, tasks: int) -> str:
        return self.statistic or default_statistic(tasks)


def compare_tasks(
    control: Array, candidate: Array, terms: Terms, how: TaskTerms, *, names: tuple[str, str], seed: Seed = None
) -> Comparison:
    """Candidate against control over the same tasks, from tables of runs × tasks.

    Over few tasks this is the comparison of per-run means over tasks; from 20 on a stratified bootstrap, which
    resamples pairs together where the runs are paired. A run that lost a task has no mean: the verdict must hold
    without it, and with the worst score that anyone had on that task.
    """
    same_tasks(control, candidate)
    if how.statistic == "optimality_gap":
        if terms.direction == "min":
            raise UserError("an optimality gap is for scores of which more is better")
        # The gap of many scores is the mean of their gaps: from here on these are the scores, and are to be small.
        control, candidate = (np.maximum(how.gamma - table, 0.0) for table in (control, candidate))
        terms, how = replace(terms, direction="min"), replace(how, statistic="mean")
    if terms.paired and len(control) != len(candidate):
        raise UserError(f"{len(control)} and {len(candidate)} runs cannot be paired one to one")
    seed = frozen_seed(seed)
    kept = _whole_runs(control, candidate, paired=terms.paired)
    judged = _judge(*kept, terms, how, seed)
    lost = [int((~np.isfinite(table).all(axis=1)).sum()) for table in (control, candidate)]
    decision, attrition = judged.decision, None
    if any(lost):
        decision, attrition = _under_attrition(control, candidate, judged, terms, how, seed, lost)
    found = assemble(kept[0].mean(axis=1), kept[1].mean(axis=1), judged, decision, attrition, terms, names)
    if judged.inference is not None and judged.inference.method.startswith(BOOTSTRAP):
        # The runs' own means over tasks are not what this statistic rests on.
        effect, equivalence = replace(found.effect, samples=None), replace(found.equivalence, samples=None)
        found = replace(found, effect=effect, equivalence=equivalence)
    return replace(found, cautions=(*found.cautions, *_cautions(*kept, how)))


def _whole_runs(control: Array, candidate: Array, *, paired: bool) -> tuple[Array, Array]:
    whole = [np.isfinite(table).all(axis=1) for table in (control, candidate)]
    if paired:
        whole = [whole[0] & whole[1]] * 2
    return control[whole[0]], candidate[whole[1]]


def _judge(control: Array, candidate: Array, terms: Terms, how: TaskTerms, seed: int) -> Judged:
    tasks = control.shape[1]
    plain = judge(control.mean(axis=1), candidate.mean(axis=1), terms, seed)
    if min(len(control), len(candidate)) < 2 or (how.named(tasks) == "mean" and tasks < ENOUGH_TASKS):
        return plain
    arms = canonical(control, candidate, paired=terms.paired)
    inference = _difference(arms, statistic_named(how.named(tasks), how.gamma), how.resamples, seed)
    if inference is None:
        return Judged(None, Decision(Verdict.INCONCLUSIVE, None, None, None, Reason.NO_VARIATION.value))
    inference = inference.symmetric() if arms.symmetric else inference.negated() if arms.swapped else inference
    inference = replace(inference, method=f"{BOOTSTRAP} of the {how.named(tasks)} over {tasks} tasks")
    return Judged(inference, decide_by(inference, terms))


def _under_attrition(
    control: Array, candidate: Array, judged: Judged, terms: Terms, how: TaskTerms, seed: int, lost: list[int]
) -> tuple[Decision, Attrition]:
    seen = np.concatenate([control, candidate])
    known = np.isfinite(seen)
    away = np.inf if terms.direction == "max" else -np.inf
    extreme = np.min if terms.direction == "max" else np.max
    worst = np.where(known.any(axis=0), extreme(np.where(known, seen, away), axis=0), 0.0)
    filled = [np.where(np.isfinite(table), table, worst) for table in (control, candidate)]
    scored = _judge(filled[0], filled[1], terms, how, seed)
    decision = stand_both(judged.decision, scored.decision)
    return decision, Attrition(lost[0], lost[1], None, judged.decision.verdict, scored.decision.verdict)


def _difference(arms: Arms, function: Statistic, resamples: int, seed: int) -> Inference | None:
    """second − first, resampled within each task."""
    rng = arms.stream(seed)
    first, second = arms.first, arms.second
    columns = np.arange(first.shape[1])
    draws = []
    for rows in resampled_rows(first.shape, resamples, rng):
        others = rows if arms.paired else rng.integers(0, len(second), (len(rows), *second.shape))
        draws.append(function(second[others, columns]) - function(first[rows, columns]))
    value = float(function(second) - function(first))
    scale = max(float(np.abs(first).max()), float(np.abs(second).max()))
    return from_draws(value, np.concatenate(draws), widening_of(min(arms.runs)), scale)


def _cautions(control: Array, candidate: Array, how: TaskTerms) -> list[FilledCaution]:
    tasks = control.shape[1]
    name = how.named(tasks)
    found: list[FilledCaution] = []
    if tasks < ENOUGH_TASKS and name != "mean":
        found.append(FEW_TASKS.fill(tasks=tasks, statistic=name))
    if min(len(control), len(candidate)) < 2:
        return found
    sizes = np.abs(np.concatenate([control, candidate])).mean(axis=0)
    if tasks > 1 and sizes.min() * 10 < sizes.max():
        found.append(TASK_SCALES.fill())
    if tasks >= ENOUGH_TASKS and (share_luck(control) or share_luck(candidate)):
        found.append(SHARED_LUCK.fill())
    return found


def share_luck(table: Array) -> bool:
    """Whether runs that do well on one task do well on the others, more than chance would have it.

    Standardized within each task, the means of independent runs have a variance of one over the number of tasks.
    """
    runs = len(table)
    spread = table.std(axis=0, ddof=1)
    varying = spread > 0
    if runs < 2 or varying.sum() < 2:
        return False
    scores = (table[:, varying] - table[:, varying].mean(axis=0)) / spread[varying]
    excess = float(scores.mean(axis=1).var(ddof=1)) * int(varying.sum()) * (runs - 1)
    return float(special.chdtrc(runs - 1, excess)) < 0.01
