"""fairtrial power"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from fairtrial.cli._help import HelpPage
from fairtrial.cli._many_values import ManyValuesCommand
from fairtrial.cli._output import Output, with_output
from fairtrial.cli._pieces import show_cautions
from fairtrial.cli._source_options import COLUMN_FLAGS, with_file
from fairtrial.cli._tables import Column, PlainTable, plain_table
from fairtrial.core.formatting import counted, shown_chance, shown_hours, shown_money, shown_percent, shown_value

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.comparing.power import Plan

CORRELATION_HELP = "Correlation between paired runs; --sd and a one-variant pilot then refer to single runs."


PAGE = HelpPage(
    {
        "What to detect": "--sesoi --superiority --alpha --power --side",
        "How noisy runs are": "--sd --pilot --from --metric --design --correlation --assurance"
        f" | --variant {COLUMN_FLAGS}",
        "What it costs": "--hours-per-run --gpu --price-per-hour --prices",
    },
    (
        "fairtrial power --sesoi 0.01 --sd 0.02",
        "fairtrial power --sesoi 0.01 --pilot demo:kd --hours-per-run 2 --gpu a100-80gb",
    ),
)


@click.command("power", cls=ManyValuesCommand, page=PAGE)
@click.option("--sesoi", type=float, help="Smallest effect size of interest: the difference that would matter.")
@click.option("--sd", type=float, help="Standard deviation of runs, or of paired differences for a paired design.")
@click.option(
    "--pilot", multiple=True, metavar="RUN", help="Estimate the noise from these runs of one or two variants."
)
@with_file
@click.option("--variant", "variants", multiple=True, metavar="NAME", help="With --from: variant to use; at most two.")
@click.option("--metric", metavar="NAME", help="Metric of the pilot.  [default: the recipe's]")
@click.option(
    "--design",
    type=click.Choice(["paired", "unpaired"]),
    help="Whether runs are paired by seed.  [default: as the pilot allows]",
)
@click.option("--correlation", type=float, help=CORRELATION_HELP)
@click.option("--superiority", type=float, metavar="P", help="Plan for P(candidate > control) ≥ P instead of --sesoi.")
@click.option("--alpha", type=float, default=0.05, show_default=True, help="Significance level.")
@click.option("--power", type=float, default=0.8, show_default=True, help="Probability of detecting the difference.")
@click.option(
    "--side",
    type=click.Choice(["two-sided", "greater", "less"]),
    help="Alternative hypothesis.  [default: two-sided; greater with --superiority]",
)
@click.option(
    "--assurance",
    type=float,
    help="Plan for an upper bound of the pilot's noise that holds with this probability. By default the plan reaches "
    "the requested power on average over the uncertainty of the noise.",
)
@click.option("--hours-per-run", type=float, help="Hours per run, for the total.  [default: the pilot's]")
@click.option("--gpu", metavar="CARD", help="GPU for the cost estimate: a100-80gb, v100, t4, h100, l4 …")
@click.option("--prices", metavar="FILE", help="Dated YAML file with your own prices.")
@click.option("--price-per-hour", type=float, help="Price per hour in dollars, for the cost estimate.")
@with_output
def command(
    out: Output, *, sesoi: float | None, sd: float | None, pilot: Sequence[str], source: Sequence[str] | None,
    columns: Any, variants: Sequence[str], metric: str | None, design: str | None, correlation: float | None,
    superiority: float | None, alpha: float, power: float, side: str | None, assurance: float | None,
    hours_per_run: float | None, gpu: str | None, price_per_hour: float | None, prices: str | None,
) -> None:  # fmt: skip
    """Plan how many seeds, hours and dollars an experiment needs, before you start it."""
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
        console.print("Pass --hours-per-run, and --gpu or --price-per-hour, to see hours and dollars.", markup=False)
    if plan.hours_basis:
        console.print(f"Hours and dollars on that GPU are estimates. Basis: {plan.hours_basis}.", markup=False)
    if plan.curve:
        console.print()
        console.print(_table(plan))
    show_cautions(console, plan.cautions)


def _pilot_line(plan: Plan) -> str:
    """Describe how the plan uses the pilot: it accounts for the uncertainty of the noise and ignores the effect."""
    basis = f"Noise: sd {shown_value(plan.sd)} from a pilot of {_pilot_size(plan)}"
    exact = f"If it were exactly {shown_value(plan.sd)}, {plan.seeds_at_sd} would be enough."
    if plan.assurance is None:
        return (
            f"{basis}. The plan has {shown_percent(plan.power)} power on average over the uncertainty of the true sd. "
            f"{exact} The pilot's effect is not used."
        )
    bound = f"at most {shown_value(plan.sd_upper)} with {shown_percent(plan.assurance)} assurance"
    return f"{basis}, {bound}; the plan uses that bound. {exact} The pilot's effect is not used."


def _pilot_size(plan: Plan) -> str:
    pairs = plan.design == "paired" and plan.correlation is None
    return counted(plan.pilot_n, "pair") if pairs else f"{counted(plan.pilot_n, 'run')} per variant"


def _verdict(plan: Plan) -> str:
    goal = (
        f"P(candidate > control) ≥ {plan.probability:g}"
        if plan.probability is not None
        else f"a difference of {shown_value(plan.sesoi)}"
    )
    terms = f"{plan.design}, {plan.side}, α = {plan.alpha:g}, power {shown_percent(plan.power)}"
    if plan.seeds is None:
        return f"More than a million seeds would be needed to detect {goal} ({terms})."
    parts = [f"{counted(plan.seeds, 'seed')} per variant to detect {goal} ({terms}): {counted(plan.runs, 'run')}"]
    about = "about " if plan.hours_basis else ""
    if plan.hours is not None:
        parts.append(f"{about}{shown_hours(plan.hours)}")
    if plan.cost is not None:
        parts.append(f"{about}{shown_money(plan.cost)}")
    return ", ".join(parts) + "."


def _table(plan: Plan) -> PlainTable:
    table = plain_table(Column("seeds"), "power", "detectable")
    for row in plan.curve:
        style = "bold" if row["seeds"] == plan.seeds else ""
        table.add_row(f"{row['seeds']}", shown_chance(row["power"] or 0), shown_value(row["detectable"]), style=style)
    return table
