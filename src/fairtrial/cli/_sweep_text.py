"""A sweep as a person reads it: the table, the best value, and who cannot be told apart from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fairtrial.cli._lab import flat, give, interval_words, next_commands, plain_table
from fairtrial.cli._output import Output
from fairtrial.cli._pieces import judged_line, show_cautions, show_next, show_title
from fairtrial.core.formatting import counted, p_equals, shown_p, shown_value
from fairtrial.core.specs import split_and_quantity

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.lab.sweep import Sweep, SweepPoint

HEADINGS = {"temperature": "Temp", "alpha": "Alpha"}
MOST_SHOWN = 12


def give_sweep(out: Output, found: Sweep) -> int:
    """The result of a sweep in every format, and its picture where one was asked for."""
    rows = [_row(row) for row in found.to_dict()["results"]]
    return give(out, found, rows, lambda console: show_sweep(console, out, found), "sweep_chart")


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """With several options, a column for each."""
    value = row.get("value")
    return flat({**value, **{n: v for n, v in row.items() if n != "value"}} if isinstance(value, dict) else row)


def show_sweep(console: Console, out: Output, found: Sweep) -> None:
    show_title(console, _title(found))
    console.print(_table(found))
    console.print()
    console.print(_best_line(found), style="bold", markup=False)
    console.print(_set_line(found), markup=False)
    if found.confirmation:
        for line in _confirmation_lines(found):
            console.print(line, markup=False)
    console.print(judged_line(found.metric, found.direction), markup=False)
    show_cautions(console, found.cautions)
    show_next(console, next_commands(out, found.confirmation.study if found.confirmation else found.study))


def _title(found: Sweep) -> str:
    """`Temperature Sweep Results`"""
    swept = found.params[0].replace("_", " ").title() if len(found.params) == 1 else "Parameter"
    return f"{swept} Sweep Results"


def quantity_of(metric: str) -> str:
    """`accuracy` of `eval_accuracy`."""
    return split_and_quantity(metric)[1]


def _table(found: Sweep) -> Any:
    from rich.text import Text

    quantity = quantity_of(found.metric)
    names = [HEADINGS.get(name, name) for name in found.params]
    with_loss = quantity != "loss" and any(point.loss is not None for point in found.points)
    table = plain_table(
        *names, quantity.capitalize(), f"{100 * found.level:g} % interval", *(["Loss"] if with_loss else []), "Std Dev",
        "Runs", "",
    )  # fmt: skip
    for point in found.points:
        cells = [str(value) for value in point.values.values()]
        cells += [shown_value(point.accuracy.value), interval_words(point.accuracy)]
        cells += [shown_value(point.loss)] if with_loss else []
        runs = f"{point.accuracy.n}" + (f" ({len(point.lost)} lost)" if point.lost else "")
        style = "bold" if point is found.best else "" if point.alike is not False else "dim"
        table.add_row(
            *(Text(cell) for cell in [*cells, shown_value(point.std_dev), runs, _mark(found, point)]), style=style
        )
    return table


def _mark(found: Sweep, point: SweepPoint) -> str:
    return "best" if point is found.best else "in its set" if point.alike else ""


def _best_line(found: Sweep) -> str:
    quantity, value = quantity_of(found.metric), shown_value(found.best.accuracy.value)
    told = ", ".join(f"{name} {value}" for name, value in found.best.values.items())
    named = f"{found.params[0]}: {found.best.value}" if len(found.params) == 1 else f"setting: {told}"
    return f"Best {named} ({quantity}: {value})"


def _set_line(found: Sweep) -> str:
    layout = f"{counted(len(found.points), 'value')} × {counted(found.runs, 'seed')}"
    alike, spacing = found.alike, found.winner.spacing
    if alike is None:
        return f"Nothing can be told apart: {found.winner.reason} ({layout})."
    valid = [point for point in found.points if point.accuracy.value is not None]
    if len(valid) == 1:
        return (
            "There was one value to choose from." if len(found.points) == 1 else "All other values lost all their runs."
        )
    limit = f"gaps up to {shown_value(spacing.limit)} are noise; Tukey over {layout}" if spacing else layout
    if len(alike) == 1:
        return f"All other values are worse ({limit})."
    if len(alike) == len(valid):
        p = f", {p_equals(shown_p(spacing.range_p))} for any difference at all" if spacing else ""
        return f"No value can be told apart from it ({limit}{p})."
    return f"Cannot be told apart from it: {_listed(found, alike)} ({limit})."


def _listed(found: Sweep, alike: Sequence[SweepPoint]) -> str:
    """Neighbours on one axis are told as a range."""
    places = [found.points.index(point) for point in alike]
    if len(found.params) == 1 and found.axes[0].span is not None:
        parts: list[tuple[int, int]] = []
        for place in places:
            if parts and parts[-1][1] == place - 1:
                parts[-1] = (parts[-1][0], place)
            else:
                parts.append((place, place))
        words = [
            f"{found.points[a].value}" if a == b else f"{found.points[a].value} to {found.points[b].value}"
            for a, b in parts
        ]
        return ", ".join(words)
    names = [point.variant for point in alike]
    return ", ".join(names[:MOST_SHOWN]) + (f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else "")


def _confirmation_lines(found: Sweep) -> list[str]:
    confirmed = found.confirmation
    assert confirmed is not None
    quantity = quantity_of(found.metric)
    seeds, value = counted(confirmed.accuracy.n, "fresh seed"), shown_value(confirmed.accuracy.value)
    line = f"Confirmed on {seeds}: {quantity} {value} {interval_words(confirmed.accuracy)}".rstrip()
    if confirmed.analysis is None:
        return [f"{line}. It is the baseline itself, so there is nothing to compare it with."]
    return [f"{line}.", str(confirmed.analysis.comparisons[0])]
