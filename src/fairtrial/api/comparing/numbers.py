"""Reduce every run to one number, and align the numbers of the arms by seed if runs are paired."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairtrial.api.comparing.gather import RunSet, is_scored
from fairtrial.core.cautions import UNEVEN_LOGGING
from fairtrial.core.errors import UserError
from fairtrial.core.findings import FilledCaution
from fairtrial.core.formatting import counted
from fairtrial.core.runs import Status
from fairtrial.core.traces import Trace
from fairtrial.stats.logged_steps import SharedSteps, share_steps
from fairtrial.stats.reliability import Losses
from fairtrial.stats.samples import Array, Mask
from fairtrial.stats.summaries import Curve, Summarised, SummaryRule, Window, summarise, tidy, windows_of

RunScores = dict[str, dict[str, Summarised]]
"""Arm → run (its seed, or its name if it has no seed) → its number, or why it has none."""


Series = dict[str, list[tuple[Trace, Curve]]]
"""Arm → its scored runs, each with the logged curve of a metric."""


def number_runs(
    run_set: RunSet, metric: str, direction: str, rule: SummaryRule, task: str | None = None
) -> tuple[RunScores, dict[str, Window | None]]:
    """Return the number of every scored run, and the window of steps that was used for each arm."""
    series = _series(run_set, metric, task)
    completed = _completed(series)
    _refuse_without_steps(run_set, rule)
    _refuse_single_points(metric, [curve for each in completed.values() for curve in each], rule, run_set.curves)
    windows = windows_of(completed, rule)
    shared = share_steps(completed, windows) if rule.depends_on_density else None
    if shared is not None and _has_too_few(shared, rule):
        _refuse_few_steps(metric, shared, rule)
    summaries: RunScores = {}
    for name, each in series.items():
        _refuse_repeated_seeds(name, [trace for trace, _ in each])
        comparable = iter(completed[name] if shared is None else shared.curves[name])
        summaries[name] = {
            label(trace): summarise(next(comparable), rule, windows[name], direction)
            if trace.status is Status.COMPLETED
            else Summarised(None, trace.reason or trace.status.value)
            for trace, _ in each
        }
    return summaries, windows


def logging_cautions(run_set: RunSet, rule: SummaryRule) -> list[FilledCaution]:
    """Return a caution for each metric that runs logged at different steps, so that some values are not used."""
    if not rule.depends_on_density:
        return []
    cautions = {}
    tasks = dict.fromkeys(trace.task for traces in run_set.arms.values() for trace in traces)
    for metric in run_set.directions:
        for task in tasks:
            completed = _completed(_series(run_set, metric, task))
            thinned = share_steps(completed, windows_of(completed, rule))
            if thinned.thinned:
                cautions[metric] = UNEVEN_LOGGING.fill(
                    metric=metric, arms=", ".join(thinned.thinned), steps=thinned.intervals, summary=rule.short
                )
    return list(cautions.values())


def _series(run_set: RunSet, metric: str, task: str | None) -> Series:
    return {
        name: [(t, tidy(*t.curves.get(metric, ((), ())))) for t in traces if is_scored(t) and t.task == task]
        for name, traces in run_set.arms.items()
    }


def _completed(series: Series) -> dict[str, list[Curve]]:
    return {name: [curve for trace, curve in each if trace.status is Status.COMPLETED] for name, each in series.items()}


def _has_too_few(shared: SharedSteps, rule: SummaryRule) -> bool:
    """Return whether too few steps are shared: a best value or a time would be coarse, and a mean needs `points`."""
    return shared.intervals < min(rule.points, shared.densest) if rule.type == "last" else shared.too_few


def _refuse_few_steps(metric: str, shared: SharedSteps, rule: SummaryRule) -> None:
    raise UserError(
        f"the runs logged {metric} at different steps and share only {counted(shared.intervals, 'step')}, while some "
        f"logged {shared.densest:,}: {rule.short} would depend on how often a run was logged",
        hint="Log all runs at the same steps, or compare the last value or --summary.type auc.",
    )


def _refuse_without_steps(run_set: RunSet, rule: SummaryRule) -> None:
    """Raise if the rule needs steps (time, area, slope, window) and the file has no step column."""
    windowed = rule.window is not None or rule.percent is not None
    if "step" in run_set.lacking and (rule.kind.over_steps or rule.type == "time_to" or windowed):
        what = f"no {rule.type}" if rule.type != "last" else "no window of steps"
        raise UserError(
            f"{run_set.source} has no step column, so there is {what}",
            hint="Name it with --step-column, or omit --summary.",
        )


def _refuse_single_points(metric: str, curves: Sequence[Any], rule: SummaryRule, others: Sequence[str]) -> None:
    """Raise if a rule over steps meets a metric with one value per run: that is a wrong question, not a lost run."""
    if rule.kind.over_steps and curves and all(len(steps) < 2 for steps, _ in curves):
        raise UserError(
            f"{metric} has one value per run; the summary {rule.type} needs a curve",
            hint=f"Choose one with --metric: {', '.join(others)}." if others else "Omit --summary.type.",
        )


def label(trace: Trace) -> str:
    return trace.run if trace.seed is None else trace.seed


def _refuse_repeated_seeds(name: str, traces: Sequence[Trace]) -> None:
    seeds = [label(trace) for trace in traces]
    twice = sorted(seed for seed, count in Counter(seeds).items() if count > 1)
    if twice:
        raise UserError(
            f"{name} has seed {twice[0]} more than once; every run needs its own seed",
            hint="Choose one run per seed. For a file, name the column that identifies runs with --run-column.",
        )


@dataclass(frozen=True)
class SeedLayout:
    """Values of all arms over the union of their seeds, in one order; NaN if a run has no number.

    `ended` distinguishes lost runs, which are outcomes, from cells that were never run.
    """

    arms: Mapping[str, Array]
    ended: Mapping[str, Mask]

    def complete(self) -> dict[str, Array]:
        """Return the values at the seeds for which every arm has a run that ended."""
        kept = np.all(list(self.ended.values()), axis=0)
        return {name: sample[kept] for name, sample in self.arms.items()}


def lay_out_seeds(scores: RunScores) -> SeedLayout:
    seeds = sorted({seed for arm in scores.values() for seed in arm})
    arms = {
        name: np.array([arm[seed].number if seed in arm else math.nan for seed in seeds], dtype=float)
        for name, arm in scores.items()
    }
    return SeedLayout(arms, {name: np.array([seed in arm for seed in seeds]) for name, arm in scores.items()})


def unpaired_samples(scores: RunScores) -> dict[str, Array]:
    return {name: np.array([n.number for n in arm.values()], dtype=float) for name, arm in scores.items()}


def align(scores: RunScores) -> dict[str, Array]:
    """Return one array per arm over the seeds that all arms share, in one order, to rank the arms.

    A lost run must not disappear because its partner was never scored: its seed is kept, and the partner gets the mean
    of its arm.
    """
    shared = set.intersection(*(set(arm) for arm in scores.values()))
    lost = {seed for arm in scores.values() for seed, number in arm.items() if number.value is None}
    seeds = sorted(shared | lost)
    means = {name: _mean(arm) for name, arm in scores.items()}
    return {
        name: np.array([arm[seed].number if seed in arm else means[name] for seed in seeds], dtype=float)
        for name, arm in scores.items()
    }


def _mean(arm: Mapping[str, Summarised]) -> float:
    values = [number.value for number in arm.values() if number.value is not None]
    return sum(values) / len(values) if values else float("nan")


def losses_of(run_set: RunSet, scores: RunScores, control: str, candidate: str) -> Losses:
    """Count the lost runs among all that ended in both arms, including those whose partner never ended."""
    lost = {name: [seed for seed, n in scores[name].items() if n.value is None] for name in (control, candidate)}
    statuses = {trace.status for name, seeds in lost.items() for trace in run_set.arms[name] if label(trace) in seeds}
    how = "diverged" if statuses == {Status.DIVERGED} else "failed" if statuses == {Status.FAILED} else "were lost"
    return Losses(len(lost[control]), len(scores[control]), len(lost[candidate]), len(scores[candidate]), how)
