"""Chart of cost versus a metric: every configuration with intervals and name, and the frontier as a staircase."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from fairtrial.core.errors import NothingToDraw
from fairtrial.core.formatting import counted
from fairtrial.report.charts.frame import Axis, Frame, finished
from fairtrial.report.charts.grammar import Chart, alt
from fairtrial.report.charts.intervals import goes_on, interval_layers, lies_outside, without_strays
from fairtrial.report.charts.listed import all_limits, usual_width
from fairtrial.report.charts.naming import BEYOND, Label, Pixel, Room, Stretch
from fairtrial.report.charts.places import (
    HUGE,
    Interval,
    as_numbers,
    cut,
    domain_of,
    known,
    open_interval,
    round_numbers,
)
from fairtrial.report.charts.style import ACCENT, FAINT, HEIGHT, INK, LETTER, LINE_HEIGHT, QUIET, level_text, name_lines

FACTOR = 20
"""Ratio of costs above which the axis is logarithmic. On a linear axis small costs would crowd at the left."""

DOLLARS = (
    "datum.value >= 1e5 ? replace(format(datum.value, '~s'), 'G', 'B') : "
    "datum.value < 0.001 ? format(datum.value, '~e') : format(datum.value, ',~g')"
)
"""Vega expression that formats tick labels of very different magnitudes."""

NAMED, ROW, KEY_LINE = 60, 12, 16
"""Maximum number of named points, and heights in pixels: per point if there are many, and per line of their list."""


@dataclass(frozen=True)
class FrontierPoint:
    """The cost and the metric value of one configuration, and whether it is on the frontier."""

    name: str
    cost: float
    value: float
    costs: Interval | None
    values: Interval | None
    member: bool

    @property
    def colour(self) -> str:
        return ACCENT if self.member else QUIET


Named = tuple[Label, FrontierPoint]


def frontier(
    rows: Sequence[Mapping[str, Any]],
    *,
    metric: str,
    level: float,
    title: str,
    card: str,
    better: str,
    estimated: bool,
) -> Chart:
    """Draw cost versus metric. Rows: name, cost, cost_low, cost_high, value, low, high, member (of the frontier)."""
    points = _points(rows)
    if not points:
        raise NothingToDraw(f"there is nothing to draw: no configuration has both a cost and a value of {metric}")
    frame = Frame(
        _cost_axis(points, f"{'estimated ' if estimated else ''}cost on {card} (USD)"),
        _metric_axis(points, metric),
        height=max(HEIGHT, ROW * min(NAMED, len(points))),
    )
    stairs = _stairs(points, better)
    labels, numbered = _labels(frame, points, stairs)
    layers = [
        _staircase(frame, stairs),
        _leads(frame, labels),
        *_dots(frame, points),
        *_words(frame, labels),
        *(_listed(frame, labels) if numbered else []),
    ]
    messages = [
        _marks(points, stairs, level),
        "The cost axis is logarithmic." if frame.x.log else "",
        "Numbers are in order of cost; their names are at the right." if numbered else "",
        _outside(frame, points),
        f"No space for {counted(len(points) - len(labels), 'name')}." if len(labels) < len(points) else "",
    ]
    lost = len(rows) - len(points)
    left_out = f"Left out: {counted(lost, 'configuration')} without a cost or a value of {metric}." if lost else ""
    return finished(frame.layered(layers), title, [" ".join(filter(None, messages)), left_out])


def _points(rows: Sequence[Mapping[str, Any]]) -> list[FrontierPoint]:
    """Return the points that can be drawn. Frontier points come last, so that they are drawn over the others."""
    points = [
        FrontierPoint(
            name=str(row["name"]),
            cost=cost,
            value=value,
            costs=open_interval(row.get("cost_low"), row.get("cost_high")),
            values=open_interval(row.get("low"), row.get("high")),
            member=bool(row.get("member")),
        )
        for row in rows
        if (cost := known(row.get("cost"))) is not None and (value := known(row.get("value"))) is not None
    ]
    return sorted(points, key=lambda point: point.member)


def _cost_axis(points: Sequence[FrontierPoint], words: str) -> Axis:
    costs, intervals = [point.cost for point in points], [point.costs for point in points]
    low, high = min(costs), max(costs)
    if low > 1 / HUGE and high > FACTOR * low:
        logs = [_log(cost) for cost in costs]
        left, right = _domain(logs, [interval and (_log(interval[0]), _log(interval[1])) for interval in intervals])
        domain = math.exp(left), math.exp(right)
        return Axis(words, domain, labels=DOLLARS, log=True, ticks=round_numbers(domain), grid=False)
    if low == high:  # a tiny range around the only cost would have unreadable ticks
        costs = [low / 2, 1.5 * low or 1.0]
    return Axis(words, _domain(costs, intervals), grid=False)


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _metric_axis(points: Sequence[FrontierPoint], metric: str) -> Axis:
    low, high = without_strays((point.value for point in points), ())
    usual = [point.value for point in points if low <= point.value <= high]
    return Axis(metric, _domain([low, high, *usual], [point.values for point in points]))


def _domain(values: Sequence[float], intervals: Sequence[Interval | None]) -> Interval:
    """Return axis limits that contain all values with a typical bar around each, and interval limits close to them."""
    bars = [{"interval": interval} for interval in intervals]
    half = (usual_width(bars) or 0.0) / 2
    middle = [value + side * half for value in values for side in (-1, 1)]
    return domain_of(middle, all_limits(bars), margin=0.07)


def _stairs(points: Sequence[FrontierPoint], better: str) -> list[FrontierPoint]:
    """Return the members by cost, each better than the last. Other members are there for an objective not drawn."""
    sign = 1 if better == "higher" else -1
    frontier_points: list[FrontierPoint] = []
    for point in sorted(points, key=lambda point: (point.cost, -sign * point.value)):
        if point.member and (not frontier_points or sign * point.value > sign * frontier_points[-1].value):
            frontier_points.append(point)
    return frontier_points


def _staircase(frame: Frame, stairs: Sequence[FrontierPoint]) -> alt.Chart:
    """Draw the frontier: from each member horizontally to the cost of the next, clipped to the frame."""
    costs = np.repeat(as_numbers(point.cost for point in stairs), 2)[1:]
    heights = np.repeat(as_numbers(point.value for point in stairs), 2)[:-1]
    line = zip(*cut(costs, heights, frame.y.domain), strict=True)
    rows = [{"x": float(x), "y": known(y), "order": place} for place, (x, y) in enumerate(line)]
    return frame.draw("line", rows, color=ACCENT, strokeWidth=1.5, strokeOpacity=0.6)


def _dots(frame: Frame, points: Sequence[FrontierPoint]) -> list[alt.Chart]:
    low, high = frame.y.domain
    across = [
        {"y": point.value, "value": None, "interval": point.costs, "colour": point.colour}
        for point in points
        if low <= point.value <= high
    ]
    upright = [
        {
            "x": point.cost,
            "value": point.value,
            "interval": point.values,
            "colour": point.colour,
            "hollow": not point.member,
        }
        for point in points
    ]
    return [
        *interval_layers(frame, across, thickness=1.5),
        *interval_layers(frame, upright, size=60, thickness=1.5, upright=True),
    ]


def _labels(frame: Frame, points: Sequence[FrontierPoint], stairs: Sequence[FrontierPoint]) -> tuple[list[Named], bool]:
    """Return names next to their points if all fit, else numbers in order of cost; and whether they are numbers."""
    chosen = sorted(points, key=lambda point: (not point.member, point.cost))[:NAMED]
    chosen.sort(key=lambda point: point.cost)
    room = Room(frame, [_pixel(frame, point) for point in points], [*_bars(frame, points), *_steps(frame, stairs)])
    dots, first = [_pixel(frame, point) for point in chosen], [point.member for point in chosen]
    names = room.labels(dots, [point.name for point in chosen], first, beyond=BEYOND)
    if len(names) == len(chosen):
        return _with_points(names, chosen), False
    numbers = room.labels(dots, [str(number) for number in range(1, len(chosen) + 1)], first)
    return _with_points(numbers, chosen), bool(numbers)


def _with_points(labels: Sequence[Label], points: Sequence[FrontierPoint]) -> list[Named]:
    return [(label, points[label.place]) for label in labels]


def _pixel(frame: Frame, point: FrontierPoint) -> Pixel:
    """Return the pixel of a point. A point outside the frame has an arrow at the edge."""
    return frame.width * frame.x.share(point.cost), min(max(frame.pixel_of(point.value), 0.0), float(frame.height))


def _bars(frame: Frame, points: Sequence[FrontierPoint]) -> Iterator[Stretch]:
    for point in points:
        x, y = _pixel(frame, point)
        if point.costs:
            left, right = (frame.width * frame.x.share(end) for end in np.clip(point.costs, *frame.x.domain))
            yield left, y, right, y
        if point.values:
            bottom, top = (frame.pixel_of(end) for end in np.clip(point.values, *frame.y.domain))
            yield x, top, x, bottom


def _steps(frame: Frame, stairs: Sequence[FrontierPoint]) -> Iterator[Stretch]:
    for (left, before), (right, after) in pairwise(_pixel(frame, point) for point in stairs):
        yield left, before, right, before
        yield right, before, right, after


def _leads(frame: Frame, labels: Sequence[Named]) -> alt.Chart:
    ends = [(label.dot, label.end) for label, _ in labels if label.lead]
    rows = [
        {"x": frame.x_at(x), "y": frame.y_at(y), "x2": frame.x_at(x2), "y2": frame.y_at(y2)}
        for (x, y), (x2, y2) in ends
    ]
    return frame.draw("rule", rows, color=FAINT, strokeWidth=1)


def _words(frame: Frame, labels: Sequence[Named]) -> list[alt.Chart]:
    """Return one text layer per alignment."""
    aligned: dict[str, list[dict[str, Any]]] = {}
    for label, point in labels:
        x, y = label.along(1)
        look = {"text": label.text, "colour": INK if point.member else QUIET}
        aligned.setdefault(label.align, []).append({"x": frame.x_at(x), "y": frame.y_at(y), **look})
    return [frame.write(rows, align=align) for align, rows in aligned.items()]


def _listed(frame: Frame, labels: Sequence[Named]) -> list[alt.Chart]:
    """List to the right of the frame which full name each number stands for, in as many columns as needed."""
    names = [name_lines(point.name) for _, point in labels]
    width = LETTER * max(len(line) for lines in names for line in lines) + 44
    numbers, words = [], []
    left, top = float(frame.width + 34), 0.0
    for (label, point), lines in zip(labels, names, strict=True):
        height = (len(lines) - 1) * LINE_HEIGHT + KEY_LINE
        if top and top + height > frame.height:
            left, top = left + width, 0.0
        look = {"y": frame.y_at(top + height / 2), "colour": INK if point.member else QUIET}
        numbers.append({"x": frame.x_at(left), "text": label.text, **look})
        words.append({"x": frame.x_at(left + 8), "text": lines, **look})
        top += height
    return [frame.write(numbers, align="right"), frame.write(words)]


def _marks(points: Sequence[FrontierPoint], stairs: Sequence[FrontierPoint], level: float) -> str:
    bars = any(point.costs or point.values for point in points)
    messages = [
        f"Bars are {level_text(level)} intervals." if bars else "Dots are means.",
        "Filled: on the frontier." if any(point.member for point in points) else "",
        "Hollow: dominated." if not all(point.member for point in points) else "",
        "Line: the best result up to each cost." if len(stairs) > 1 else "",
    ]
    return " ".join(filter(None, messages))


def _outside(frame: Frame, points: Sequence[FrontierPoint]) -> str:
    across = goes_on(frame, [point.costs for point in points])
    upright = goes_on(frame, [point.values for point in points], upright=True)
    return f"{across or upright} {lies_outside(frame.y, (point.value for point in points), 'means')}".strip()
