"""fairtrial sweep"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from fairtrial.cli._help import HelpPage
from fairtrial.cli._lab import HOW_TO_RUN, command_for, lab_command, lab_terms, planned_terms, run_options
from fairtrial.cli._output import Output
from fairtrial.cli._recipe_group import RecipeGroup
from fairtrial.cli._sweep_text import give_sweep
from fairtrial.core.registry import LoadedRecipe

if TYPE_CHECKING:
    from fairtrial.plan.study import Study

RUNS = 3
CONFIRM_OPTIONS: tuple[click.Parameter, ...] = (
    click.Option(
        ["--confirm"],
        type=click.IntRange(min=1),
        metavar="N",
        help="Rerun the best setting and the baseline, N times each, on fresh seeds and fresh report data.",
    ),
    click.Option(
        ["--baseline"], metavar="VALUE", help="Value that --confirm compares with.  [default: the recipe's default]"
    ),
)
HOW = {"How to judge": "--metric --direction --level", "How to run": f"{HOW_TO_RUN} --stack"}
PARAM_HELP = "Option and values: 1:8:0.5 (from, to, step), 1,2,4 (a list), log:1e-4:1e-1:7 (from, to, count)."


def _range_options(start: float, end: float, step: float) -> tuple[click.Parameter, ...]:
    """Return the options for a range that includes both ends."""
    return (
        click.Option(["--start"], type=float, default=start, show_default=True, help="First value."),
        click.Option(["--end"], type=float, default=end, show_default=True, help="Last value."),
        click.Option(["--step"], type=float, default=step, show_default=True, help="Step between values."),
    )


def range_command(name: str, start: float, end: float, step: float, text: str) -> click.Command:
    """Return the command that sweeps one option of `distill` over a range. It has the name of the option."""

    def body(out: Output, settings: dict[str, Any], **parsed: Any) -> int:
        from fairtrial.api.lab import sweep as api

        question, how = _range_question(settings, **parsed)
        run = {"temperature": api.temperature_sweep, "alpha": api.alpha_sweep}[name]
        with lab_terms(out, RUNS, **how) as terms:
            sweep = out.command.answer(run, **question, terms=terms)
        return give_sweep(out, sweep)

    def plan(out: Output, settings: dict[str, Any], **parsed: Any) -> Study:
        from fairtrial.api.lab.sweep import plan_range_sweep

        question, how = _range_question(settings, **parsed)
        return plan_range_sweep(name, **question, terms=planned_terms(out, RUNS, **how))

    body.__doc__ = text
    own = [*_range_options(start, end, step), *CONFIRM_OPTIONS, *run_options(RUNS, stack=True)]
    page = HelpPage(
        {"What to sweep": "--start --end --step --confirm | --baseline", **HOW},
        (
            f"fairtrial {name} --start {start:g} --end {(start + end) / 2:g} --runs 5",
            f"fairtrial {name} --confirm 5 --output {name}.png",
        ),
    )
    return lab_command(name, body, plan, own, page, without=[name])


def _range_question(
    settings: dict[str, Any], *, start: float, end: float, step: float, confirm: int | None, baseline: str | None,
    **how: Any,
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """Split the parsed flags into the arguments of the API function and the options on how to run."""
    question = {"start": start, "end": end, "step": step, "options": settings}
    return {**question, "confirm": confirm or 0, "baseline": baseline}, how


def _body(recipe: LoadedRecipe) -> Callable[..., Any]:
    def sweep_recipe(out: Output, settings: dict[str, Any], **parsed: Any) -> int:
        from fairtrial.api.lab.sweep import sweep

        question, how = _question(recipe, settings, **parsed)
        with lab_terms(out, RUNS, **how) as terms:
            result = out.command.answer(sweep, **question, terms=terms)
        return give_sweep(out, result)

    sweep_recipe.__doc__ = f"Sweep options of this recipe. {recipe.summary}"
    return sweep_recipe


def _plan(recipe: LoadedRecipe) -> Callable[..., Study]:
    def plan_recipe(out: Output, settings: dict[str, Any], **parsed: Any) -> Study:
        from fairtrial.api.lab.sweep import plan_sweep

        question, how = _question(recipe, settings, **parsed)
        return plan_sweep(**question, terms=planned_terms(out, RUNS, **how))

    return plan_recipe


def _question(
    recipe: LoadedRecipe, settings: dict[str, Any], *, params: Sequence[str], zipped: bool, confirm: int | None,
    baseline: str | None, **how: Any,
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """Like `_range_question`, for a grid of options of any recipe."""
    question = {"recipe": str(recipe.file or recipe.name), "params": list(params), "options": settings}
    return {**question, "zipped": zipped, "confirm": confirm or 0, "baseline": baseline}, how


OWN: tuple[click.Parameter, ...] = (
    click.Option(["--param", "params"], multiple=True, metavar="NAME=VALUES", help=PARAM_HELP),
    click.Option(
        ["--zip", "zipped"], is_flag=True, help="Combine the values of several --param pairwise instead of as a grid."
    ),
    *CONFIRM_OPTIONS,
    *run_options(RUNS, stack=True),
)


PAGE = HelpPage(
    {"What to sweep": "--param --zip --confirm | --baseline", **HOW},
    (
        "fairtrial sweep classify --param learning_rate=log:1e-4:1e-1:4 --runs 5",
        "fairtrial sweep distill --param temperature=1,4 --param alpha=0.1,0.5",
    ),
)


class SweepGroup(RecipeGroup):
    own_options = OWN
    recipe_examples = ("fairtrial sweep {recipe} {param} --runs 5",)

    def make_command(self, recipe: LoadedRecipe, name: str) -> click.Command:
        return command_for(recipe, name, _body(recipe), _plan(recipe), OWN, self.recipe_page())


@click.group("sweep", cls=SweepGroup, invoke_without_command=True, subcommand_metavar="RECIPE [OPTIONS]…", page=PAGE)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Train a recipe at every setting of a grid and find the best setting.

    Several --param form a grid of all combinations, or with --zip are combined pairwise. Every other option of the
    recipe is a fixed setting. The result also lists the settings that are statistically indistinguishable from the
    best one. `fairtrial sweep RECIPE --help` shows the options of a recipe.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
