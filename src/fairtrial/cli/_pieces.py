"""Output that many commands share: titles, cautions, and the commands to run next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairtrial.core.directions import better_words
from fairtrial.core.findings import FilledCaution

if TYPE_CHECKING:
    from rich.console import Console


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
