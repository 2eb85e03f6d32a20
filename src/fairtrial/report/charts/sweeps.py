"""Chart of a sweep over one parameter: every run, the mean with its interval, and which values may be the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import orjson

from fairtrial.core.errors import NothingToDraw
from fairtrial.report.charts.frame import Axis, Frame, finished
from fairtrial.report.charts.grammar import Chart, alt
from fairtrial.report.charts.intervals import goes_on, interval_layers, lies_outside, run_dots, without_strays
from fairtrial.report.charts.places import HUGE, Interval, as_numbers, cut, domain_of, finite, known, open_interval
from fairtrial.report.charts.style import ACCENT, FAINT, INK, LETTER, LINE_HEIGHT, QUIET, WIDTH, level_text, name_lines

CATEGORY = 18
"""Minimum width per category in pixels, enough for slanted names."""

SLANT = 50
OVER = -14
"""Vertical position of text above the frame in pixels, clear of arrows."""


@dataclass(frozen=True)
class PlottedPoint:
    """The result for one value of the parameter, and where it is drawn."""

    x: float
    value: Any
    mean: float | None
    interval: Interval | None
    runs: Sequence[float]
    best: bool
    distinct: bool
    """Whether it is statistically distinguishable from the best."""

    @property
    def name(self) -> str:
        return _written(self.value)

    @property
    def look(self) -> dict[str, Any]:
        return {"x": self.x, "colour": QUIET if self.distinct else ACCENT, "hollow": self.distinct}

    @property
    def drawn(self) -> list[float]:
        """All y values at which a part of it is drawn."""
        return [*([] if self.mean is None else [self.mean]), *(self.interval or ()), *self.runs]


def sweep_curve(
    rows: Sequence[Mapping[str, Any]],
    *,
    param: str,
    metric: str,
    level: float,
    title: str,
    baseline: float | str | None = None,
    log: bool = False,
) -> Chart:
    """Draw the result for each parameter value. Rows: value, mean, low, high, runs, best and distinct, in grid order.

    `distinct` is true for values that are statistically distinguishable from the best, and None if nothing is known.
    """
    to_scale = _to_scale([row["value"] for row in rows], log)
    points = [_point(row, float(row["value"]) if to_scale else place) for place, row in enumerate(rows)]
    if all(point.mean is None for point in points):
        raise NothingToDraw(f"there is nothing to draw: no value of {param} has a mean of {metric}")
    frame = Frame(
        _to_scale_axis(points, param, log) if to_scale else Axis("", (-0.5, len(points) - 0.5), drawn=False),
        Axis(metric, _heights(points)),
        width=WIDTH if to_scale else max(WIDTH, _category_width(points) * len(points)),
    )
    start = _place_of(baseline, frame, points, to_scale)
    layers = [
        *(_baseline(frame, start) if start is not None else []),
        *([frame.draw("line", _line(frame, points), color=FAINT, strokeWidth=1.5)] if to_scale else []),
        *_dots(frame, points),
        *_best(frame, points, start),
        _lost(frame, points),
        *([] if to_scale else _names_below(frame, points, param)),
    ]
    return finished(frame.layered(layers), title, [_reading(frame, points, level)])


def _to_scale(values: Sequence[Any], log: bool) -> bool:
    """Whether the values fit on a numeric axis. Zero does not fit on a logarithmic axis, so it needs categories."""
    return all(_is_number(value) and (not log or value > 1 / HUGE) for value in values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and known(value) is not None


def _point(row: Mapping[str, Any], x: float) -> PlottedPoint:
    return PlottedPoint(
        x=x,
        value=row["value"],
        mean=known(row.get("mean")),
        interval=open_interval(row.get("low"), row.get("high")),
        runs=finite(row.get("runs") or ()).tolist(),
        best=bool(row.get("best")),
        distinct=bool(row.get("distinct")) and not row.get("best"),
    )


def _written(value: Any) -> str:
    if not _is_number(value):
        return str(value)
    digits = 6 if value % 1 == 0 else 4
    return f"{value:.{digits}g}".replace("e-0", "e-").replace("e+0", "e+").replace("-", "−")


def _heights(points: Sequence[PlottedPoint]) -> Interval:
    best = [point.mean for point in points if point.best and point.mean is not None]
    inner = without_strays((point.mean for point in points), (run for point in points for run in point.runs), best)
    return domain_of(inner, (limit for point in points for limit in point.interval or ()), room=0.5, margin=0.08)


def _to_scale_axis(points: Sequence[PlottedPoint], param: str, log: bool) -> Axis:
    """Return an axis with a tick at every value if their labels fit, else at round numbers."""
    values = sorted({point.x for point in points})
    low, high = domain_of(map(math.log, values) if log else values)
    axis = Axis(param, (math.exp(low), math.exp(high)) if log else (low, high), log=log, grid=False)
    ticks = _with_room(axis, values)
    if len(ticks) < len(values):
        if not log:
            return axis
        ends = [values[0], values[-1]]
        ticks = max(_with_room(axis, _powers_of_ten(axis.domain)), _with_room(axis, ends), key=len)
    names = [_written(tick) for tick in ticks]
    labels = f"{orjson.dumps(names).decode()}[indexof({orjson.dumps(ticks).decode()}, datum.value)]"
    return replace(axis, ticks=ticks, labels=labels)


def _powers_of_ten(domain: Interval) -> list[float]:
    low, high = map(math.log10, domain)
    return [float(f"1e{power}") for power in range(math.ceil(low), math.floor(high) + 1)]


def _with_room(axis: Axis, values: Sequence[float]) -> list[float]:
    """Return, from the left, all ticks whose labels do not overlap the one before."""
    ticks: list[float] = []
    free = -math.inf
    for value in values:
        middle, half = WIDTH * axis.share(value), LETTER * len(_written(value)) / 2 + 4
        if middle - half >= free:
            ticks.append(value)
            free = middle + half
    return ticks


def _place_of(value: float | str | None, frame: Frame, points: Sequence[PlottedPoint], to_scale: bool) -> float | None:
    """Return the x position of a value, or None if it is outside the frame."""
    if value is None:
        return None
    if not to_scale:
        return next((point.x for point in points if value == point.value or str(value) == point.name), None)
    low, high = frame.x.domain
    return float(value) if _to_scale([value], frame.x.log) and low <= float(value) <= high else None


def _baseline(frame: Frame, x: float) -> list[alt.Chart]:
    words = {"x": x, "y": frame.y_at(OVER), "text": "baseline"}
    return [
        frame.across(x, color=QUIET, strokeWidth=1, strokeDash=[4, 3]),
        frame.write([words], color=QUIET, align="center"),
    ]


def _line(frame: Frame, points: Sequence[PlottedPoint]) -> list[dict[str, Any]]:
    """Return the line through the means, cut at the frame."""
    ordered = sorted(points, key=lambda point: point.x)
    shares = np.array([frame.x.share(point.x) for point in ordered])
    line = zip(*cut(shares, as_numbers(point.mean for point in ordered), frame.y.domain), strict=True)
    return [{"x": frame.x.value(float(share)), "y": known(y)} for share, y in line]


def _dots(frame: Frame, points: Sequence[PlottedPoint]) -> list[alt.Chart]:
    means = [{**point.look, "value": point.mean, "interval": point.interval} for point in points]
    bigger = [{**point.look, "value": point.mean, "interval": None} for point in points if point.best]
    aside = min(8.0, _pitch(frame, points) / 3)  # on the bar they would be hidden
    runs = [
        {**point.look, "x": frame.x_at(_pixel(frame, point) + aside), "y": run}
        for point in points
        if len(point.runs) > 1
        for run in point.runs
    ]
    return [
        run_dots(frame, runs, size=22),
        *interval_layers(frame, means, size=45, thickness=1.5, upright=True),
        *interval_layers(frame, bigger, size=150, upright=True),
    ]


def _best(frame: Frame, points: Sequence[PlottedPoint], start: float | None) -> list[alt.Chart]:
    """Draw the word "best" above the marks of the best value, else below them, else above the frame."""
    layers = []
    for point in points:
        if not point.best or point.mean is None:
            continue
        x = _pixel(frame, point)
        from_baseline = math.inf if start is None else abs(frame.width * frame.x.share(start) - x)
        top, bottom = _occupied(frame, points, x)
        dot = min(max(frame.pixel_of(point.mean), 0), frame.height)
        free = [y for y in (min(top - 12, dot - 17), max(bottom + 13, dot + 18)) if 6 <= y <= frame.height - 6]
        fits_right = bool(free) and from_baseline < 22
        y = free[0] if free else OVER - 15 if from_baseline < 50 else OVER
        words = {"x": frame.x_at(x + 6 if fits_right else x), "y": frame.y_at(y), "text": "best"}
        layers.append(frame.write([words], color=INK, fontWeight="bold", align="left" if fits_right else "center"))
    return layers


def _occupied(frame: Frame, points: Sequence[PlottedPoint], x: float) -> Interval:
    """Return the vertical range, in pixels from the top, of marks that a short word at x could overlap."""
    low, high = frame.y.domain
    heights = [height for point in points if abs(_pixel(frame, point) - x) < 22 for height in point.drawn]
    return frame.pixel_of(min(high, max(heights))), frame.pixel_of(max(low, min(heights)))


def _pixel(frame: Frame, point: PlottedPoint) -> float:
    return frame.width * frame.x.share(point.x)


def _pitch(frame: Frame, points: Sequence[PlottedPoint]) -> float:
    """Return the smallest distance between neighboring values, in pixels."""
    places = sorted(_pixel(frame, point) for point in points)
    return min((right - left for left, right in pairwise(places)), default=float(frame.width))


def _lost(frame: Frame, points: Sequence[PlottedPoint]) -> alt.Chart:
    """Label each value without a mean at the bottom, vertically if there is little space."""
    narrow = _pitch(frame, points) < 60
    rows = [
        {"x": point.x, "y": frame.y_at(frame.height - 8), "text": "no value"} for point in points if point.mean is None
    ]
    return frame.write(rows, color=QUIET, fontSize=10, angle=270 if narrow else 0, align="left" if narrow else "center")


def _names_below(frame: Frame, points: Sequence[PlottedPoint], param: str) -> list[alt.Chart]:
    """Draw the category names, slanted if they would overlap, and the parameter name below them."""
    names = [name_lines(point.name) for point in points]
    longest = LETTER * max(len(line) for lines in names for line in lines)
    slanted = longest + 10 > frame.width / len(points)
    depth = 0.95 * longest * math.sin(math.radians(SLANT)) if slanted else 0
    look = {"angle": 360 - SLANT, "align": "right"} if slanted else {"align": "center"}
    below, title = (frame.y_at(frame.height + pixel) for pixel in (14, 38 + depth))
    rows = [{"x": point.x, "y": below, "text": name} for point, name in zip(points, names, strict=True)]
    return [
        frame.along(frame.y.domain[0], color=FAINT),
        frame.write(rows, **look),
        frame.write([{"x": frame.x_at(frame.width / 2), "y": title, "text": param}], align="center", color=INK),
    ]


def _reading(frame: Frame, points: Sequence[PlottedPoint], level: float) -> str:
    messages = [
        _marks(points, level),
        _standing(points),
        goes_on(frame, [point.interval for point in points], upright=True),
        lies_outside(frame.y, (point.mean for point in points), "means")
        or lies_outside(frame.y, (run for point in points for run in point.runs), "runs"),
    ]
    return " ".join(filter(None, messages))


def _standing(points: Sequence[PlottedPoint]) -> str:
    """Explain filled and hollow dots, if there are both."""
    if not any(point.distinct for point in points):
        return ""
    return "Filled dots: the best value and those not distinguishable from it; hollow dots: worse than the best."


def _category_width(points: Sequence[PlottedPoint]) -> int:
    """Return the width that a category needs for its slanted name, which may have several lines."""
    return max(CATEGORY, 4 + LINE_HEIGHT * max(len(name_lines(point.name)) for point in points))


def _marks(points: Sequence[PlottedPoint], level: float) -> str:
    bars, several = any(point.interval for point in points), any(len(point.runs) > 1 for point in points)
    if not bars and not several:
        return "One run per value." if any(point.runs for point in points) else "Dots are means."
    marks = f"Bars are {level_text(level)} intervals of each mean" if bars else "Large dots are means"
    return marks + (", small dots are single runs." if several else ".")
