"""Text output of a sweep: the table, the best value, and the values statistically indistinguishable from it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairtrial.cli._lab import flat, give, interval_words, next_commands
from fairtrial.cli._output import Output
from fairtrial.cli._pieces import judged_line, show_cautions, show_next, show_title
from fairtrial.cli._tables import Column, plain_table
from fairtrial.core.formatting import counted, p_equals, shown_p, shown_percent, shown_value
from fairtrial.core.specs import split_and_quantity

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.lab.sweep import Sweep, SweepPoint
    from fairtrial.cli._tables import PlainTable

HEADINGS = {"temperature": "Temp", "alpha": "Alpha"}
MOST_SHOWN = 12


def give_sweep(out: Output, sweep: Sweep) -> int:
    """Write the result of a sweep in the requested format, and its chart if requested. Return the exit code."""
    rows = [_row(row) for row in sweep.to_dict()["results"]]
    return give(out, sweep, rows, lambda console: show_sweep(console, out, sweep), _draw)


def _draw(sweep: Sweep, path: Path) -> None:
    from fairtrial.api.lab.lab_plots import sweep_chart

    sweep_chart(sweep, path)


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a flat row, with one column per option if several options are swept."""
    value = row.get("value")
    return flat({**value, **{n: v for n, v in row.items() if n != "value"}} if isinstance(value, dict) else row)


def show_sweep(console: Console, out: Output, sweep: Sweep) -> None:
    show_title(console, _title(sweep))
    console.print(_table(sweep))
    console.print()
    console.print(_best_line(sweep), style="bold", markup=False)
    console.print(_set_line(sweep), markup=False)
    if sweep.confirmation:
        for line in _confirmation_lines(sweep):
            console.print(line, markup=False)
    console.print(judged_line(sweep.metric, sweep.direction), markup=False)
    show_cautions(console, sweep.cautions)
    show_next(console, next_commands(out, sweep.confirmation.study if sweep.confirmation else sweep.study))


def _title(sweep: Sweep) -> str:
    """`Temperature Sweep Results`"""
    swept = sweep.params[0].replace("_", " ").title() if len(sweep.params) == 1 else "Parameter"
    return f"{swept} Sweep Results"


def quantity_of(metric: str) -> str:
    """`accuracy` of `eval_accuracy`."""
    return split_and_quantity(metric)[1]


def _table(sweep: Sweep) -> PlainTable:
    quantity = quantity_of(sweep.metric)
    names = [HEADINGS.get(name, name) for name in sweep.params]
    with_loss = quantity != "loss" and any(point.loss is not None for point in sweep.points)
    loss = [Column("Loss", omit=1)] if with_loss else []
    interval = f"{shown_percent(sweep.level)} interval"
    table = plain_table(*names, quantity.capitalize(), interval, *loss, "Std Dev", "Runs", Column("", left=True))
    for point in sweep.points:
        cells = [str(value) for value in point.values.values()]
        cells += [shown_value(point.accuracy.value), interval_words(point.accuracy)]
        cells += [shown_value(point.loss)] if with_loss else []
        runs = f"{point.accuracy.n}" + (f" ({len(point.lost)} lost)" if point.lost else "")
        style = "bold" if point is sweep.best else "" if point.alike is not False else "dim"
        table.add_row(*cells, shown_value(point.std_dev), runs, _mark(sweep, point), style=style)
    return table


def _mark(sweep: Sweep, point: SweepPoint) -> str:
    return "best" if point is sweep.best else "may be best" if point.alike else ""


def _best_line(sweep: Sweep) -> str:
    quantity, value = quantity_of(sweep.metric), shown_value(sweep.best.accuracy.value)
    message = ", ".join(f"{name} {value}" for name, value in sweep.best.values.items())
    named = f"{sweep.params[0]}: {sweep.best.value}" if len(sweep.params) == 1 else f"setting: {message}"
    return f"Best {named} ({quantity}: {value})"


def _set_line(sweep: Sweep) -> str:
    layout = f"{counted(len(sweep.points), 'value')} × {counted(sweep.runs, 'seed')}"
    alike, spacing = sweep.alike, sweep.winner.spacing
    if alike is None:
        return f"The values cannot be compared: {sweep.winner.reason} ({layout})."
    valid = [point for point in sweep.points if point.accuracy.value is not None]
    if len(valid) == 1:
        return "There is only one value." if len(sweep.points) == 1 else "All other values lost all their runs."
    limit = f"gaps up to {shown_value(spacing.limit)} are within noise; Tukey over {layout}" if spacing else layout
    if len(alike) == 1:
        return f"All other values are worse ({limit})."
    if len(alike) == len(valid):
        p = f", {p_equals(shown_p(spacing.range_p))} for any difference at all" if spacing else ""
        return f"All other values are statistically indistinguishable from it ({limit}{p})."
    return f"Statistically indistinguishable from it: {_listed(sweep, alike)} ({limit})."


def _listed(sweep: Sweep, alike: Sequence[SweepPoint]) -> str:
    """List the values; on one numeric axis, write adjacent values as a range."""
    places = [sweep.points.index(point) for point in alike]
    if len(sweep.params) == 1 and sweep.axes[0].span is not None:
        parts: list[tuple[int, int]] = []
        for place in places:
            if parts and parts[-1][1] == place - 1:
                parts[-1] = (parts[-1][0], place)
            else:
                parts.append((place, place))
        words = [
            f"{sweep.points[a].value}" if a == b else f"{sweep.points[a].value} to {sweep.points[b].value}"
            for a, b in parts
        ]
        return ", ".join(words)
    names = [point.variant for point in alike]
    return ", ".join(names[:MOST_SHOWN]) + (f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else "")


def _confirmation_lines(sweep: Sweep) -> list[str]:
    confirmed = sweep.confirmation
    assert confirmed is not None
    quantity = quantity_of(sweep.metric)
    seeds, value = counted(confirmed.accuracy.n, "fresh seed"), shown_value(confirmed.accuracy.value)
    line = f"Confirmed on {seeds}: {quantity} {value} {interval_words(confirmed.accuracy)}".rstrip()
    if confirmed.analysis is None:
        return [f"{line}. The best value is the baseline itself, so there is no comparison."]
    return [f"{line}.", str(confirmed.analysis.comparisons[0])]
