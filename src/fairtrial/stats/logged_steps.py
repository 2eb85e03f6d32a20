"""Select steps at which runs with different logging intervals can be compared.

The best of a thousand values is higher than the best of a hundred. A run that logs more often also meets a threshold
sooner, and its last ten points come from later steps. Therefore `best`, `time_to` and means of several last points use
the same number of values from every run: the steps are divided into intervals, each just long enough that every run
still training logged at least once in it, and a run contributes the last value that it logged in each interval. Runs
that log the same steps keep all of them. A run that lost a few log lines does not widen the intervals; it has no value
in the affected ones.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fairtrial.stats.samples import Array
from fairtrial.stats.summaries import Curve, Window, usual_gap

LOST_LINES = 0.05
"""Up to this share of a run's lines may be missing from an otherwise regular log."""
ENOUGH = 20
"""A run with at least this many logged values is never excluded for logging less often than others."""
FEWEST = 5
"""Fewer intervals than this are too few to find a best value, if some runs logged far more often."""
NOTICED = 0.95
"""An arm that keeps less than this share of its values logged noticeably more often than the others."""


@dataclass(frozen=True)
class SharedSteps:
    """The curves of each arm at comparable steps; None for a run that logged far too few steps.

    `logged` and `kept` count the values in the window by arm. `intervals` is the largest number of kept values of a
    run; `densest` is the largest number of logged values.
    """

    curves: Mapping[str, Sequence[Curve | None]]
    logged: Mapping[str, int]
    kept: Mapping[str, int]
    intervals: int
    densest: int

    @property
    def too_few(self) -> bool:
        return self.intervals < FEWEST and self.densest > 2 * self.intervals

    @property
    def thinned(self) -> dict[str, int]:
        """The number of dropped values by arm, for arms that dropped noticeably many."""
        return {
            name: self.logged[name] - kept for name, kept in self.kept.items() if kept < NOTICED * self.logged[name]
        }


@dataclass(frozen=True)
class _Log:
    """The steps that a run logged in the window.

    `late`: it starts later than most runs of its arm. `sparse`: it logged too few steps to be compared.
    """

    steps: Array
    late: bool
    sparse: bool

    @property
    def key(self) -> tuple[bytes, bool]:
        return self.steps.tobytes(), self.late


def share_steps(arms: Mapping[str, Sequence[Curve]], windows: Mapping[str, Window | None]) -> SharedSteps:
    """Thin the curves of all arms to one value per shared interval."""
    inside = {name: [_inside(steps, windows[name]) for steps, _ in curves] for name, curves in arms.items()}
    steps = {name: [c[0][part] for c, part in zip(arms[name], inside[name], strict=True)] for name in arms}
    if len({each.tobytes() for every in steps.values() for each in every if len(each)}) < 2:
        counts, most = {name: sum(map(len, each)) for name, each in steps.items()}, _most(steps)
        return SharedSteps(arms, counts, counts, most, most)  # all runs logged the same steps
    spacing = max(_arm_spacing(each) for each in steps.values())
    logs = {name: _logs(each, spacing) for name, each in steps.items()}
    distinct = {log.key: log for each in logs.values() for log in each if len(log.steps) and not log.sparse}
    ends = _interval_ends(list(distinct.values()), spacing)
    curves = {
        name: [
            None if log.sparse else _thin(curve, part, ends)
            for curve, part, log in zip(arms[name], inside[name], logs[name], strict=True)
        ]
        for name in arms
    }
    lengths = {
        name: [
            (len(log.steps), len(log.steps) - len(curve[0]) + len(thin[0]))
            for curve, thin, log in zip(arms[name], curves[name], logs[name], strict=True)
            if thin is not None
        ]
        for name in arms
    }
    return SharedSteps(
        curves,
        {name: sum(logged for logged, _ in each) for name, each in lengths.items()},
        {name: sum(kept for _, kept in each) for name, each in lengths.items()},
        max((kept for each in lengths.values() for _, kept in each), default=0),
        _most(steps),
    )


def _most(steps: Mapping[str, Sequence[Array]]) -> int:
    return max((len(each) for every in steps.values() for each in every), default=0)


def _inside(steps: Array, window: Window | None) -> slice:
    if window is None:
        return slice(0, len(steps))
    return slice(int(np.searchsorted(steps, window[0], "left")), int(np.searchsorted(steps, window[1], "right")))


def _arm_spacing(logs: Sequence[Array]) -> float:
    """Return the mean distance between logged steps of the arm's median run; infinite if that run logged once."""
    each = [float(s[-1] - s[0]) / (len(s) - 1) if len(s) > 1 else math.inf for s in logs if len(s)]
    return float(np.sort(each)[len(each) // 2]) if each else 0.0


def _logs(steps: Sequence[Array], spacing: float) -> list[_Log]:
    """Return the logs of an arm, with late and sparse runs marked."""
    firsts = sorted(float(each[0]) for each in steps if len(each))
    start = firsts[(len(firsts) - 1) // 2] if firsts else 0.0
    return [
        _Log(each, len(each) > 0 and float(each[0]) > start + _own_gap(each, spacing), _is_sparse(each, start, spacing))
        for each in steps
    ]


def _is_sparse(steps: Array, start: float, spacing: float) -> bool:
    """Return whether a run logged so few steps that using them would drop most values of all other runs."""
    if not len(steps) or not spacing > 0:
        return False
    return len(steps) < min(ENOUGH, (1 + (float(steps[-1]) - start) / spacing) / 2)


def _interval_ends(logs: Sequence[_Log], spacing: float) -> Array:
    """Return the ends of the intervals: each is the first step by which every run still training has logged again.

    A run takes part until one logging interval after its last step. A run whose first lines are missing does not
    delay the others before it begins.
    """
    training: list[list[float]] = []
    waiting: list[list[float]] = []
    for log in logs:
        steps, gap = _with_lost_lines(log.steps), _own_gap(log.steps, spacing)
        until = [min(float(steps[-1]) + gap, sys.float_info.max), math.inf]
        (waiting if log.late else training).append([*steps.tolist(), *until])
    waiting.sort(key=lambda steps: steps[0])
    ends: list[float] = []
    places = [0] * len(training)
    following = max((steps[0] for steps in training), default=waiting[0][0] if waiting else math.inf)
    while following < math.inf:
        ends.append(following)
        while waiting and waiting[0][0] <= following:
            training.append(waiting.pop(0))
            places.append(0)
        following = _following(training, places, following)
        if following == -math.inf:  # no run is training: skip to the next logged step
            following = waiting[0][0] if waiting else math.inf
    return np.array(ends)


def _following(training: Sequence[list[float]], places: list[int], end: float) -> float:
    """Return the first step by which every run has logged after `end`, or −∞ if all runs have ended.

    This advances `places`, the current index into each run's steps.
    """
    following = -math.inf
    for number, steps in enumerate(training):
        place = places[number]
        if steps[place] <= end:
            place += 1
            if steps[place] <= end:
                place = bisect_right(steps, end, place)
            places[number] = place
        if following < steps[place] < math.inf:
            following = steps[place]
    return following


def _own_gap(steps: Array, spacing: float) -> float:
    return usual_gap(steps) if len(steps) > 1 else spacing


def _with_lost_lines(steps: Array) -> Array:
    """Fill in the steps of missing log lines, if the log is otherwise regular and only a few lines are missing."""
    if len(steps) < 3:
        return steps
    gaps, usual = np.diff(steps), usual_gap(steps)
    missing = np.maximum(np.rint(gaps / usual) - 1, 0).astype(int)
    if not 0 < missing.sum() <= LOST_LINES * len(steps):
        return steps
    lost = [steps[at] + usual * np.arange(1, missing[at] + 1) for at in np.flatnonzero(missing)]
    return np.unique(np.concatenate([steps, *lost]))


def _thin(curve: Curve, part: slice, ends: Array) -> Curve:
    """Keep the last point of each interval. Points outside the window stay, because they show how long the run was."""
    steps, values = curve
    interval = np.searchsorted(ends, steps[part], "left")
    keep = np.ones(len(steps), dtype=bool)
    if len(interval):
        keep[part] = np.append(np.diff(interval) > 0, True)
    return (steps, values) if keep.all() else (steps[keep], values[keep])
