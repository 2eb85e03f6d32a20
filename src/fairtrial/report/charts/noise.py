"""How many runs are enough: the half-width of the mean's interval over the number of runs, a panel per summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairtrial.core.errors import UserError
from fairtrial.core.words import counted
from fairtrial.report.charts.frame import Axis, Frame, finished
from fairtrial.report.charts.grammar import Chart, alt
from fairtrial.report.charts.places import Interval, known
from fairtrial.report.charts.style import BLUE, INK, QUIET, VERMILLION

WIDTH, HEIGHT = 400, 300
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Panel:
    """The curve of one summary, and what its reader wants to know of it."""

    name: str
    measured: Rows
    beyond: Rows
    threshold: float
    n: int
    needed: int | None


def variance_panels(
    panels: Mapping[str, Rows],
    *,
    threshold: float,
    relative: bool,
    metric: str,
    n: int,
    n_min: Mapping[str, int | None],
    title: str | None = None,
) -> Chart:
    """What more runs would buy, for each summary: measured as far as there are runs, then extrapolated."""
    told = [
        Panel(name, *_curve(rows, relative), threshold=threshold, n=n, needed=n_min.get(name))
        for name, rows in panels.items()
    ]
    if not any(panel.measured or panel.beyond for panel in told):
        raise UserError(f"there is nothing to draw: the spread of {metric} is unknown")
    chart = alt.hconcat(*[_drawn(panel, relative, metric) for panel in told], spacing=36)
    reading = "Half-width of the mean's interval by number of runs; dashed where extrapolated from the spread seen."
    return finished(chart, title or _enough(told, n), [reading], width=40 + 50 * len(told))


def _curve(rows: Rows, relative: bool) -> tuple[Rows, Rows]:
    """Points that were measured, and points beyond them, which begin at the last measured one."""
    key = "relative" if relative else "half_width"
    points = [(int(row["n"]), known(row[key]), bool(row["extrapolated"])) for row in rows]
    drawable = sorted((n, width, beyond) for n, width, beyond in points if width is not None and width > 0)
    measured = [{"x": n, "y": width} for n, width, beyond in drawable if not beyond]
    further = [{"x": n, "y": width} for n, width, beyond in drawable if beyond]
    return measured, measured[-1:] + further if further else []


def _drawn(panel: Panel, relative: bool, metric: str) -> alt.LayerChart:
    frame = _frame(panel, relative, metric)
    limit = f"{100 * panel.threshold:g} %" if relative else f"{panel.threshold:g}"
    layers = [
        frame.across(panel.n, color=QUIET, strokeWidth=1, strokeDash=[2, 2]),
        frame.write(
            [{"x": panel.n, "y": frame.y_at(-10), "text": f"you have n = {panel.n:,}"}], color=QUIET, align="center"
        ),
        frame.along(panel.threshold, color=VERMILLION, strokeWidth=1.2),
        _beside_threshold(frame, panel, f"threshold {limit}", color=VERMILLION),
        frame.draw("line", panel.measured, color=BLUE, strokeWidth=2.2),
        frame.draw("line", panel.beyond, color=BLUE, strokeWidth=2.2, strokeDash=[5, 4]),
        frame.draw("circle", panel.measured if len(panel.measured) <= 30 else [], color=BLUE, size=35, opacity=1),
        *_needed(frame, panel),
    ]
    return frame.layered(layers, heading=panel.name)


def _frame(panel: Panel, relative: bool, metric: str) -> Frame:
    points = [*panel.measured, *panel.beyond]
    widths = [panel.threshold, *(point["y"] for point in points)]
    counts = [panel.n, *(point["x"] for point in points)]
    x = (max(1, min(counts)) * 0.92, max(2, *counts) * 1.08)
    y = (min(widths) / 1.5, max(widths) * 1.2)
    what = f"half-width / mean of {metric}" if relative else f"half-width, in units of {metric}"
    return Frame(
        Axis("number of runs n", x, log=True, ticks=_round_numbers(x), format=",d", grid=False),
        Axis(what, y, log=True, ticks=_round_numbers(y), format="~%" if relative else "~g"),
        width=WIDTH,
        height=HEIGHT,
    )


def _round_numbers(domain: Interval) -> list[float]:
    """1, 2 and 5 times powers of ten; only the powers where that would crowd the axis."""
    inside = [
        digit * 10.0**power
        for power in range(-12, 13)
        for digit in (1, 2, 5)
        if domain[0] <= digit * 10.0**power <= domain[1]
    ]
    return inside if len(inside) <= 10 else inside[::3]


def _beside_threshold(frame: Frame, panel: Panel, text: str, *, below: bool = False, **look: Any) -> alt.Chart:
    """Words over or under the threshold line, at its right end."""
    y = frame.y_at(frame.pixel_of(panel.threshold) + (16 if below else -9))
    return frame.write([{"x": frame.x_at(frame.width), "y": y, "text": text}], align="right", **look)


def _needed(frame: Frame, panel: Panel) -> list[alt.Chart]:
    """A diamond where the curve meets the threshold, or words where that is not in the frame."""
    needed = panel.needed
    if needed is None:
        return [_beside_threshold(frame, panel, "needed n unknown", below=True)]
    words = f"n = {needed:,} needed"
    if needed > frame.x.domain[1]:
        return [_beside_threshold(frame, panel, f"{words} →", below=True, fontWeight="bold")]
    x = max(needed, frame.x.domain[0])
    text = {"x": x, "y": frame.y_at(frame.pixel_of(panel.threshold) + 17), "text": words}
    share = frame.x.share(x)
    align = "right" if share > 0.8 else "left" if share < 0.2 else "center"
    return [
        frame.draw(
            "point", [{"x": x, "y": panel.threshold}], shape="diamond", filled=True, size=110, color=INK, opacity=1
        ),
        frame.write([text], align=align, fontWeight="bold"),
    ]


def _enough(panels: Sequence[Panel], n: int) -> str:
    """`5 runs are too few for AUC (18 needed) and enough for derivative (4 needed)`"""
    told = []
    for panel in panels:
        if panel.needed is None:
            told.append(f"of unknown worth for {panel.name}")
        else:
            told.append(f"{'enough' if n >= panel.needed else 'too few'} for {panel.name} ({panel.needed:,} needed)")
    return f"{counted(n, 'run')} {'is' if n == 1 else 'are'} {' and '.join(told)}"
