"""Text output of `runs watch`: how many runs are queued, running, done and failed, and the time left."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from fairtrial.api.running.watch import QUEUED, CellState, StudyState
from fairtrial.cli._output import Output
from fairtrial.cli._tables import Column, PlainTable, plain_table
from fairtrial.core.formatting import shown_time
from fairtrial.core.runs import Status

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

REFRESH_S = 1.0
MOST_ROWS = 12
SILENT_S = 30.0
"""Seconds without a heartbeat or a log line after which a running run gets a remark."""
SHOWN = (Status.RUNNING, Status.FAILED, Status.DIVERGED, Status.INTERRUPTED, Status.DAMAGED)


def show_study(console: Console, state: StudyState) -> None:
    console.print(_headline(state), style="bold", markup=False)
    if state.problem:
        console.print(state.problem, style="red", markup=False)
    shown = [cell for cell in state.cells if cell.place in SHOWN]
    if shown:
        console.print(_table(shown))


def _headline(state: StudyState) -> str:
    counts = ", ".join(f"{count} {place}" for place, count in state.counts.items()) or "no runs yet"
    left = state.left_s
    rest = "" if left is None else f"; about {shown_time(left)} left"
    if state.over and QUEUED in state.counts:
        rest = "; no launcher is running the rest"
    return f"{state.study}: {counts}{rest}."


def _table(cells: list[CellState]) -> PlainTable:
    table = plain_table("Run", Column("Status", left=True), "Step", "Time", Column("", left=True, wraps=True))
    for cell in cells[:MOST_ROWS]:
        step = "" if cell.step is None else f"{cell.step:,}" + (f" of {cell.steps:,}" if cell.steps else "")
        table.add_row(cell.run, cell.place, step, shown_time(cell.seconds), _remark(cell))
    if len(cells) > MOST_ROWS:
        table.add_row(f"… and {len(cells) - MOST_ROWS} more", "", "", "", "")
    return table


def _remark(cell: CellState) -> str:
    if cell.heard_s is not None and cell.heard_s > SILENT_S:
        return f"no heartbeat for {shown_time(cell.heard_s)}"
    if cell.silent_s is not None and cell.silent_s > SILENT_S:
        return f"alive, but nothing logged for {shown_time(cell.silent_s)}"
    return cell.reason or ""


def follow_study(out: Output, look: Callable[[], StudyState], state: StudyState) -> StudyState:
    """Poll the study until it ends. Redraw a live view on a terminal; otherwise print a line per change."""
    if not out.live:
        return _follow_by_lines(out, look, state)
    from rich.live import Live

    console = out.console(err=True)
    with Live(console=console, transient=True, auto_refresh=False) as live:
        while not state.over:
            live.update(_picture(state), refresh=True)
            time.sleep(REFRESH_S)
            state = look()
    return state


def _picture(state: StudyState) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    shown = [cell for cell in state.cells if cell.place in SHOWN]
    return Group(Text(_headline(state), style="bold"), *([_table(shown)] if shown else []))


def _follow_by_lines(out: Output, look: Callable[[], StudyState], state: StudyState) -> StudyState:
    shown = None
    while not state.over:
        counts = state.counts
        if counts != shown and set(counts) - {QUEUED}:
            out.say(_headline(state))
            shown = counts
        time.sleep(REFRESH_S)
        state = look()
    return state
