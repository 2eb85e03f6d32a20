"""What all charts look like: colours that colour-blind readers can tell apart, light lines, names not legends."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from fairtrial.core.formatting import decimals_for

CONTROL, BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = (
    "#6E6E6E", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9",
)  # fmt: skip
PALETTE = (CONTROL, BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
"""Okabe and Ito's colours without yellow, which is lost on white; the control comes first and is grey."""

DASHES = ([1, 0], [6, 3], [2, 2])
INK, QUIET, FAINT = "#222222", "#666666", "#BBBBBB"
VERDICTS = {"better": BLUE, "worse": VERMILLION, "equivalent": GREEN, "inconclusive": CONTROL}

WIDTH, HEIGHT = 600, 360
LABEL, LETTER = 12, 6.2
"""The size of words in pixels, and how wide one letter of them is on average."""

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
    """Colours come round again after seven; the dashes tell the rounds apart."""
    return DASHES[place // len(PALETTE) % len(DASHES)]


def wrapped(text: str, width: int) -> list[str]:
    """Lines of so many characters; a percent sign stays with its number."""
    return textwrap.wrap(text.replace(" %", "\N{NO-BREAK SPACE}%"), width) or [""]


def short_names(names: Sequence[str], limit: int = NAME_LENGTH) -> list[str]:
    """Names that fit beside a chart: long ones lose their middle, and stay different from each other."""
    short = [_shortened(name, limit) for name in names]
    return [
        text if short.count(text) == 1 or text == name else f"{text} ({place})"
        for place, (text, name) in enumerate(zip(short, names, strict=True), start=1)
    ]


def _shortened(name: str, limit: int) -> str:
    tail = limit // 2
    return name if len(name) <= limit else f"{name[: limit - tail - 1].rstrip()}…{name[-tail:].lstrip()}"


def shown(value: float, span: float) -> str:
    """A number with the decimals that differences of the size of `span` make worth reading."""
    decimals = decimals_for(span)
    if decimals is None or abs(value) >= 1e12:
        return f"{value:.4g}".replace("-", "−")
    return f"{value:,.{decimals}f}".replace("-", "−")


PERCENT = "format(100 * datum.value, '.3~g') + ' %'"


def tick_labels(domain: tuple[float, float]) -> str | None:
    """How ticks are written, as an expression: long numbers with k, M and B, tiny ones with a power of ten."""
    largest = max(abs(limit) for limit in domain)
    if largest >= 100_000:
        return "replace(format(datum.value, '~s'), 'G', 'B')"
    return "datum.value ? format(datum.value, '~e') : '0'" if largest < 0.001 else None
