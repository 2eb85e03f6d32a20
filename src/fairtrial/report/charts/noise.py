"""Chart of the half-width of the mean's interval versus the number of runs, one panel per summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairtrial.core.errors import NothingToDraw
from fairtrial.core.formatting import counted
from fairtrial.report.charts.frame import Axis, Frame, Rows, finished
from fairtrial.report.charts.grammar import Chart, Panel, alt
from fairtrial.report.charts.places import known, round_numbers
from fairtrial.report.charts.style import ACCENT, INK, LETTER, PERCENT, QUIET

WIDTH, HEIGHT = 400, 300


@dataclass(frozen=True)
class Curve:
    """The half-widths of one summary by number of runs, with the threshold and the number of runs needed."""

    name: str
    measured: Rows
    beyond: Rows
    threshold: float
    n: int
    needed: int | None

    @property
    def meeting(self) -> float:
        """The half-width at the number of runs needed."""
        heights = [float(point["y"]) for point in (*self.measured, *self.beyond) if point["x"] == self.needed]
        return heights[0] if heights else self.threshold


def variance_panels(
    panels: Mapping[str, Rows],
    *,
    threshold: float,
    relative: bool,
    metric: str,
    n: int,
    n_min: Mapping[str, int | None],
    arm: str,
) -> Chart:
    """Draw the half-width by number of runs for each summary: measured up to the existing runs, then extrapolated.

    `arm` is the name of the variant whose runs these are.
    """
    curves = [
        Curve(name, *_points(rows, relative), threshold=threshold, n=n, needed=n_min.get(name))
        for name, rows in panels.items()
    ]
    if not any(curve.measured or curve.beyond for curve in curves):
        raise NothingToDraw(f"there is nothing to draw: the spread of {metric} is unknown")
    chart = alt.hconcat(*[_panel(curve, relative, metric) for curve in curves], spacing=40)
    reading = (
        f"Half-width of the interval of the mean of {metric} by number of runs; smaller is more precise. "
        "Dashed curve: extrapolated from the observed spread."
    )
    return finished(chart, f"{arm}: {_enough(curves, n)}", [reading], width=max(480, 480 * len(curves)))


def _points(rows: Rows, relative: bool) -> tuple[Rows, Rows]:
    """Return the measured points, and the extrapolated points, which begin at the last measured one."""
    key = "relative" if relative else "half_width"
    points = [(int(row["n"]), known(row[key]), bool(row["extrapolated"])) for row in rows]
    drawable = sorted((n, width, beyond) for n, width, beyond in points if width is not None and width > 0)
    measured = [{"x": n, "y": width} for n, width, beyond in drawable if not beyond]
    further = [{"x": n, "y": width} for n, width, beyond in drawable if beyond]
    return measured, measured[-1:] + further if further else []


def _panel(curve: Curve, relative: bool, metric: str) -> Panel:
    frame = _frame(curve, relative, metric)
    limit = f"threshold {100 * curve.threshold:g} %" if relative else f"threshold {curve.threshold:g}"
    have = {"x": curve.n, "y": frame.y_at(-10), "text": f"you have n = {curve.n:,}"}
    side = "right" if frame.x.share(curve.n) > 0.85 else "center"
    layers = [
        frame.across(curve.n, color=QUIET, strokeWidth=1, strokeDash=[2, 2]),
        frame.write([have], color=QUIET, align=side),
        frame.along(curve.threshold, color=INK, strokeWidth=1.2, strokeDash=[7, 3]),
        _label_threshold(frame, curve, limit, up=True, right=_is_left(frame, curve.needed), color=INK),
        frame.draw("line", curve.measured, color=ACCENT, strokeWidth=2.2),
        frame.draw("line", curve.beyond, color=ACCENT, strokeWidth=2.2, strokeDash=[5, 4]),
        frame.draw("circle", curve.measured if len(curve.measured) <= 30 else [], color=ACCENT, size=35, opacity=1),
        *_needed(frame, curve),
    ]
    return frame.layered(layers, heading=curve.name)


def _frame(curve: Curve, relative: bool, metric: str) -> Frame:
    points = [*curve.measured, *curve.beyond]
    widths = [curve.threshold, *(point["y"] for point in points)]
    counts = [curve.n, *(point["x"] for point in points)]
    x = (max(1, min(counts)) * 0.92, max(3, *counts) * 1.08)
    y = (min(widths) / 1.5, max(widths) * 1.2)
    what = "half-width / mean" if relative else "half-width"
    return Frame(
        Axis("number of runs n", x, log=True, ticks=round_numbers(x), labels="format(datum.value, ',d')", grid=False),
        Axis(f"{what}, {curve.name} of {metric}", y, log=True, ticks=round_numbers(y), labels=_written(relative)),
        width=WIDTH,
        height=HEIGHT,
    )


def _written(relative: bool) -> str:
    return PERCENT if relative else "format(datum.value, '.3~g')"


def _is_left(frame: Frame, needed: int | None) -> bool:
    """Whether the curve meets the threshold in the left half, which leaves the right end free for text."""
    return needed is not None and frame.x.share(needed) < 0.5


def _label_threshold(frame: Frame, curve: Curve, text: str, *, up: bool, right: bool, **look: Any) -> alt.Chart:
    """Draw text above or below the threshold line at one of its ends, moved aside if the line at n is close."""
    y = frame.y_at(frame.pixel_of(curve.threshold) + (-9 if up else 14))
    line, room = frame.width * frame.x.share(curve.n), LETTER * len(text) + 12
    at_right = line - 6 if line > frame.width - room else frame.width
    at_left = line + 6 if line < room else 6
    words = {"x": frame.x_at(at_right if right else at_left), "y": y, "text": text}
    return frame.write([words], align="right" if right else "left", **look)


def _needed(frame: Frame, curve: Curve) -> list[alt.Chart]:
    """Draw a diamond where the curve meets the threshold, or text if that point is outside the frame."""
    needed = curve.needed
    if needed is None:
        return [
            _label_threshold(frame, curve, "needed n unknown" if curve.measured else "no curve", up=False, right=True)
        ]
    words = f"n = {needed:,} needed"
    if needed > frame.x.domain[1]:
        return [_label_threshold(frame, curve, f"{words} →", up=False, right=True, fontWeight="bold")]
    x = max(float(needed), frame.x.domain[0])
    return [
        frame.draw(
            "point", [{"x": x, "y": curve.meeting}], shape="diamond", filled=True, size=110, color=INK, opacity=1
        ),
        _label_curve(frame, x, curve.meeting, words),
    ]


def _label_curve(frame: Frame, x: float, y: float, words: str) -> alt.Chart:
    """Label a point of the curve. The curve falls, so there is space below it on the left and above it on the right."""
    pixel, left = frame.width * frame.x.share(x), frame.x.share(x) < 0.35
    at = frame.x_at(pixel + (10 if left else -6)), frame.y_at(frame.pixel_of(y) + (-24 if left else 15))
    return frame.write([{"x": at[0], "y": at[1], "text": words}], align="left" if left else "right", fontWeight="bold")


def _enough(curves: Sequence[Curve], n: int) -> str:
    """`5 runs are too few for AUC (18 needed) and enough for derivative (4 needed)`"""
    messages = [
        f"{'enough' if n >= curve.needed else 'too few'} for {curve.name} ({curve.needed:,} needed)"
        for curve in curves
        if curve.needed is not None
    ]
    unknown = " and ".join(curve.name for curve in curves if curve.needed is None)
    if not messages:
        return f"how many runs are enough for {unknown} is unknown"
    runs = f"{counted(n, 'run')} {'is' if n == 1 else 'are'} {' and '.join(messages)}"
    return f"{runs}; unknown for {unknown}" if unknown else runs
