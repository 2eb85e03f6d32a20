"""Writing charts to files. The suffix sets the format; rendering needs no network."""

from __future__ import annotations

from pathlib import Path

from fairtrial.core.errors import UserError
from fairtrial.report.charts.grammar import Chart, load
from fairtrial.report.formats import CHART_SUFFIXES

PNG_SCALE = 2


def save(chart: Chart, path: Path) -> None:
    """Write a chart as PNG (at twice the size), SVG or PDF."""
    suffix = path.suffix.lower()
    if suffix not in CHART_SUFFIXES:
        raise UserError(
            f"cannot write a chart as '{path.name}': the suffix does not name a chart format",
            hint=f"Use one of {', '.join(CHART_SUFFIXES)}.",
        )
    try:
        path.write_bytes(rendered(chart, suffix))
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None


def rendered(chart: Chart, suffix: str) -> bytes:
    """Return the chart as bytes in the format of the suffix."""
    renderer = load("vl_convert")
    spec = chart.to_json(validate=False)
    if suffix == ".png":
        return bytes(renderer.vegalite_to_png(spec, scale=PNG_SCALE, allowed_base_urls=[]))
    if suffix == ".pdf":
        return bytes(renderer.vegalite_to_pdf(spec, allowed_base_urls=[]))
    return str(renderer.vegalite_to_svg(spec, allowed_base_urls=[])).encode()
