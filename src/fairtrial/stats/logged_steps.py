"""Steps at which runs that logged differently can be compared.

The best of a thousand values is higher than the best of a hundred, a threshold is met sooner by a run that is looked
at more often, and the last ten points of a run that is logged often are later ones. So `best`, `time_to` and means of
several last points take equally many values from every run: the steps are cut into intervals, each just long enough
that every run still training logged something in it, and a run counts in each with the last value that it logged. Runs
that log the same steps keep all of them. A run that lost a few lines does not widen the intervals: it goes without a
value there.
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
"""Intervals that are enough: a run that logs as many is never set aside for logging less than others."""
FEWEST = 5
"""Fewer intervals than this, where some runs logged far more, are too few to look for a best value in."""
NOTICED = 0.95
"""An arm that keeps less than this share of its values logged noticeably more than the others."""


@dataclass(frozen=True)
class SharedSteps:
    """The curves of each arm at comparable steps; None for a run that logged far too little for it.

    `logged` and `kept` count the values in the window, arm by arm; `intervals` is the most that a run has.
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
        """How many values of each arm are left aside, where that is noticeable."""
        return {
            name: self.logged[name] - kept for name, kept in self.kept.items() if kept < NOTICED * self.logged[name]
        }


@dataclass(frozen=True)
class _Log:
    """The steps that a run logged in the window. `late`: its first ones are missing, compared with its own arm."""

    steps: Array
    late: bool
    sparse: bool

    @property
    def key(self) -> tuple[bytes, bool]:
        return self.steps.tobytes(), self.late


def share_steps(arms: Mapping[str, Sequence[Curve]], windows: Mapping[str, Window | None]) -> SharedSteps:
    """Curves with one value per interval, for all arms together."""
    inside = {name: [_inside(steps, windows[name]) for steps, _ in curves] for name, curves in arms.items()}
    steps = {name: [c[0][part] for c, part in zip(arms[name], inside[name], strict=True)] for name in arms}
    if len({each.tobytes() for every in steps.values() for each in every if len(each)}) < 2:
        counts, most = {name: sum(map(len, each)) for name, each in steps.items()}, _most(steps)
        return SharedSteps(arms, counts, counts, most, most)  # everybody logged the same steps
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
    """The mean distance between the logged steps of an arm's typical run; infinite where it logs once."""
    each = [float(s[-1] - s[0]) / (len(s) - 1) if len(s) > 1 else math.inf for s in logs if len(s)]
    return float(np.sort(each)[len(each) // 2]) if each else 0.0


def _logs(steps: Sequence[Array], spacing: float) -> list[_Log]:
    """The logs of an arm, and which of them are unlike the others."""
    firsts = sorted(float(each[0]) for each in steps if len(each))
    start = firsts[(len(firsts) - 1) // 2] if firsts else 0.0
    return [
        _Log(each, len(each) > 0 and float(each[0]) > start + _own_gap(each, spacing), _is_sparse(each, start, spacing))
        for each in steps
    ]


def _is_sparse(steps: Array, start: float, spacing: float) -> bool:
    """Whether a run logged so little that sharing its steps would cost all others most of theirs."""
    if not len(steps) or not spacing > 0:
        return False
    return len(steps) < min(ENOUGH, (1 + (float(steps[-1]) - start) / spacing) / 2)


def _interval_ends(logs: Sequence[_Log], spacing: float) -> Array:
    """Where the intervals end: each at the first step by which every run still training has logged again.

    A run takes part until one logging interval after its last step. One whose first lines are missing does not hold
    up the others before it begins.
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
        if following == -math.inf:  # nobody is training: until someone logs again
            following = waiting[0][0] if waiting else math.inf
    return np.array(ends)


def _following(training: Sequence[list[float]], places: list[int], end: float) -> float:
    """The first step by which every run has logged after `end`; −∞ where all runs are over. Moves the places on."""
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
    """The steps that a regular log would have had, where no more than a few of its lines are missing."""
    if len(steps) < 3:
        return steps
    gaps, usual = np.diff(steps), usual_gap(steps)
    missing = np.maximum(np.rint(gaps / usual) - 1, 0).astype(int)
    if not 0 < missing.sum() <= LOST_LINES * len(steps):
        return steps
    lost = [steps[at] + usual * np.arange(1, missing[at] + 1) for at in np.flatnonzero(missing)]
    return np.unique(np.concatenate([steps, *lost]))


def _thin(curve: Curve, part: slice, ends: Array) -> Curve:
    """The last point of each interval; points outside the window stay, for they say how long the run was."""
    steps, values = curve
    interval = np.searchsorted(ends, steps[part], "left")
    keep = np.ones(len(steps), dtype=bool)
    if len(interval):
        keep[part] = np.append(np.diff(interval) > 0, True)
    return (steps, values) if keep.all() else (steps[keep], values[keep])
