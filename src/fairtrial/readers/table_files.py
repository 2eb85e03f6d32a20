"""Reader for tables in common layouts: CSV, JSON with nested keys, Parquet, Arrow, and Python data frames.

    long               columns metric and value, a row per number
    a column per metric   columns seed, variant, step …, and the rest are metrics
    a column per seed     a row per method:  method, seed1, seed2, seed3
    a column per both     base_seed1, base_seed2, new_seed1 …, with or without steps
    a column per method   a row per seed:    seed, base, new — only on request, because it looks like metrics

A duplicate cell or an ambiguous column is an error with a hint; the reader never guesses.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from fairtrial.core.cells import csv_records, header_names, id_text, is_index, is_missing, number_in, seed_text
from fairtrial.core.errors import UserError
from fairtrial.core.untrusted import open_file, parse_json_line, read_file
from fairtrial.readers.configuration import flatten, plain_value
from fairtrial.readers.contract import ConfigValue, Cursor, SourceFile, SourceRun, clear_errors
from fairtrial.readers.json_rows import number_of, parse_loosely
from fairtrial.readers.places import first_bytes
from fairtrial.readers.points import PointCollector
from fairtrial.readers.whole_files import file_stamps, finished, sized

MOST_BYTES = 256 << 20
MOST_ROWS = 1_000_000
MOST_COLUMNS = 5_000
MOST_RUNS = 50_000
_MOST_DECODED_BYTES = 1 << 30
_LONGEST_LINE_BYTES = 8 << 20

USUAL_NAMES = {
    "variant": ("variant", "method", "algo", "algorithm", "agent", "model", "arm"),
    "seed": ("seed", "random_seed"),
    "step": ("step", "global_step", "iteration", "iter", "timesteps", "total_timesteps"),
    "run": ("run", "run_id", "run_name"),
    "metric": ("metric",),
    "value": ("value",),
}
_SEED_COLUMN = re.compile(r"(?:seed|s|run)?[ _.-]?(\d{1,10})", re.IGNORECASE)
_BOTH_COLUMN = re.compile(r"(?P<variant>.+?)[ _./-]+(?:seed|s)[ _.-]?(?P<seed>\d{1,10})", re.IGNORECASE)
Row = Mapping[str, Any]


@dataclass(frozen=True)
class TableColumns:
    """The column of each role; None: the column with a usual name, if exactly one column has such a name.

    `columns_are` is `metrics`, or `methods` for a table with a row per seed and a column per method. `metric_name` is
    the metric name for tables that do not name one.
    """

    run: str | None = None
    variant: str | None = None
    seed: str | None = None
    step: str | None = None
    metric: str | None = None
    value: str | None = None
    columns_are: str | None = None
    metric_name: str = "value"


class TableFilesReader:
    """Reads one table in the layout that its columns show."""

    name = "table"
    title = "tables (CSV, JSON, JSON lines, Parquet, Arrow)"

    def __init__(self, columns: TableColumns | None = None) -> None:
        self.columns = columns or TableColumns()

    def recognize(self, place: Path) -> str | None:
        if not place.is_file():
            return None
        kind = _kind(place)
        return None if kind is None else f"a table ({kind})"

    @clear_errors
    def read(self, place: Path, since: Mapping[str, Cursor] | None = None) -> Iterator[SourceRun]:
        kind = _kind(place)
        if kind is None:
            raise UserError(f"{place} is not a table", hint="Pass a CSV, JSON, JSON lines, Parquet or Arrow file.")
        stamps, files = file_stamps([place]), sized([place])
        table = _LOADERS[kind](place)
        notes = (table.note,) if table.note else ()
        for run in runs_of_rows(table.names, table.rows, self.columns, where=place.name, files=files):
            yield finished(replace(run, notes=notes), stamps, since)


def runs_of_frame(frame: Any, columns: TableColumns | None = None) -> list[SourceRun]:
    """Return the runs of a pandas or polars DataFrame, an Arrow table, or any object with an Arrow stream interface."""
    import pyarrow

    try:
        table = pyarrow.table(frame)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        raise UserError(f"the frame cannot be read as a table: {error}") from None
    names = [str(name) for name in table.column_names]
    return list(
        runs_of_rows(
            header_names(names, "the frame"), _arrow_rows([table]), columns or TableColumns(), where="the frame"
        )
    )


# Files


class _Loaded(NamedTuple):
    names: list[str]
    rows: Iterable[Row]
    note: str | None = None


def _kind(place: Path) -> str | None:
    first = first_bytes(place, 8)
    if first[:4] == b"PAR1":
        return "Parquet"
    if first[:6] == b"ARROW1":
        return "Arrow"
    return {".csv": "CSV", ".tsv": "CSV", ".json": "JSON", ".jsonl": "JSON lines", ".ndjson": "JSON lines"}.get(
        place.suffix
    )


def _load_csv(place: Path) -> _Loaded:
    content = read_file(place, most=MOST_BYTES)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{place} is not UTF-8 text") from None
    first = text.split("\n", 1)[0]
    delimiter = max((",", "\t", ";"), key=first.count)
    try:
        records = list(csv_records(text.splitlines(keepends=True), delimiter))
    except csv.Error as error:
        raise UserError(f"{place} is not a CSV file: {error}") from None
    if not records:
        raise UserError(f"{place} is empty")
    names = header_names(records[0][0], place.name)
    rows = []
    for cells, whole, line in records[1:]:
        if not cells and whole:
            continue
        if not whole or len(cells) != len(names):
            raise UserError(f"{place}: line {line} has {len(cells)} cells, but the header has {len(names)}")
        rows.append(dict(zip(names, cells, strict=True)))
    return _Loaded(names, rows)


def _load_json(place: Path) -> _Loaded:
    document = parse_loosely(read_file(place), where=str(place))
    constant: dict[str, Any] = {}
    if isinstance(document, dict):
        lists = {key: value for key, value in document.items() if _is_rows(value)}
        if len(lists) != 1:
            raise UserError(f"{place} is an object with {len(lists)} lists of rows; it must have exactly one")
        [(key, rows)] = lists.items()
        constant = {each: value for each, value in document.items() if each != key}
    else:
        rows = document
    if not _is_rows(rows):
        raise UserError(f"{place} is not a list of rows")
    flat = [flatten({**constant, **row}, str(place)) for row in rows]
    return _Loaded(_names(flat), flat)


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _load_json_lines(place: Path) -> _Loaded:
    rows: list[Row] = []
    note = None
    with open_file(place) as file:
        while line := file.readline(_LONGEST_LINE_BYTES):
            if not line.strip():
                continue
            try:
                row = parse_json_line(line, where=f"{place}, line {len(rows) + 1}")
            except UserError:
                if line.endswith(b"\n"):
                    raise
                note = f"{place.name} ends inside a line: it is still being written or was truncated"
                break
            if not isinstance(row, dict):
                raise UserError(f"{place}: line {len(rows) + 1} is not an object")
            rows.append(flatten(row, str(place)))
            if len(rows) > MOST_ROWS:
                raise UserError(f"{place} has more than {MOST_ROWS:,} rows")
    return _Loaded(_names(rows), rows, note)


def _names(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _load_parquet(place: Path) -> _Loaded:
    import pyarrow
    from pyarrow import parquet

    if place.stat().st_size > MOST_BYTES:
        raise UserError(f"{place} is larger than the limit of {MOST_BYTES >> 20} MB for a table")
    try:
        with open_file(place) as file:
            source = parquet.ParquetFile(file, arrow_extensions_enabled=False)
            decoded = sum(source.metadata.row_group(at).total_byte_size for at in range(source.num_row_groups))
            if source.metadata.num_rows > MOST_ROWS or decoded > _MOST_DECODED_BYTES:
                raise UserError(f"{place} has more than {MOST_ROWS:,} rows, or its decoded size is too large")
            rows = list(_arrow_rows(source.iter_batches(batch_size=10_000)))
            names = [str(name) for name in source.schema_arrow.names]
    except (pyarrow.ArrowException, OSError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise UserError(f"{place} is not a valid Parquet file: {str(error).splitlines()[0][:200]}") from None
    return _Loaded(_names(rows) or names, rows)


def _load_arrow(place: Path) -> _Loaded:
    import pyarrow

    content = read_file(place, most=MOST_BYTES)
    try:
        with pyarrow.ipc.open_file(pyarrow.BufferReader(content)) as source:
            batches = [source.get_batch(at) for at in range(source.num_record_batches)]
            if sum(batch.num_rows for batch in batches) > MOST_ROWS:
                raise UserError(f"{place} has more than {MOST_ROWS:,} rows")
            for batch in batches:
                batch.validate(full=True)
            rows = list(_arrow_rows(batches))
            names = [str(name) for name in source.schema.names]
    except (pyarrow.ArrowException, OSError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise UserError(f"{place} is not a valid Arrow file: {str(error).splitlines()[0][:200]}") from None
    return _Loaded(_names(rows) or names, rows)


def _arrow_rows(batches: Iterable[Any]) -> Iterator[Row]:
    for batch in batches:
        for row in batch.to_pylist():
            yield flatten(row, "the table")


_LOADERS = {
    "CSV": _load_csv,
    "JSON": _load_json,
    "JSON lines": _load_json_lines,
    "Parquet": _load_parquet,
    "Arrow": _load_arrow,
}


# Layouts


def runs_of_rows(
    names: Sequence[str], rows: Iterable[Row], columns: TableColumns, *, where: str, files: tuple[SourceFile, ...] = ()
) -> Iterator[SourceRun]:
    """Yield the runs of a table in the layout that its columns show."""
    if len(names) > MOST_COLUMNS:
        raise UserError(f"{where} has more than {MOST_COLUMNS:,} columns")
    roles = {role: _column(role, names, columns, where) for role in USUAL_NAMES}
    taken = {name for name in roles.values() if name}
    rest = [name for name in names if name not in taken and not is_index(name)]
    table = _Cells(where)
    both = {name: match for name in rest if (match := _BOTH_COLUMN.fullmatch(name))}
    seeds = {name: match[1] for name in rest if (match := _SEED_COLUMN.fullmatch(name))}
    if roles["variant"] is None and roles["seed"] is None and both and len(both) == len(rest):
        for row in rows:
            for name, match in both.items():
                table.add(
                    row, match["variant"], str(int(match["seed"])), roles["step"], columns.metric_name, row.get(name)
                )
    elif roles["variant"] and roles["seed"] is None and seeds and len(seeds) == len(rest):
        for row in rows:
            for name, seed in seeds.items():
                variant = str(row.get(roles["variant"]))
                table.add(row, variant, str(int(seed)), roles["step"], columns.metric_name, row.get(name))
    elif columns.columns_are == "methods":
        if roles["seed"] is None:
            raise UserError(f"{where} has a column per method, but no seed column")
        for row in rows:
            for name in rest:
                table.add(
                    row, name, seed_text(row.get(roles["seed"])), roles["step"], columns.metric_name, row.get(name)
                )
    else:
        _take_rows(table, rows, roles, rest, columns)
    yield from table.runs(files)


def _take_rows(
    table: _Cells, rows: Iterable[Row], roles: Mapping[str, str | None], rest: list[str], columns: TableColumns
) -> None:
    """Take rows with one run and step each: a column per metric, or a column with the name of the metric."""
    kept = list(rows)
    metric, value = roles["metric"], roles["value"]
    is_long = metric is not None and value is not None
    numeric = [name for name in rest if not name.startswith("config.") and _is_numeric(name, kept)]
    if not is_long and value is not None:
        numeric.append(value)
    if not numeric and not is_long:
        raise UserError(f"{table.where} has no numeric column that could be a metric")
    unclear = roles["variant"] is None and roles["run"] is None and roles["seed"] is not None
    if unclear and len(numeric) > 1 and columns.columns_are is None and roles["step"] is None:
        named = ", ".join(f"'{name}'" for name in numeric[:4])
        raise UserError(
            f"{table.where}: {named} may be metrics of one method, or methods with one metric",
            hint="Say whether the columns are metrics or methods.",
        )
    settings = [name for name in rest if name not in numeric]
    for row in kept:
        run, variant, seed = (row.get(roles[role] or "") for role in ("run", "variant", "seed"))
        key = (
            None if is_missing(run) else id_text(run),
            None if is_missing(variant) else str(variant).strip(),
            None if is_missing(seed) else seed_text(seed),
        )
        table.configure(key, {name: row.get(name) for name in settings})
        if is_long:
            table.put(key, row, roles["step"], str(row.get(metric or "")), row.get(value or ""))
        for name in () if is_long else numeric:
            table.put(key, row, roles["step"], name, row.get(name))


def _column(role: str, names: Sequence[str], columns: TableColumns, where: str) -> str | None:
    given: str | None = getattr(columns, role)
    if given is not None:
        if given not in names:
            raise UserError(f"{where} has no column '{given}'", hint=f"Its columns are {', '.join(names[:20])}.")
        return given
    for usual in USUAL_NAMES[role]:
        alike = [name for name in names if name.lower() == usual] or [
            name for name in names if name.lower().startswith("config.") and name.lower().rsplit(".", 1)[-1] == usual
        ]
        if len(alike) > 1:
            shown = " and ".join(f"'{name}'" for name in alike[:3])
            raise UserError(f"{where}: both {shown} may be the {role} column", hint=f"Name the {role} column.")
        if alike:
            return alike[0]
    return None


def _is_numeric(name: str, rows: Sequence[Row]) -> bool:
    has_any = False
    for row in rows:
        cell = row.get(name)
        if is_missing(cell):
            continue
        if _number(cell) is None:
            return False
        has_any = True
    return has_any


def _number(cell: Any) -> float | None:
    return number_in(cell) if isinstance(cell, str) else number_of(cell)


Key = tuple[str | None, str | None, str | None]


class _Cells:
    """Numbers by run, metric and step; a duplicate number is an error."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._points: dict[Key, PointCollector] = {}
        self._config: dict[Key, dict[str, ConfigValue]] = {}
        self._taken: set[tuple[Key, str, float]] = set()

    def add(self, row: Row, variant: str, seed: str, step: str | None, metric: str, cell: Any) -> None:
        self.put((None, variant.strip(), seed), row, step, metric, cell)

    def put(self, key: Key, row: Row, step_column: str | None, metric: str, cell: Any) -> None:
        if is_missing(cell):
            return
        value = _number(cell)
        if value is None:
            raise UserError(f"{self.where}: the {metric} value '{str(cell)[:40]}' is not a number")
        step = 0.0 if step_column is None else _number(row.get(step_column))
        if step is None:
            raise UserError(f"{self.where}: a row has no number in the column '{step_column}'")
        if (key, metric, step) in self._taken:
            run, variant, seed = key
            which = ", ".join(part for part in (run, variant, seed and f"seed {seed}") if part) or "the table"
            raise UserError(
                f"{self.where} has two values of {metric} for {which}" + (f" at step {step:g}" if step_column else ""),
                hint="A seed, run or step column is missing or was not recognized. Name it.",
            )
        self._taken.add((key, metric, step))
        if key not in self._points and len(self._points) >= MOST_RUNS:
            raise UserError(f"{self.where} has more than {MOST_RUNS:,} runs")
        self._points.setdefault(key, PointCollector(self.where)).add(metric, step, value)

    def configure(self, key: Key, values: Mapping[str, Any]) -> None:
        """Keep the values that are the same in all rows of a run as its configuration."""
        plain = {name: plain_value(value) for name, value in values.items()}
        known = self._config.setdefault(key, plain)
        if known is not plain:
            for name in [name for name, value in known.items() if plain.get(name) != value]:
                del known[name]

    def runs(self, files: tuple[SourceFile, ...]) -> Iterator[SourceRun]:
        if not self._points:
            raise UserError(f"{self.where} has no numbers")
        for (run, variant, seed), points in self._points.items():
            name = run or "/".join(part for part in (variant, seed) if part) or self.where
            if run and variant is not None and len({key for key in self._points if key[0] == run}) > 1:
                name = "/".join(part for part in (run, variant, seed) if part)
            config = {
                key.removeprefix("config."): value for key, value in self._config.get((run, variant, seed), {}).items()
            }
            yield SourceRun(
                id=name, name=name, series=points.series(), variant=variant, seed=seed, config=config, files=files
            )
