"""fairtrial power"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from fairtrial.cli._output import Output, with_output
from fairtrial.cli._pieces import show_cautions
from fairtrial.core.words import counted, shown_value

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.power import Plan

CORRELATION_HELP = "Correlation between paired runs; --sd and a one-arm --pilot then mean single runs."


@click.command("power")
@click.option("--sesoi", type=float, help="Smallest difference that would matter.")
@click.option("--sd", type=float, help="Standard deviation: of runs, or of paired differences when paired.")
@click.option("--pilot", multiple=True, metavar="RUN", help="Take the noise from these runs; one variant, or two.")
@click.option("--metric", metavar="NAME", help="Metric of the pilot.  [default: the recipe's]")
@click.option("--design", type=click.Choice(["paired", "unpaired"]), help="[default: as the pilot allows]")
@click.option("--correlation", type=float, help=CORRELATION_HELP)
@click.option("--superiority", type=float, metavar="P", help="Ask for P(candidate > control) ≥ P instead of --sesoi.")
@click.option("--alpha", type=float, default=0.05, show_default=True, help="Error rate.")
@click.option("--power", type=float, default=0.8, show_default=True, help="Chance to see what is there.")
@click.option(
    "--side",
    type=click.Choice(["two-sided", "greater", "less"]),
    help="[default: two-sided; greater with --superiority]",
)
@click.option(
    "--assurance",
    type=float,
    help="How surely the pilot's noise bound holds; that bound is planned on.  [default: 0.8]",
)
@click.option("--hours-per-run", type=float, help="To add up hours.  [default: the pilot's]")
@click.option("--gpu", metavar="CARD", help="To add up money: a100-80gb, v100, t4, h100, l4 …")
@click.option("--prices", metavar="FILE", help="Prices of your own: a dated YAML file.")
@click.option("--price-per-hour", type=float, help="To add up money, in dollars.")
@with_output
def command(
    out: Output, *, sesoi: float | None, sd: float | None, pilot: Sequence[str], metric: str | None,
    design: str | None, correlation: float | None, superiority: float | None, alpha: float, power: float,
    side: str | None, assurance: float | None, hours_per_run: float | None, gpu: str | None,
    price_per_hour: float | None, prices: str | None,
) -> None:  # fmt: skip
    """Say how many seeds, hours and dollars a question needs, before anything is started."""
    from fairtrial.api import power as api

    if pilot:
        out.name_store()
    plan = api.power(
        sesoi=sesoi, sd=sd, pilot=pilot, design=design, correlation=correlation, superiority=superiority,
        alpha=alpha, power=power, side=side, assurance=assurance, hours_per_run=hours_per_run,
        gpu=gpu, price_per_hour=price_per_hour, prices=prices, metric=metric, store=out.store,
    )  # fmt: skip
    rows = list(plan.curve) or [plan.to_dict()]
    out.give(plan.to_dict(), rows, lambda console: _show(console, plan))


def _show(console: Console, plan: Plan) -> None:
    console.print(_verdict(plan), style="bold", markup=False)
    if plan.pilot_n is not None:
        console.print(
            f"Noise: sd {shown_value(plan.sd)} over {plan.pilot_n} pilot {_unit(plan)}, at most "
            f"{shown_value(plan.sd_upper)} with {100 * (plan.assurance or 0):g} % assurance. At the pilot's own sd "
            f"{plan.seeds_at_sd} would do, but pilots are too hopeful too often: the bound is planned on.",
            markup=False,
        )
    if plan.hours is None:
        console.print("Give --hours-per-run, and --gpu or --price-per-hour, to see hours and dollars.", markup=False)
    if plan.hours_basis:
        console.print(f"Hours and dollars on that card are estimates. Basis: {plan.hours_basis}.", markup=False)
    if plan.curve:
        console.print()
        console.print(_table(plan))
    show_cautions(console, plan.cautions)


def _unit(plan: Plan) -> str:
    return "pairs" if plan.design == "paired" else "runs per variant"


def _verdict(plan: Plan) -> str:
    goal = (
        f"P(candidate > control) ≥ {plan.probability:g}"
        if plan.probability is not None
        else f"a difference of {shown_value(plan.sesoi)}"
    )
    terms = f"{plan.design}, {plan.side}, α = {plan.alpha:g}, power {100 * plan.power:g} %"
    if plan.seeds is None:
        return f"More than a million seeds would be needed to see {goal} ({terms})."
    parts = [f"{counted(plan.seeds, 'seed')} per variant to see {goal} ({terms}): {plan.runs:,} runs"]
    about = "about " if plan.hours_basis else ""
    if plan.hours is not None:
        parts.append(f"{about}{plan.hours:,.3g} hours")
    if plan.cost is not None:
        parts.append(f"{about}${plan.cost:,.3g}")
    return ", ".join(parts) + "."


def _table(plan: Plan) -> object:
    from rich.table import Table

    table = Table("seeds", "power", "detectable", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for column in table.columns:
        column.justify = "right"
    for row in plan.curve:
        style = "bold" if row["seeds"] == plan.seeds else ""
        table.add_row(
            f"{row['seeds']}", f"{100 * (row['power'] or 0):.0f} %", shown_value(row["detectable"]), style=style
        )
    return table
