"""Profile over several metrics: a panel per metric with its own scale, and the difference of each arm from the control.

It takes the place of a radar chart, whose spokes all begin at zero: there, differences of a few percent are invisible,
metrics with different units share a rim, and intervals have no place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fairtrial.core.errors import NothingToDraw, UserError
from fairtrial.core.formatting import counted, decimals_for, shown_change
from fairtrial.report.charts.families import family_domain
from fairtrial.report.charts.frame import Frame, Rows, finished, grid, panel_heading
from fairtrial.report.charts.grammar import Chart, Panel
from fairtrial.report.charts.intervals import goes_on, interval_layers
from fairtrial.report.charts.listed import list_frame, row_texts, usual_width
from fairtrial.report.charts.places import known, open_interval
from fairtrial.report.charts.style import INK, QUIET, ArmStyles, arm_styles, better_word, level_text

PANEL = 190
COLUMNS = 3
ORDER = ("better", "worse", "equivalent", "inconclusive")


def metric_profile(
    rows: Sequence[Mapping[str, Any]], *, control: str, level: float | None, styles: ArmStyles | None = None
) -> Chart:
    """Draw three or more metrics. Rows have arm, metric, direction, control_mean, value, low, high and verdict.

    `value`, `low` and `high` are the difference from the control. `level` is None if the intervals have several levels.
    """
    metrics = list(dict.fromkeys(str(row["metric"]) for row in rows))
    if not any(known(row.get("value")) is not None for row in rows):
        raise NothingToDraw("there is nothing to draw: no arm has a difference in any metric")
    if len(metrics) < 3:
        raise UserError(
            f"a radial profile needs at least three metrics, not {len(metrics)}", hint="Compare them one by one."
        )
    arms = list(dict.fromkeys(str(row["arm"]) for row in rows))
    styles = styles or arm_styles(arms, control=control)
    by_place = {(str(row["arm"]), str(row["metric"])): row for row in rows}
    panels, cut = [], ""
    for place, metric in enumerate(metrics):
        drawn = [_drawable(by_place.get((arm, metric), {}), arm, y, styles) for y, arm in enumerate(arms)]
        frame = list_frame("", family_domain(drawn, None), arms, width=PANEL)
        about = next(row for row in rows if str(row["metric"]) == metric)
        panels.append(_panel(frame, drawn, metric, about, named=place % COLUMNS == 0))
        cut = cut or goes_on(frame, [row["interval"] for row in drawn])
    bars = "Bars are intervals" if level is None else f"Bars are {level_text(level)} intervals"
    reading = f"Difference from {control} in each metric, every panel with its own scale. {bars}. {cut}"
    return finished(grid(panels, columns=COLUMNS), _finding(rows, arms, metrics, control), [reading.strip()], width=900)


def _drawable(row: Mapping[str, Any], arm: str, y: int, styles: ArmStyles) -> dict[str, Any]:
    return {
        "name": arm,
        "value": known(row.get("value")),
        "interval": open_interval(row.get("low"), row.get("high")),
        "word": str(row.get("verdict") or ""),
        "y": y,
        "colour": styles[arm].colour,
    }


def _panel(frame: Frame, rows: Rows, metric: str, about: Mapping[str, Any], *, named: bool) -> Panel:
    """Draw one metric. Only the first panel of a line of panels has the names of the arms."""
    decimals = decimals_for(usual_width(rows))
    numbers = [
        "no value" if row["value"] is None else f"{shown_change(row['value'], decimals)} {row['word']}" for row in rows
    ]
    layers = [
        frame.across(0, color=INK, strokeWidth=1),
        *interval_layers(frame, rows),
        *([frame.write(row_texts(-12, frame, [row["name"] for row in rows]), align="right")] if named else []),
        frame.write(row_texts(PANEL + 8, frame, numbers), color=QUIET),
    ]
    heading = panel_heading(f"{metric} ({better_word(str(about['direction']))} is better)", PANEL + 110)
    mean = about.get("control_mean")
    return frame.layered(layers, heading=heading, caption=f"control mean {mean}" if mean else None)


def _finding(rows: Sequence[Mapping[str, Any]], arms: Sequence[str], metrics: Sequence[str], control: str) -> str:
    if len(arms) > 1:
        return f"{counted(len(arms), 'arm')} against {control} over {len(metrics)} metrics"
    counts = Counter(str(row.get("verdict") or "inconclusive") for row in rows)
    verdicts = [f"{verdict} on {counts[verdict]}" for verdict in ORDER if counts[verdict]]
    return f"{arms[0]} against {control} over {len(metrics)} metrics: {', '.join(verdicts)}"
