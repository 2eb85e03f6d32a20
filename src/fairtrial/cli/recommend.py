"""fairtrial recommend"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from fairtrial.cli._choice import FROM_WHERE, flat_point, points_from, with_interval, with_points
from fairtrial.cli._help import HelpPage
from fairtrial.cli._many_values import ManyValuesCommand
from fairtrial.cli._output import Output, with_output
from fairtrial.cli._pieces import judged_line, show_cautions, show_title
from fairtrial.cli._tables import plain_table
from fairtrial.core.errors import EXIT_CHECK, EXIT_OK, EXIT_RUNS
from fairtrial.core.formatting import shown_change, shown_hours, shown_memory, shown_money

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.pricing.recommend import Advice
    from fairtrial.costs.choice import Recommendation
    from fairtrial.costs.cost import Priced


PAGE = HelpPage(
    {"Limits": "--max-cost --min-accuracy --max-time --max-memory --objective --confidence", **FROM_WHERE},
    ("fairtrial recommend demo --max-cost 5", "fairtrial recommend --configs points.yaml --gpu any --objective value"),
)


@click.command("recommend", cls=ManyValuesCommand, page=PAGE)
@with_points
@click.option("--max-cost", type=float, metavar="USD", help="Budget per run.")
@click.option(
    "--min-accuracy", type=float, metavar="X", help="Minimum value of the metric (maximum, if lower is better)."
)
@click.option("--max-time", type=float, metavar="HOURS", help="Maximum hours per run.")
@click.option(
    "--max-memory", type=float, metavar="GB", help="Memory limit; the memory of the GPU is always a limit too."
)
@click.option(
    "--objective",
    type=click.Choice(["accuracy", "cost", "time", "value"]),
    default="accuracy",
    show_default=True,
    help="What to optimize; value is metric per dollar.",
)
@click.option("--confidence", type=float, metavar="P", help="Probability with which each constraint must be met.")
@with_output
def command(
    out: Output, *, gpu: str, max_cost: float | None, min_accuracy: float | None, max_time: float | None,
    max_memory: float | None, objective: str, confidence: float | None, **where: Any,
) -> int:  # fmt: skip
    """Recommend a configuration that fits a budget, a deadline and a GPU's memory, and explain why.

    Configurations come from the same sources as in cost-performance. --gpu any considers every GPU in the price table.
    If no configuration is feasible, the exit code is 3. The output then shows, for each constraint, the limit that
    would make one feasible, and the smallest joint change of several constraints.
    """
    from fairtrial.api.pricing.recommend import recommend
    from fairtrial.costs.choice import Constraints

    constraints = Constraints(max_cost, min_accuracy, max_time, max_memory, confidence)
    with points_from(out, **where) as (source, terms):
        advice = out.command.answer(recommend, source, constraints, gpu=gpu, objective=objective, terms=terms)
    document = advice.to_dict()
    rows = [flat_point(row) for row in advice.rows()] if advice.feasible else _relaxed_rows(document)
    out.give(document, rows, lambda console: _show(console, advice))
    return EXIT_CHECK if not advice.feasible else EXIT_RUNS if advice.gathered.failed else EXIT_OK


def _relaxed_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the relaxations as table rows: each limit alone, then the limits that change together."""
    alone = [{**row, "joint": False} for row in document["relaxations"]]
    joint = document["joint_relaxation"]
    who = {} if joint is None else {"name": joint["name"], "card": joint["card"], "joint": True}
    together = [] if joint is None else [{**row, **who} for row in joint["changes"]]
    return [*alone, *together] if len(together) > 1 else alone


def _show(console: Console, advice: Advice) -> None:
    recommendation = advice.recommendation
    show_title(console, _title(recommendation))
    if recommendation.chosen is None:
        first, *rest = recommendation.rationale
        console.print(first, style="bold", markup=False)
        for line in rest:
            console.print(line, markup=False)
        show_cautions(console, advice.cautions)
        return
    chosen = recommendation.chosen.priced
    console.print(f"Take {chosen.name} on {chosen.card.name}.", style="bold", markup=False)
    settings = ", ".join(f"{name} {value}" for name, value in chosen.point.settings.items())
    if settings:
        console.print(f"Settings: {settings}.", markup=False)
    console.print(_expected(advice, chosen), markup=False)
    console.print()
    console.print("Why:", style="bold")
    for line in recommendation.rationale:
        console.print(f"  {line}", markup=False)
    _show_alternatives(console, advice, chosen)
    fits = ", ".join(
        f"{each.card.name} ({_mark(each)}{shown_money(each.cost.value)})" for each in recommendation.fits_on
    )
    console.print(f"Fits on: {fits or 'no GPU in the price table'}.", markup=False)
    console.print(judged_line(recommendation.judged.metric, recommendation.judged.direction), markup=False)
    show_cautions(console, advice.cautions)


def _title(advice: Recommendation) -> str:
    """`Recommendations (Budget: $50.00, Min Accuracy: 0.85)`"""
    limits, judged = advice.constraints, advice.judged
    bound = "Min" if judged.direction == "max" else "Max"
    parts = [
        None if limits.max_cost is None else f"Budget: {shown_money(limits.max_cost)}",
        None if limits.min_accuracy is None else f"{bound} {judged.quantity.capitalize()}: {limits.min_accuracy:g}",
        None if limits.max_time is None else f"Max Time: {shown_hours(limits.max_time)}",
        None if limits.max_memory is None else f"Max Memory: {shown_memory(limits.max_memory)}",
    ]
    return f"Recommendations ({', '.join(filter(None, parts)) or 'No Constraints'})"


def _mark(priced: Priced) -> str:
    """Return the sign that marks a figure converted from another device as an estimate."""
    return "≈ " if priced.basis else ""


def _expected(advice: Advice, chosen: Priced) -> str:
    about = "about " if chosen.basis else ""
    quantity = advice.recommendation.judged.quantity
    return (
        f"Expect {quantity} {with_interval(advice.estimate(chosen.quality))}, {about}{shown_hours(chosen.hours.value)} "
        f"and {about}{shown_money(chosen.cost.value)}."
    )


def _show_alternatives(console: Console, advice: Advice, chosen: Priced) -> None:
    others = [each.priced for each in advice.recommendation.alternatives]
    if not others:
        return
    console.print()
    console.print("Alternatives on the frontier:", style="bold")
    quantity = advice.recommendation.judged.quantity.capitalize()
    table = plain_table("Config", "Card", "Hours", "Cost", quantity, "Difference", indent="  ")
    for each in others:
        apart = shown_change(each.quality.value - chosen.quality.value)
        hours, cost = _mark(each) + shown_hours(each.hours.value), _mark(each) + shown_money(each.cost.value)
        table.add_row(each.name, each.card.name, hours, cost, with_interval(advice.estimate(each.quality)), apart)
    console.print(table)
    console.print()
