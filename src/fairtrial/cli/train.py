"""fairtrial train"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from fairtrial.cli._formatting import best_line, telemetry_line
from fairtrial.cli._help import HelpPage
from fairtrial.cli._output import Output, with_output
from fairtrial.cli._pieces import show_facts
from fairtrial.cli._progress import make_progress, observe_with
from fairtrial.cli._recipe_group import RecipeGroup
from fairtrial.cli._recipe_options import NEVER_RECORDED, given_values
from fairtrial.cli._signals import stopping
from fairtrial.core.errors import UsageError
from fairtrial.core.formatting import shown_time, shown_value
from fairtrial.core.registry import LoadedRecipe
from fairtrial.core.specs import FIXED_SEEDS, MOST_SEED

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.running.train import Observing, Trained

OWN_OPTIONS = (
    click.Option(["--seed"], type=click.IntRange(0, MOST_SEED), help=f"Random seed.  [default: {FIXED_SEEDS[0]}]"),
    click.Option(["--study"], metavar="NAME", help="Study of the run.  [default: adhoc]"),
    click.Option(["--variant"], metavar="NAME", help="Name of the variant.  [default: derived from the options]"),
    click.Option(["--resume"], metavar="RUN", help="Resume an interrupted run with its original options."),
    click.Option(["--again"], is_flag=True, help="Repeat a finished run; the repeat does not count as another seed."),
    click.Option(["--replace"], is_flag=True, help="Archive the existing run of that name and train it again."),
    click.Option(["--secret", "secrets"], multiple=True, metavar="NAME", help=NEVER_RECORDED),
)


def _body(recipe: LoadedRecipe) -> Callable[..., Any]:
    @with_output
    def train_recipe(
        out: Output, *, seed: int | None, study: str | None, variant: str | None, resume: str | None,
        again: bool, replace: bool, secrets: Sequence[str], **flags: Any,
    ) -> None:  # fmt: skip
        from fairtrial.api.running import train as api
        from fairtrial.core.paths import ADHOC_STUDY

        values = given_values(recipe.options, flags)
        if resume and (values or secrets or again or replace or variant or study or seed is not None):
            raise UsageError(
                "--resume takes no other options", hint="A run resumes with the options it was started with."
            )
        if again and replace:
            raise UsageError("--again and --replace cannot be used together")

        def work(observe: Observing, should_stop: Callable[[], bool]) -> Trained:
            if resume:
                kind = str(recipe.file or recipe.name)
                return out.command.answer(
                    api.resume, resume, recipe=kind, store=out.store, observe=observe, should_stop=should_stop
                )
            return out.command.answer(
                api.train, str(recipe.file or recipe.name), values, seed=seed,
                study=study or ADHOC_STUDY, variant=variant, store=out.store, again=again, replace_old=replace,
                secrets=secrets, observe=observe, should_stop=should_stop, tell=out.say,
            )  # fmt: skip

        _train(out, work)

    return train_recipe


def _train(out: Output, work: Callable[[Any, Callable[[], bool]], Trained]) -> None:
    out.name_store()
    with stopping() as should_stop:
        if out.live:
            with make_progress(out) as progress:
                trained = work(observe_with(progress), should_stop)
        else:
            trained = work(observe_with(None), should_stop)
    _give(out, trained)


def _give(out: Output, trained: Trained) -> None:
    row = trained.to_dict()

    def show(console: Console) -> None:
        show_trained(console, trained)
        if trained.already_done:
            out.say("Nothing was run. Use --again to repeat the run, or --replace to train it again from scratch.")

    flat = {name: value for name, value in row.items() if name not in ("final", "cautions", "telemetry")}
    out.give(row, [{**flat, **trained.run.final}], show)


def show_trained(console: Console, trained: Trained) -> None:
    run, metadata = trained.run, trained.run.metadata
    how = "already done" if trained.already_done else f"{run.status} in {shown_time(metadata.timings.wall_s)}"
    console.print(f"{run.name}  {how}", markup=False)
    reported = [name for name in run.final if name.startswith("report_") and not name.startswith("report_best_")]
    best = best_line(metadata)
    facts = [(name, shown_value(run.final[name])) for name in reported] + ([("best", best)] if best else [])
    show_facts(console, facts)
    show_facts(console, [("caution", caution["text"]) for caution in metadata.cautions], style="yellow")
    telemetry = telemetry_line([run])
    if telemetry and not trained.already_done:
        console.print(f"  {telemetry}", markup=False)


class TrainGroup(RecipeGroup):
    body = staticmethod(_body)
    own_options = OWN_OPTIONS
    recipe_first = True
    recipe_examples = ("fairtrial train {recipe} {flags}",)


@click.group(
    "train",
    cls=TrainGroup,
    invoke_without_command=True,
    no_args_is_help=False,
    subcommand_metavar="RECIPE [OPTIONS]…",
    page=HelpPage(
        {"Run": "--seed --study --variant --resume --again --replace --secret"},
        ("fairtrial train classify --model cnn --steps 1000", "fairtrial train --resume adhoc/cnn.seed1072"),
    ),
)
@click.option("--resume", metavar="RUN", help="Resume an interrupted run with its original options.")
@with_output
@click.pass_context
def command(ctx: click.Context, out: Output, resume: str | None) -> None:
    """Train a recipe once and record the run.

    Repeating the same command resumes an interrupted run and does nothing if the run is already finished.
    `fairtrial train RECIPE --help` shows the options of a recipe.
    """
    if ctx.invoked_subcommand is not None:
        given = [name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
        if given:
            flag = "--" + given[0].replace("output_format", "format").replace("_", "-")
            raise UsageError(
                f"{flag} must come after the recipe", hint=f"Run: fairtrial train {ctx.invoked_subcommand} {flag} …"
            )
        return
    if resume is None:
        click.echo(ctx.get_help())
        return
    from fairtrial.api.running import train as api

    def work(observe: Observing, should_stop: Callable[[], bool]) -> Trained:
        return out.command.answer(api.resume, resume, store=out.store, observe=observe, should_stop=should_stop)

    _train(out, work)
