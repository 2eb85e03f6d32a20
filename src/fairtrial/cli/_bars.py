"""Progress bars that stay readable on a narrow terminal. Imported only when bars are drawn."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from fairtrial.cli._tables import shortened

LEAST_BAR, WIDEST_BAR = 8, 28
LEAST_NAME = 16
FREE = 5
"""Columns that stay empty. The terminal itself prints `^C` there; if that wrapped, the bars could not be erased."""
SEED = re.compile(r"\.seed\d+(\.again\d+)?$")


def progress_bars(console: Console) -> Progress:
    """Return bars that disappear when they end. Numbers are never cut: bars and names give way to them."""
    return _FittingProgress(console)


class _FittingProgress(Progress):
    """Lays out all bars together, from the width that their numbers leave."""

    def __init__(self, console: Console) -> None:
        self._terminal = console  # Rich asks for the table before it has set its own `console`
        super().__init__(console=console, transient=True, refresh_per_second=8)

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        shown = [task for task in tasks if task.visible]
        figures = [_figures(task) for task in shown]
        space = self._terminal.width - FREE - max((len(each) for each in figures), default=0) - 2
        bar = max(LEAST_BAR, min(WIDEST_BAR, space - max((len(task.description) for task in shown), default=0)))
        table = Table.grid(Column(no_wrap=True), Column(no_wrap=True), Column(no_wrap=True), padding=(0, 1, 0, 0))
        for task, text in zip(shown, figures, strict=True):
            name = Text(short_name(task.description, max(LEAST_NAME, space - bar)))
            table.add_row(name, BarColumn(bar_width=bar).render(task), Text(text))
        return table


def short_name(name: str, width: int) -> str:
    """Return the id of a run within a width: shortened in the middle, with its whole seed."""
    seed = SEED.search(name)
    return shortened(name, width, tail=len(seed[0]) if seed else 0)


def _figures(task: Task) -> str:
    """`80/1000 steps 0:00:12 left 02:10`"""
    total = "?" if task.total is None else f"{int(task.total)}"
    unit = task.fields.get("unit") or ""
    elapsed = int(task.finished_time if task.finished and task.finished_time is not None else task.elapsed or 0)
    left = TimeRemainingColumn(compact=True).render(task).plain
    parts = [f"{int(task.completed)}/{total}", unit, f"{elapsed // 3600}:{elapsed // 60 % 60:02}:{elapsed % 60:02}"]
    return " ".join([part for part in parts if part] + ([f"left {left}"] if left else []))
