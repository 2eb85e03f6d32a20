"""Style of all charts: one palette and one order of arms, number formats, and the notes that every chart carries.

Colors identify arms and never judge them: the control comes first, then the other arms in the order of the study, so an
arm looks the same in every chart of an analysis. Marks that do not belong to an arm are drawn in `ACCENT` or gray. The
text stays dark, because the lighter colors are hard to read on white. Nothing here imports a charting package.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairtrial.core.formatting import decimals_for

CONTROL, BLUE, ORANGE, GREEN, VERMILLION, SKY, PURPLE = (
    "#404040", "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7",
)  # fmt: skip
PALETTE = (CONTROL, BLUE, ORANGE, GREEN, VERMILLION, SKY, PURPLE)
"""The Okabe–Ito palette without yellow, which is hard to see on white. The control comes first and is dark gray. The
first three also differ clearly in gray print; from the fourth on, dashes help."""

DASHES = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3])
SOLID = 3
"""The first arms, which colors alone tell apart, have solid lines."""

FEW_ARMS = 6
"""Up to this many arms, single runs can be drawn behind the means."""

ACCENT = "#35506B"
"""Marks that do not belong to one arm: the values of a sweep, the points of a frontier, the noise of an arm."""

INK, QUIET, FAINT = "#222222", "#666666", "#BBBBBB"

WIDTH, HEIGHT = 600, 360
LABEL, LETTER = 12, 6.2
"""Font size, and average width of a letter, in pixels."""

NAME_LINE, LINE_HEIGHT = 44, 14
"""Longest line of a name in characters (longer names continue on the next line), and height of a line in pixels."""

SYNTHETIC_NOTE = "Synthetic: the recipe makes its numbers up."

CONFIG: dict[str, Any] = {
    "background": "white",
    "padding": 14,
    "font": "Helvetica, Arial, Liberation Sans, sans-serif",
    "view": {"stroke": None},
    "title": {
        "anchor": "start", "frame": "bounds", "color": INK, "fontSize": 15, "fontWeight": 600, "lineHeight": 19,
        "subtitleColor": QUIET, "subtitleFontSize": LABEL, "subtitleLineHeight": 16, "subtitlePadding": 6, "offset": 14,
    },
    "axis": {
        "domainColor": FAINT, "tickColor": FAINT, "gridColor": "#EBEBEB", "labelColor": "#444444",
        "labelFontSize": LABEL, "titleColor": INK, "titleFontSize": LABEL, "titleFontWeight": "normal",
        "titlePadding": 10, "tickCount": 6, "labelPadding": 4, "labelFlush": False,
    },
    "text": {"fontSize": LABEL, "color": INK},
}  # fmt: skip


@dataclass(frozen=True)
class ArmStyle:
    """How an arm is drawn in every chart."""

    colour: str
    dash: list[int]


ArmStyles = Mapping[str, ArmStyle]


def arm_styles(names: Iterable[str], control: str | None = None) -> dict[str, ArmStyle]:
    """Return the style of each arm: the control first, then the others in the given order, which is the study's.

    Up to 14 arms all differ in color or dash.
    """
    ordered = dict.fromkeys([*([] if control is None else [control]), *names])
    return {name: style_at(place) for place, name in enumerate(ordered)}


def style_at(place: int) -> ArmStyle:
    """Return the style of the arm at this place in the order of arms; the control has place 0."""
    dash = DASHES[0] if place < SOLID else DASHES[(place - SOLID + 1) % len(DASHES)]
    return ArmStyle(PALETTE[place % len(PALETTE)], dash)


def tint(colour: str, share: float) -> str:
    """Mix a color with white. `share` is the part of the color, from 0 to 1."""
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - share * (255 - channel)):02X}" for channel in channels)


def band_opacity(arms: int) -> float:
    """Return the opacity of interval bands. Many bands overlap, so each of them must be faint."""
    return 0.18 if arms <= 3 else 0.1 if arms <= FEW_ARMS else 0.04


def wrapped(text: str, width: int) -> list[str]:
    """Wrap text to lines of `width` characters, keeping names whole and a percent sign with its number."""
    return textwrap.wrap(text.replace(" %", "\N{NO-BREAK SPACE}%"), width, break_on_hyphens=False) or [""]


def name_lines(name: str, most: int = NAME_LINE) -> list[str]:
    """Return a full name in lines of at most `most` characters. It may break after punctuation such as `_` or `=`."""
    lines = [""]
    for part in re.split(r"(?<=[\s_\-,=+/])|(?<=\.)(?!\d)", name):  # a decimal number stays whole
        for piece in (part[i : i + most] for i in range(0, len(part), most)):
            fits = len(lines[-1]) + len(piece.rstrip()) <= most
            lines = [*lines[:-1], lines[-1] + piece] if fits else [*lines, piece]
    return lines


def list_names(names: Sequence[str], most: int = 3) -> str:
    """Join names as in a sentence, or return how many there are if they are more than `most`."""
    if len(names) > most:
        return f"{len(names)} others"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def better_word(direction: str) -> str:
    """Return which values are better: `higher` for the direction `max`, `lower` for `min`."""
    return "lower" if direction == "min" else "higher"


def chart_note(metric: str, direction: str, *, synthetic: bool) -> str:
    """Return the note below every chart: which direction is better, and whether the numbers are synthetic."""
    note = f"{better_word(direction).capitalize()} {metric} is better."
    return f"{note} {SYNTHETIC_NOTE}" if synthetic else note


def level_text(level: float) -> str:
    """Format a confidence level in percent: `95 %`, `98.3 %`, `99.95 %`."""
    return f"{round(100 * level, 1 if level < 0.999 else 4):g} %"


def shown(value: float, span: float) -> str:
    """Format a number with as many decimals as differences of size `span` need."""
    decimals = decimals_for(span)
    if decimals is None or abs(value) >= 1e12:
        return f"{value:.4g}".replace("-", "−")
    return f"{value:,.{decimals}f}".replace("-", "−")


PERCENT = "format(100 * datum.value, '.3~g') + ' %'"


def tick_labels(domain: tuple[float, float]) -> str | None:
    """Return a Vega expression for tick labels: k, M and B for large numbers, powers of ten for tiny ones."""
    largest = max(abs(limit) for limit in domain)
    if largest >= 100_000:
        return "replace(format(datum.value, '~s'), 'G', 'B')"
    return "datum.value ? format(datum.value, '~e') : '0'" if largest < 0.001 else None
