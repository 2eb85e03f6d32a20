"""Chart of learning curves: faint single runs, the mean with its band, and the variant's name at the line's end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairtrial.core.errors import NothingToDraw
from fairtrial.core.formatting import counted
from fairtrial.report.charts.frame import Axis, Frame, finished
from fairtrial.report.charts.grammar import Chart
from fairtrial.report.charts.labels import LineEnd, end_labels, end_labels_height, lone
from fairtrial.report.charts.places import (
    Array,
    Interval,
    Numbers,
    as_numbers,
    cut,
    domain_of,
    evenly,
    finite,
    known,
    thinned,
)
from fairtrial.report.charts.style import (
    FEW_ARMS,
    HEIGHT,
    ArmStyle,
    ArmStyles,
    arm_styles,
    band_opacity,
    level_text,
    shown,
)

POINTS = 500
RUNS = 100
ALL_POINTS = 30_000
"""Limits on points per line, runs per variant, and points of all run lines. More take seconds but show no more."""

Line = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True)
class Band:
    """The curve of one variant: the mean and its interval at each step (NaN if unknown), and the single runs."""

    variant: str
    steps: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    runs: Sequence[Line] = ()


def learning_curves(
    bands: Sequence[Band],
    *,
    metric: str,
    level: float,
    window: Interval | None = None,
    judged: str | None = None,
    styles: ArmStyles | None = None,
) -> Chart:
    """Draw a metric over training steps, one line per variant. `window` is the range that the summary uses.

    `judged` is the metric of the verdict, if it has one value per run and another metric is drawn in its place.
    """
    if not any(len(finite(band.mean)) for band in bands):
        raise NothingToDraw(f"there is nothing to draw: no variant has a value of {metric}")
    frame = _frame(bands, metric)
    styles = styles or arm_styles(band.variant for band in bands)
    looks = [styles[band.variant] for band in bands]
    means = _mean_rows(bands, looks)
    layers = [
        *([frame.shade(*window)] if window else []),
        frame.draw("area", _band_rows(bands, looks, frame.y.domain), fillOpacity=band_opacity(len(bands))),
        frame.draw("line", _run_rows(bands, looks, frame.y.domain), strokeWidth=0.8, strokeOpacity=_faintness(bands)),
        frame.draw("line", means, strokeWidth=2.2),
        frame.draw("circle", lone(means), size=60, opacity=1),
        *end_labels(frame, _ends(bands, looks), left=frame.width + 2),
    ]
    messages = [
        _what_is_drawn(bands, level),
        "Shaded: the steps used by the summary." if window else "",
        "Some lines leave the frame." if _overflows(bands, frame.y.domain) else "",
    ]
    span = frame.y.domain[1] - frame.y.domain[0]
    title = _ending(bands, f"{metric} (the curve of {judged})" if judged else metric, span)
    return finished(frame.layered(layers), title, [" ".join(filter(None, messages))])


def _frame(bands: Sequence[Band], metric: str) -> Frame:
    single = finite(_over(line[1] for band in bands for line in band.runs))
    usual = np.quantile(single, [0.25, 0.75]) if len(single) else ()
    inner = domain_of(_over([*(band.mean for band in bands), usual]), single, margin=0)
    y = domain_of(inner, _over(limits for band in bands for limits in (band.low, band.high)), room=0.3)
    steps = finite(_over([*(band.steps for band in bands), *(line[0] for band in bands for line in band.runs)]))
    ends = float(steps.min()), float(steps.max())
    x = ends if ends[0] < ends[1] else (ends[0] - 1, ends[1] + 1)
    ticks = range(math.ceil(x[0]), math.floor(x[1]) + 1) if x[1] - x[0] < 6 else None
    height = max(HEIGHT, math.ceil(end_labels_height([band.variant for band in bands])))
    return Frame(Axis("step", x, grid=False, ticks=ticks), Axis(metric, y), height=height)


def _over(parts: Iterable[Numbers]) -> Array:
    """Concatenate many series into one array."""
    return np.concatenate([np.empty(0), *map(as_numbers, parts)])


def _run_rows(bands: Sequence[Band], looks: Sequence[ArmStyle], domain: Interval) -> list[dict[str, Any]]:
    if len(bands) > FEW_ARMS:
        return []
    drawn = [(place, band.runs[run]) for place, band in enumerate(bands) for run in evenly(len(band.runs), RUNS)]
    limit = max(20, min(POINTS, ALL_POINTS // max(1, len(drawn))))
    rows = []
    for group, (place, (steps, values)) in enumerate(drawn):
        look = {"colour": looks[place].colour, "group": group}
        numbers = as_numbers(values)
        kept = thinned(numbers, limit)
        line = zip(*cut(as_numbers(steps)[kept], numbers[kept], domain), strict=True)
        rows += [{"x": float(x), "y": known(y), **look} for x, y in line]
    return rows


def _band_rows(bands: Sequence[Band], looks: Sequence[ArmStyle], domain: Interval) -> list[dict[str, Any]]:
    rows = []
    for place, band in enumerate(bands):
        for i in thinned(as_numbers(band.mean), POINTS):
            low, high = map(known, np.clip(as_numbers([band.low[i], band.high[i]]), *domain))
            low, high = (None, None) if low is None or high is None else (low, high)
            look = {"colour": looks[place].colour, "group": place}
            rows.append({"x": float(band.steps[i]), "y": low, "y2": high, **look})
    return rows


def _mean_rows(bands: Sequence[Band], looks: Sequence[ArmStyle]) -> list[dict[str, Any]]:
    return [
        {"x": float(band.steps[i]), "y": known(band.mean[i]), "group": place, **vars(looks[place])}
        for place, band in enumerate(bands)
        for i in thinned(as_numbers(band.mean), POINTS)
    ]


def _faintness(bands: Sequence[Band]) -> float:
    lines = sum(min(RUNS, len(band.runs)) for band in bands)
    return max(0.06, min(0.45, 6 / max(1, lines)))


def _last(band: Band) -> tuple[float, float] | None:
    """Return the last step at which the mean is known, and the mean there."""
    known_ends = [(float(x), float(y)) for x, y in zip(band.steps, band.mean, strict=True) if known(y) is not None]
    return max(known_ends, default=None)


def _ends(bands: Sequence[Band], looks: Sequence[ArmStyle]) -> list[LineEnd]:
    return [(end[1], band.variant, look) for band, look in zip(bands, looks, strict=True) if (end := _last(band))]


def _overflows(bands: Sequence[Band], domain: Interval) -> bool:
    drawn = finite(_over(part for band in bands for part in (band.low, band.high, *(line[1] for line in band.runs))))
    return bool(((drawn < domain[0]) | (drawn > domain[1])).any())


def _ending(bands: Sequence[Band], metric: str, span: float) -> str:
    ends = [(band.variant, end[1]) for band in bands if (end := _last(band))]
    if len(ends) > 3:
        (bottom, low), *_, (top, high) = sorted(ends, key=lambda end: end[1])
        return f"{metric} ends highest for {top} ({shown(high, span)}), lowest for {bottom} ({shown(low, span)})"
    messages = [f"{shown(value, span)} for {name}" for name, value in ends]
    return f"{metric} ends at {', '.join(messages[:-1])}{' and ' if len(messages) > 1 else ''}{messages[-1]}"


def _what_is_drawn(bands: Sequence[Band], level: float) -> str:
    counts = sorted({len(band.runs) for band in bands})
    if counts == [1]:
        return "One run" + (" per variant." if len(bands) > 1 else ".")
    runs = counted(counts[0], "run") if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,} runs"
    message = "Mean" + (f" of {runs}" if counts[-1] else "") + (" per variant" if len(bands) > 1 else "")
    message += f", pointwise {level_text(level)} band" if any(len(finite(band.low)) for band in bands) else ", no band"
    single = (
        ""
        if not counts[-1] or len(bands) > FEW_ARMS
        else "; thin lines: single runs"
        if counts[-1] <= RUNS
        else f"; thin lines: {RUNS} runs"
    )
    return f"{message}{single}."
