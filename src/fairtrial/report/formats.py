"""The formats that a result can be given in, and the file suffixes that choose them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairtrial.core.plugin_registry import FORMATS, load_others

SUFFIXES = {".json": "json", ".csv": "csv", ".md": "markdown", ".tex": "latex", ".txt": "text"}
"""Of the built-in formats: a command knows them before it imports what writes them."""
CHART_SUFFIXES = (".png", ".svg", ".pdf")
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class OutputFormat:
    """A way to write a result, chosen with `--format` or by the suffix of `--output`.

    `render(document, rows)` returns the text: `document` is what `--format json` gives, `rows` the table of it.

        HTML = OutputFormat(lambda document, rows: table_of(rows), suffix=".html")
    """

    render: Callable[[Mapping[str, Any], Rows], str]
    suffix: str | None = None


def format_of(suffix: str) -> str | None:
    """The format that a file suffix chooses; other packages are asked only for a suffix that is not ours."""
    others = (name for name, each in load_others(FORMATS) if each.suffix == suffix)
    return SUFFIXES.get(suffix) or next(others, None)
