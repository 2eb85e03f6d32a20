"""Reader for Ray Tune: a folder per trial with `result.json` or `progress.csv`, and `params.json`."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fairtrial.core.cells import csv_records, header_names, is_missing, number_in
from fairtrial.core.errors import UserError
from fairtrial.core.runs import Status
from fairtrial.core.untrusted import open_file, read_file
from fairtrial.readers.configuration import flatten
from fairtrial.readers.contract import ConfigValue, Cursor, SourceRun, clear_errors
from fairtrial.readers.json_rows import number_of, parse_loosely
from fairtrial.readers.places import files_below, glance, relative_name
from fairtrial.readers.points import PointCollector, counted
from fairtrial.readers.whole_files import file_stamps, finished, sized

_LONGEST_LINE_BYTES = 8 << 20
_LARGEST_FILE_BYTES = 256 << 20
_OWN = frozenset({
    "training_iteration", "timestamp", "time_since_restore", "iterations_since_restore", "pid", "time_total_s",
    "time_this_iter_s", "done", "should_checkpoint", "trial_id", "experiment_tag", "hostname", "node_ip", "date",
    "checkpoint_dir_name",
})  # fmt: skip
"""Columns that Ray adds to every result."""


class RayTuneReader:
    """Each trial folder is a run; its steps are training iterations."""

    name = "ray"
    title = "Ray Tune results (result.json, progress.csv, params.json)"

    def recognize(self, place: Path) -> str | None:
        folders = _trials(glance(place, _is_own))
        return f"{counted(len(folders), 'trial')} of Ray Tune" if folders else None

    @clear_errors
    def read(self, place: Path, since: Mapping[str, Cursor] | None = None) -> Iterator[SourceRun]:
        folders = _trials(files_below(place, _is_own))
        if not folders:
            raise UserError(f"{place} has no Ray Tune trials", hint="A trial has result.json and params.json.")
        for folder in folders:
            yield _read_trial(folder, relative_name(folder, place), since)


def _is_own(name: str) -> bool:
    return name in ("result.json", "progress.csv", "params.json")


def _trials(files: list[Path]) -> list[Path]:
    """Return the folders with both parameters and results; a result.json alone may come from any tool."""
    names: dict[Path, set[str]] = {}
    for path in files:
        names.setdefault(path.parent, set()).add(path.name)
    return [folder for folder, files in names.items() if "params.json" in files and len(files) > 1]


def _read_trial(folder: Path, name: str, since: Mapping[str, Cursor] | None) -> SourceRun:
    results, progress, params = folder / "result.json", folder / "progress.csv", folder / "params.json"
    notes: list[str] = []
    points = PointCollector(str(folder))
    has_results = results.is_file() and results.stat().st_size > 0
    source = results if has_results else progress
    rows = _json_rows(results, notes) if has_results else _csv_rows(progress, notes)
    last_time = first_time = None
    for row in rows:
        step = row.get("training_iteration")
        if not isinstance(step, int | float) or step != step:
            notes.append("a result without training_iteration was skipped")
            continue
        stamp = row.get("timestamp")
        time = float(stamp) if isinstance(stamp, int | float) else float("nan")
        if time == time:
            first_time, last_time = first_time if first_time is not None else time, time
        for metric, value in row.items():
            number = number_of(value)
            if number is None or metric in _OWN or metric.startswith("config."):
                continue
            last = points.last_step(metric)
            if last is not None and step <= last:  # the trial was restored from a checkpoint
                points.rewind(metric, step)
            points.add(metric, step, number, time)
    config: dict[str, ConfigValue] = {}
    document = parse_loosely(read_file(params), where=str(params))
    if isinstance(document, dict):
        config = flatten(document, str(params))
    failed = (folder / "error.txt").is_file() or (folder / "error.pkl").is_file()
    run = SourceRun(
        id=name,
        name=name,
        series=points.series(),
        config=config,
        status=Status.FAILED if failed else None,
        started=first_time,
        ended=last_time if failed else None,
        files=sized([source, params]),
        notes=tuple(dict.fromkeys(notes)),
    )
    return finished(run, file_stamps([source, params]), since)


def _json_rows(path: Path, notes: list[str]) -> Iterable[dict[str, Any]]:
    with open_file(path) as file:
        number = 0
        while line := file.readline(_LONGEST_LINE_BYTES):
            number += 1
            try:
                row = parse_loosely(line, where=f"{path}, line {number}")
            except UserError:
                torn = not line.endswith(b"\n")
                why = "ends inside a line: still being written or truncated" if torn else f"line {number} is not JSON"
                notes.append(f"{path.name}: {why}")
                continue
            if isinstance(row, dict):
                row.pop("config", None)
                yield flatten(row, str(path))


def _csv_rows(path: Path, notes: list[str]) -> Iterable[dict[str, Any]]:
    text = read_file(path, most=_LARGEST_FILE_BYTES).decode(errors="replace")
    try:
        rows = list(csv_records(text.splitlines(keepends=True)))
    except csv.Error as error:
        raise UserError(f"{path} is not a CSV file: {error}") from None
    if not rows:
        return
    header = [name.replace("/", ".") for name in header_names(rows[0][0], str(path))]
    if not text.endswith("\n"):
        rows.pop()
        notes.append(f"{path.name} ends inside a line: it is still being written or was truncated")
    for cells, whole, line in rows[1:]:
        if not whole or len(cells) != len(header):
            notes.append(f"{path.name}: line {line} does not match the header; skipped")
            continue
        pairs = zip(header, cells, strict=True)
        yield {name: _number_or_text(cell) for name, cell in pairs if not is_missing(cell)}


def _number_or_text(cell: str) -> float | str:
    number = number_in(cell)
    return cell if number is None else number
