"""Chart of bootstrap distributions: a histogram of the resampled mean differences, with the intervals below it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairtrial.core.errors import NothingToDraw
from fairtrial.core.formatting import decimals_for, shown_interval
from fairtrial.report.charts.frame import Axis, Frame, finished, grid, panel_heading
from fairtrial.report.charts.grammar import Chart, Panel
from fairtrial.report.charts.intervals import goes_on, interval_layers, too_small
from fairtrial.report.charts.places import Interval, domain_of, finite, open_interval
from fairtrial.report.charts.style import INK, QUIET, level_text, style_at, tint

BINS = 40
TALL, LOW, ROW = 190, 100, 26
WIDE, NARROW = 480, 300
"""Sizes in pixels: histogram height (one panel, several panels), row height, panel width (one, several)."""

ZERO_WITHIN = 4.0
"""Zero is inside the frame if its distance is at most this many times the width of everything else."""

Drawn = tuple[str, float | None, float | None]
"""An interval: the name of its method, and its limits."""


@dataclass(frozen=True)
class Resamples:
    """One difference: its name, the resampled means, the observed mean, and the intervals to draw below them.

    `colour` is the color of the candidate.
    """

    name: str
    draws: Sequence[float]
    value: float
    intervals: Sequence[Drawn]
    colour: str = style_at(1).colour


def bootstrap_distribution(
    resamples: Sequence[Resamples], *, metric: str, control: str, level: float | None, sesoi: float | None, title: str
) -> Chart:
    """Draw the bootstrap distribution of each mean difference from the control, one panel per difference."""
    drawable = [each for each in resamples if len(finite(each.draws))]
    if not drawable:
        raise NothingToDraw(f"there is nothing to draw: no difference in {metric} was resampled")
    alone = len(drawable) == 1
    axis = f"difference in {metric}: {drawable[0].name} − {control}" if alone else ""
    frames = [_frame(each, sesoi, axis) for each in drawable]
    panels = [_panel(frame, each, sesoi, alone=alone) for frame, each in zip(frames, drawable, strict=True)]
    at = "Each interval has its own level in the family" if level is None else f"Intervals at {level_text(level)}"
    messages = [
        "" if alone else f"Difference in {metric}: each named arm − {control}.",
        f"Bars: means of {len(drawable[0].draws):,} resamples of the runs; dark: inside the bootstrap interval.",
        f"{at}{'; gray: the interval of the verdict' if any(len(each.intervals) > 1 for each in drawable) else ''}.",
        too_small(sesoi),
        _zero_words(frames),
        max(goes_on(frame, _intervals(each)) for frame, each in zip(frames, drawable, strict=True)),
    ]
    chart: Chart = panels[0] if alone else grid(panels, columns=2)
    return finished(
        chart,
        title,
        [" ".join(filter(None, messages)).replace(" ;", ";").replace(" . ", ". ")],
        width=700 if alone else 960,
    )


def _frame(resamples: Resamples, sesoi: float | None, axis: str) -> Frame:
    draws = finite(resamples.draws)
    limits = [limit for _, low, high in resamples.intervals for limit in (low, high)]
    margin = [] if sesoi is None else [-sesoi, sesoi]
    core = [*np.quantile(draws, [0.001, 0.999]), resamples.value]
    x = domain_of(domain_of(core, [*limits, *margin], room=1.5), [0.0], room=ZERO_WITHIN, margin=0.03)
    width, height = (WIDE, TALL) if axis else (NARROW, LOW)
    height += ROW * len(resamples.intervals) + ROW // 2
    return Frame(Axis(axis, x), Axis("", (height, 0), drawn=False), width, height)


def _panel(frame: Frame, resamples: Resamples, sesoi: float | None, *, alone: bool) -> Panel:
    widths = [high - low for low, high in filter(None, _intervals(resamples)) if np.isfinite(high - low)]
    decimals = decimals_for(min(widths)) if widths else None
    rows = [
        {"value": resamples.value, "interval": open_interval(low, high), "y": _row_at(frame, resamples, place),
         "colour": (resamples.colour, QUIET)[min(place, 1)], "text": method, "limits": _limits(low, high, decimals)}
        for place, (method, low, high) in enumerate(resamples.intervals)
    ]  # fmt: skip
    inside = next(iter(_intervals(resamples)), None)
    layers = [
        *([frame.shade(-sesoi, sesoi)] if sesoi else []),
        frame.draw("rect", _bars(frame, resamples, inside)),
        *([frame.across(0, color=INK, strokeWidth=1)] if _shows_zero(frame) else []),
        *interval_layers(frame, rows),
        frame.write([{"x": frame.x_at(-10), "y": row["y"], "text": row["text"]} for row in rows], align="right"),
        frame.write([{"x": frame.x_at(frame.width + 10), "y": row["y"], "text": row["limits"]} for row in rows]),
    ]
    return frame.layered(layers, heading=None if alone else panel_heading(resamples.name, frame.width + 160))


def _row_at(frame: Frame, resamples: Resamples, place: int) -> float:
    return frame.height - ROW * (len(resamples.intervals) - place - 0.5)


def _bars(frame: Frame, resamples: Resamples, inside: Interval | None) -> list[dict[str, Any]]:
    """Return one bar per non-empty bin. The outermost 0.1 % of the draws at each end are not drawn."""
    draws = finite(resamples.draws)
    counts, edges = np.histogram(draws, BINS, range=tuple(np.quantile(draws, [0.001, 0.999])))
    base = frame.height - ROW * len(resamples.intervals) - ROW // 2
    heights = counts / counts.max() * (base - 8)
    middles = (edges[1:] + edges[:-1]) / 2
    return [
        {"x": float(left), "x2": float(right), "y": base, "y2": base - float(height),
         "colour": tint(resamples.colour, 0.5 if inside is None or inside[0] <= middle <= inside[1] else 0.17)}
        for left, right, middle, height in zip(edges[:-1], edges[1:], middles, heights, strict=True) if height
    ]  # fmt: skip


def _limits(low: float | None, high: float | None, decimals: int | None) -> str:
    return "no interval" if open_interval(low, high) is None else shown_interval(low, high, decimals)


def _intervals(resamples: Resamples) -> list[Interval | None]:
    return [open_interval(low, high) for _, low, high in resamples.intervals]


def _zero_words(frames: Sequence[Frame]) -> str:
    if all(map(_shows_zero, frames)):
        return ""
    return "Zero is outside the frame." if len(frames) == 1 else "Panels without a zero line do not reach zero."


def _shows_zero(frame: Frame) -> bool:
    return frame.x.domain[0] <= 0 <= frame.x.domain[1]
