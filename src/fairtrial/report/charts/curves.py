"""Learning curves: every run faintly, the mean over them with its band, and the name where the line ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairtrial.core.errors import UserError
from fairtrial.core.words import counted
from fairtrial.report.charts.frame import Axis, Frame, finished
from fairtrial.report.charts.grammar import Chart, alt
from fairtrial.report.charts.places import Array, Interval, domain_of, evenly, finite, known, spread_out, thinned
from fairtrial.report.charts.style import HEIGHT, LABEL, SHADE, colour_of, dash_of, short_names, shown

POINTS = 500
RUNS = 100
ALL_POINTS = 30_000
"""Of one line, runs of one variant, and points of all faint lines: more would cost seconds and show nothing."""

Line = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True)
class Band:
    """One variant over training: the mean, its interval at each step (NaN where unknown), and the runs behind it."""

    variant: str
    steps: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    runs: Sequence[Line] = ()


def learning_curves(
    bands: Sequence[Band], *, metric: str, level: float, window: Interval | None = None, title: str | None = None
) -> Chart:
    """How a metric went while training, one line per variant; `window` is what the summary looks at."""
    if not any(finite(band.mean) for band in bands):
        raise UserError(f"there is nothing to draw: no variant has a value of {metric}")
    frame = _frame(bands, metric)
    layers = [
        *([frame.shade(*window, color=SHADE)] if window else []),
        frame.draw("area", _band_rows(bands), opacity=0.18, clip=True),
        frame.draw("line", _run_rows(bands), strokeWidth=0.8, opacity=_faintness(bands), clip=True),
        frame.draw("line", _mean_rows(bands), strokeWidth=2.2, clip=True),
        *_labels(frame, bands),
    ]
    subtitle = [_what_is_drawn(bands, level), "Shaded: the steps that the summary looks at." if window else ""]
    subtitle.append("Lines that leave the frame go on outside it." if _overflows(bands, frame.y.domain) else "")
    return finished(frame.layered(layers), title or _ending(bands, metric), [" ".join(filter(None, subtitle))])


def _frame(bands: Sequence[Band], metric: str) -> Frame:
    means = [value for band in bands for value in finite(band.mean)]
    single = finite(_all_run_values(bands))
    usual = [float(limit) for limit in np.quantile(single, [0.02, 0.98])] if single else []
    limits = [value for band in bands for value in (*band.low, *band.high)]
    steps = [step for band in bands for step in finite(band.steps)]
    ends = (min(steps), max(steps)) if min(steps) < max(steps) else (steps[0] - 1, steps[0] + 1)
    y = domain_of([*means, *usual], [*limits, *single], room=0.5)
    return Frame(Axis("step", ends, grid=False), Axis(metric, y), height=max(HEIGHT, 15 * len(bands)))


def _all_run_values(bands: Sequence[Band]) -> list[float]:
    return [value for band in bands for _, values in band.runs for value in values]


def _run_rows(bands: Sequence[Band]) -> list[dict[str, Any]]:
    drawn = [(place, band.runs[run]) for place, band in enumerate(bands) for run in evenly(len(band.runs), RUNS)]
    limit = max(20, min(POINTS, ALL_POINTS // max(1, len(drawn))))
    rows = []
    for group, (place, (steps, values)) in enumerate(drawn):
        look = {"colour": colour_of(place), "group": group}
        numbers = np.asarray(values, dtype=np.float64)
        rows += [{"x": float(steps[i]), "y": known(numbers[i]), **look} for i in thinned(numbers, limit)]
    return rows


def _band_rows(bands: Sequence[Band]) -> list[dict[str, Any]]:
    rows = []
    for place, band in enumerate(bands):
        for i in thinned(_numbers(band.mean), POINTS):
            low, high = known(band.low[i]), known(band.high[i])
            if low is None or high is None:
                low = high = None
            rows.append({"x": float(band.steps[i]), "y": low, "y2": high, "colour": colour_of(place), "group": place})
    return rows


def _mean_rows(bands: Sequence[Band]) -> list[dict[str, Any]]:
    return [
        {"x": float(band.steps[i]), "y": known(band.mean[i]), **_look(place)}
        for place, band in enumerate(bands)
        for i in thinned(_numbers(band.mean), POINTS)
    ]


def _numbers(values: Sequence[float]) -> Array:
    return np.asarray(values, dtype=np.float64)


def _look(place: int) -> dict[str, Any]:
    return {"colour": colour_of(place), "dash": dash_of(place), "group": place}


def _faintness(bands: Sequence[Band]) -> float:
    most = max(len(band.runs) for band in bands)
    return 0.45 if most <= 10 else 0.25 if most <= 30 else 0.12


def _last(band: Band) -> tuple[float, float] | None:
    """The last step at which the mean is known, and the mean there."""
    ends = [(float(step), float(mean)) for step, mean in zip(band.steps, band.mean, strict=True) if np.isfinite(mean)]
    return max(ends) if ends else None


def _labels(frame: Frame, bands: Sequence[Band]) -> list[alt.Chart]:
    """Each name beside the end of its line, moved apart where lines end close together."""
    ends = [(place, end) for place, band in enumerate(bands) if (end := _last(band))]
    wanted = [min(max(frame.pixel_of(mean), 0), frame.height) for _, (_, mean) in ends]
    placed = [frame.y_at(pixel) for pixel in spread_out(wanted, LABEL + 3, (0, frame.height))]
    names = short_names([bands[place].variant for place, _ in ends])
    left, right = frame.x_at(frame.width + 2), frame.x_at(frame.width + 12)
    leads, words = [], []
    for (place, _), pixel, y, name in zip(ends, wanted, placed, names, strict=True):
        leads.append({"x": left, "x2": right, "y": frame.y_at(pixel), "y2": y, "colour": colour_of(place)})
        words.append({"x": frame.x_at(frame.width + 16), "y": y, "text": name, "colour": colour_of(place)})
    return [frame.draw("rule", leads, strokeWidth=1), frame.write(words)]


def _overflows(bands: Sequence[Band], domain: Interval) -> bool:
    limits = [value for band in bands for value in (*band.low, *band.high)]
    return any(not domain[0] <= value <= domain[1] for value in finite([*limits, *_all_run_values(bands)]))


def _ending(bands: Sequence[Band], metric: str) -> str:
    ends = [(band.variant, end[1]) for band in bands if (end := _last(band))]
    if len(ends) > 3:
        return f"{metric} while training, {len(ends)} variants"
    low, high = domain_of([value for _, value in ends])
    told = [f"{shown(value, high - low)} for {name}" for name, value in ends]
    return f"{metric} ends at {', '.join(told[:-1])}{' and ' if len(told) > 1 else ''}{told[-1]}"


def _what_is_drawn(bands: Sequence[Band], level: float) -> str:
    counts = sorted({len(band.runs) for band in bands})
    runs = counted(counts[0], "run") if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,} runs"
    has_band = any(finite(band.low) for band in bands)
    told = f"Mean of {runs} per variant" if len(bands) > 1 else f"Mean of {runs}"
    if counts == [0]:
        told = "Mean"
    told += f" with a pointwise {100 * level:g} % band" if has_band else ", without a band"
    if counts[-1] > RUNS:
        return f"{told}; thin lines are {RUNS} of the runs."
    return f"{told}; thin lines are single runs." if counts[-1] else f"{told}."
