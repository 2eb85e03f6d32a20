"""Shared by the lab commands (sweep, compare, ablation …): options, fixed recipe settings, progress and exit codes."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from fairtrial.cli._help import HelpPage
from fairtrial.cli._output import Output, declared, with_chart_output
from fairtrial.cli._progress import LaunchProgress, make_progress
from fairtrial.cli._recipe_options import RecipeCommand, flags, given_values
from fairtrial.cli.launch import PLAN_HELP, parse_seeds
from fairtrial.core.errors import EXIT_OK, EXIT_RUNS, UsageError
from fairtrial.core.findings import Estimate
from fairtrial.core.formatting import shown_value
from fairtrial.core.registry import LoadedRecipe, load_recipe
from fairtrial.record.store_location import store_words

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.lab.arms import LabConfig
    from fairtrial.plan.study import Study


class LabResult(Protocol):
    """The result of a lab command."""

    @property
    def failed(self) -> bool: ...

    def to_dict(self) -> dict[str, Any]: ...


Result = TypeVar("Result", bound=LabResult)
HOW_TO_RUN = "--runs --jobs --study --replace | --seeds --retry-failed --plan"
FAMILY_HELP = "Correction for multiple comparisons; the default auto means max-spread below 12 seeds, else holm."


def run_options(runs: int, *, stack: bool) -> list[click.Parameter]:
    """Return the options on how to run, which all lab commands share."""
    options: list[click.Parameter] = [
        click.Option(
            ["--runs"], type=int, help=f"Runs per setting: the first N of the fixed seeds.  [default: {runs}]"
        ),
        click.Option(["--seeds"], metavar="N|LIST", help="The same as --runs, or a list of seeds such as 1,2,3."),
        click.Option(["--metric"], metavar="NAME", help="Metric to compare.  [default: the recipe's]"),
        click.Option(
            ["--direction"], type=click.Choice(["max", "min"]), help="Whether higher (max) or lower (min) is better."
        ),
        click.Option(["--level"], type=float, default=0.95, show_default=True, help="Confidence level."),
        click.Option(["--study"], metavar="NAME", help="Name of the study.  [default: derived from the settings]"),
        click.Option(["--plan"], metavar="REGISTRATION", help=PLAN_HELP),
        click.Option(
            ["--jobs"], type=click.IntRange(min=1), help="Number of parallel processes.  [default: number of cores]"
        ),
        click.Option(["--retry-failed"], is_flag=True, help="Also rerun cells that failed before."),
        click.Option(["--replace"], is_flag=True, help="Archive the existing runs and train them again."),
    ]
    if stack:
        options.append(
            click.Option(
                ["--stack/--no-stack"], default=True, help="Train several runs in one process where that is faster."
            )
        )
    return options


def lab_command(
    name: str, body: Callable[..., Any], plan: Callable[..., Study], own: Sequence[click.Parameter], page: HelpPage, *,
    recipe: str = "distill", without: Collection[str] = (),
) -> click.Command:  # fmt: skip
    """Return a command for one recipe that takes the recipe's options as fixed settings."""
    loaded = load_recipe(recipe)
    return command_for(loaded, name, body, plan, own, page, without=without)


def command_for(
    recipe: LoadedRecipe, name: str, body: Callable[..., Any], plan: Callable[..., Study],
    own: Sequence[click.Parameter], page: HelpPage, *, without: Collection[str] = (),
) -> click.Command:  # fmt: skip
    """Return a command. `body` runs it; `plan` returns the study that it would launch, from the same parameters."""
    taken = {parameter.name for parameter in own}  # its own options hide recipe options of the same name
    function = with_chart_output(_with_settings(recipe, body, taken))
    return RecipeCommand(
        recipe, own=own, page=page, name=name,
        params=[*own, *flags(recipe, without={*without, *taken}), *declared(function)], callback=function,
        plan=with_chart_output(_with_settings(recipe, plan, taken)), help=body.__doc__,
    )  # fmt: skip


def _with_settings(recipe: LoadedRecipe, body: Callable[..., Any], own: Collection[str | None]) -> Callable[..., Any]:
    """Pass the given recipe options to `body` as `settings`, and all other parameters by name."""

    def command(out: Output, **parsed: Any) -> Any:
        fixed = {
            name: value for name, value in parsed.items() if name in recipe.options.model_fields and name not in own
        }
        rest = {name: value for name, value in parsed.items() if name not in fixed}
        return body(out, given_values(recipe.options, fixed), **rest)

    return command


@contextlib.contextmanager
def lab_terms(out: Output, default_runs: int, **how: Any) -> Iterator[LabConfig]:
    """Yield the configuration from the flags, with progress reports attached."""
    terms = planned_terms(out, default_runs, **how)
    out.name_store()
    with make_progress(out) if out.live else contextlib.nullcontext() as progress:
        watcher = LaunchProgress(out, progress, retry_failed=terms.retry_failed, each=False)
        yield replace(terms, watch=watcher, ready=watcher.ready, tell=out.say)


def planned_terms(
    out: Output, default_runs: int, *, runs: int | None, seeds: str | None, metric: str | None, direction: str | None,
    level: float, study: str | None, jobs: int | None, retry_failed: bool, replace: bool, stack: bool = False,
    plan: str | None = None,
) -> LabConfig:  # fmt: skip
    """Return the configuration from the flags, without progress reports."""
    from fairtrial.api.lab.arms import LabConfig

    if runs is not None and seeds is not None:
        raise UsageError("--runs and --seeds cannot be used together")
    chosen = parse_seeds(seeds) if seeds is not None else default_runs if runs is None else runs
    return LabConfig(
        runs=chosen, level=level, metric=metric, direction=direction, study=study, store=out.store, jobs=jobs,
        stack=stack, retry_failed=retry_failed, replace_old=replace, plan=plan,
    )  # fmt: skip


def give(
    out: Output,
    lab_result: Result,
    rows: Sequence[Mapping[str, Any]],
    show: Callable[[Console], None],
    draw: Callable[[Result, Path], None],
) -> int:
    """Write the result in the requested format, and the chart if one was requested. Return the exit code."""
    out.give(lab_result.to_dict(), rows, show)
    if out.chart:
        draw(lab_result, out.chart)
        out.say(f"Wrote {out.chart}")
    return EXIT_RUNS if lab_result.failed else EXIT_OK


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a flat row for spreadsheets, with two columns per interval."""
    plain = {name: value for name, value in row.items() if name != "ci" and not name.endswith("_ci")}
    for name in [name for name in row if name not in plain]:
        stem = name.removesuffix("ci")
        plain[f"{stem}low"], plain[f"{stem}high"] = row[name] or (None, None)
    return plain


def interval_words(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f"[{shown_value(estimate.low)}, {shown_value(estimate.high)}]"


def next_commands(out: Output, study: str) -> list[str]:
    place, name = store_words(out.store), shlex.quote(study)
    return [f"fairtrial analyze {name}{place}", f"fairtrial runs list --study {name}{place}"]
