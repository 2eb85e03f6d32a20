"""A family of comparisons as a forest plot: one line per candidate, with its interval and its verdict."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fairtrial.core.errors import NothingToDraw
from fairtrial.core.words import decimals_for, shown_change, shown_interval
from fairtrial.report.charts.frame import Axis, Frame, finished
from fairtrial.report.charts.grammar import Chart, alt
from fairtrial.report.charts.intervals import goes_on, interval_layers, too_small
from fairtrial.report.charts.places import Interval, domain_of, finite, known, open_interval
from fairtrial.report.charts.style import CONTROL, INK, LETTER, VERDICTS, short_names

ROW = 30
WIDTH = 420


def forest(rows: Sequence[Mapping[str, Any]], *, metric: str, level: float, sesoi: float | None, title: str) -> Chart:
    """Every comparison of a family, one under the other: rows have name, value, low, high and verdict."""
    if not rows:
        raise NothingToDraw("there is nothing to draw: the family has no comparison")
    drawn = [_drawable(row, place) for place, row in enumerate(rows)]
    intervals = [row["interval"] for row in drawn]
    frame = Frame(
        Axis(f"difference in {metric}, candidate − control", _domain(drawn, sesoi)),
        Axis("", (len(rows) - 0.5, -0.5), drawn=False),
        width=WIDTH,
        height=max(2, len(rows)) * ROW,
    )
    layers = [
        *([frame.shade(-sesoi, sesoi)] if sesoi else []),
        frame.across(0, color=INK, strokeWidth=1),
        *interval_layers(frame, drawn),
        *_columns(frame, drawn),
    ]
    reading = f"Bars are {100 * level:g} % intervals. {too_small(sesoi)} {goes_on(frame, intervals)}"
    return finished(frame.layered(layers), title, [reading])


def _drawable(row: Mapping[str, Any], place: int) -> dict[str, Any]:
    verdict = str(row.get("verdict") or "")
    return {
        "name": str(row["name"]),
        "value": known(row.get("value")),
        "interval": open_interval(row.get("low"), row.get("high")),
        "verdict": verdict,
        "y": place,
        "colour": VERDICTS.get(verdict, CONTROL),
    }


def _usual_width(rows: Sequence[Mapping[str, Any]]) -> float | None:
    widths = finite(row["interval"][1] - row["interval"][0] for row in rows if row["interval"])
    return statistics.median(widths.tolist()) if len(widths) else None


def _domain(rows: Sequence[Mapping[str, Any]], sesoi: float | None) -> Interval:
    """All values and zero, and the limits of all intervals but those far wider than most."""
    usual = _usual_width(rows) or 0.0
    middle = [value + side * usual / 2 for value in finite(row["value"] for row in rows) for side in (-1, 1)]
    limits = [limit for row in rows if row["interval"] for limit in row["interval"]]
    margin = [] if sesoi is None else [-sesoi, sesoi]
    return domain_of([0.0, *middle], [*limits, *margin])


def _columns(frame: Frame, rows: Sequence[Mapping[str, Any]]) -> list[alt.Chart]:
    """The names to the left; to the right the numbers, and the verdict in its colour."""
    decimals = decimals_for(_usual_width(rows))
    numbers = [_numbers(row["value"], row["interval"], decimals) for row in rows]
    first = frame.width + 14
    left, middle, right = (frame.x_at(x) for x in (-12, first, first + LETTER * max(map(len, numbers)) + 16))
    names = short_names([row["name"] for row in rows], 40)
    verdicts = [{"x": right, "y": row["y"], "text": row["verdict"], "colour": row["colour"]} for row in rows]
    return [
        frame.write([{"x": left, "y": i, "text": name} for i, name in enumerate(names)], align="right"),
        frame.write([{"x": middle, "y": i, "text": text} for i, text in enumerate(numbers)]),
        frame.write(verdicts, fontWeight="bold"),
    ]


def _numbers(value: float | None, interval: Interval | None, decimals: int | None) -> str:
    if value is None:
        return "no value"
    told = shown_interval(*interval, decimals) if interval else "no interval"
    return f"{shown_change(value, decimals)} {told}"
