"""Layout for values in rows: the full name, a dot on its interval bar, the numbers, and a word."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from fairtrial.report.charts.frame import Axis, Frame, Rows
from fairtrial.report.charts.grammar import alt
from fairtrial.report.charts.places import Interval, finite
from fairtrial.report.charts.style import INK, LETTER, LINE_HEIGHT, name_lines

ROW = 30
WIDTH = 420


def list_frame(title: str, domain: Interval, names: Sequence[str], *, width: int = WIDTH) -> Frame:
    """Return a frame with a row for each name, at y = 0, 1, 2, … from the top, high enough for the longest name."""
    count, lines = len(names), max(len(name_lines(name)) for name in names)
    row = max(ROW, lines * LINE_HEIGHT + 8)
    return Frame(Axis(title, domain), Axis("", (count - 0.5, -0.5), drawn=False), width, max(2, count) * row)


def usual_width(rows: Rows) -> float | None:
    """Return the median width of the intervals, which sets the number of decimals."""
    widths = finite(row["interval"][1] - row["interval"][0] for row in rows if row["interval"])
    return statistics.median(widths.tolist()) if len(widths) else None


def all_limits(rows: Rows) -> list[float]:
    return [limit for row in rows if row["interval"] for limit in row["interval"]]


def columns(frame: Frame, rows: Rows, write: Callable[[float], str]) -> list[alt.Chart]:
    """Draw the names on the left, and the numbers and the word on the right."""
    numbers = [_numbers(row["value"], row["interval"], write) for row in rows]
    right = frame.width + 14
    words = row_texts(right + LETTER * max(map(len, numbers)) + 16, frame, [row["word"] for row in rows])
    return [
        frame.write(row_texts(-12, frame, [row["name"] for row in rows]), align="right"),
        frame.write(row_texts(right, frame, numbers)),
        frame.write(words, fontWeight="bold", color=INK),
    ]


def row_texts(pixel: float, frame: Frame, texts: Sequence[str]) -> Rows:
    """Return one text per row at this many pixels from the left edge. Long texts have several lines."""
    return [{"x": frame.x_at(pixel), "y": y, "text": name_lines(text)} for y, text in enumerate(texts)]


def _numbers(value: float | None, interval: Interval | None, write: Callable[[float], str]) -> str:
    if value is None:
        return "no value"
    return f"{write(value)} " + (f"[{write(interval[0])}, {write(interval[1])}]" if interval else "no interval")
