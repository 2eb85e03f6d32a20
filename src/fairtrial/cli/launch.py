"""fairtrial launch"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from fairtrial.cli._formatting import telemetry_line
from fairtrial.cli._help import HelpPage
from fairtrial.cli._many_values import ManyValuesCommand
from fairtrial.cli._output import Output, declared, with_output
from fairtrial.cli._pieces import judged_line, show_cautions, show_next
from fairtrial.cli._progress import LaunchProgress, make_progress
from fairtrial.cli._recipe_group import RecipeGroup
from fairtrial.cli._recipe_options import NEVER_RECORDED, given_values, pairs
from fairtrial.cli._tables import plain_table
from fairtrial.core.errors import EXIT_OK, EXIT_RUNS, UsageError
from fairtrial.core.formatting import counted, shown_change, shown_time, shown_value
from fairtrial.core.plugin_registry import LAUNCHERS, plugin_names
from fairtrial.core.registry import LoadedRecipe
from fairtrial.record.store_location import store_words

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.running.launch import Launched, PlannedRun
    from fairtrial.api.running.workload import Workload
    from fairtrial.core.runs import Run
    from fairtrial.launch.contract import Described
    from fairtrial.launch.policy import ExecutionPolicy
    from fairtrial.plan.study import Study

ON = click.Option(
    ["--on"],
    metavar="|".join(plugin_names(LAUNCHERS)),
    help="Launcher: this machine or a cluster.  [default: local]",
)
ON.choices = plugin_names(LAUNCHERS)  # type: ignore[attr-defined]  # not a click.Choice: the launcher's own error is clearer
MOST_SEEDS = 5
"""How many seeds the line about failed runs names."""
LOG_LINES = 3
"""How many lines from the end of the log follow it."""
NEEDED_ENGINE = {"address": "ray", "cloud": "skypilot", "spot": "skypilot"}
"""The built-in launcher that each of these flags needs. Launchers of other packages may use the same names."""
PLAN_HELP = "Launch as registered, with the registered seeds.  [default: the project's registration of this study]"
HOW_OPTIONS: tuple[click.Parameter, ...] = (
    ON,
    click.Option(["--skypilot"], is_flag=True, help="The same as --on skypilot."),
    click.Option(
        ["--address"],
        metavar="HOST:PORT",
        help="Address of a Ray cluster.  [default: one running here, else a new one]",
    ),
    click.Option(["--cloud"], metavar="NAME", help="Cloud for SkyPilot to use."),
    click.Option(["--spot"], is_flag=True, default=None, help="SkyPilot: use spot instances."),
    click.Option(
        ["--with", "settings"],
        multiple=True,
        metavar="KEY=VALUE",
        help="Setting of the launcher, such as partition=long for Slurm; repeat for more.",
    ),
    click.Option(["--jobs"], type=click.IntRange(min=1), help="Number of parallel runs.  [default: as many as fit]"),
    click.Option(["--cpus"], type=click.IntRange(min=1), help="CPU cores per run.  [default: 1]"),
    click.Option(
        ["--gpus"],
        type=click.IntRange(min=0),
        help="GPUs per run; with local: number of runs that get a GPU each.  [default: none; SkyPilot: 4 L4 for your "
        "own program]",
    ),
    click.Option(
        ["--memory", "memory_gb"],
        type=click.FloatRange(min=0, min_open=True),
        metavar="GB",
        help="Memory per run.",
    ),
    click.Option(
        ["--timeout"], type=click.FloatRange(min=0, min_open=True), help="Stop a run after this many seconds."
    ),
    click.Option(
        ["--retries"], type=click.IntRange(min=0), default=0, help="Number of retries for failed or lost runs."
    ),
    click.Option(
        ["--lost-after"],
        type=click.FloatRange(min=1),
        metavar="SECONDS",
        help="Consider a run lost after this long without a heartbeat, and reschedule it.  [default: 60]",
    ),
    click.Option(
        ["--hung-after"],
        type=click.FloatRange(min=1),
        metavar="SECONDS",
        help="Stop a run that makes no progress for this long.  [default: never]",
    ),
    click.Option(["--retry-failed"], is_flag=True, help="Also rerun cells that failed in an earlier launch."),
    click.Option(["--replace"], is_flag=True, help="Archive existing runs of these names and run them again."),
    click.Option(
        ["--since-benchmark"], metavar="STUDY", help="First show what changed in the code since STUDY was run."
    ),
    click.Option(
        ["--paths"], multiple=True, metavar="PATH", help="With --since-benchmark: only this path; repeat for more."
    ),
    click.Option(["--strict"], is_flag=True, help="Refuse to launch from a dirty working tree."),
    click.Option(
        ["--stack"],
        is_flag=True,
        help="Train several runs in one process where that is faster; results do not change.",
    ),
    click.Option(["--plan"], metavar="REGISTRATION", help=PLAN_HELP),
    click.Option(["--detach"], is_flag=True, help="Run in the background; follow it with: fairtrial runs watch."),
    click.Option(["--dry-run"], is_flag=True, help="Print the commands without running them."),
)
SECRET = click.Option(["--secret", "secrets"], multiple=True, metavar="NAME", help=NEVER_RECORDED)
VARIANT_HELP = "A variant; repeat for more. The first is the control."
STUDY_OPTIONS: tuple[click.Parameter, ...] = (
    click.Option(["--variant", "variants"], multiple=True, metavar="NAME:KEY=VALUE,…", help=VARIANT_HELP),
    click.Option(["--base-run-name"], metavar="NAME", help="Name of the study.  [default: RECIPE-DATE-N]"),
    click.Option(["--seeds"], metavar="N|LIST", help="Number of seeds, or a list such as 1,2,3.  [default: 15]"),
    click.Option(["--metric"], metavar="NAME", help="Metric to report.  [default: the recipe's]"),
    click.Option(
        ["--direction"], type=click.Choice(["max", "min"]), help="Whether higher (max) or lower (min) is better."
    ),
    SECRET,
)


def _body(recipe: LoadedRecipe) -> Callable[..., Any]:
    @with_output
    def launch_recipe(out: Output, **flags: Any) -> int:
        return _launch(out, _study_of_recipe(out, recipe, **flags), flags)

    return launch_recipe


def _plan(recipe: LoadedRecipe) -> Callable[..., Study]:
    @with_output
    def plan_recipe(out: Output, **flags: Any) -> Study:
        study = _study_of_recipe(out, recipe, **flags)
        _check_flags(flags)
        return study

    return plan_recipe


def _study_of_recipe(
    out: Output, recipe: LoadedRecipe, *, variants: Sequence[str], base_run_name: str | None, seeds: str | None,
    metric: str | None, direction: str | None, secrets: Sequence[str], **flags: Any,
) -> Study:  # fmt: skip
    from fairtrial.api.running.launch import plan_launch

    return plan_launch(
        str(recipe.file or recipe.name), study=base_run_name, options=given_values(recipe.options, flags),
        variants=_variants(variants), seeds=None if seeds is None else parse_seeds(seeds), metric=metric,
        direction=direction, secrets=secrets, store=out.store,
    )  # fmt: skip


@with_output
def _launch_file(out: Output, *, path: str, **flags: Any) -> int:
    return _launch(out, _study_of_file(path, **flags), flags)


@with_output
def _plan_file(_out: Output, *, path: str, **flags: Any) -> Study:
    study = _study_of_file(path, **flags)
    _check_flags(flags)
    return study


def _study_of_file(path: str, *, seeds: str | None, secrets: Sequence[str], **_flags: Any) -> Study:
    from fairtrial.api.running.launch import plan_launch_of_file

    return plan_launch_of_file(path, seeds=None if seeds is None else parse_seeds(seeds), secrets=secrets)


def parse_seeds(text: str) -> int | list[int]:
    """Parse --seeds: `5` is a count, `1,2,3` a list, `7,` a list of one."""
    try:
        numbers = [int(part) for part in str(text).strip("[]").removesuffix(",").split(",")]
    except ValueError:
        raise UsageError(f"--seeds: '{text}' is neither a number nor a list such as 1,2,3") from None
    return numbers if "," in str(text) else numbers[0]


def _variants(words: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Parse `name:key=value,key=value` words. Values cannot contain commas here; use a study file for those."""
    variants: dict[str, dict[str, Any]] = {}
    for word in words:
        name, _, settings = word.partition(":")
        if name in variants:
            raise UsageError(f"--variant: '{name}' is given twice")
        variants[name] = dict(pairs([part for part in settings.split(",") if part]))
    return variants


def _launch(out: Output, study: Study, flags: Mapping[str, Any]) -> int:
    from fairtrial.api.running.launch import describe, dry_run, launch, planned_workload

    terms = _policy(flags)
    if flags["dry_run"]:
        planned = dry_run(study, store=out.store, plan=flags["plan"])
        described = describe(study, planned, store=out.store, terms=terms)
        workload = planned_workload(study, planned, store=out.store, terms=terms)
        _give_dry_run(out, planned, described, workload, _since_benchmark(out, flags))
        return EXIT_OK
    out.name_store()
    since = _since_benchmark(out, flags)
    if flags["detach"]:
        return _leave_running(out, study, flags)
    with make_progress(out) if out.live else contextlib.nullcontext() as progress:
        watcher = LaunchProgress(out, progress, retry_failed=flags["retry_failed"])
        terms = replace(terms, watch=watcher, ready=watcher.ready, tell=out.say)
        launched = out.command.answer(launch, study, store=out.store, terms=terms)
    out.command.add({"since_benchmark": since})
    document = {**launched.to_dict(), "since_benchmark": since}
    out.give(document, document["arms"], lambda console: _show(console, launched))
    return EXIT_RUNS if launched.bad or launched.missing else EXIT_OK


def _since_benchmark(out: Output, flags: Mapping[str, Any]) -> dict[str, Any] | None:
    """With --since-benchmark, print the code changes since an earlier study before anything starts."""
    if flags["since_benchmark"] is None:
        _check_paths(flags)
        return None
    from fairtrial.api.running.code_since import code_since

    changes = code_since(flags["since_benchmark"], paths=flags["paths"], store=out.store, study_only=True)
    for line in changes.lines():
        out.say(line)
    return changes.to_dict()


def _check_paths(flags: Mapping[str, Any]) -> None:
    if flags["paths"] and flags["since_benchmark"] is None:
        raise UsageError("--paths needs --since-benchmark", hint="Run: fairtrial launch … --since-benchmark STUDY")


def _check_flags(flags: Mapping[str, Any]) -> None:
    """Check the flags of a launch that is only planned as strictly as those of a real launch."""
    _policy(flags)
    if not flags["dry_run"]:
        _check_paths(flags)


def _policy(flags: Mapping[str, Any]) -> ExecutionPolicy:
    from fairtrial.api.running.launch import SKYPILOT
    from fairtrial.launch.policy import LOCAL, ExecutionPolicy

    if flags["skypilot"] and flags["on"] not in (None, SKYPILOT):
        raise UsageError(f"--skypilot and --on {flags['on']} are contradictory", hint="Pass only one of them.")
    on = SKYPILOT if flags["skypilot"] else flags["on"] or LOCAL
    named = {name: flags[name] for name in NEEDED_ENGINE if flags[name] is not None}
    for name in named:
        if on in LAUNCHERS.built_in and on != NEEDED_ENGINE[name]:
            raise UsageError(f"--{name} needs --on {NEEDED_ENGINE[name]}", hint=f"This launch is --on {on}.")
    return ExecutionPolicy(
        on=on, settings={**dict(pairs(flags["settings"])), **named}, jobs=flags["jobs"], cpus=flags["cpus"],
        gpus=flags["gpus"], memory_gb=flags["memory_gb"], lost_after=flags["lost_after"],
        hung_after=flags["hung_after"], timeout=flags["timeout"], retries=flags["retries"],
        retry_failed=flags["retry_failed"], replace_old=flags["replace"], strict=flags["strict"], stack=flags["stack"],
        plan=flags["plan"],
    )  # fmt: skip


def _leave_running(out: Output, study: Study, flags: Mapping[str, Any]) -> int:
    from fairtrial.api.running.detach import detach

    left = out.command.answer(detach, study, store=out.store, terms=_policy(flags))
    follow = f"fairtrial runs watch {shlex.quote(left.study)}{store_words(left.store)}"
    document = {**left.to_dict(), "next": [follow]}
    out.command.add(document)

    def show(console: Console) -> None:
        going = f"running as PID {left.pid}" if left.pid else "nothing left to run"
        console.print(f"{left.study}: {going}; log: {left.log}", markup=False)
        show_next(console, [follow])

    out.give(document, [document], show)
    return EXIT_OK


def _give_dry_run(
    out: Output,
    planned: Sequence[PlannedRun],
    described: Described | None,
    workload: Workload,
    since: Mapping[str, Any] | None,
) -> None:
    rows = [
        {"run": p.spec.name, "seed": p.spec.seed, "variant": p.spec.variant, "status": p.status, "command": p.command}
        for p in planned
    ]

    def show(console: Console) -> None:
        if described:
            console.print(described.text, markup=False, highlight=False, soft_wrap=True)
            return
        for row in rows:
            note = f"  # {row['status']}" if row["status"] else ""
            console.print(f"{row['command']}{note}", markup=False, soft_wrap=True)

    document = {"launcher": described.document} if described else {}
    out.give({"runs": rows, **document, "workload": workload.to_dict(), "since_benchmark": since}, rows, show)
    for remark in (*(described.remarks if described else ()), *workload.lines()):
        out.say(remark)
    there = sum(row["status"] is not None for row in rows)
    out.say(f"{counted(len(rows), 'run')}, {there:,} of them already recorded; nothing was started.")


def _show(console: Console, launched: Launched) -> None:
    title = f"{launched.study}: {launched.metric or 'no metric logged'}" + " (synthetic)" * launched.synthetic
    console.print(title, style="bold", markup=False)
    console.print()
    table = plain_table("variant", "runs", "mean", "sd", "time per run")
    for arm in launched.arms:
        table.add_row(arm.variant, _counts(arm), shown_value(arm.mean), shown_value(arm.sd), shown_time(arm.wall_s))
    console.print(table)
    console.print()
    if launched.metric and launched.direction:
        console.print(judged_line(launched.metric, launched.direction), markup=False)
    for gap in launched.differences:
        count = {"max": gap.above, "min": gap.below}.get(launched.direction or "")
        better = "" if count is None else f"; better in {count} of {gap.pairs}"
        spread = "" if gap.sd is None else f", sd {shown_value(gap.sd)}"
        over = f"on average over {counted(gap.pairs, 'paired seed')}{spread}"
        console.print(f"{gap.candidate} − {gap.control}: {shown_change(gap.mean)} {over}{better}.", markup=False)
    _show_failures(console, launched.bad)
    telemetry = telemetry_line(run for run in launched.runs if run.name in launched.made)
    if telemetry:
        console.print(telemetry, markup=False)
    show_cautions(console, launched.cautions)
    show_next(console, launched.next_commands)


def _show_failures(console: Console, bad: Sequence[Run]) -> None:
    """Print one line per distinct failure of a variant with the number of its runs, and the end of the first log."""
    from fairtrial.api.running.runs import log_tail

    groups: dict[tuple[str, str, str | None], list[Run]] = {}
    for run in bad:
        groups.setdefault((run.variant, run.status.value, run.reason), []).append(run)
    for (variant, status, reason), runs in groups.items():
        first = runs[0]
        seeds = ", ".join(str(run.seed) for run in runs[:MOST_SEEDS]) + " …" * (len(runs) > MOST_SEEDS)
        which = f"{counted(len(runs), 'run')} of {variant} {status} ({'seed' if len(runs) == 1 else 'seeds'} {seeds})"
        console.print(f"✗ {which}: {reason}", style="red", markup=False)
        if first.metadata.hint:
            console.print(f"    {first.metadata.hint}", markup=False)
        lines = log_tail(first, LOG_LINES)
        if lines and lines[-1].strip() not in (reason or ""):  # the reason of a recipe is the error that ends its log
            for line in lines:
                console.print(f"    | {line}", markup=False)
        if first.paths.log.is_file():
            console.print(f"    Log: {first.paths.log}", markup=False, soft_wrap=True)


def _counts(arm: Any) -> str:
    bad = [
        f"{count} {word.replace('_', ' ')}"
        for word in ("diverged", "failed", "interrupted", "damaged", "not_finite")
        if (count := getattr(arm, word))
    ]
    return f"{arm.completed}" + (f" ({', '.join(bad)})" if bad else "")


FILE_SEEDS = click.Option(["--seeds"], metavar="N|LIST", help="Seeds to use instead of those in the file.")


PAGE = HelpPage(
    {
        "What to run": "--variant --seeds --base-run-name --dry-run | --metric --direction --plan --strict --secret"
        " --since-benchmark --paths",
        "Where to run": "--on --jobs --gpus --detach | --with --cpus --memory --stack --address --skypilot"
        " --cloud --spot",
        "If a run fails": "--retry-failed | --retries --replace --timeout --lost-after --hung-after",
    },
    (
        "fairtrial launch study.yaml",
        "fairtrial launch classify --variant mlp: --variant cnn:model=cnn --seeds 5",
    ),
)


class LaunchGroup(RecipeGroup):
    body = staticmethod(_body)
    plan = staticmethod(_plan)
    own_options = (*STUDY_OPTIONS, *HOW_OPTIONS)
    recipe_examples = ("fairtrial launch {recipe} {variants} --seeds 5",)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if not cmd_name.endswith((".yaml", ".yml")):
            return super().get_command(ctx, cmd_name)
        return ManyValuesCommand(
            cmd_name,
            params=[FILE_SEEDS, SECRET, *HOW_OPTIONS, *declared(_launch_file)],
            callback=lambda **options: _launch_file(path=cmd_name, **options),
            plan=lambda **options: _plan_file(path=cmd_name, **options),
            help=f"Launch the study in {cmd_name}.",
            page=HelpPage(PAGE.groups, [f"fairtrial launch {shlex.quote(cmd_name)} --dry-run"]),
        )


@click.group(
    "launch",
    cls=LaunchGroup,
    invoke_without_command=True,
    subcommand_metavar="STUDY.yaml|RECIPE [OPTIONS]…",
    page=PAGE,
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Run variants × seeds, with the same seeds for every variant. Only missing runs are started.

    Finished runs are kept, interrupted runs are resumed, and failed runs are repeated with --retry-failed. Several
    launchers of one study share the work. `fairtrial launch RECIPE --help` shows the options of a recipe.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
