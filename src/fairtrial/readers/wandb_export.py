"""Reader for CSV exports from the W&B web app: the table of runs, and the data of a chart."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from fairtrial.core.cells import csv_records, header_names, is_missing, number_in
from fairtrial.core.errors import UserError
from fairtrial.core.runs import Status
from fairtrial.core.untrusted import read_file
from fairtrial.readers.contract import ConfigValue, Cursor, SourceRun, clear_errors
from fairtrial.readers.places import first_bytes
from fairtrial.readers.points import PointCollector
from fairtrial.readers.whole_files import file_stamps, finished, sized

_LARGEST_FILE_BYTES = 256 << 20
_SERIES = re.compile(r"(?P<run>.+) - (?P<metric>.+?)(?P<bound>__MIN|__MAX)?")
_X_AXES = ("Step", "global_step", "Relative Time (Process)", "Relative Time (Wall)", "Wall Time", "epoch")
_STATES = {
    "finished": Status.COMPLETED,
    "failed": Status.FAILED,
    "crashed": Status.FAILED,
    "running": Status.RUNNING,
    "killed": Status.INTERRUPTED,
    "preempted": Status.INTERRUPTED,
}


class WandbExportReader:
    """A chart has a column per run and metric; a table of runs has a row per run."""

    name = "wandb-csv"
    title = "CSV exports of W&B (run table, chart)"

    def recognize(self, place: Path) -> str | None:
        if place.suffix != ".csv":
            return None
        header = _header(first_bytes(place, 65_536).decode(errors="replace"))
        if _is_chart(header):
            runs = {match["run"] for name in header[1:] if (match := _SERIES.fullmatch(name))}
            return f"a chart exported from W&B with {len(runs)} runs"
        return "a table of runs exported from W&B" if {"Name", "State"} <= set(header) else None

    @clear_errors
    def read(self, place: Path, since: Mapping[str, Cursor] | None = None) -> Iterator[SourceRun]:
        text = read_file(place, most=_LARGEST_FILE_BYTES).decode("utf-8-sig", errors="replace")
        try:
            rows = list(csv_records(text.splitlines(keepends=True)))
        except csv.Error as error:
            raise UserError(f"{place} is not a CSV file: {error}") from None
        header = header_names(rows[0][0], str(place)) if rows else []
        for cells, whole, line in rows[1:]:
            if not whole or len(cells) != len(header):
                raise UserError(f"{place}: line {line} has {len(cells)} cells, but the header has {len(header)}")
        records = [dict(zip(header, cells, strict=True)) for cells, _, _ in rows[1:]]
        if _is_chart(header):
            runs = _chart(place, header, records)
        elif {"Name", "State"} <= set(header):
            runs = _run_table(place, records)
        else:
            raise UserError(
                f"{place} is not a W&B export: it has neither the columns Name and State nor columns 'RUN - METRIC'"
            )
        for run in runs:
            yield finished(run, file_stamps([place]), since)


def _header(text: str) -> list[str]:
    try:
        return next(
            ([cell.strip() for cell in row] for row in csv.reader([text.lstrip("\ufeff").split("\n", 1)[0]])), []
        )
    except csv.Error:
        return []


def _is_chart(header: list[str]) -> bool:
    return len(header) > 1 and header[0] in _X_AXES and all(_SERIES.fullmatch(name) for name in header[1:])


def _chart(place: Path, header: list[str], records: list[dict[str, str]]) -> Iterator[SourceRun]:
    """Read columns named `RUN - METRIC`; the extra columns for the minimum and maximum of a line are ignored."""
    columns: dict[str, list[tuple[str, str]]] = {}
    for name in header[1:]:
        match = _SERIES.fullmatch(name)
        if match and not match["bound"]:
            columns.setdefault(match["run"], []).append((match["metric"], name))
    for run, metrics in columns.items():
        points = PointCollector(str(place))
        for metric, column in metrics:
            for row in records:
                step, value = number_in(row[header[0]]), number_in(row[column])
                if step is not None and value is not None and metric != "_step":
                    points.add(metric, step, value)
        yield SourceRun(
            id=run,
            name=run,
            series=points.series(),
            files=sized([place]),
            notes=("W&B samples the points of a chart; the values include any smoothing and grouping",),
        )


def _run_table(place: Path, records: list[dict[str, str]]) -> Iterator[SourceRun]:
    """Read a table of runs. It does not distinguish configuration from summary, so each value is in both."""
    seen: set[str] = set()
    for row in records:
        name = row["Name"]
        run_id = row.get("ID") or name
        if run_id in seen:
            raise UserError(f"{place} has two runs named '{run_id}'", hint="Include the ID column in the export.")
        seen.add(run_id)
        values: dict[str, ConfigValue] = {}
        for key, cell in row.items():
            if key and key not in ("Name", "State", "ID") and not is_missing(cell):
                number = number_in(cell)
                values[key] = cell if number is None else number
        yield SourceRun(
            id=run_id, name=name, series={}, config=values, summary=values, status=_STATES.get(row["State"].lower()),
            files=sized([place]), notes=("a table of runs has one value per run and column, and no series",),
        )  # fmt: skip
