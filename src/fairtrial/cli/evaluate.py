"""fairtrial evaluate"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from fairtrial.cli._help import HelpfulCommand, HelpPage
from fairtrial.cli._lab import interval_words
from fairtrial.cli._output import Output, with_output
from fairtrial.cli._pieces import show_cautions
from fairtrial.cli._tables import plain_table
from fairtrial.core.errors import EXIT_OK, EXIT_RUNS
from fairtrial.core.formatting import counted, shown_change, shown_value

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.running.evaluate import CheckpointEvaluation, CheckpointEvaluations


@click.command(
    "evaluate",
    cls=HelpfulCommand,
    page=HelpPage(
        examples=(
            "fairtrial evaluate demo/kd.seed1072 --confirm",
            "fairtrial evaluate 'demo/kd.*' --checkpoint last",
        )
    ),
)
@click.argument("runs", nargs=-1, required=True, metavar="RUN…")
@click.option(
    "--checkpoint",
    default="best",
    show_default=True,
    metavar="best|last|step-N|best-K",
    help="Checkpoint to evaluate.",
)
@click.option(
    "--episodes", type=int, help="Number of episodes, for recipes that have episodes.  [default: the run's own]"
)
@click.option(
    "--confirm",
    is_flag=True,
    help="Use fresh episodes or data, and estimate the selection bias of the best checkpoint.",
)
@click.option("--level", type=click.FloatRange(0.5, 1, min_open=True, max_open=True), default=0.95, show_default=True,
              help="Confidence level of intervals.")  # fmt: skip
@with_output
def command(
    out: Output, *, runs: Sequence[str], checkpoint: str, episodes: int | None, confirm: bool, level: float
) -> int:
    """Re-evaluate a checkpoint on held-out data, which was not used to select it. The result is stored with the run.

    Exits with 4 if one of several runs is damaged; the others are still evaluated.
    """
    from fairtrial.api.running.evaluate import evaluate

    out.name_store()
    checkpoint_evaluations = out.command.answer(
        evaluate, runs, checkpoint=checkpoint, episodes=episodes, confirm=confirm, level=level, store=out.store,
        tell=out.say,
    )  # fmt: skip
    rows = [{"run": each.run.name, "checkpoint": each.checkpoint, "step": each.step, **each.metrics,
             "selected": each.selected, "gap": each.gap} for each in checkpoint_evaluations.runs]  # fmt: skip
    out.give(checkpoint_evaluations.to_dict(), rows, lambda console: _show(console, checkpoint_evaluations))
    return EXIT_RUNS if checkpoint_evaluations.damaged else EXIT_OK


def _show(console: Console, checkpoint_evaluations: CheckpointEvaluations) -> None:
    for each in checkpoint_evaluations.runs:
        _show_one(console, each)
    if (
        checkpoint_evaluations.gap is not None
        and len(checkpoint_evaluations.runs) > 1
        and checkpoint_evaluations.gap.value is not None
    ):
        console.print(
            f"Average selection bias: {shown_change(checkpoint_evaluations.gap.value)} "
            f"{interval_words(checkpoint_evaluations.gap)} over "
            f"{counted(checkpoint_evaluations.gap.n, 'run')}.",
            style="bold",
            markup=False,
        )
    show_cautions(console, [caution for each in checkpoint_evaluations.runs for caution in each.cautions])


def _show_one(console: Console, checkpoint_evaluation: CheckpointEvaluation) -> None:
    on = "fresh " if checkpoint_evaluation.fresh else ""
    how = (
        f", {checkpoint_evaluation.episodes:,} {on}episodes"
        if checkpoint_evaluation.episodes
        else f", {on}report data"
        if checkpoint_evaluation.fresh
        else ""
    )
    console.print(
        f"{checkpoint_evaluation.run.name}  {checkpoint_evaluation.checkpoint}, step "
        f"{checkpoint_evaluation.step:,}{how}",
        style="bold",
        markup=False,
    )
    table = plain_table("", "", "", indent="  ")
    table.show_header = False
    for name, value in checkpoint_evaluation.metrics.items():
        interval = (
            interval_words(checkpoint_evaluation.intervals[name]) if name in checkpoint_evaluation.intervals else ""
        )
        table.add_row(name, shown_value(value), interval)
    if checkpoint_evaluation.selected is not None:
        table.add_row("at selection", shown_value(checkpoint_evaluation.selected), "")
    if checkpoint_evaluation.gap is not None:
        table.add_row("selection bias", shown_change(checkpoint_evaluation.gap), "")
    console.print(table)
