"""fairtrial runs"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from fairtrial.cli._formatting import best_line
from fairtrial.cli._help import HelpfulGroup, HelpPage
from fairtrial.cli._many_values import ManyValuesCommand
from fairtrial.cli._output import Output, with_output
from fairtrial.cli._pieces import show_facts
from fairtrial.cli._tables import Column, plain_table
from fairtrial.core.cautions import TORN_LINE
from fairtrial.core.errors import EXIT_CHECK, EXIT_OK, EXIT_RUNS, UsageError
from fairtrial.core.formatting import counted, shown_time, shown_value
from fairtrial.core.paths import short_id
from fairtrial.core.terminal import visible

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.running.runs import Shown
    from fairtrial.core.run_metadata import RunResources, RunTimings

MOST_REASONS = 5
WHERE_HELP = (
    "Only runs that meet this condition on columns, options or last values; also <, >, <=, >=, !=, and, or, not."
)
STYLES = {
    "completed": "green",
    "diverged": "yellow",
    "failed": "red",
    "damaged": "red",
    "interrupted": "magenta",
    "running": "cyan",
}


@click.group(
    "runs", cls=HelpfulGroup, invoke_without_command=True, page=HelpPage(examples=("fairtrial runs list --study demo",))
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Inspect and manage recorded runs. Refer to a run by its id, STUDY/ID, the short id in `runs list`, or a path.

    The beginning of an id is enough if it names one run; a glob such as 'STUDY/*' names several.
    """
    gc.disable()  # short-lived process: garbage collection over ten thousand rows would take longer than the listing
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@command.command(
    "list",
    cls=ManyValuesCommand,
    page=HelpPage(
        examples=(
            "fairtrial runs list --study demo --status failed",
            "fairtrial runs list --where 'learning_rate>=0.01 and value>0.9'",
        )
    ),
)
@click.option("--study", metavar="NAME", help="Only this study.")
@click.option("--variant", metavar="NAME", help="Only this variant.")
@click.option("--status", metavar="STATUS", help="Only completed, diverged, failed, interrupted, running or damaged.")
@click.option("--where", multiple=True, metavar="NAME=VALUE", help=WHERE_HELP)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=40,
    show_default=True,
    help="Maximum number of rows in text output; 0 for all.",
)
@with_output
def list_command(
    out: Output, study: str | None, variant: str | None, status: str | None, where: Sequence[str], limit: int
) -> None:
    """List runs, newest first."""
    from fairtrial.api.running.runs import columns_of, list_runs

    rows = list_runs(store=out.store, study=study, variant=variant, status=status, where=where)
    page = ("study", "run", "status", "metric", "value", "wall_s") if out.format in ("markdown", "latex") else None
    public = columns_of(rows, page) if out.format != "text" else []

    def show(console: Console) -> None:
        _show_list(console, rows[:limit] if limit else rows)
        _tell_rest(out, rows, limit, filtered=bool(study or variant or status or where))

    out.give({"runs": public}, public, show)


def _show_list(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    from rich.text import Text

    if not rows:
        return
    texts = [Column(name, left=True) for name in ("id", "status", "metric")]
    table = plain_table("run", *texts, "value", "time")
    table.whole_names = True
    for row in rows:
        mark = " (synthetic)" if row["synthetic"] else ""
        name, status = f"{row['study']}/{row['run']}{mark}", Text(row["status"], STYLES[row["status"]])
        figures = shown_value(row["value"]), shown_time(row["wall_s"])
        table.add_row(name, short_id(row["study"], row["run"]), status, row["metric"] or "", *figures)
    console.print(table, crop=False)


def _tell_rest(out: Output, rows: Sequence[Mapping[str, Any]], limit: int, *, filtered: bool) -> None:
    from collections import Counter

    if not rows:
        from fairtrial.record.store_location import store_address

        out.say("No run matches." if filtered else f"No runs yet in {store_address(out.store)}.")
        return
    counts = Counter(row["status"] for row in rows)
    message = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    rest = f"; the newest {limit} are shown, --limit 0 shows all" if limit and len(rows) > limit else ""
    out.say(f"{counted(len(rows), 'run')}: {message}{rest}")
    damaged = [row for row in rows if row["status"] == "damaged"] if counts["damaged"] else []
    for row in damaged[:MOST_REASONS]:
        out.say(f"{row['study']}/{row['run']}: {row['reason']}")
    if damaged:
        out.say("To see what can be repaired, run: fairtrial doctor --damage")


@command.command("show", page=HelpPage(examples=("fairtrial runs show demo/kd.seed1072",)))
@click.argument("run")
@click.option("--lines", type=click.IntRange(min=0), default=10, show_default=True, help="Number of log lines to show.")
@with_output
def show_command(out: Output, run: str, lines: int) -> int:
    """Show one run: configuration, results, and the end of its log. Exits with 3 if the run is damaged."""
    from fairtrial.api.running.runs import show_run

    shown = show_run(run, store=out.store, lines=lines)
    metadata = {**shown.run.metadata, "status": shown.run.status.value, "reason": shown.run.reason}
    document = {
        **metadata,
        "path": str(shown.run.path),
        "metrics": shown.metrics,
        "log_tail": list(shown.log_tail),
        "evaluations": list(shown.evaluations),
        "damage": list(shown.damage),
    }
    rows = [{"metric": name, **brief} for name, brief in shown.metrics.items()]
    out.give(document, rows, lambda console: _show_run(console, shown))
    return EXIT_CHECK if shown.damage else EXIT_OK


def _show_run(console: Console, shown: Shown) -> None:

    run, metadata = shown.run, shown.run.metadata
    console.print(
        f"{run.name}  {short_id(run.study, run.id)}  {run.status}" + (" (synthetic)" if metadata.synthetic else ""),
        style="bold",
        markup=False,
    )
    data, lineage, resources, environment = metadata.data, metadata.lineage, metadata.resources, metadata.environment
    facts = {
        "reason": None if run.reason in shown.damage else run.reason,
        "repair": f"fairtrial doctor --damage --store {run.path.parent.parent}" if shown.damage else None,
        "recipe": metadata.recipe,
        "options": ", ".join(f"{key}={value}" for key, value in metadata.options.items()),
        "data": data and f"{data.name} {data.sha256[:12]}",
        "teacher": (lineage.teacher or {}).get("run"),
        "best": best_line(metadata),
        "time": _time(metadata.timings),
        "memory": _memory(resources),
        "work": _work(resources),
        "resumed": ", ".join(f"at step {entry['step']}" for entry in lineage.resumed),
        "commit": environment.git_commit and environment.git_commit[:12] + " (dirty)" * bool(environment.git_dirty),
        "path": str(run.path),
    }
    damaged = [("damaged", each) for each in shown.damage]
    show_facts(console, [*damaged, *((name, fact) for name, fact in facts.items() if fact)])
    for name, brief in shown.metrics.items():
        console.print(
            f"  {name:<24} {shown_value(brief['last']):>10}  at step {brief['last_step']}, "
            f"{counted(brief['points'], 'point')}",
            markup=False,
        )
    for again in shown.evaluations:
        console.print(f"  {_evaluation(again)}", markup=False)
    torn = [TORN_LINE.fill(file=run.paths.metrics.name)] if shown.torn else []
    for caution in [*metadata.cautions, *torn]:
        show_facts(console, [("caution", f"{caution['text']} {caution['remedy']}")], style="yellow")
    for line in shown.log_tail:
        console.print(f"  | {line}", style="dim", markup=False)


def _evaluation(event: Mapping[str, Any]) -> str:
    values = ", ".join(f"{name} {shown_value(value)}" for name, value in event["metrics"].items())
    fresh = " on fresh data" if event["fresh"] else ""
    return f"re-evaluated{fresh}: {event['checkpoint']}, step {event['step']:,}: {values}"


def _time(timings: RunTimings) -> str | None:
    if timings.stacked > 1:
        return f"no separate time: {timings.stacked} runs were trained together"
    if timings.wall_s is None:
        return None
    return f"{shown_time(timings.wall_s)} wall, {shown_time(timings.cpu_s)} CPU"


def _work(resources: RunResources) -> str:
    counted = {"parameters": resources.parameters, "FLOPs per step": resources.flops_per_step}
    return ", ".join(f"{value:,} {name}" for name, value in counted.items() if value)


def _memory(resources: RunResources) -> str | None:
    parts = []
    if resources.peak_process_bytes:
        parts.append(f"{resources.peak_process_bytes / 1e6:,.0f} MB process")
    if resources.peak_tensor_bytes:
        parts.append(f"{resources.peak_tensor_bytes / 1e6:,.2f} MB tensors")
    return ", ".join(parts) or None


@command.command("tail", page=HelpPage(examples=("fairtrial runs tail demo/kd.seed1072 --follow",)))
@click.argument("run")
@click.option("--lines", type=click.IntRange(min=0), default=10, show_default=True, help="Number of lines to show.")
@click.option("--follow", "-f", is_flag=True, help="Keep showing new lines until the run ends.")
@click.option("--log", is_flag=True, help="Show the output of the job instead of its metrics.")
@with_output
def tail_command(out: Output, run: str, lines: int, follow: bool, log: bool) -> None:
    """Show the newest metrics of a run, or the end of its log."""
    from fairtrial.api.running import runs as api

    if follow and (log or out.format != "text"):
        raise UsageError("--follow cannot be used with --log or --format")
    if follow:
        for row in api.follow(run, store=out.store, lines=lines):
            click.echo(visible(_metric_line(row)))
        return
    if log:
        tail = api.last_log_lines(run, store=out.store, lines=lines)
        rows = [{"line": line} for line in tail]
        out.give({"log": tail}, rows, lambda console: _print_lines(console, tail))
        return
    metrics = api.last_metrics(run, store=out.store, lines=lines)
    out.give({"metrics": metrics}, metrics, lambda console: _print_lines(console, map(_metric_line, metrics)))


@command.command("watch", page=HelpPage(examples=("fairtrial runs watch demo",)))
@click.argument("study")
@click.option("--once", is_flag=True, help="Show the current state once and exit.")
@with_output
def watch_command(out: Output, study: str, once: bool) -> int:
    """Watch a running study, wherever it was launched, until all of its runs have ended.

    Ctrl-C stops watching; the study continues. Exits with 4 if a run failed, diverged or was interrupted.
    """
    from fairtrial.api.running.watch import watch_study
    from fairtrial.cli._watch_text import follow_study, show_study

    out.name_store()
    state = watch_study(study, store=out.store)
    if out.format == "text" and not once and not state.over:
        state = follow_study(out, lambda: watch_study(study, store=out.store), state)
    out.give(state.to_dict(), [cell.to_dict() for cell in state.cells], lambda console: show_study(console, state))
    return EXIT_RUNS if state.bad else EXIT_OK


@command.command("sync", page=HelpPage(examples=("fairtrial runs sync demo --store s3://bucket/runs",)))
@click.argument("studies", nargs=-1)
@click.option("--checkpoints", is_flag=True, help="Also download checkpoints.")
@click.option("--to", metavar="FOLDER", help="Copy everything to this folder as a separate store.")
@with_output
def sync_command(out: Output, studies: Sequence[str], checkpoints: bool, to: str | None) -> int:
    """Update the local copy of a shared store, and upload what only this machine has.

    Exits with 4 if data of an ended run is still only on this machine.
    """
    from fairtrial.api.running.stores import sync_store

    out.name_store()
    synced_store = sync_store(studies, store=out.store, checkpoints=checkpoints, to=to, tell=out.say)

    def show(console: Console) -> None:
        console.print(
            f"{counted(synced_store.runs, 'run')} downloaded, {synced_store.received_bytes / 1e6:,.1f} MB; "
            f"{counted(synced_store.pushed, 'run')} uploaded. The local copy is in {synced_store.folder}",
            markup=False,
        )
        for name in synced_store.left:
            console.print(f"Still only on this machine: {name}", markup=False)

    document = synced_store.to_dict()
    out.give(document, [document], show)
    return EXIT_RUNS if synced_store.left else EXIT_OK


def _print_lines(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.out(line)


def _metric_line(row: Mapping[str, Any]) -> str:
    values = "  ".join(
        f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in row.items()
        if name not in ("step", "_time")
    )
    seconds = " " * 11 if row["_time"] is None else f"{row['_time']:>9.2f} s"
    return f"{row['step']:>8}  {seconds}  {values}"


@command.command(
    "export",
    cls=ManyValuesCommand,
    page=HelpPage(examples=("fairtrial runs export 'demo/*' --metric eval_accuracy --output values.csv",)),
)
@click.argument("runs", nargs=-1, required=True)
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Only this metric; repeat for more.")
@with_output
def export_command(out: Output, runs: Sequence[str], metrics: Sequence[str]) -> int:
    """Export every value of the selected runs for other tools, one row per value. The text format is CSV.

    A damaged run has one row with that status and no value. Exits with 4 if there is a damaged run.
    """
    from dataclasses import replace

    from fairtrial.api.running.runs import export_runs

    names: list[str] = []

    def tell(name: str, reason: str) -> None:
        names.append(name)
        out.say(f"{name} is damaged, so its values are missing: {reason}")

    target = replace(out, format="csv") if out.format == "text" else out
    target.give_rows("rows", export_runs(runs, store=out.store, metrics=metrics, damaged=tell))
    return EXIT_RUNS if names else EXIT_OK


@command.command(
    "sql", page=HelpPage(examples=('fairtrial runs sql "select variant, avg(value) from runs group by variant"',))
)
@click.argument("query")
@with_output
def sql_command(out: Output, query: str) -> int:
    """Query the store in SQL: tables `runs` and `metrics`. Exits with 4 if metrics of a damaged run are missing."""
    from fairtrial.api.running.runs import query as ask

    names: list[str] = []

    def tell(name: str, reason: str) -> None:
        names.append(name)
        out.say(f"{name} is damaged, so its metrics are missing: {reason}")

    columns, answers = ask(query, store=out.store, damaged=tell)
    rows = [dict(zip(columns, row, strict=True)) for row in answers]

    def show(console: Console) -> None:
        texts = {number for row in answers for number, value in enumerate(row) if isinstance(value, str)}
        table = plain_table(*(Column(name, left=number in texts) for number, name in enumerate(columns)))
        for row in answers:
            table.add_row(*map(shown_value, row))
        console.print(table)

    out.give({"columns": columns, "rows": rows, "damaged": names}, rows, show)
    return EXIT_RUNS if names else EXIT_OK


@command.command("rm", page=HelpPage(examples=("fairtrial runs rm 'demo/kd.*' --yes",)))
@click.argument("runs", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--purge", is_flag=True, help="Delete the runs permanently instead of moving them to the archive.")
@with_output
def rm_command(out: Output, runs: Sequence[str], yes: bool, purge: bool) -> None:
    """Remove runs from the store: move them to the archive of their study, or delete them permanently with --purge.

    Asks for confirmation; without a terminal it needs --yes.
    """
    from fairtrial.api.running.runs import remove_runs

    def agree(names: Sequence[str]) -> bool:
        if yes:
            return True
        if not sys.stdin.isatty():
            action = "delete" if purge else "remove"
            raise UsageError(
                f"this would {action} {', '.join(names[:5])}{' …' * (len(names) > 5)}", hint="Confirm with --yes."
            )
        for name in names[:10]:
            click.echo(visible(f"  {name}"), err=True)
        question = (
            f"Delete {counted(len(names), 'run')} permanently?" if purge else f"Remove {counted(len(names), 'run')}?"
        )
        return click.confirm(question, err=True)

    removed = out.command.answer(remove_runs, runs, store=out.store, purge=purge, agree=agree)
    out.command.add({"purged": purge})
    rows = [{"run": name} for name in removed]
    out.give(
        {"removed": removed, "purged": purge}, rows, lambda console: console.print(_what_was_removed(removed, purge))
    )


def _what_was_removed(removed: Sequence[str], purge: bool) -> str:
    if not removed:
        return "Nothing was removed."
    if purge:
        return f"Deleted {counted(len(removed), 'run')}."
    studies = ", ".join(f"{study}/.archive" for study in sorted({name.partition("/")[0] for name in removed}))
    return f"Moved {counted(len(removed), 'run')} to {studies} in the store. Use --purge to delete runs instead."
