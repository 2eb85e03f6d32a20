"""Labels for lines: names at their ends, or in a key if there is no space; dots for isolated points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fairtrial.report.charts.frame import Frame, Rows
from fairtrial.report.charts.grammar import alt
from fairtrial.report.charts.places import spread_out
from fairtrial.report.charts.style import LABEL, LINE_HEIGHT, ArmStyle, name_lines

KEY_GAP = 5
LEAD = 16

LineEnd = tuple[float, str, ArmStyle]
"""The end of a line: its y, the name to write there, and the style of the line."""


def end_labels(frame: Frame, ends: Sequence[LineEnd], *, left: float, size: int = LABEL) -> list[alt.Chart]:
    """Draw full names at line ends. Overlapping names move apart, with a short leader in the style of their line."""
    names = [name_lines(name) for _, name, _ in ends]
    wanted = [min(max(frame.pixel_of(y), 0), frame.height) for y, _, _ in ends]
    placed = spread_out(wanted, (size + 2.5) * max(map(len, names), default=1), (0, frame.height))
    near, far, text = (frame.x_at(left + offset) for offset in (0, LEAD, LEAD + 4))
    leads, words = [], []
    for at, to, lines, (_, _, style) in zip(wanted, placed, names, ends, strict=True):
        leads.append({"x": near, "x2": far, "y": frame.y_at(at), "y2": frame.y_at(to),
                      "colour": style.colour, "dash": style.dash})  # fmt: skip
        words.append({"x": text, "y": frame.y_at(to), "text": lines})
    return [frame.draw("rule", leads, strokeWidth=2), frame.write(words, fontSize=size)]


def end_labels_height(names: Sequence[str], size: int = LABEL) -> float:
    """Return the height that names at line ends need so that none overlaps another."""
    return (size + 2.5) * len(names) * max((len(name_lines(name)) for name in names), default=1)


def lone(rows: Rows) -> Rows:
    """Return the points that are the only one in their group, which a line mark would not show."""
    counts = Counter(row["group"] for row in rows if row["y"] is not None)
    return [row for row in rows if counts[row["group"]] == 1 and row["y"] is not None]


def name_key(frame: Frame, entries: Sequence[tuple[str, ArmStyle]], *, left: float, top: float = 8) -> list[alt.Chart]:
    """Draw a key of full names with their line styles; `left` and `top` are pixels in the frame."""
    samples, words = [], []
    for name, style in entries:
        lines = name_lines(name)
        middle = frame.y_at(top + (len(lines) - 1) * LINE_HEIGHT / 2)
        look = {"colour": style.colour, "dash": style.dash}
        samples.append({"x": frame.x_at(left), "x2": frame.x_at(left + 22), "y": middle, **look})
        words.append({"x": frame.x_at(left + 28), "y": middle, "text": lines})
        top += len(lines) * LINE_HEIGHT + KEY_GAP
    return [frame.draw("rule", samples, strokeWidth=2.2), frame.write(words)]


def key_height(names: Sequence[str]) -> int:
    """Return the height of a key with these names, in pixels."""
    return sum(len(name_lines(name)) * LINE_HEIGHT + KEY_GAP for name in names)
