"""runs: list, show, tail, export, sql, rm."""

from __future__ import annotations

import operator
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairtrial.core.errors import UsageError, UserError, unknown
from fairtrial.core.paths import default_store
from fairtrial.core.runs import Run, Status
from fairtrial.record.index import list_rows
from fairtrial.record.metadata import load_run
from fairtrial.record.series import last_row, read_lines, read_series, unspell
from fairtrial.record.store import Store

Place = str | os.PathLike[str] | None
Row = dict[str, Any]

_COMPARISONS = {
    "<=": operator.le, ">=": operator.ge, "!=": operator.ne, "==": operator.eq,
    "=": operator.eq, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_CONDITION = re.compile(r"\s*([\w./-]+)\s*(<=|>=|!=|==|=|<|>)\s*(.*?)\s*")


def list_runs(
    *,
    store: Place = None,
    study: str | None = None,
    variant: str | None = None,
    status: str | None = None,
    where: Sequence[str] = (),
) -> list[Row]:
    """One row per run, newest first, filtered. Conditions look like `learning_rate>0.01` or `seed=1072`."""
    if status is not None and status not in list(Status):
        raise UsageError(unknown("status", status, list(Status)))
    conditions = [_condition(text) for text in where]
    rows = list_rows(_existing(store), study)
    return [
        row
        for row in rows
        if (variant is None or row["variant"] == variant)
        and (status is None or row["status"] == status)
        and all(_holds(row, condition) for condition in conditions)
    ]


def _existing(store: Place) -> Store:
    place = Store(default_store(store))
    if place.root.exists() and not place.root.is_dir():
        place.studies()  # says that it is a file
    return place


def _condition(text: str) -> tuple[str, str, str]:
    match = _CONDITION.fullmatch(text)
    if not match:
        raise UsageError(
            f"cannot read the condition '{text}'", hint="Write it as NAME=VALUE, NAME>VALUE, NAME!=VALUE …"
        )
    return match[1], match[2], match[3]


def _holds(row: Row, condition: tuple[str, str, str]) -> bool:
    """Names are looked up in the row, then among the options, then among the last metric values."""
    name, sign, wanted = condition
    found = next((place[name] for place in (row, row["options"], row["final"]) if name in place), None)
    if found is None:
        return sign == "!="
    try:
        return bool(_COMPARISONS[sign](float(unspell(found)), float(wanted)))
    except (TypeError, ValueError, KeyError):
        return bool(_COMPARISONS[sign](str(found).lower(), wanted.lower()))


@dataclass(frozen=True)
class Shown:
    """A run in full: its metadata, its metrics in brief, and the end of its log."""

    run: Run
    metrics: Mapping[str, Mapping[str, float | int | None]]
    log_tail: Sequence[str]
    torn: bool


def show_run(reference: str, *, store: Place = None, lines: int = 10) -> Shown:
    run = _existing(store).find(reference)
    brief = {name: _brief(steps, values) for name, (steps, values) in sorted(read_series(run.paths).items())}
    return Shown(run, brief, log_tail(run, lines), read_lines(run.paths.metrics).torn)


def _brief(steps: Any, values: Any) -> dict[str, float | int | None]:
    import numpy

    finite = values[numpy.isfinite(values)]
    return {
        "points": len(values),
        "last_step": int(steps[-1]),
        "last": float(values[-1]),
        "min": float(finite.min()) if len(finite) else None,
        "max": float(finite.max()) if len(finite) else None,
    }


def log_tail(run: Run, lines: int) -> list[str]:
    """The last lines that the job printed."""
    try:
        with run.paths.log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 200 * max(lines, 1)))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-lines:] if lines else []


def follow(reference: str, *, store: Place = None, poll_s: float = 0.5) -> Iterator[Row]:
    """The metric lines of a run as they arrive, until it ends."""
    run = _existing(store).find(reference)
    seen = 0
    while True:
        rows = read_lines(run.paths.metrics).rows
        yield from rows[seen:]
        seen = len(rows)
        current = load_run(run.paths)
        if current is None or current.status is not Status.RUNNING:
            return
        time.sleep(poll_s)


def last_metrics(reference: str, *, store: Place = None, lines: int = 10) -> list[Row]:
    return read_lines(_existing(store).find(reference).paths.metrics).rows[-lines:]


def last_step(path: Path) -> int | None:
    """The newest step that a run has logged."""
    row = last_row(path)
    return None if row is None else int(row["step"])


def export_runs(references: Sequence[str], *, store: Place = None, metrics: Sequence[str] = ()) -> Iterator[Row]:
    """Every value of the chosen runs, one row each: what other tools read."""
    for run in _existing(store).match(references):
        series = read_series(run.paths)
        missing = [name for name in metrics if name not in series]
        if missing:
            raise UserError(f"run {run.name}: {unknown('metric', missing[0], series)}")
        for name in metrics or sorted(series):
            for step, value in zip(*series[name], strict=True):
                yield {
                    "study": run.study, "variant": run.variant, "seed": run.seed, "run": run.id,
                    "attempt": run.attempt, "status": run.status.value,
                    "step": int(step), "metric": name, "value": float(value),
                }  # fmt: skip


def query(sql: str, *, store: Place = None) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Ask the store in SQL. Tables: `runs` (one row per run) and `metrics` (one row per value)."""
    from fairtrial.record.sql import run_query

    return run_query(_existing(store), sql)


def remove_runs(references: Sequence[str], *, store: Place = None) -> list[Run]:
    """Delete runs that nobody is writing; returns what was deleted."""
    place = _existing(store)
    runs = place.match(references)
    for run in runs:
        place.remove(run)
    return runs
