"""fairtrial evaluate"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from fairtrial.cli._lab import interval_words, plain_table
from fairtrial.cli._output import Output, with_output
from fairtrial.cli._pieces import show_cautions
from fairtrial.core.errors import EXIT_OK, EXIT_RUNS
from fairtrial.core.formatting import counted, shown_change, shown_value

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.running.evaluate import CheckpointEvaluation, CheckpointEvaluations


@click.command("evaluate")
@click.argument("runs", nargs=-1, required=True, metavar="RUN…")
@click.option(
    "--checkpoint",
    default="best",
    show_default=True,
    metavar="best|last|step-N|best-K",
    help="Which weights to evaluate.",
)
@click.option("--episodes", type=int, help="How many, for recipes that have episodes.  [default: the run's own]")
@click.option("--confirm", is_flag=True, help="On fresh episodes or data; says how far choosing flattered the best.")
@click.option("--level", type=click.FloatRange(0.5, 1, min_open=True, max_open=True), default=0.95, show_default=True,
              help="Confidence level of intervals.")  # fmt: skip
@with_output
def command(
    out: Output, *, runs: Sequence[str], checkpoint: str, episodes: int | None, confirm: bool, level: float
) -> int:
    """Evaluate a checkpoint of a run again, on what chose nothing. The result is stored with the run.

    Ends with 4 if one of several runs is damaged; the others are evaluated.
    """
    from fairtrial.api.running.evaluate import evaluate

    out.name_store()
    found = evaluate(
        runs, checkpoint=checkpoint, episodes=episodes, confirm=confirm, level=level, store=out.store, tell=out.say
    )
    rows = [{"run": each.run.name, "checkpoint": each.checkpoint, "step": each.step, **each.metrics,
             "selected": each.selected, "gap": each.gap} for each in found.runs]  # fmt: skip
    out.give(found.to_dict(), rows, lambda console: _show(console, found))
    return EXIT_RUNS if found.damaged else EXIT_OK


def _show(console: Console, found: CheckpointEvaluations) -> None:
    for each in found.runs:
        _show_one(console, each)
    if found.gap is not None and len(found.runs) > 1 and found.gap.value is not None:
        console.print(
            f"Choosing flattered them by {shown_change(found.gap.value)} {interval_words(found.gap)} on average, over "
            f"{counted(found.gap.n, 'run')}.", style="bold", markup=False,
        )  # fmt: skip
    show_cautions(console, [caution for each in found.runs for caution in each.cautions])


def _show_one(console: Console, found: CheckpointEvaluation) -> None:
    on = "fresh " if found.fresh else ""
    how = f", {found.episodes:,} {on}episodes" if found.episodes else f", {on}report data" if found.fresh else ""
    console.print(f"{found.run.name}  {found.checkpoint}, step {found.step:,}{how}", style="bold", markup=False)
    table = plain_table("", "", "")
    table.show_header = False
    for name, value in found.metrics.items():
        interval = interval_words(found.intervals[name]) if name in found.intervals else ""
        table.add_row(f"  {name}", shown_value(value), interval)
    if found.selected is not None:
        table.add_row("  chosen by", shown_value(found.selected), "")
    if found.gap is not None:
        table.add_row("  flattered by", shown_change(found.gap), "")
    console.print(table)
