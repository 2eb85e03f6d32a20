"""Normal Q–Q plots: ordered values versus the quantiles of a normal distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairtrial.core.errors import NothingToDraw
from fairtrial.core.formatting import p_equals, shown_p
from fairtrial.report.charts.frame import Axis, Frame, finished, grid, panel_heading
from fairtrial.report.charts.grammar import Chart, Panel
from fairtrial.report.charts.places import as_numbers, domain_of
from fairtrial.report.charts.style import ACCENT, QUIET

NEVER = "This is a diagnostic: it never changes the test."
ALONE, SMALL = 340, 200
COLUMNS = 3


@dataclass(frozen=True)
class Quantiles:
    """One sample: its name, its ordered values, the normal quantiles of their ranks, and the Shapiro–Wilk p-value.

    `colour` is the color of the arm, or of the candidate for differences.
    """

    name: str
    values: Sequence[float]
    normal: Sequence[float]
    p_value: float | None
    colour: str = ACCENT


def normality(quantiles: Sequence[Quantiles], *, what: str, metric: str, title: str | None = None) -> Chart:
    """Draw one Q–Q plot per sample. `what` describes the values, such as differences from a control."""
    drawable = [each for each in quantiles if len(each.values) > 2]
    if not drawable:
        raise NothingToDraw(f"there is nothing to draw: three values of {metric} are needed")
    alone = len(drawable) == 1
    panels = [_panel(each, what, metric, alone=alone) for each in drawable]
    caption = f"{_caption(drawable[0])}." if alone else f"Vertical: {what} of {metric}; horizontal: normal quantiles."
    message = f"{caption} Normally distributed values lie near the line. {NEVER}"
    chart: Chart = panels[0] if alone else grid(panels, columns=COLUMNS)
    width = 560 if alone else 280 * min(COLUMNS, len(drawable))
    return finished(chart, title or _finding(drawable, what), [message], width=max(560, width))


def _panel(quantiles: Quantiles, what: str, metric: str, *, alone: bool) -> Panel:
    values, normal = as_numbers(quantiles.values), as_numbers(quantiles.normal)
    middle, slope = float(values.mean()), float(values.std(ddof=1))
    x = domain_of(normal, margin=0.12)
    line = [{"x": end, "y": middle + slope * end} for end in x]
    size = ALONE if alone else SMALL
    frame = Frame(
        Axis("normal quantile" if alone else "", x),
        Axis(f"{what} of {metric}" if alone else "", domain_of([*values, *(end["y"] for end in line)])),
        size,
        size,
    )
    dots = [{"x": float(z), "y": float(value)} for z, value in zip(normal, values, strict=True)]
    layers = [
        frame.draw("line", line, color=QUIET, strokeWidth=1.2),
        frame.draw("circle", dots, color=quantiles.colour, size=55 if alone else 35, opacity=0.8),
    ]
    heading = None if alone else panel_heading(quantiles.name, size + 40)
    return frame.layered(layers, heading=heading, caption=_caption(quantiles))


def _caption(quantiles: Quantiles) -> str:
    p = "no p" if quantiles.p_value is None else p_equals(shown_p(quantiles.p_value))
    return f"Shapiro–Wilk {p}, n = {len(quantiles.values)}"


def _finding(quantiles: Sequence[Quantiles], what: str) -> str:
    low = sum(each.p_value is not None and each.p_value < 0.05 for each in quantiles)
    if len(quantiles) > 1:
        return f"Shapiro–Wilk p is below 0.05 for {low} of {len(quantiles)} sets of {what}"
    seen = "do not look normal" if low else "show no departure from a normal distribution"
    return f"The {what} {quantiles[0].name} {seen}"
