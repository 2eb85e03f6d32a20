"""Layout for values in rows: a name, a dot on its interval bar, the numbers, and a word in the color of the row."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from fairtrial.report.charts.frame import Axis, Frame, Rows
from fairtrial.report.charts.grammar import alt
from fairtrial.report.charts.places import Interval, finite
from fairtrial.report.charts.style import LETTER, short_names

ROW = 30
WIDTH = 420


def list_frame(title: str, domain: Interval, count: int) -> Frame:
    """Return a frame with `count` rows, at y = 0, 1, 2, … from the top."""
    return Frame(Axis(title, domain), Axis("", (count - 0.5, -0.5), drawn=False), WIDTH, max(2, count) * ROW)


def usual_width(rows: Rows) -> float | None:
    """Return the median width of the intervals, which sets the number of decimals."""
    widths = finite(row["interval"][1] - row["interval"][0] for row in rows if row["interval"])
    return statistics.median(widths.tolist()) if len(widths) else None


def all_limits(rows: Rows) -> list[float]:
    return [limit for row in rows if row["interval"] for limit in row["interval"]]


def columns(frame: Frame, rows: Rows, write: Callable[[float], str]) -> list[alt.Chart]:
    """Draw the names on the left, and the numbers and the colored word on the right."""
    numbers = [_numbers(row["value"], row["interval"], write) for row in rows]
    first = frame.width + 14
    left, middle, right = (frame.x_at(x) for x in (-12, first, first + LETTER * max(map(len, numbers)) + 16))
    names = short_names([row["name"] for row in rows], 40)
    words = [{"x": right, "y": row["y"], "text": row["word"], "colour": row["colour"]} for row in rows]
    return [
        frame.write(_down(left, names), align="right"),
        frame.write(_down(middle, numbers)),
        frame.write(words, fontWeight="bold"),
    ]


def _down(x: float, texts: Sequence[str]) -> Rows:
    return [{"x": x, "y": line, "text": text} for line, text in enumerate(texts)]


def _numbers(value: float | None, interval: Interval | None, write: Callable[[float], str]) -> str:
    if value is None:
        return "no value"
    return f"{write(value)} " + (f"[{write(interval[0])}, {write(interval[1])}]" if interval else "no interval")
