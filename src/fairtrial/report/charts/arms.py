"""Chart of several arms: every run, the mean with its interval, and which arms may be the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fairtrial.core.errors import NothingToDraw
from fairtrial.report.charts.frame import Rows, finished
from fairtrial.report.charts.grammar import Chart
from fairtrial.report.charts.intervals import goes_on, interval_layers, lies_outside, run_dots, without_strays
from fairtrial.report.charts.listed import all_limits, columns, list_frame, usual_width
from fairtrial.report.charts.places import Interval, domain_of, finite, known, open_interval
from fairtrial.report.charts.style import ArmStyles, arm_styles, level_text, shown

BELOW = 0.27
"""Offset of the single runs below the interval bar, in rows. On the bar they would be hidden."""


def arms(
    rows: Sequence[Mapping[str, Any]], *, metric: str, level: float, title: str, styles: ArmStyles | None = None
) -> Chart:
    """Draw one line per arm. Rows have name, value, low, high, runs and word."""
    styles = styles or arm_styles(str(row["name"]) for row in rows)
    drawn = [_drawable(row, place, styles) for place, row in enumerate(rows)]
    if all(row["value"] is None for row in drawn):
        raise NothingToDraw(f"there is nothing to draw: no arm has a value of {metric}")
    several = [row for row in drawn if len(row["runs"]) > 1]
    runs = [{"x": run, "y": row["y"] + BELOW, "colour": row["colour"]} for row in several for run in row["runs"]]
    domain = _domain(drawn)
    frame = list_frame(metric, domain, [row["name"] for row in drawn])
    span = usual_width(drawn) or domain[1] - domain[0]
    layers = [
        run_dots(frame, runs, size=22),
        *interval_layers(frame, drawn),
        *columns(frame, drawn, lambda value: _written(value, span)),
    ]
    messages = [
        _reading(drawn, level),
        goes_on(frame, [row["interval"] for row in drawn]),
        lies_outside(frame.x, (row["value"] for row in drawn), "means")
        or lies_outside(frame.x, (run["x"] for run in runs), "runs"),
    ]
    return finished(frame.layered(layers), title, [" ".join(filter(None, messages))])


def _drawable(row: Mapping[str, Any], place: int, styles: ArmStyles) -> dict[str, Any]:
    return {
        "name": str(row["name"]),
        "value": known(row.get("value")),
        "interval": open_interval(row.get("low"), row.get("high")),
        "runs": finite(row.get("runs") or ()).tolist(),
        "word": str(row.get("word") or ""),
        "y": place,
        "colour": styles[str(row["name"])].colour,
    }


def _domain(rows: Rows) -> Interval:
    """Return axis limits that contain all means and runs except outliers, and the interval limits close to them."""
    half = (usual_width(rows) or 0.0) / 2
    values = finite(row["value"] for row in rows)
    low, high = without_strays(values, (run for row in rows for run in row["runs"]))
    middle = [value + side * half for value in values if low <= value <= high for side in (-1, 1)]
    return domain_of([low, high, *middle], all_limits(rows))


def _written(value: float, span: float) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return shown(value, span)


def _reading(rows: Rows, level: float) -> str:
    bars, several = any(row["interval"] for row in rows), any(len(row["runs"]) > 1 for row in rows)
    marks = f"Bars are {level_text(level)} intervals of each mean" if bars else "Large dots are means"
    return f"{marks}, small dots are single runs." if several else f"{marks}." if bars else "One run per arm."
