"""Reader for MLflow stores: SQLite databases, and the file stores that versions before 3 wrote.

A database stores NaN as 0.0 with `is_nan = 1`, and infinity as the largest float; both are converted back to the logged
values.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from fairtrial.core.errors import UserError
from fairtrial.core.runs import Status
from fairtrial.core.untrusted import open_file, read_file
from fairtrial.core.yaml_values import load_yaml
from fairtrial.readers.configuration import plain_value
from fairtrial.readers.contract import ConfigValue, Cursor, SourceRun, clear_errors
from fairtrial.readers.places import files_below, glance
from fairtrial.readers.points import PointCollector, counted
from fairtrial.readers.sqlite_files import Database, companions, has_tables, open_database
from fairtrial.readers.whole_files import file_stamps, finished, sized

_STATUSES = {
    "RUNNING": Status.RUNNING,
    "SCHEDULED": Status.RUNNING,
    "FINISHED": Status.COMPLETED,
    "FAILED": Status.FAILED,
    "KILLED": Status.INTERRUPTED,
}
_STATUS_NUMBERS = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}
_LARGEST = sys.float_info.max
_MOST_META_BYTES = 1 << 20
_LONGEST_LINE_BYTES = 200


class MlflowReader:
    """Each run of a store is a run, except deleted ones."""

    name = "mlflow"
    title = "MLflow stores (sqlite, or folders of files)"

    def recognize(self, place: Path) -> str | None:
        if databases := glance(place, _is_database):
            stores = [path for path in databases if has_tables(path, "runs", "metrics", "params", "experiments")]
            if stores:
                return f"an MLflow database, {stores[0].name}"
        runs = [path.parent for path in glance(place, _is_meta) if (path.parent / "metrics").is_dir()]
        return f"an MLflow file store with {counted(len(runs), 'run')}" if runs else None

    @clear_errors
    def read(self, place: Path, since: Mapping[str, Cursor] | None = None) -> Iterator[SourceRun]:
        databases = [path for path in files_below(place, _is_database) if has_tables(path, "runs", "metrics", "params")]
        for path in databases:
            with open_database(path) as database:
                yield from _runs_of_database(database, since)
        folders = [path.parent for path in files_below(place, _is_meta) if (path.parent / "metrics").is_dir()]
        for folder in folders:
            if run := _run_of_folder(folder, since):
                yield run
        if not databases and not folders:
            raise UserError(f"{place} has no MLflow store", hint="Pass a database (mlflow.db) or an mlruns folder.")


def _is_database(name: str) -> bool:
    return name.endswith((".db", ".sqlite", ".sqlite3"))


def _is_meta(name: str) -> bool:
    return name == "meta.yaml"


# Databases


def _runs_of_database(database: Database, since: Mapping[str, Cursor] | None) -> Iterator[SourceRun]:
    files = [path for path in companions(database.path) if path.exists()]
    stamps = file_stamps(files)
    listed = list(
        database.rows(
            "SELECT run_uuid, name, status, start_time, end_time FROM runs WHERE lifecycle_stage = 'active' "
            "ORDER BY start_time, run_uuid"
        )
    )
    for run_id, name, status, started, ended in listed:
        points = PointCollector(f"{database.path}, run {run_id}")
        infinite = False
        query = "SELECT key, value, timestamp, step, is_nan FROM metrics WHERE run_uuid = ? ORDER BY rowid"
        for key, value, timestamp, step, is_nan in database.rows(query, run_id):
            number = math.nan if is_nan else _number(value)
            if abs(number) == _LARGEST:
                number, infinite = math.copysign(math.inf, number), True
            if isinstance(step, int):
                points.add(str(key), step, number, _seconds(timestamp))
        config: dict[str, ConfigValue] = {
            str(key): plain_value(value)
            for key, value in database.rows("SELECT key, value FROM params WHERE run_uuid = ?", run_id)
        }
        run = SourceRun(
            id=str(run_id),
            name=str(name or run_id),
            series=points.series(),
            config=config,
            status=_STATUSES.get(str(status)),
            started=_known(_seconds(started)),
            ended=_known(_seconds(ended)),
            files=sized(files),
            notes=("MLflow stores infinity as the largest float; it was read as infinity",) if infinite else (),
        )
        yield finished(run, stamps, since)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _seconds(milliseconds: Any) -> float:
    return milliseconds / 1000 if isinstance(milliseconds, int) else math.nan


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


# Folders of files


def _run_of_folder(folder: Path, since: Mapping[str, Cursor] | None) -> SourceRun | None:
    meta_file = folder / "meta.yaml"
    try:
        description = load_yaml(read_file(meta_file, most=_MOST_META_BYTES).decode())
    except (yaml.YAMLError, UnicodeDecodeError):
        raise UserError(f"{meta_file} does not describe an MLflow run") from None
    if not isinstance(description, dict) or description.get("lifecycle_stage") == "deleted":
        return None
    metrics = files_below(folder / "metrics", lambda _: True)
    params = files_below(folder / "params", lambda _: True) if (folder / "params").is_dir() else []
    points = PointCollector(str(folder))
    notes: list[str] = []
    for path in metrics:
        _read_metric(path, path.relative_to(folder / "metrics").as_posix(), points, notes)
    status = description.get("status")
    run = SourceRun(
        id=str(description.get("run_id") or description.get("run_uuid") or folder.name),
        name=str(description.get("run_name") or folder.name),
        series=points.series(),
        config={
            path.relative_to(folder / "params").as_posix(): plain_value(
                read_file(path, most=_MOST_META_BYTES).decode(errors="replace")
            )
            for path in params
        },
        status=_STATUSES.get(_STATUS_NUMBERS.get(status, "") if isinstance(status, int) else str(status)),
        started=_known(_seconds(description.get("start_time"))),
        ended=_known(_seconds(description.get("end_time"))),
        files=sized([meta_file, *metrics, *params]),
        notes=tuple(notes),
    )
    return finished(run, file_stamps([meta_file, *metrics]), since)


def _read_metric(path: Path, metric: str, points: PointCollector, notes: list[str]) -> None:
    """Read lines of time, value and step. A line without a newline may be incomplete, so it is skipped for now."""
    with open_file(path) as file:
        for number, line in enumerate(file, 1):
            cells = line.split()
            try:
                time, value, step = int(cells[0]), float(cells[1]), int(cells[2]) if len(cells) > 2 else 0
            except (ValueError, IndexError):
                notes.append(f"metrics/{metric}: line {number} is not a time, a value and a step; skipped")
                continue
            if not line.endswith(b"\n") or len(line) > _LONGEST_LINE_BYTES:
                notes.append(f"metrics/{metric} ends inside a line: it is still being written or was truncated")
                continue
            points.add(metric, step, value, time / 1000)
