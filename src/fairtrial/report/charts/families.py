"""Forest plot of a family of comparisons: one line per candidate, with its interval and its verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fairtrial.core.errors import NothingToDraw
from fairtrial.core.formatting import decimals_for, shown_change
from fairtrial.report.charts.frame import Rows, finished
from fairtrial.report.charts.grammar import Chart
from fairtrial.report.charts.intervals import goes_on, interval_layers, too_small
from fairtrial.report.charts.listed import all_limits, columns, list_frame, usual_width
from fairtrial.report.charts.places import Interval, domain_of, finite, known, open_interval
from fairtrial.report.charts.style import INK, ArmStyles, arm_styles, level_text


def forest(
    rows: Sequence[Mapping[str, Any]],
    *,
    level: float,
    sesoi: float | None,
    title: str,
    axis: str,
    styles: ArmStyles | None = None,
) -> Chart:
    """Draw every comparison of a family on its own line. Rows have name, value, low, high, verdict and arm.

    `arm` is the arm whose style the line has, by default the one with the name of the row. `axis` says what a positive
    value means, with the name of the control.
    """
    if not rows:
        raise NothingToDraw("there is nothing to draw: the family has no comparison")
    styles = styles or arm_styles((_arm(row) for row in rows), control="")
    drawn = [_drawable(row, place, styles) for place, row in enumerate(rows)]
    frame = list_frame(axis, family_domain(drawn, sesoi), [row["name"] for row in drawn])
    layers = [
        *([frame.shade(-sesoi, sesoi)] if sesoi else []),
        frame.across(0, color=INK, strokeWidth=1),
        *interval_layers(frame, drawn),
        *columns(frame, drawn, partial(shown_change, decimals=decimals_for(usual_width(drawn)))),
    ]
    arrows = goes_on(frame, [row["interval"] for row in drawn])
    return finished(
        frame.layered(layers), title, [f"Bars are {level_text(level)} intervals. {too_small(sesoi)} {arrows}"]
    )


def _arm(row: Mapping[str, Any]) -> str:
    return str(row.get("arm") or row["name"])


def _drawable(row: Mapping[str, Any], place: int, styles: ArmStyles) -> dict[str, Any]:
    return {
        "name": str(row["name"]),
        "value": known(row.get("value")),
        "interval": open_interval(row.get("low"), row.get("high")),
        "word": str(row.get("verdict") or ""),
        "y": place,
        "colour": styles[_arm(row)].colour,
    }


def family_domain(rows: Rows, sesoi: float | None) -> Interval:
    """Return axis limits that contain all values, zero, and all intervals except those far wider than most."""
    usual = usual_width(rows) or 0.0
    middle = [value + side * usual / 2 for value in finite(row["value"] for row in rows) for side in (-1, 1)]
    margin = [] if sesoi is None else [-sesoi, sesoi]
    return domain_of([0.0, *middle], [*all_limits(rows), *margin])
