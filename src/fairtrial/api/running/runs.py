"""runs: list, show, tail, export, sql, rm."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fairtrial.api.running.recording import recorded
from fairtrial.core.conditions import RowFilter
from fairtrial.core.errors import StoreError, UsageError, UserError, all_at_once, unknown
from fairtrial.core.formatting import counted
from fairtrial.core.regular_files import open_regular
from fairtrial.core.results import Result
from fairtrial.core.runs import EVALUATION, Run, Status
from fairtrial.record.index import all_rows, newest_first, pick
from fairtrial.record.lines import end_of_lines, events_named, is_torn, line_blocks, reversed_lines
from fairtrial.record.metadata import HINT, DamagedRun, found_damaged, load_run_or_damage
from fairtrial.record.recorded import why_not_event, why_other_lines
from fairtrial.record.seals import why_broken
from fairtrial.record.series import Brief, metric_row, open_series, series_in_brief, unspell
from fairtrial.record.store import Store, open_store
from fairtrial.record.store_location import StoreLocation

Row = Mapping[str, Any]

MOST_VERIFIED_BYTES = 32 << 20
"""Only files up to this size are verified against their checksum, so that `tail` stays fast on long files."""


class RunList(list[Row], Result):
    """Runs as rows, newest first. It is a list, and it prints and converts like other results."""

    __str__ = Result.__str__
    __repr__ = Result.__repr__

    @property
    def headline(self) -> str:
        counts = Counter(row["status"] for row in self)
        message = ", ".join(f"{count} {status}" for status, count in counts.most_common())
        return counted(len(self), "run") + (f": {message}" if message else "")

    def to_dict(self) -> dict[str, Any]:
        return {"runs": columns_of(self)}


def list_runs(
    *,
    store: StoreLocation = None,
    study: str | None = None,
    variant: str | None = None,
    status: str | None = None,
    where: Sequence[str] = (),
) -> RunList:
    """Return one row per run, newest first, filtered. Conditions look like `learning_rate>0.01` or `seed=1072`.

    Names are looked up in the row, then in the options, then in the final metric values.

    >>> fairtrial.list_runs(study="demo", variant="base")
    <RunList: 4 runs: 4 completed>
    """
    if status is not None and status not in list(Status):
        raise UsageError(unknown("status", status, list(Status)))
    filters = [RowFilter(text, nested=("options", "final"), as_number=_recorded_number) for text in where]
    rows = all_rows(_existing(store, *([study] if study else [])), study)
    tests = [each.over(rows) for each in filters]
    if variant is not None:
        tests.append(lambda row: bool(row["variant"] == variant))
    if status is not None:
        tests.append(lambda row: bool(row["status"] == status))
    for test in tests:
        rows = [row for row in rows if test(row)]
    return RunList(newest_first(rows))


def _recorded_number(value: Any) -> float:
    return float(unspell(value))


def _existing(store: StoreLocation, *studies: str) -> Store:
    place = open_store(store, *studies)
    if place.root.exists() and not place.root.is_dir():
        place.studies()  # raises: the store is a file
    return place


@dataclass(frozen=True)
class Shown:
    """A run with its metadata, a summary of each metric, and the end of its log."""

    run: Run
    metrics: Mapping[str, Mapping[str, float | int | None]]
    log_tail: Sequence[str]
    torn: bool
    evaluations: Sequence[Mapping[str, Any]] = ()
    """Results of `evaluate` for its checkpoints, oldest first."""
    damage: Sequence[str] = ()
    """Damaged parts of the run, which are therefore not shown."""


def show_run(reference: str, *, store: StoreLocation = None, lines: int = 10) -> Shown:
    """Return a run with its metrics and log. For a damaged run: the intact parts, and why it is damaged.

    >>> fairtrial.show_run("demo/base.seed1072").run.name
    'demo/base.seed1072'
    """
    run = _existing(store).find(reference)
    brief: dict[str, Any] = {}
    if run.status is not Status.DAMAGED:
        try:
            brief = {name: _brief(each) for name, each in sorted(series_in_brief(run.paths, run.metadata).items())}
        except StoreError as error:
            run = found_damaged(run, error)
    damage = [run.reason or ""] if run.status is Status.DAMAGED else []
    again, why = _evaluations(run)
    torn = not damage and is_torn(run.paths.metrics)
    return Shown(run, brief, log_tail(run, lines), torn, again, [*damage, *([why] if why else [])])


def _evaluations(run: Run) -> tuple[list[Mapping[str, Any]], str | None]:
    """Return the results of `evaluate` for a run, or none and the reason if its event file was altered."""
    if why := why_broken(run.paths.events, run.metadata, most=MOST_VERIFIED_BYTES):
        return [], why
    evaluations: list[Mapping[str, Any]] = []
    try:
        for row in events_named(run.paths.events, EVALUATION):
            if why := why_not_event(row):
                return [], f"a line of {run.paths.events} {why}"
            evaluations.append(row)
    except StoreError as error:
        return [], error.message
    return evaluations, None


def _brief(brief: Brief) -> dict[str, float | int | None]:
    return {
        "points": brief.points,
        "last_step": brief.last_step,
        "last": brief.last,
        "min": brief.low,
        "max": brief.high,
    }


def columns_of(rows: Sequence[Row], names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return rows as plain dictionaries with the chosen columns; by default all except internal ones."""
    if not rows:
        return []
    chosen = names or [name for name in rows[0] if name not in ("identity", "data")]
    return [pick(row, chosen) for row in rows]


def log_tail(run: Run, lines: int) -> list[str]:
    """Return the last lines that the job printed."""
    try:
        with open_regular(run.paths.log) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 65_536 - 1000 * lines))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return text.splitlines()[-lines:] if lines else []


def last_log_lines(reference: str, *, store: StoreLocation = None, lines: int = 10) -> list[str]:
    return log_tail(_existing(store).find(reference), lines)


def follow(reference: str, *, store: StoreLocation = None, lines: int = 10, poll_s: float = 0.5) -> Iterator[Row]:
    """Yield the metric lines of a run as they arrive, until the run ends."""
    run = _existing(store).find(reference)
    newest = _newest_rows(run, lines)
    reached = newest[0][0] if newest else _end(run)
    place = Store.at(store)
    while True:
        place.pull(run.study)
        current = load_run_or_damage(
            run.paths
        )  # read before the lines, so that lines logged in between are still yielded
        reached = min(reached, _end(run))  # a file that was replaced may be shorter
        for offset, block in line_blocks(run.paths.metrics, reached):
            reached = offset + len(block)
            yield from (row for line in block.split(b"\n") if (row := metric_row(run.paths.metrics, line)))
        if current is None or current.status is not Status.RUNNING:
            return
        time.sleep(poll_s)


def last_metrics(reference: str, *, store: StoreLocation = None, lines: int = 10) -> list[Row]:
    """Return the newest metric lines, read from the end of the file."""
    return [row for _, row in _newest_rows(_existing(store).find(reference), lines)]


def _newest_rows(run: Run, lines: int) -> list[tuple[int, Row]]:
    """Return the last `lines` metric lines with their byte offsets, oldest first.

    Raises a StoreError if the run is damaged or the lines are not the ones it wrote.
    """
    if run.status is Status.DAMAGED:
        raise DamagedRun(f"run {run.name} is damaged: {run.reason}", hint=run.metadata.hint or HINT)
    if why := why_other_lines(run.paths, run.metadata, most=MOST_VERIFIED_BYTES):
        raise DamagedRun(f"run {run.name} is damaged: {why}", hint=HINT)
    newest: list[tuple[int, Row]] = []
    if lines:
        for offset, line in reversed_lines(run.paths.metrics):
            if row := metric_row(run.paths.metrics, line):
                newest.append((offset, row))
                if len(newest) == lines:
                    break
    return newest[::-1]


def _end(run: Run) -> int:
    """Return the byte offset at which the next line will start."""
    return end_of_lines(run.paths.metrics) if run.paths.metrics.exists() else 0


def export_runs(
    references: Sequence[str],
    *,
    store: StoreLocation = None,
    metrics: Sequence[str] = (),
    damaged: Callable[[str, str], None] = lambda _name, _reason: None,
) -> Iterator[Row]:
    """Yield one row per metric value of the chosen runs, for other tools to read.

    A damaged run yields one row with that status and no metric; `damaged` is called with its name and the reason.

    >>> sorted(next(iter(fairtrial.export_runs(["demo/base.seed1072"]))))[:3]
    ['attempt', 'metric', 'run']
    """
    for run in sorted(_existing(store).match(references), key=lambda run: run.name):
        try:
            if run.status is Status.DAMAGED:
                raise DamagedRun(run.reason or "")
            yield from _exported(run, metrics)
        except StoreError as error:
            damaged(run.name, error.message)
            yield {**_about(run), "status": Status.DAMAGED.value, "step": None, "metric": None, "value": None}


def _about(run: Run) -> dict[str, Any]:
    return {
        "study": run.study,
        "variant": run.variant,
        "seed": run.seed,
        "run": run.id,
        "attempt": run.attempt,
        "status": run.status.value,
    }


def _exported(run: Run, metrics: Sequence[str]) -> Iterator[Row]:
    about = _about(run)
    with open_series(run.paths, run.metadata) as series:
        missing = [name for name in metrics if name not in series.names]
        if missing:
            raise UserError(f"run {run.name}: {unknown('metric', missing[0], series.names)}")
        for name in metrics or sorted(series.names):
            for block in series.blocks(name):
                for step, value in zip(*block, strict=True):
                    yield {**about, "step": step, "metric": name, "value": value}


def query(
    sql: str, *, store: StoreLocation = None, damaged: Callable[[str, str], None] = lambda _name, _reason: None
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Query the store with SQL. Tables: `runs` (one row per run) and `metrics` (one row per value).

    Damaged runs have no metrics; `damaged` is called with the name of each and the reason.

    >>> fairtrial.query("select count(*) as n from runs where study = 'demo'")[1]
    [(8,)]
    """
    from fairtrial.record.sql import run_query

    return run_query(_existing(store), sql, damaged)


@recorded("runs", "rm", document=lambda removed: {"removed": removed})
def remove_runs(
    references: Sequence[str],
    *,
    store: StoreLocation = None,
    purge: bool = False,
    agree: Callable[[Sequence[str]], bool] = lambda _: True,
) -> list[str]:
    """Move runs that no process is writing to the archive of their study, or delete them permanently with `purge`.

    Returns the names of the removed runs. If any reference names something other than a run of this store, nothing is
    removed.
    """
    place = _existing(store)
    chosen = place.match_paths(references)
    all_at_once(*(partial(place.refuse_foreign, paths) for paths in chosen))
    names = [f"{paths.root.parent.name}/{paths.root.name}" for paths in chosen]
    if not agree(names):
        return []
    for paths in chosen:
        if purge:
            place.purge(paths)
        else:
            place.archive(paths, "removed")
    return names
