"""Output formats of results, and the file suffixes that select them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairtrial.core.plugin_registry import FORMATS, load_others

SUFFIXES = {".json": "json", ".csv": "csv", ".md": "markdown", ".tex": "latex", ".txt": "text"}
"""Suffixes of the built-in formats, listed here so that commands need not import the code that writes them."""
CHART_SUFFIXES = (".png", ".svg", ".pdf")
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class OutputFormat:
    """An output format, selected with `--format` or by the suffix of `--output`.

    `render(document, rows)` returns the text. `document` is what `--format json` prints; `rows` is its table form.

        HTML = OutputFormat(lambda document, rows: table_of(rows), suffix=".html")
    """

    render: Callable[[Mapping[str, Any], Rows], str]
    suffix: str | None = None


def format_of(suffix: str) -> str | None:
    """Return the format for a file suffix. Plugins are searched only if no built-in format has that suffix."""
    others = (name for name, each in load_others(FORMATS) if each.suffix == suffix)
    return SUFFIXES.get(suffix) or next(others, None)
