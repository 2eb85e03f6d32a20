"""Rendering of results: JSON for programs, CSV for spreadsheets, Markdown and LaTeX tables for papers."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from fairtrial.core.errors import UserError
from fairtrial.core.plugin_registry import FORMATS, blame_plugin, load_plugin
from fairtrial.core.schema import OUTPUT_SCHEMA
from fairtrial.core.terminal import visible
from fairtrial.report.formats import OutputFormat, Rows


def as_json(document: Mapping[str, Any]) -> str:
    """Return one JSON document. NaN and infinity become null, because JSON cannot represent them."""
    content = {"schema": OUTPUT_SCHEMA, **document}
    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE, default=str).decode()


def as_csv(rows: Rows) -> str:
    """Return a header and one line per row. Unknown values are empty cells."""
    text = io.StringIO()
    columns = _columns(rows)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_csv_cell(row.get(name)) for name in columns] for row in rows)
    return text.getvalue()


def as_markdown(rows: Rows) -> str:
    columns = _columns(rows)
    lines = [[_markdown(name) for name in columns], ["---"] * len(columns)]
    lines += [[_markdown(_cell(row.get(name))) for name in columns] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _markdown(text: str) -> str:
    return visible(text).replace("|", "\\|").replace("\n", " ")


def as_latex(rows: Rows) -> str:
    columns = _columns(rows)
    body = [" & ".join(_latex(_cell(row.get(name))) for name in columns) + r" \\" for row in rows]
    head = " & ".join(_latex(name) for name in columns) + r" \\"
    kinds = "l" * len(columns)
    lines = [
        rf"\begin{{tabular}}{{{kinds}}}",
        r"\toprule",
        head,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def write_text(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None


def render(kind: str, document: Mapping[str, Any], rows: Rows) -> str:
    """Render a machine-readable format. The command line itself makes the text format."""
    chosen: OutputFormat = load_plugin(FORMATS, kind)
    with blame_plugin(FORMATS, kind):
        return chosen.render(document, rows)


ROWS_AT_ONCE = 1_000
_FRAMES = {"csv": (1, 0), "markdown": (2, 0), "latex": (4, 2)}
"""Number of lines before and after the rows of a table, per format."""


def render_rows(kind: str, key: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the same text as `render` of `{key: rows}`, piece by piece. All rows must have the same columns."""
    if kind == "json":
        yield from _json_pieces(key, rows)
        return
    if kind not in _FRAMES:  # for formats of other packages, the lines around the rows are unknown
        every = list(rows)
        yield render(kind, {key: every}, every)
        return
    before, behind = _FRAMES[kind]
    end = ""
    for number, batch in enumerate(_batches(iter(rows))):
        lines = render(kind, {}, batch).split("\n")  # the last item is empty
        cut = len(lines) - 1 - behind
        yield "\n".join([*lines[before if number else 0 : cut], ""])
        end = "\n".join(lines[cut:])
    yield end


def _batches(rows: Iterator[Mapping[str, Any]]) -> Iterator[Rows]:
    """Yield the rows in batches: at least one batch, which may be empty."""
    batch = list(islice(rows, ROWS_AT_ONCE))
    yield batch
    while len(batch) == ROWS_AT_ONCE and (batch := list(islice(rows, ROWS_AT_ONCE))):
        yield batch


def _json_pieces(key: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    empty = as_json({key: []})
    head, _, tail = empty.rpartition("[]")
    begun = False
    for row in rows:
        content = orjson.dumps(row, option=orjson.OPT_INDENT_2, default=str).decode().replace("\n", "\n    ")
        yield f",\n    {content}" if begun else f"{head}[\n    {content}"
        begun = True
    yield f"\n  ]{tail}" if begun else empty


def _columns(rows: Rows) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _csv_cell(value: Any) -> Any:
    if isinstance(value, (dict, list, tuple)):
        return orjson.dumps(value).decode()
    return "" if value is None else value


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else str(value)
    if isinstance(value, (dict, list)):
        return orjson.dumps(value).decode()
    return str(value)


_LATEX = {"&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
          "−": "$-$", "∞": r"$\infty$", "≥": r"$\geq$", "±": r"$\pm$", "α": r"$\alpha$",
          "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in visible(text))


def _no_text(_document: Mapping[str, Any], _rows: Rows) -> str:
    raise ValueError("each command writes its own text format")


TEXT = OutputFormat(_no_text)
JSON = OutputFormat(lambda document, _rows: as_json(document))
CSV = OutputFormat(lambda _document, rows: as_csv(rows))
MARKDOWN = OutputFormat(lambda _document, rows: as_markdown(rows))
LATEX = OutputFormat(lambda _document, rows: as_latex(rows))
