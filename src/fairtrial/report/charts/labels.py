"""Labels for lines: names at their ends, or in a key if there is no space; dots for isolated points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fairtrial.report.charts.frame import Frame, Rows
from fairtrial.report.charts.grammar import alt
from fairtrial.report.charts.places import spread_out
from fairtrial.report.charts.style import LABEL, colour_of, dash_of, short_names

KEY_LINE = 18
LEAD = 10


def end_labels(
    frame: Frame, ends: Sequence[tuple[float, str, str]], *, left: float, size: int = LABEL
) -> list[alt.Chart]:
    """Draw names at line ends, given as (y, name, color). Overlapping names move apart, with a short leader line."""
    wanted = [min(max(frame.pixel_of(y), 0), frame.height) for y, _, _ in ends]
    placed = spread_out(wanted, size + 2.5, (0, frame.height))
    names = short_names([name for _, name, _ in ends])
    near, far, text = (frame.x_at(left + offset) for offset in (0, LEAD, LEAD + 4))
    leads, words = [], []
    for at, to, name, (_, _, colour) in zip(wanted, placed, names, ends, strict=True):
        leads.append({"x": near, "x2": far, "y": frame.y_at(at), "y2": frame.y_at(to), "colour": colour})
        words.append({"x": text, "y": frame.y_at(to), "text": name, "colour": colour})
    return [frame.draw("rule", leads, strokeWidth=1), frame.write(words, fontSize=size)]


def lone(rows: Rows) -> Rows:
    """Return the points that are the only one in their group, which a line mark would not show."""
    counts = Counter(row["group"] for row in rows if row["y"] is not None)
    return [row for row in rows if counts[row["group"]] == 1 and row["y"] is not None]


def name_key(frame: Frame, entries: Sequence[tuple[str, int]], *, left: float, top: float = 8) -> list[alt.Chart]:
    """Draw a key. Entries are names with palette indices; `left` and `top` are pixels in the frame."""
    names = short_names([name for name, _ in entries])
    samples, words = [], []
    for line, (name, (_, place)) in enumerate(zip(names, entries, strict=True)):
        look = {"y": frame.y_at(top + KEY_LINE * line), "colour": colour_of(place)}
        samples.append({"x": frame.x_at(left), "x2": frame.x_at(left + 22), "dash": dash_of(place), **look})
        words.append({"x": frame.x_at(left + 28), "text": name, **look})
    return [frame.draw("rule", samples, strokeWidth=2.2), frame.write(words)]
