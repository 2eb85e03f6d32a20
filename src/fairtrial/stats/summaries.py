"""Summary rules, which turn the series of a run into the one number that is compared.

A window covers the same steps in every run. A run that does not cover the window, or is not finite in it, has no number
and keeps a reason. Such runs are listed and counted; the window is never silently shortened for them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairtrial.core.errors import InvalidOptions, UserError, unknown
from fairtrial.core.plugin_registry import SUMMARIES, load_plugin, plugin_names
from fairtrial.stats.samples import Array

Curve = tuple[Array, Array]
"""Steps in ascending order, and the value at each step."""
Window = tuple[float, float]

ENDS = ("first", "last")


@dataclass(frozen=True)
class SummaryType:
    """A way to turn the curve of a run into the one number that is compared, selected with `--summary.type`.

    `number(steps, values, rule, direction)` gets the points in the window, in step order: at least one, or at least two
    for an `over_steps` type. A non-finite result means that the run has no number.

        RANGE = SummaryType(
            number=lambda steps, values, rule, direction: float(values.max() - values.min()),
            label="range of {metric}",
            text="largest minus smallest value",
        )
    """

    number: Callable[[Array, Array, SummaryRule, str], float]
    label: str
    """The name of the number, with a `{metric}` placeholder: `AUC of {metric}`."""
    text: str
    """A short description for lists: `mean height of the curve`."""
    over_steps: bool = False
    """Whether the number depends on a range of steps, as an area does. All arms then use the same range."""
    uses_direction: bool = False
    """Whether `number` uses the direction of the metric, as the best value does."""
    better: str | None = None
    """The direction of the number (`min` or `max`), if it does not follow from the metric."""
    depends_on_density: bool = False
    """Whether the number depends on how often a run logged."""


@dataclass(frozen=True)
class SummaryRule:
    """The rule that turns a series into a number. `points` applies to `last`, `threshold` to `time_to`.

    >>> fairtrial.analyze(
    ...     "demo", metric="eval_accuracy", summary=fairtrial.SummaryRule(type="last")).summary["type"]
    'last'
    """

    type: str = "last"
    window: tuple[float, float] | None = None
    percent: float | None = None
    percent_window: str = "last"
    points: int = 1
    threshold: float | None = None

    def check(self) -> SummaryRule:
        problems = []
        if self.type not in plugin_names(SUMMARIES):
            problems.append(unknown("summary type", self.type, plugin_names(SUMMARIES)))
        if self.window is not None and self.percent is not None:
            problems.append("the window must be given in steps or as a share of the steps, not both")
        if self.window is not None and not self.window[0] < self.window[1]:
            problems.append(f"the window must end after it begins, not {self.window[0]:g}:{self.window[1]:g}")
        if self.percent is not None and not 0 < self.percent <= 1:
            problems.append(f"the window's share must lie between 0 and 1, not {self.percent:g}")
        if self.percent_window not in ENDS:
            problems.append(unknown("end of the step range", self.percent_window, ENDS))
        if self.points < 1:
            problems.append(f"points must be at least 1, not {self.points}")
        if (self.type == "time_to") != (self.threshold is not None):
            problems.append("time_to needs --summary.threshold, and other types do not accept it")
        if self.points > 1 and self.type != "last":
            problems.append(f"--summary.points applies only to last, not to {self.type}")
        if problems:
            raise InvalidOptions(problems[0], problems=problems[1:])
        return self

    @property
    def kind(self) -> SummaryType:
        kind: SummaryType = load_plugin(SUMMARIES, self.type)
        return kind

    def direction(self, of_metric: str) -> str:
        """Return the direction of the number, given that of the metric. For `time_to` it is always `min`."""
        return self.kind.better or of_metric

    @property
    def depends_on_density(self) -> bool:
        """Whether the number depends on how often a run logged, so that runs must be compared at shared steps."""
        return self.kind.depends_on_density or self.points > 1

    @property
    def short(self) -> str:
        return f"the mean of the last {self.points} points" if self.points > 1 else self.type

    def label(self, metric: str) -> str:
        """Return the name of the number: `AUC of accuracy`."""
        if self.threshold is not None:
            return f"steps until {metric} reaches {self.threshold:g}"
        return self.kind.label.format(metric=metric)

    def __str__(self) -> str:
        where = ""
        if self.window is not None:
            where = f" over steps {self.window[0]:g} to {self.window[1]:g}"
        elif self.percent is not None:
            where = f" over the {self.percent_window} {100 * self.percent:g} % of the steps"
        what = self.kind.text
        if self.points > 1:
            what = f"mean of the last {self.points} points"
        elif self.threshold is not None:
            what = f"first step that reaches {self.threshold:g}"
        return what + where


@dataclass(frozen=True)
class Summarised:
    """The number of a run, or the reason why it has none. `censored`: it did not reach the threshold by `horizon`."""

    value: float | None
    reason: str | None = None
    censored: bool = False
    horizon: float | None = None

    @property
    def is_used(self) -> bool:
        """Whether the run is used: with its number, or ranked last because it never reached the threshold."""
        return self.value is not None or self.censored

    @property
    def number(self) -> float:
        return math.nan if self.value is None else self.value


def tidy(steps: Sequence[float] | Array, values: Sequence[float] | Array) -> Curve:
    """Sort points into a curve. If a step occurs twice, the value written last is kept."""
    s, v = np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if len(s) and np.all(np.diff(s) > 0):
        return s, v
    order = np.argsort(s, kind="stable")
    s, v = s[order], v[order]
    last = np.append(np.diff(s) > 0, True) if len(s) else np.zeros(0, dtype=bool)
    return s[last], v[last]


def usual_gap(steps: Array) -> float:
    """Return the median distance between logged steps; zero if there are fewer than two."""
    return float(np.median(np.diff(steps))) if len(steps) > 1 else 0.0


def windows_of(arms: Mapping[str, Sequence[Curve]], rule: SummaryRule) -> dict[str, Window | None]:
    """Return the window of absolute steps for each arm; None means up to the end of each run.

    Without an explicit window, it is the range that more than half of an arm's runs have. Areas, slopes and shares of
    the steps use the range that the arms have in common; last and best values use each arm's own range. If runs stop
    early at different steps, areas use the range that all of them cover, and last values use the end of each run.
    """
    logged = {name: [steps for steps, _ in curves if len(steps)] for name, curves in arms.items()}
    if rule.window is not None:
        return dict.fromkeys(arms, _logged_part(rule.window, [each for each in logged.values() if each]))
    ranges = {name: [(float(s[0]), float(s[-1])) for s in each] for name, each in logged.items()}
    own = {name: _majority(each) for name, each in ranges.items() if each}
    known = [window for window in own.values() if window is not None]
    if not rule.kind.over_steps and rule.percent is None:
        windows = {name: own.get(name) for name in arms}
        return windows if rule.type == "last" else _same_end(windows, logged)
    shared = [*known, *(window for name, each in ranges.items() if own.get(name) is None for window in each)]
    if not shared:
        return dict.fromkeys(arms)
    first, last = max(window[0] for window in shared), min(window[1] for window in shared)
    if first >= last and len(shared) > 1 and any(window[0] < window[1] for window in shared):
        raise UserError("the runs have no steps in common", hint="Pass --summary.window, or compare last values.")
    width = (last - first) * (rule.percent or 1.0)
    from_end = rule.percent_window == "last"
    return dict.fromkeys(arms, (last - width, last) if from_end else (first, first + width))


def _majority(ranges: Sequence[Window]) -> Window | None:
    (first, firsts), (last, lasts) = (Counter(ends).most_common(1)[0] for ends in zip(*ranges, strict=True))
    return (first, last) if min(firsts, lasts) * 2 > len(ranges) else None


def _logged_part(window: Window, arms: Sequence[Sequence[Array]]) -> Window:
    """Shrink a requested window by up to one logging interval that no run has.

    For example, 0:1000 covers all of a run whose thousand steps are counted from 0 or logged from step 1.
    """
    last = _edge(window[1], [[(float(s[-1]), usual_gap(s)) for s in arm] for arm in arms])
    first = -_edge(-window[0], [[(-float(s[0]), usual_gap(s)) for s in arm] for arm in arms])
    return (first, last) if first < last else window


def _edge(asked: float, arms: Sequence[Sequence[tuple[float, float]]]) -> float:
    """Return the end of the window: as requested, or that of the runs if most runs of each arm end shortly before it.

    Shortly means within one logging interval. The end of an arm is the one that more than half of its runs have, else
    the earliest end of the runs that end shortly before the requested one.
    """
    if all(2 * sum(end >= asked for end, _ in arm) > len(arm) for arm in arms):
        return asked
    ends = []
    for arm in arms:
        near = [end for end, gap in arm if end + gap >= asked]
        if 2 * len(near) <= len(arm):
            return asked
        usual, count = Counter(near).most_common(1)[0]
        ends.append(usual if 2 * count > len(arm) else min(near))
    return min([asked, *ends])


def _same_end(windows: Mapping[str, Window | None], logged: Mapping[str, Sequence[Array]]) -> dict[str, Window | None]:
    """Use the same end for all arms if their ends differ by no more than a logging interval."""
    ends = [window[1] for window in windows.values() if window is not None]
    gaps = [float(np.median([usual_gap(steps) for steps in each])) for each in logged.values() if each]
    if not ends or max(ends) - min(ends) > max(gaps):
        return dict(windows)
    return {name: window and (window[0], min(ends)) for name, window in windows.items()}


def summarise(curve: Curve | None, rule: SummaryRule, window: Window | None, direction: str) -> Summarised:
    """Return the number of one run. A curve of None means that the run logged too few steps to be compared."""
    if curve is None:
        return Summarised(None, "logged at far fewer steps than the other runs")
    steps, values = curve
    if not len(steps):
        return Summarised(None, "never logged")
    kind = rule.kind
    if kind is TIME_TO:
        return _time_to(steps, values, rule, window, direction)
    if window is not None and steps[-1] < window[1]:
        return Summarised(None, f"too short: ends at step {steps[-1]:g}, the window at {window[1]:g}")
    if window is not None and steps[0] > window[0] and kind.over_steps:
        return Summarised(None, f"too short: begins at step {steps[0]:g}, the window at {window[0]:g}")
    inside = _inside(steps, values, window, edges=kind.over_steps)
    if len(inside[0]) < (2 if kind.over_steps else 1):
        return Summarised(None, "too few points in the window")
    with np.errstate(invalid="ignore", over="ignore"):
        value = kind.number(*inside, rule, direction)
    return Summarised(value) if math.isfinite(value) else Summarised(None, f"{rule.type} is not finite")


def _inside(steps: Array, values: Array, window: tuple[float, float] | None, *, edges: bool) -> Curve:
    """Return the points in the window; with `edges`, also the interpolated values at its ends."""
    if window is None or (steps[0] == window[0] and steps[-1] == window[1]):
        return steps, values
    first, last = np.searchsorted(steps, window[0], "left"), np.searchsorted(steps, window[1], "right")
    s, v = steps[first:last], values[first:last]
    if edges:
        heads = [w for w in window[:1] if not len(s) or s[0] != w]
        tails = [w for w in window[1:] if not len(s) or s[-1] != w]
        s, v = (
            np.concatenate([heads, s, tails]),
            np.concatenate([np.interp(heads, steps, values), v, np.interp(tails, steps, values)]),
        )
    return s, v


def _auc(steps: Array, values: Array, _rule: SummaryRule, _direction: str) -> float:
    return float(np.trapezoid(values, steps) / (steps[-1] - steps[0]))


def _last(_steps: Array, values: Array, rule: SummaryRule, _direction: str) -> float:
    return float(values[-rule.points :].mean())


def _best(_steps: Array, values: Array, _rule: SummaryRule, direction: str) -> float:
    finite = values[np.isfinite(values)]  # a NaN is never best
    if not len(finite):
        return math.nan
    return float(finite.max() if direction == "max" else finite.min())


def _slope(steps: Array, values: Array, _rule: SummaryRule, _direction: str) -> float:
    centred = steps - steps.mean()
    return float(centred @ (values - values.mean()) / (centred @ centred))


def _time_to(
    steps: Array, values: Array, rule: SummaryRule, window: tuple[float, float] | None, direction: str
) -> Summarised:
    s, v = _inside(steps, values, window, edges=False)
    threshold = np.float64(rule.threshold)
    with np.errstate(invalid="ignore"):
        reached = v >= threshold if direction == "max" else v <= threshold
    horizon = window[1] if window is not None else float(steps[-1])
    if reached.any():
        return Summarised(float(s[np.argmax(reached)]), horizon=horizon)
    if steps[-1] < horizon:
        return Summarised(None, f"too short: ends at step {steps[-1]:g} without reaching the threshold")
    return Summarised(None, f"did not reach the threshold by step {horizon:g}", censored=True, horizon=horizon)


def _first_step(steps: Array, values: Array, rule: SummaryRule, direction: str) -> float:
    return _time_to(steps, values, rule, None, direction).number


AUC = SummaryType(_auc, "AUC of {metric}", "mean height of the curve", over_steps=True)
LAST = SummaryType(_last, "{metric}", "last value")
BEST = SummaryType(_best, "best {metric}", "best value", uses_direction=True, depends_on_density=True)
SLOPE = SummaryType(_slope, "slope of {metric}", "slope", over_steps=True)
TIME_TO = SummaryType(_first_step, "{metric}", "first step", uses_direction=True, better="min", depends_on_density=True)
"""The only type whose runs can be censored; `summarise` therefore calls `_time_to` instead of `number`."""


def end_slope(curve: Curve, share: float = 0.1) -> float | None:
    """Return the change over the last tenth of a run relative to its range; far from 0, the run had not converged."""
    steps, values = curve
    finite = np.isfinite(values)
    steps, values = steps[finite], values[finite]
    if len(steps) < 10 or np.ptp(values) == 0:
        return None
    late = steps >= steps[-1] - share * (steps[-1] - steps[0])
    if late.sum() < 3:
        return None
    return (
        _slope(steps[late], values[late], SummaryRule(), "max") * share * float(np.ptp(steps)) / float(np.ptp(values))
    )


def describe(rule: SummaryRule, windows: Mapping[str, Window | None]) -> dict[str, Any]:
    """Describe the rule and its window for reports; the window is None if the arms have different ones."""
    distinct = set(windows.values())
    window = distinct.pop() if len(distinct) == 1 else None
    shown = replace(rule, window=window) if rule.window is not None and window is not None else rule
    return {
        "type": rule.type,
        "window": None if window is None else list(window),
        "points": rule.points if rule.type == "last" else None,
        "threshold": rule.threshold,
        "text": str(shown),
    }
