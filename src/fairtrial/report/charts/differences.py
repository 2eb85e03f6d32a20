"""Chart of paired differences: one dot per pair, with the mean and its interval below."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fairtrial.core.errors import NothingToDraw
from fairtrial.core.formatting import counted, decimals_for, shown_change, shown_interval
from fairtrial.report.charts.frame import Axis, Frame, finished
from fairtrial.report.charts.grammar import Chart
from fairtrial.report.charts.intervals import goes_on, interval_layers, too_small
from fairtrial.report.charts.places import Interval, domain_of, finite, known, open_interval
from fairtrial.report.charts.style import INK, ArmStyle, level_text, style_at

WIDTH = 420
MEAN_ROW = 50
SWARM = 170


def difference_distribution(
    samples: Sequence[float],
    *,
    value: float | None,
    low: float | None,
    high: float | None,
    level: float,
    sesoi: float | None,
    metric: str,
    names: tuple[str, str],
    title: str,
    style: ArmStyle | None = None,
) -> Chart:
    """Draw the single differences as dots, and the mean with its interval below them.

    `names` are the control and the candidate; `style` is the candidate's.
    """
    differences: list[float] = sorted(finite(samples).tolist())
    if not differences:
        raise NothingToDraw(f"there is nothing to draw: no difference in {metric} is a finite number")
    mean, interval = known(value), open_interval(low, high)
    margin = [] if sesoi is None else [-sesoi, sesoi]
    x = Axis(
        f"difference in {metric}: {names[1]} − {names[0]}",
        domain_of([*differences, 0.0, mean], [*(interval or ()), *margin], room=2),
    )
    swarm = _Swarm(x, differences)
    frame = Frame(x, Axis("", (swarm.height + MEAN_ROW, 0), drawn=False), WIDTH, swarm.height + MEAN_ROW)
    bar = swarm.height + MEAN_ROW / 2
    labels = [(swarm.height / 2, counted(len(differences), "difference")), (bar, _mean_name(interval, level))]
    numbers = {"x": frame.x_at(WIDTH + 14), "y": bar, "text": _numbers(mean, interval)}
    layers = [
        *([frame.shade(-sesoi, sesoi)] if sesoi else []),
        frame.across(0, color=INK, strokeWidth=1),
        frame.draw("circle", swarm.rows(), color=(style or style_at(1)).colour, size=swarm.dot**2, fillOpacity=0.65),
        *interval_layers(frame, [{"value": mean, "interval": interval, "y": bar, "colour": INK}]),
        frame.write([{"x": frame.x_at(-12), "y": y, "text": name} for y, name in labels], align="right"),
        frame.write([numbers], fontWeight="bold"),
    ]
    return finished(frame.layered(layers), title, [f"{too_small(sesoi)} {goes_on(frame, [interval])}"])


class _Swarm:
    """A beeswarm of differences: dots close to each other are stacked around a middle line so that all are visible."""

    def __init__(self, x: Axis, differences: Sequence[float]) -> None:
        count = len(differences)
        self.differences = differences
        self.dot = 8 if count <= 100 else 5 if count <= 400 else 3.5
        self.columns = [round(x.share(value) * WIDTH / self.dot) for value in differences]
        self.stacks = Counter(self.columns)
        highest = max(self.stacks.values())
        self.step = min(self.dot, SWARM / highest)
        self.height = round(highest * self.step) + 50

    def rows(self) -> list[dict[str, Any]]:
        placed: Counter[int] = Counter()
        rows = []
        for value, column in zip(self.differences, self.columns, strict=True):
            offset = (placed[column] - (self.stacks[column] - 1) / 2) * self.step
            placed[column] += 1
            rows.append({"x": value, "y": self.height / 2 + offset})
        return rows


def _mean_name(interval: Interval | None, level: float) -> str:
    return f"mean, {level_text(level)} interval" if interval else "mean, no interval"


def _numbers(mean: float | None, interval: Interval | None) -> str:
    if mean is None:
        return "no mean"
    low, high = interval or (None, None)
    decimals = decimals_for(interval[1] - interval[0]) if interval else None
    return f"{shown_change(mean, decimals)} {shown_interval(low, high, decimals)}".strip()
