"""Drawing of values with intervals: a dot on a bar, and an arrow where they extend beyond the frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fairtrial.report.charts.frame import Axis, Frame, Rows
from fairtrial.report.charts.grammar import alt
from fairtrial.report.charts.places import Interval, Numbers, domain_of, finite

ASTRAY = 100.0
"""Values farther from the typical values than this multiple of their range stay outside the frame: diverged runs."""


def interval_layers(
    frame: Frame, rows: Rows, *, size: float = 50, thickness: float = 3, upright: bool = False
) -> list[alt.Chart]:
    """Draw intervals. Rows have value, interval (may be None or have infinite limits), colour, and y (x if upright).

    The dot of a row with a true `hollow` is drawn as a ring.
    """
    axis, along, across = (frame.y, "y", "x") if upright else (frame.x, "x", "y")
    bars, back, forth = [], [], []
    dots: list[dict[str, Any]] = []
    rings: list[dict[str, Any]] = []
    for row in rows:
        look = {across: row[across], "colour": row["colour"]}
        value, interval = row["value"], row["interval"]
        if interval is not None:
            low, high = _within(axis, interval)
            bars.append({along: low, f"{along}2": high, **look})
        (rings if row.get("hollow") else dots).extend([{along: value, **look}] if _inside(axis, value) else [])
        reach = [*(interval or ()), *([] if value is None else [value])]
        back += [{along: axis.domain[0], **look}] if any(end < axis.domain[0] for end in reach) else []
        forth += [{along: axis.domain[1], **look}] if any(end > axis.domain[1] for end in reach) else []
    arrow: dict[str, Any] = {"filled": True, "size": 70, "opacity": 1}
    return [
        frame.draw("rule", bars, strokeWidth=thickness),
        frame.draw("point", back, shape="triangle-down" if upright else "triangle-left", **arrow),
        frame.draw("point", forth, shape="triangle-up" if upright else "triangle-right", **arrow),
        frame.draw("point", rings, filled=False, fill="white", size=size, opacity=1, strokeWidth=1.6),
        frame.draw("point", dots, filled=True, size=size, opacity=1),
    ]


def run_dots(frame: Frame, rows: Rows, *, size: float) -> alt.Chart:
    """Draw single runs inside the frame as faint dots."""
    inside = [row for row in rows if _inside(frame.x, row["x"]) and _inside(frame.y, row["y"])]
    return frame.draw("circle", inside, size=size, opacity=0.4)


def goes_on(frame: Frame, intervals: Sequence[Interval | None], *, upright: bool = False) -> str:
    """Explain the arrows, if there are any."""
    low, high = (frame.y if upright else frame.x).domain
    cut = any(interval[0] < low or interval[1] > high for interval in intervals if interval)
    return "Arrows: the interval extends beyond the frame." if cut else ""


def lies_outside(axis: Axis, values: Numbers, what: str) -> str:
    """State that some values are outside the frame, if there are any."""
    numbers = finite(values)
    low, high = axis.domain
    return f"Some {what} are outside the frame." if ((numbers < low) | (numbers > high)).any() else ""


def too_small(sesoi: float | None) -> str:
    """Explain the shaded range around zero, if there is one."""
    return f"Shaded: within ±{sesoi:g}, too small to matter." if sesoi else ""


def without_strays(means: Numbers, runs: Numbers, always: Sequence[float] = ()) -> Interval:
    """Return limits that contain all means and runs, except outliers that would flatten the rest of the chart."""
    values = finite(means)
    usual = [np.quantile(values, 0.25, method="higher"), np.quantile(values, 0.75, method="lower")]
    return domain_of([*usual, *always], np.concatenate([values, finite(runs)]), room=ASTRAY, margin=0)


def _inside(axis: Axis, value: float | None) -> bool:
    low, high = sorted(axis.domain)
    return value is not None and low <= value <= high


def _within(axis: Axis, interval: Interval) -> Interval:
    low, high = axis.domain
    return max(low, min(high, interval[0])), max(low, min(high, interval[1]))
