"""fairtrial power"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from fairtrial.cli._many_values import ManyValuesCommand
from fairtrial.cli._output import Output, with_output
from fairtrial.cli._pieces import show_cautions
from fairtrial.cli._source_options import with_file
from fairtrial.core.formatting import counted, shown_chance, shown_hours, shown_money, shown_value

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.comparing.power import Plan

CORRELATION_HELP = "Correlation between paired runs; --sd and a one-variant pilot then mean single runs."


@click.command("power", cls=ManyValuesCommand)
@click.option("--sesoi", type=float, help="Smallest difference that would matter.")
@click.option("--sd", type=float, help="Standard deviation: of runs, or of paired differences when paired.")
@click.option("--pilot", multiple=True, metavar="RUN", help="Take the noise from these runs; one variant, or two.")
@with_file
@click.option(
    "--variant", "variants", multiple=True, metavar="NAME", help="With --from: a variant to use; at most two."
)
@click.option("--metric", metavar="NAME", help="Metric of the pilot.  [default: the recipe's]")
@click.option("--design", type=click.Choice(["paired", "unpaired"]), help="[default: as the pilot allows]")
@click.option("--correlation", type=float, help=CORRELATION_HELP)
@click.option("--superiority", type=float, metavar="P", help="Ask for P(candidate > control) ≥ P instead of --sesoi.")
@click.option("--alpha", type=float, default=0.05, show_default=True, help="Error rate.")
@click.option("--power", type=float, default=0.8, show_default=True, help="Probability of detecting the difference.")
@click.option(
    "--side",
    type=click.Choice(["two-sided", "greater", "less"]),
    help="[default: two-sided; greater with --superiority]",
)
@click.option(
    "--assurance",
    type=float,
    help="Plan on an upper bound of the pilot's noise that holds with this probability; by default the plan has the "
    "asked power on average over what the noise may be.",
)
@click.option("--hours-per-run", type=float, help="To add up hours.  [default: the pilot's]")
@click.option("--gpu", metavar="CARD", help="To add up money: a100-80gb, v100, t4, h100, l4 …")
@click.option("--prices", metavar="FILE", help="Prices of your own: a dated YAML file.")
@click.option("--price-per-hour", type=float, help="To add up money, in dollars.")
@with_output
def command(
    out: Output, *, sesoi: float | None, sd: float | None, pilot: Sequence[str], source: Sequence[str] | None,
    columns: Any, variants: Sequence[str], metric: str | None, design: str | None, correlation: float | None,
    superiority: float | None, alpha: float, power: float, side: str | None, assurance: float | None,
    hours_per_run: float | None, gpu: str | None, price_per_hour: float | None, prices: str | None,
) -> None:  # fmt: skip
    """Say how many seeds, hours and dollars a question needs, before anything is started."""
    from fairtrial.api.comparing import power as api

    if pilot:
        out.name_store()
    plan = out.command.answer(
        api.power, sesoi=sesoi, sd=sd, pilot=pilot, design=design, correlation=correlation, superiority=superiority,
        alpha=alpha, power=power, side=side, assurance=assurance, hours_per_run=hours_per_run,
        gpu=gpu, price_per_hour=price_per_hour, prices=prices, metric=metric, store=out.store,
        source=source, columns=columns, variant=variants,
    )  # fmt: skip
    rows = list(plan.curve) or [plan.to_dict()]
    out.give(plan.to_dict(), rows, lambda console: _show(console, plan))


def _show(console: Console, plan: Plan) -> None:
    console.print(_verdict(plan), style="bold", markup=False)
    if plan.pilot_n is not None:
        console.print(_pilot_line(plan), markup=False)
    if plan.hours is None:
        console.print("Give --hours-per-run, and --gpu or --price-per-hour, to see hours and dollars.", markup=False)
    if plan.hours_basis:
        console.print(f"Hours and dollars on that card are estimates. Basis: {plan.hours_basis}.", markup=False)
    if plan.curve:
        console.print()
        console.print(_table(plan))
    show_cautions(console, plan.cautions)


def _pilot_line(plan: Plan) -> str:
    """What the plan makes of the pilot: its noise is known only roughly, and its effect is not used."""
    basis = f"Noise: sd {shown_value(plan.sd)} from a pilot of {plan.pilot_n} {_unit(plan)}"
    exact = f"If it were exactly {shown_value(plan.sd)}, {plan.seeds_at_sd} would be enough."
    if plan.assurance is None:
        return (
            f"{basis}. The plan has {100 * plan.power:g} % power on average over what the true sd may be. {exact} "
            "The pilot's effect is not used."
        )
    bound = f"at most {shown_value(plan.sd_upper)} with {100 * plan.assurance:g} % assurance"
    return f"{basis}, {bound}; the plan is made for that bound. {exact} The pilot's effect is not used."


def _unit(plan: Plan) -> str:
    return "pairs" if plan.design == "paired" and plan.correlation is None else "runs per variant"


def _verdict(plan: Plan) -> str:
    goal = (
        f"P(candidate > control) ≥ {plan.probability:g}"
        if plan.probability is not None
        else f"a difference of {shown_value(plan.sesoi)}"
    )
    terms = f"{plan.design}, {plan.side}, α = {plan.alpha:g}, power {100 * plan.power:g} %"
    if plan.seeds is None:
        return f"More than a million seeds would be needed to detect {goal} ({terms})."
    parts = [f"{counted(plan.seeds, 'seed')} per variant to detect {goal} ({terms}): {plan.runs:,} runs"]
    about = "about " if plan.hours_basis else ""
    if plan.hours is not None:
        parts.append(f"{about}{shown_hours(plan.hours)}")
    if plan.cost is not None:
        parts.append(f"{about}{shown_money(plan.cost)}")
    return ", ".join(parts) + "."


def _table(plan: Plan) -> object:
    from rich.table import Table

    table = Table("seeds", "power", "detectable", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for column in table.columns:
        column.justify = "right"
    for row in plan.curve:
        style = "bold" if row["seeds"] == plan.seeds else ""
        table.add_row(f"{row['seeds']}", shown_chance(row["power"] or 0), shown_value(row["detectable"]), style=style)
    return table
