"""Values with their intervals: a dot on a bar, and an arrow where the bar goes on outside the frame."""

from __future__ import annotations

from typing import Any

from fairtrial.report.charts.frame import Frame, Rows
from fairtrial.report.charts.grammar import alt


def interval_layers(frame: Frame, rows: Rows, *, size: float = 90) -> list[alt.Chart]:
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
        frame.draw("rule", bars, strokeWidth=2.5),
        frame.draw("point", left, shape="triangle-left", **arrow),
        frame.draw("point", right, shape="triangle-right", **arrow),
        frame.draw("point", dots, filled=True, size=size, opacity=1),
    ]


def _within(frame: Frame, interval: tuple[float, float]) -> tuple[float, float]:
    low, high = frame.x.domain
    return max(low, min(high, interval[0])), max(low, min(high, interval[1]))
