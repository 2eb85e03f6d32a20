"""fairtrial cost-performance"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairtrial.cli._choice import FROM_WHERE, flat_point, points_from, with_interval, with_points
from fairtrial.cli._help import HelpPage
from fairtrial.cli._lab import give, next_commands
from fairtrial.cli._many_values import ManyValuesCommand
from fairtrial.cli._output import Output, with_chart_output
from fairtrial.cli._pieces import judged_line, show_cautions, show_next, show_title
from fairtrial.cli._recipe_options import pairs
from fairtrial.cli._tables import Column, plain_table
from fairtrial.core.errors import UsageError
from fairtrial.core.formatting import counted, shown_chance, shown_hours, shown_memory, shown_money, shown_value

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.pricing.cost_performance import CostPerformance
    from fairtrial.cli._tables import PlainTable


PAGE = HelpPage(
    {**FROM_WHERE, "Frontier": "--objectives --hypervolume"},
    ("fairtrial cost-performance demo --gpu t4", "fairtrial cost-performance --train --output frontier.png"),
)


@click.command("cost-performance", cls=ManyValuesCommand, page=PAGE)
@with_points
@click.option(
    "--objectives",
    default="cost,accuracy",
    show_default=True,
    metavar="LIST",
    help="Objectives of the frontier: two or more of cost, accuracy, hours and memory.",
)
@click.option(
    "--hypervolume",
    metavar="REFERENCE",
    help="Also compute the hypervolume over a reference point such as cost=200,accuracy=0.",
)
@with_chart_output
def command(out: Output, *, gpu: str, objectives: str, hypervolume: str | None, **where: Any) -> int:
    """Price every configuration on a GPU and find the Pareto frontier of cost and accuracy.

    STUDY is a study in the store. Without STUDY and --configs, the newest study with recorded hours is used. If there
    is none, a default family of fine-tuning configurations is trained. Hours measured on another device are converted
    by the relative speed of the devices and marked as estimates.
    """
    from fairtrial.api.pricing.cost_performance import cost_performance

    names = [name.strip() for name in objectives.split(",") if name.strip()]
    reference = None if hypervolume is None else parse_reference(hypervolume)
    with points_from(out, **where) as (source, terms):
        result = out.command.answer(
            cost_performance, source, gpu=gpu, objectives=names, reference=reference, terms=terms
        )
    return give(
        out,
        result,
        [flat_point(row) for row in result.rows()],
        lambda console: _show(console, out, result),
        _draw,
    )


def parse_reference(text: str) -> dict[str, float]:
    """`cost=200,accuracy=0`"""
    given = pairs(text.split(","))
    if len(dict(given)) < len(given):
        raise UsageError(f"--hypervolume: '{text}' names an objective twice")
    try:
        return {name: float(value) for name, value in given}
    except ValueError:
        raise UsageError(f"--hypervolume: cannot read '{text}'", hint="Write it like cost=200,accuracy=0.") from None


def _draw(result: CostPerformance, path: Path) -> None:
    from fairtrial.api.pricing.frontier_plot import frontier_chart

    frontier_chart(result, path)


def _show(console: Console, out: Output, cost_performance: CostPerformance) -> None:
    card = cost_performance.model.card
    show_title(console, f"Cost-Performance Analysis ({card.name.upper()} @ {shown_money(card.usd_per_hour)}/hr)")
    console.print(_headline(cost_performance), style="bold", markup=False)
    console.print()
    table = _table(cost_performance)
    console.print(table)
    console.print()
    for line in _lines(cost_performance, with_savings=table.shows("Savings", console.width)):
        console.print(line, markup=False)
    console.print(
        judged_line(cost_performance.frontier.judged.metric, cost_performance.frontier.judged.direction), markup=False
    )
    show_cautions(console, cost_performance.cautions)
    if cost_performance.gathered.study:
        show_next(console, next_commands(out, cost_performance.gathered.study)[:1])


def _headline(cost_performance: CostPerformance) -> str:
    frontier = cost_performance.frontier
    card = cost_performance.model.card
    about = (
        ""
        if tuple(frontier.judged.objectives) == ("cost", "accuracy")
        else f" of {', '.join(frontier.judged.objectives)}"
    )
    return (
        f"{len(frontier.on_it)} of {counted(len(frontier.points), 'configuration')} on the frontier{about}: "
        f"{', '.join(frontier.names)} "
        f"({card.name} at {shown_money(card.usd_per_hour)} an hour, {cost_performance.gathered.source})."
    )


def _table(cost_performance: CostPerformance) -> PlainTable:
    frontier = cost_performance.frontier
    sure = any(share is not None for share in frontier.probabilities)
    probability = ["On frontier"] if sure else []
    quantity = frontier.judged.quantity.capitalize()
    extra = [Column("Memory", omit=1), Column("Savings", omit=2)]
    pareto = Column("Pareto", left=True)
    table = plain_table("Config", "Hours", "Cost", quantity, *extra, pareto, *probability)
    for point, row in zip(frontier.points, cost_performance.rows(), strict=True):
        saved = "" if row["savings"] is None else f"{row['savings']:.3g} ×"
        beaten = f"dominated by {row['dominated_by']}" if row["dominated_by"] else ""
        standing = "yes" if row["pareto"] else beaten
        share, about = row["frontier_probability"], "≈ " if point.basis else ""
        large = " (too large)" if row["fits"] is False else ""
        cells = [
            point.name,
            about + shown_hours(point.hours.value),
            about + shown_money(point.cost.value),
            with_interval(cost_performance.estimate(point.quality)),
            shown_memory(row["memory"]) + large,
            saved,
            standing or "too large",
            *(["" if share is None else shown_chance(share)] if sure else []),
        ]
        table.add_row(*cells, style="" if row["pareto"] else "dim")
    return table


def _lines(cost_performance: CostPerformance, *, with_savings: bool) -> list[str]:
    frontier = cost_performance.frontier
    quantity, winner, step = frontier.judged.quantity, frontier.efficiency_winner, frontier.best_step
    lines = []
    about = "about " if any(point.basis for point in frontier.points) else ""
    if winner is not None:
        ratio = winner.quality.value / winner.cost.value
        lines.append(f"Cost efficiency winner: {winner.name} ({about}{ratio:.3g} {quantity} per dollar).")
    if step is not None:
        lines.append(
            f"Best marginal gain: {step.cheaper} → {step.dearer}, {quantity} better by {shown_value(step.gain)} for "
            f"{about}{shown_money(step.cost)} more ({step.per_dollar:.3g} per dollar)."
        )
    if with_savings:
        lines.append(
            f"Savings are relative to {frontier.reference.name}, {about}{shown_money(frontier.reference.cost.value)}."
        )
    if frontier.volume is not None:
        lines.append(f"Hypervolume: {frontier.volume:.4g}.")
    local = cost_performance.gathered.local
    if local is not None:
        lines.append(f"Calibration: this machine is {local.performance:.3g} × an A100 ({local.gflops:.3g} GFLOP/s).")
    return lines
