"""One number per run: arms of traces become arms of numbers, aligned by seed where they are paired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fairtrial.analyse.samples import Array
from fairtrial.analyse.summaries import Summarised, SummaryRule, Window, summarise, tidy, windows_of
from fairtrial.api.gather import Gathered, is_scored
from fairtrial.core.errors import UserError
from fairtrial.core.runs import Status
from fairtrial.core.traces import Trace

Numbers = dict[str, dict[str, Summarised]]
"""Arm → run (its seed, or its name where it has none) → its number or why it has none."""


def number_runs(
    gathered: Gathered, metric: str, direction: str, rule: SummaryRule, task: str | None = None
) -> tuple[Numbers, dict[str, Window | None]]:
    """The number of every run that is an outcome, and the steps that the runs of each arm were looked at."""
    scored = {
        name: [(t, tidy(*t.curves.get(metric, ((), ())))) for t in traces if is_scored(t) and t.task == task]
        for name, traces in gathered.arms.items()
    }
    completed = {
        name: [curve for trace, curve in each if trace.status is Status.COMPLETED] for name, each in scored.items()
    }
    _refuse_without_steps(gathered, rule)
    _refuse_single_points(metric, [curve for each in completed.values() for curve in each], rule)
    windows = windows_of(completed, rule)
    found: Numbers = {}
    for name, each in scored.items():
        _refuse_repeated_seeds(name, [trace for trace, _ in each])
        found[name] = {label(trace): _number(trace, curve, rule, windows[name], direction) for trace, curve in each}
    return found, windows


def _refuse_without_steps(gathered: Gathered, rule: SummaryRule) -> None:
    """A time, an area, a slope or a window of steps means nothing where no column counts them."""
    windowed = rule.window is not None or rule.percent is not None
    if "step" in gathered.lacking and (rule.type in ("time_to", "auc", "slope") or windowed):
        what = f"no {rule.type}" if rule.type != "last" else "no window of steps"
        raise UserError(
            f"{gathered.source} has no column that counts steps, so there is {what}",
            hint="Name it with --step-column, or leave out --summary.",
        )


def _refuse_single_points(metric: str, curves: Sequence[Any], rule: SummaryRule) -> None:
    """An area or a slope of one point is not a lost run but a wrong question."""
    if rule.type in ("auc", "slope") and curves and all(len(steps) < 2 for steps, _ in curves):
        raise UserError(
            f"{metric} has one value per run, so there is no {rule.type}",
            hint="Choose a metric that is logged along the way with --metric, or --summary.type last.",
        )


def label(trace: Trace) -> str:
    return trace.run if trace.seed is None else trace.seed


def _refuse_repeated_seeds(name: str, traces: Sequence[Trace]) -> None:
    seeds = [label(trace) for trace in traces]
    twice = sorted(seed for seed, count in Counter(seeds).items() if count > 1)
    if twice:
        raise UserError(
            f"{name} has seed {twice[0]} more than once: the same seed twice is not another run",
            hint="Choose one run per seed; for a file, name the column that tells runs apart with --run-column.",
        )


def _number(
    trace: Trace, curve: Any, rule: SummaryRule, window: tuple[float, float] | None, direction: str
) -> Summarised:
    if trace.status is not Status.COMPLETED:
        return Summarised(None, trace.reason or trace.status.value)
    return summarise(curve, rule, window, direction)


def align(numbers: Numbers, paired: bool) -> dict[str, Array]:
    """Arrays per arm; paired ones hold the seeds that every arm has, in one order.

    A run that was lost while its partner was never scored must not vanish with it: the pair is kept, with the partner
    at the mean of its arm, so that the verdict has to hold with it too.
    """
    if not paired:
        return {name: np.array([n.number for n in arm.values()], dtype=float) for name, arm in numbers.items()}
    shared = set.intersection(*(set(arm) for arm in numbers.values()))
    lost = {seed for arm in numbers.values() for seed, number in arm.items() if number.value is None}
    seeds = sorted(shared | lost)
    means = {name: _mean(arm) for name, arm in numbers.items()}
    return {
        name: np.array([arm[seed].number if seed in arm else means[name] for seed in seeds], dtype=float)
        for name, arm in numbers.items()
    }


def _mean(arm: Mapping[str, Summarised]) -> float:
    values = [number.value for number in arm.values() if number.value is not None]
    return sum(values) / len(values) if values else float("nan")
