"""Style of all charts: a palette safe for color-blind readers, light lines, and names instead of legends."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from fairtrial.core.formatting import decimals_for

CONTROL, BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = (
    "#6E6E6E", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9",
)  # fmt: skip
PALETTE = (CONTROL, BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
"""The Okabe–Ito palette without yellow, which is hard to see on white. The control comes first and is gray."""

DASHES = ([1, 0], [6, 3], [2, 2])
INK, QUIET, FAINT = "#222222", "#666666", "#BBBBBB"
VERDICTS = {"better": BLUE, "worse": VERMILLION, "equivalent": GREEN, "inconclusive": CONTROL}

WIDTH, HEIGHT = 600, 360
LABEL, LETTER = 12, 6.2
"""Font size, and average width of a letter, in pixels."""

NAME_LENGTH = 30

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


def colour_of(place: int) -> str:
    return PALETTE[place % len(PALETTE)]


def dash_of(place: int) -> list[int]:
    """Return the dash pattern. Colors repeat after seven variants; the dashes distinguish the repeats."""
    return DASHES[place // len(PALETTE) % len(DASHES)]


def wrapped(text: str, width: int) -> list[str]:
    """Wrap text to lines of `width` characters, keeping a percent sign with its number."""
    return textwrap.wrap(text.replace(" %", "\N{NO-BREAK SPACE}%"), width) or [""]


def short_names(names: Sequence[str], limit: int = NAME_LENGTH) -> list[str]:
    """Shorten long names in the middle so that they fit next to a chart, and keep them distinct."""
    short = [_shortened(name, limit) for name in names]
    return [
        text if short.count(text) == 1 or text == name else f"{text} ({place})"
        for place, (text, name) in enumerate(zip(short, names, strict=True), start=1)
    ]


def _shortened(name: str, limit: int) -> str:
    tail = limit // 2
    return name if len(name) <= limit else f"{name[: limit - tail - 1].rstrip()}…{name[-tail:].lstrip()}"


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
