"""One number per run: arms of traces become arms of numbers, aligned by seed where they are paired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fairtrial.analyse.samples import Array
from fairtrial.analyse.summaries import Summarised, SummaryRule, common_window, summarise, tidy
from fairtrial.api.gather import Gathered, is_scored
from fairtrial.core.errors import UserError
from fairtrial.core.runs import Status
from fairtrial.core.traces import Trace

Numbers = dict[str, dict[str, Summarised]]
"""Arm → run (its seed, or its name where it has none) → its number or why it has none."""


def number_runs(
    gathered: Gathered, metric: str, direction: str, rule: SummaryRule, task: str | None = None
) -> tuple[Numbers, tuple[float, float] | None]:
    """The number of every run that is an outcome, and the steps that all of them were looked at."""
    scored = {
        name: [(t, tidy(*t.curves.get(metric, ((), ())))) for t in traces if is_scored(t) and t.task == task]
        for name, traces in gathered.arms.items()
    }
    window = common_window([curve for each in scored.values() for _, curve in each], rule)
    found: Numbers = {}
    for name, each in scored.items():
        _refuse_repeated_seeds(name, [trace for trace, _ in each])
        found[name] = {label(trace): _number(trace, curve, rule, window, direction) for trace, curve in each}
    return found, window


def label(trace: Trace) -> str:
    return trace.run if trace.seed is None else trace.seed


def _refuse_repeated_seeds(name: str, traces: Sequence[Trace]) -> None:
    seeds = [label(trace) for trace in traces]
    twice = sorted({seed for seed in seeds if seeds.count(seed) > 1}) if len(set(seeds)) < len(seeds) else []
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
    """Arrays per arm; paired ones hold the seeds that every arm has, in one order."""
    if not paired:
        return {name: np.array([n.number for n in arm.values()], dtype=float) for name, arm in numbers.items()}
    seeds = sorted(set.intersection(*(set(arm) for arm in numbers.values())))
    return {name: np.array([arm[seed].number for seed in seeds], dtype=float) for name, arm in numbers.items()}
