"""The base of all charts: a frame with two axes, and layers of marks drawn on it from plain rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from fairtrial.report.charts.grammar import Chart, Panel, alt
from fairtrial.report.charts.places import Interval
from fairtrial.report.charts.style import CONFIG, HEIGHT, INK, LETTER, QUIET, WIDTH, name_lines, tick_labels, wrapped

Rows = Sequence[Mapping[str, Any]]
Mark = Literal["area", "circle", "line", "point", "rect", "rule", "text"]


@dataclass(frozen=True)
class Axis:
    """One axis of a frame: title, domain, scale and ticks. `labels` is a Vega expression."""

    title: str
    domain: Interval
    labels: str | None = None
    log: bool = False
    ticks: Sequence[float] | None = None
    grid: bool = True
    drawn: bool = True

    def share(self, value: float) -> float:
        """Return the relative position of a value on the axis, from 0 to 1."""
        low, high, value = (math.log(x) if self.log else x for x in (*self.domain, value))
        return (value - low) / (high - low)

    def value(self, share: float) -> float:
        """Return the value at a relative position. Positions outside 0 to 1 are allowed, for labels."""
        low, high = (math.log(x) if self.log else x for x in self.domain)
        value = low + share * (high - low)
        return math.exp(value) if self.log else value

    def scale(self) -> alt.Scale:
        return alt.Scale(domain=list(self.domain), type="log" if self.log else "linear", nice=False, zero=False)

    def shape(self) -> alt.Axis | None:
        if not self.drawn:
            return None
        written = self.labels or tick_labels(self.domain)
        look: dict[str, Any] = {} if self.ticks is None else {"values": list(self.ticks), "tickCount": len(self.ticks)}
        look |= {"labelExpr": written} if written else {}
        return alt.Axis(title=wrapped(self.title, 60) if self.title else None, grid=self.grid, **look)


@dataclass(frozen=True)
class Frame:
    """A plot area. Rows have `x` and `y`; optional keys are `x2`, `y2`, `colour`, `dash`, `text`, `group`, `order`."""

    x: Axis
    y: Axis
    width: int = WIDTH
    height: int = HEIGHT

    def x_at(self, pixel: float) -> float:
        """Return the value at this many pixels from the left edge."""
        return self.x.value(pixel / self.width)

    def y_at(self, pixel: float) -> float:
        """Return the value at this many pixels below the top edge."""
        return self.y.value(1 - pixel / self.height)

    def pixel_of(self, y: float) -> float:
        """Return the distance of a value from the top edge, in pixels."""
        return self.height * (1 - self.y.share(y))

    def draw(self, mark: Mark, rows: Rows, **look: Any) -> alt.Chart:
        """Return a layer with one mark per row, or per group of rows.

        Altair's validation of each object takes as long as everything else. Tests validate whole charts instead.
        """
        values = orjson.dumps(list(rows)).decode()  # as JSON text, because Altair would copy every number of a list
        with alt.utils.schemapi.debug_mode(False):
            data = alt.InlineData(values=values, format=alt.JsonDataFormat(type="json"))
            return alt.Chart(data, mark=alt.MarkDef(type=mark, **look)).encode(**self._channels(rows))

    def write(self, rows: Rows, **look: Any) -> alt.Chart:
        """Return a text layer. By default the text is gray and to the right of its position."""
        return self.draw("text", rows, **{"align": "left", "baseline": "middle", **look})

    def across(self, x: float, **look: Any) -> alt.Chart:
        """Return a vertical line across the frame."""
        bottom, top = self.y.domain
        return self.draw("rule", [{"x": x, "y": bottom, "y2": top}], **look)

    def along(self, y: float, **look: Any) -> alt.Chart:
        """Return a horizontal line across the frame."""
        left, right = self.x.domain
        return self.draw("rule", [{"x": left, "x2": right, "y": y}], **look)

    def shade(self, left: float, right: float) -> alt.Chart:
        """Shade a range of the horizontal axis, clipped to the frame."""
        low, high = self.x.domain
        bottom, top = self.y.domain
        stretch = {"x": max(left, low), "x2": min(right, high), "y": bottom, "y2": top}
        return self.draw("rect", [stretch] if left < high and right > low else [], color=INK, fillOpacity=0.06)

    def layered(
        self, layers: Sequence[alt.Chart], *, heading: str | Sequence[str] | None = None, caption: str | None = None
    ) -> Panel:
        words = {"subtitle": caption, "subtitlePadding": 3} if caption else {}
        title = (
            {"title": alt.TitleParams(heading, frame="group", fontSize=13, color=QUIET, offset=8, **words)}
            if heading
            else {}
        )
        return alt.layer(*layers, width=self.width, height=self.height, **title)

    def _channels(self, rows: Rows) -> dict[str, Any]:
        present = rows[0] if rows else {}
        channels = {
            "x": alt.X("x:Q", scale=self.x.scale(), axis=self.x.shape()),
            "y": alt.Y("y:Q", scale=self.y.scale(), axis=self.y.shape()),
        }
        return channels | {name: channel for key, (name, channel) in _optional().items() if key in present}


def _optional() -> dict[str, tuple[str, Any]]:
    return {
        "x2": ("x2", alt.X2("x2")),
        "y2": ("y2", alt.Y2("y2")),
        "colour": ("color", alt.Color("colour:N", scale=None)),
        "dash": ("strokeDash", alt.StrokeDash("dash:N", scale=None)),
        "text": ("text", alt.Text("text:N")),
        "group": ("detail", alt.Detail("group:N")),
        "order": ("order", alt.Order("order:Q")),
    }


def panel_heading(name: str, width: float) -> list[str]:
    """Wrap the full name of a panel into lines that fit this many pixels."""
    return name_lines(name, int(width / LETTER / 1.15))


def grid(panels: Sequence[Panel], *, columns: int) -> Chart:
    """Arrange panels in a grid, row by row."""
    return alt.concat(*panels, columns=columns, spacing=34)


def with_note(chart: Chart, note: str, *, width: float = 700) -> Chart:
    """Return the chart with one more sentence in its subtitle."""
    words = chart.title.to_dict()
    subtitle = [*words.get("subtitle", []), *(wrapped(note, int(width / 5.8)) if note else [])]
    return chart.properties(title=alt.TitleParams(**{**words, "subtitle": subtitle}))


def finished(chart: Chart, title: str, subtitle: Sequence[str] = (), *, width: float = 700) -> Chart:
    """Add to a new chart the finding as its title, the legend text as its subtitle, and the shared style.

    `chart.properties` would copy every layer.
    """
    words: dict[str, Any] = {"text": wrapped(title, int(width / 7.6))}
    lines = [line for text in subtitle if text.strip() for line in wrapped(text, int(width / 5.8))]
    words |= {"subtitle": lines} if lines else {}
    chart.title, chart.config = alt.TitleParams(**words), CONFIG
    return chart
