"""HTML fragments for notebooks: readable on light and dark pages, without scripts, with all text escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from fairtrial.core.formatting import shown_value
from fairtrial.core.terminal import visible

MOST_ROWS = 40
_CELL = "padding: 2px 10px 2px 0; border: 0; border-bottom: 1px solid rgba(128, 128, 128, 0.35)"


def fragment(
    headline: str, rows: Sequence[Mapping[str, Any]], cautions: Sequence[Mapping[str, str]], report: str
) -> str:
    """Return a headline, a table, the cautions, and the text report, which the reader can unfold.

    Colors are inherited from the page, so that the fragment is readable on any background.
    """
    parts = [f"<p><strong>{_text(headline)}</strong></p>", _table(rows)]
    if cautions:
        told = {each["text"]: f"{each['text']} {each['remedy']}" for each in cautions}
        items = "".join(f"<li>{_text(each)}</li>" for each in told.values())
        parts.append(f"<p>Cautions:</p><ul>{items}</ul>")
    if report.strip() != headline.strip():
        parts.append(f"<details><summary>Full report</summary><pre>{_text(report)}</pre></details>")
    return f'<div class="fairtrial" style="color: inherit; background: transparent">{"".join(parts)}</div>'


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    columns = [
        name
        for name in dict.fromkeys(name for row in rows for name in row)
        if any(row.get(name) not in (None, "") for row in rows)
    ]
    if not columns:
        return ""
    head = "".join(f'<th style="{_CELL}; text-align: {_side(rows, name)}">{_text(name)}</th>' for name in columns)
    lines = [
        "".join(f'<td style="{_CELL}; text-align: {_side(rows, name)}">{_cell(row.get(name))}</td>' for name in columns)
        for row in rows[:MOST_ROWS]
    ]
    more = f"<p>{len(rows) - MOST_ROWS:,} more rows.</p>" if len(rows) > MOST_ROWS else ""
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    style = "border-collapse: collapse; color: inherit"
    return f'<table style="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}'


def _side(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    known = [row[name] for row in rows if row.get(name) is not None]
    is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)
    return "right" if is_number else "left"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return _text(shown_value(value))
    return "" if value is None else _text(str(value))


def _text(text: str) -> str:
    """Return text that cannot contain markup, with control characters shown as escapes."""
    return escape(visible(text))
