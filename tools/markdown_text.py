"""Pieces of Markdown that the generated pages share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NOTICE = "<!-- Made by tools/make_docs.py; do not edit. -->\n"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *([cell.replace("|", r"\|") for cell in row] for row in rows)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def plain(text: str) -> str:
    """What is not set in code must not be taken for markup."""
    return text.replace("<", "&lt;").replace("*", r"\*")
