"""Output that many commands share: titles, cautions, and the commands to run next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairtrial.cli._tables import Column, PlainTable
from fairtrial.core.directions import better_words
from fairtrial.core.findings import FilledCaution

if TYPE_CHECKING:
    from rich.console import Console

NARROWEST_FACT = 8
TO_COPY = ("path", "repair")
"""Facts that are never wrapped: paths and commands."""


def show_title(console: Console, title: str) -> None:
    """Print the title of a result, underlined, and an empty line."""
    console.print(title, style="bold", markup=False)
    console.print("=" * min(len(title), console.width), markup=False)
    console.print()


def show_cautions(console: Console, cautions: Sequence[FilledCaution]) -> None:
    """Print each distinct caution once, with its remedy."""
    for caution in {caution["text"]: caution for caution in cautions}.values():
        console.print(f"Caution: {caution['text']} {caution['remedy']}", style="yellow", markup=False)


def judged_line(metric: str, direction: str | None) -> str:
    """`Judged by eval_loss (lower is better).`"""
    return f"Judged by {metric} ({better_words(direction)})."


def show_next(console: Console, commands: Sequence[str]) -> None:
    console.print("Next:", style="bold")
    for line in commands:
        console.print(f"  {line}", markup=False, soft_wrap=True)  # a wrapped command could not be copied


def show_facts(console: Console, facts: Sequence[tuple[str, str]], style: str = "") -> None:
    """Print names on the left and what they say on the right. Sentences wrap; paths and commands do not."""
    width = max((len(name) for name, _ in facts), default=0)
    for name, fact in facts:
        label = f"{name:<{max(width, NARROWEST_FACT)}}"
        if name in TO_COPY:
            console.print(f"  {label}  {fact}", style=style, markup=False, soft_wrap=True)
            continue
        table = PlainTable([Column("", left=True), Column("", left=True, wraps=True)], show_header=False, indent="  ")
        table.add_row(label, fact, style=style)
        console.print(table)
