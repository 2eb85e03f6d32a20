"""Values with their intervals: a dot on a bar, and an arrow where the bar goes on outside the frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairtrial.report.charts.frame import Frame, Rows
from fairtrial.report.charts.grammar import alt
from fairtrial.report.charts.places import Interval


def interval_layers(frame: Frame, rows: Rows, *, size: float = 50) -> list[alt.Chart]:
    """Rows have value, interval (with infinite limits, or None), y and colour."""
    bars, left, right = [], [], []
    for row in rows:
        if row["interval"] is None:
            continue
        low, high = _within(frame, row["interval"])
        look = {"y": row["y"], "colour": row["colour"]}
        bars.append({"x": low, "x2": high, **look})
        left += [{"x": low, **look}] if row["interval"][0] < low else []
        right += [{"x": high, **look}] if row["interval"][1] > high else []
    dots = [{"x": row["value"], "y": row["y"], "colour": row["colour"]} for row in rows if row["value"] is not None]
    arrow: dict[str, Any] = {"filled": True, "size": 70, "opacity": 1}
    return [
        frame.draw("rule", bars, strokeWidth=3),
        frame.draw("point", left, shape="triangle-left", **arrow),
        frame.draw("point", right, shape="triangle-right", **arrow),
        frame.draw("point", dots, filled=True, size=size, opacity=1),
    ]


def goes_on(frame: Frame, intervals: Sequence[Interval | None]) -> str:
    """Words for arrows, where there are any."""
    low, high = frame.x.domain
    cut = any(interval[0] < low or interval[1] > high for interval in intervals if interval)
    return "An arrow: the interval goes on." if cut else ""


def too_small(sesoi: float | None) -> str:
    """Words for the shaded stretch about zero, where there is one."""
    return f"Shaded: within ±{sesoi:g}, too small to matter." if sesoi else ""


def _within(frame: Frame, interval: Interval) -> Interval:
    low, high = frame.x.domain
    return max(low, min(high, interval[0])), max(low, min(high, interval[1]))
