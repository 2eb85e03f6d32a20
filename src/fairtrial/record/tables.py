"""Reading of results from other programs: CSV, JSONL or JSON files with one row per value become traces.

A file may be long (columns `metric` and `value`) or wide (one column per metric). Missing information stays unknown:
without a seed column runs cannot be paired, and without a step column a run has one value.

Tables are untrusted, so they are read in two passes that keep no rows: the first finds the columns and their types, the
second reads the requested values. Size limits are checked before parsing.
"""

from __future__ import annotations

import csv
import io
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from fairtrial.core.cells import (
    csv_records,
    header_names,
    id_text,
    is_index,
    is_missing,
    number_in,
    refuse_shape,
    seed_text,
    why_no_number,
)
from fairtrial.core.errors import UserError
from fairtrial.core.readers import IGNORE, Columns, ImportedRun, Reader, files_label, two_candidates
from fairtrial.core.runs import Status
from fairtrial.core.traces import Trace
from fairtrial.core.untrusted import parse_json, parse_json_line, read_file

MOST_BYTES = 256 << 20
MOST_ARRAY_BYTES = 32 << 20
"""Size limit of a JSON array, which must be parsed as a whole; JSON lines are parsed one by one."""
LONGEST_LINE_BYTES = 8 << 20
MOST_LINES = 1_000_000
MOST_COLUMNS = 5_000
MOST_CELLS = 10_000_000
MOST_RUNS = 50_000
MOST_VARIANTS = 500
MOST_PROBLEMS = 5

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
TABLE_SUFFIXES = (".csv", ".tsv", ".txt", "", *JSON_SUFFIXES)
DELIMITERS = (",", "\t", ";")

STATUS_WORDS: Mapping[Status, tuple[str, ...]] = {
    Status.COMPLETED: ("completed", "complete", "finished", "finish", "success", "successful", "succeeded", "done",
                       "ok", "passed"),
    Status.FAILED: ("failed", "fail", "failure", "crashed", "crash", "error", "errored", "out_of_memory", "oom",
                    "node_fail"),
    Status.DIVERGED: ("diverged", "divergence", "nan"),
    Status.INTERRUPTED: ("interrupted", "killed", "canceled", "cancelled", "aborted", "stopped", "preempted", "timeout",
                         "timed_out", "pruned"),
    Status.RUNNING: ("running", "pending", "queued", "scheduled", "waiting", "preempting"),
}  # fmt: skip
"""Status words of W&B, MLflow, Optuna, Slurm and users. `terminated` is omitted: Ray uses it for runs that finished,
other programs for runs that were killed."""
_STATUSES = {word: status for status, words in STATUS_WORDS.items() for word in words}

_SIGNATURES = (
    (b"PAR1", "a Parquet file"), (b"PK\x03\x04", "a ZIP archive, such as an Excel spreadsheet or an .npz file"),
    (b"\x1f\x8b", "a gzip archive"), (b"\x28\xb5\x2f\xfd", "a Zstandard archive"), (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ", "an xz archive"), (b"\x89HDF", "an HDF5 file"), (b"SQLite format 3", "an SQLite database"),
    (b"\x93NUMPY", "a NumPy array"), (b"ARROW1", "an Arrow file"), (b"\xd0\xcf\x11\xe0", "an old Excel spreadsheet"),
)  # fmt: skip


@dataclass
class _Scan:
    """The result of the first pass over a file."""

    rows: int = 0
    numeric: dict[str, bool] = field(default_factory=dict)
    """Column with at least one number → whether it only counts the rows."""
    examples: dict[str, str] = field(default_factory=dict)
    """Column without numbers → a sentence about its first non-empty cell."""
    metrics: dict[str, None] = field(default_factory=dict)
    """The names of the metrics in a long file."""


@dataclass(frozen=True)
class TableFile:
    """One file of a table: its content, its columns and an iterator over its rows."""

    path: Path
    content: bytes
    names: Sequence[str]
    columns: Mapping[str, str | None]
    delimiter: str = ","
    listed: Sequence[Mapping[str, Any]] | None = None
    """The rows of a JSON array, already parsed."""

    @property
    def label(self) -> str:
        return self.path.name

    @property
    def is_json(self) -> bool:
        return self.path.suffix.lower() in JSON_SUFFIXES

    @property
    def is_text(self) -> bool:
        """Whether every cell is text, so that cells can be compared with `==`. Parsed JSON has 1 == True."""
        return not self.is_json

    def rows(self, wanted: Sequence[str]) -> Iterator[tuple[int, list[Any]]]:
        """Yield the 1-based line number of each row and its cells in the order of the wanted columns."""
        if self.listed is not None:
            for number, row in enumerate(self.listed, 1):
                yield number, [row.get(name) for name in wanted]
        elif self.is_json:
            for number, row in _json_rows(self.content, self.label):
                yield number, [row.get(name) for name in wanted]
        else:
            places = [self.names.index(name) for name in wanted]
            most = max(places, default=0)
            for line, cells in _csv_rows(self.content, self.delimiter, self.label):
                if len(cells) <= most:
                    cells += [None] * (most + 1 - len(cells))
                yield line, [cells[place] for place in places]

    def place(self, line: int) -> str:
        return f"{self.label}, {'row' if self.listed is not None else 'line'} {line}"


def _csv_rows(content: bytes, delimiter: str, label: str, *, header: bool = False) -> Iterator[tuple[int, list[Any]]]:
    """Yield the rows below the header, or only the header. A row with more cells than the header is refused."""
    width = 0
    with io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline="") as text:
        try:
            for cells, is_whole, line in csv_records(text, delimiter):
                if not is_whole:
                    raise UserError(f"{label}: a quoted cell is not closed", hint="Check the double quotes.")
                if not cells:
                    continue
                if header:
                    yield line, cells
                    return
                if width == 0:
                    width = len(cells)
                    continue
                if len(cells) > width and any(cells[width:]):
                    message = f"{label}, line {line} has {len(cells)} cells, but the header has {width}"
                    raise UserError(message, hint="Put cells that contain the separator in double quotes.")
                yield line, cells
        except csv.Error as error:
            raise UserError(f"{label} is not a CSV file: {error}", hint="Check the double quotes.") from None


def _json_rows(content: bytes, label: str, *, checked: bool = True) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a JSONL file. With `checked`, duplicate keys were already ruled out: use a faster parser."""
    start, number = 0, 0
    while start < len(content):
        end = content.find(b"\n", start)
        end = len(content) if end < 0 else end
        number += 1
        if end - start > LONGEST_LINE_BYTES:
            message = f"{label}, line {number} is longer than {LONGEST_LINE_BYTES >> 20} MB"
            raise UserError(message, hint="A JSONL file must have one small object per line.")
        line = content[start:end].strip()
        start = end + 1
        if line:
            row = _plain(line) if checked else None
            if row is None:
                row = parse_json_line(line, where=f"{label}, line {number}")
            if not isinstance(row, dict):
                raise UserError(f"{label}, line {number} is not a JSON object")
            yield number, row


def _plain(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


class _Problems:
    """Collects problems with the cells of a table, and raises an error after MOST_PROBLEMS of them."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def add(self, problem: str) -> None:
        if problem not in self.messages:
            self.messages.append(problem)
        if len(self.messages) == MOST_PROBLEMS:
            self.raise_any()

    def raise_any(self, hint: str | None = None) -> None:
        if self.messages:
            raise UserError(self.messages[0], problems=self.messages[1:], hint=hint)


RunKey = tuple[str, str, str, str]


@dataclass
class _RunRows:
    """One run, assembled from its rows."""

    status: tuple[Status, str | None] = (Status.COMPLETED, None)
    points: dict[str, tuple[TableFile, array[float], array[float]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """The files of a table with their columns and metrics."""

    files: Sequence[TableFile]
    scans: Sequence[_Scan]

    @property
    def label(self) -> str:
        return files_label([file.label for file in self.files])

    @property
    def looks_like_a_table(self) -> bool:
        """Whether the files were named as tables are; other files are read as tables if no reader recognizes them."""
        return all(file.path.suffix.lower() in TABLE_SUFFIXES for file in self.files)

    @property
    def columns(self) -> Mapping[str, str | None]:
        return self.files[0].columns

    @property
    def lacking(self) -> Sequence[str]:
        return [role for role in ("variant", "step") if self.columns[role] is None]

    @property
    def has_steps(self) -> bool:
        return self.columns["step"] is not None

    @property
    def is_long(self) -> bool:
        return self.columns["metric"] is not None and self.columns["value"] is not None

    def metrics(self) -> list[str]:
        """Return the metrics: those named in a long file, or the numeric columns of a wide one."""
        if self.is_long:
            return list(dict.fromkeys(name for scan in self.scans for name in scan.metrics))
        counting = {name for name in self.scans[0].numeric if all(scan.numeric.get(name) for scan in self.scans)}
        return [name for name in self._numeric() if name not in counting]

    def known(self, metric: str) -> bool:
        """Return whether the user may choose this metric by name, even if it does not look like a metric."""
        if self.is_long:
            return metric in self.metrics()
        taken = self._taken()
        return bool(metric) and any(metric in file.names for file in self.files) and metric not in taken

    def why_none(self) -> str | None:
        """If no column contains numbers, describe the content of the first candidate."""
        return next((message for scan in self.scans for message in scan.examples.values()), None)

    def text_columns(self) -> list[str]:
        """Return non-numeric columns without a role, which may identify variants or runs."""
        return [name for name in self.scans[0].examples if name not in self._taken()]

    def _numeric(self) -> list[str]:
        return list(dict.fromkeys(name for scan in self.scans for name in scan.numeric))

    def _taken(self) -> set[str]:
        return {name for file in self.files for role, name in file.columns.items() if name and role != "value"}

    def traces(self, metrics: Sequence[str]) -> list[Trace]:
        """Return one trace per run. An empty cell is NaN. Raises a UserError with the lines of unreadable cells."""
        import numpy as np

        if not self.is_long:
            self._refuse_absent(metrics)
        runs: dict[RunKey, _RunRows] = {}
        problems = _Problems()
        for number, file in enumerate(self.files):
            _Reader(self, file, metrics, runs, problems, f"{number}:" if len(self.files) > 1 else "").read()
        problems.raise_any()
        self._refuse_two_spellings({key[0] for key in runs})
        return [
            _trace(
                key,
                run.status,
                {
                    m: (np.array(s, dtype=np.float64), np.array(v, dtype=np.float64))
                    for m, (_, s, v) in run.points.items()
                },
            )
            for key, run in runs.items()
        ]

    def _refuse_absent(self, metrics: Sequence[str]) -> None:
        problems = [
            f"{file.label} has no column '{metric}', which the other files have"
            for file in self.files
            for metric in metrics
            if metric not in file.names
        ]
        if problems:
            raise UserError(problems[0], problems=problems[1:MOST_PROBLEMS])

    def _refuse_two_spellings(self, variants: set[str]) -> None:
        first: dict[str, str] = {}
        for variant in sorted(variants):
            if first.setdefault(seed_text(variant), variant) != variant:
                message = f"{self.label} spells the same variant as '{first[seed_text(variant)]}' and as '{variant}'"
                raise UserError(message, hint="Use one spelling.")
        if len(variants) > MOST_VARIANTS:
            raise UserError(
                f"{self.label} has {len(variants):,} variants; at most {MOST_VARIANTS} can be compared",
                hint="Specify the column of the variant with --variant-column.",
            )


@dataclass
class _Reader:
    """The second pass over one file, which adds the values of its rows to their runs."""

    table: Table
    file: TableFile
    metrics: Sequence[str]
    runs: dict[RunKey, _RunRows]
    problems: _Problems
    prefix: str
    """Distinguishes unnamed rows with the same line number in several files."""
    attempts: dict[tuple[str, ...], str] = field(default_factory=dict)
    """The first attempt of each variant, task and seed."""

    def read(self) -> None:
        columns = self.file.columns
        ids = [role for role in ("variant", "task", "seed", "run") if columns[role]]
        telling = [columns[role] or "" for role in ids]
        if "attempt" in self.file.names:
            telling.append("attempt")
        others = [role for role in ("status", "step") if columns[role]]
        others += ["metric", "value"] if self.table.is_long else []
        values = [] if self.table.is_long else list(self.metrics)
        nameless = all(columns[role] is None for role in ("run", "seed", "step"))
        first = len(telling) + len(others)
        seen: dict[tuple[Any, ...], tuple[RunKey, _RunRows | None]] = {}
        self.attempts.clear()
        for line, cells in self.file.rows([*telling, *(columns[role] or "" for role in others), *values]):
            identity = tuple(cells[: len(telling)])
            known = None if nameless else seen.get(identity) if self.file.is_text else None
            if known is None:
                known = self._run(dict(zip([*ids, "attempt"], identity, strict=False)), line, nameless=nameless)
                if self.file.is_text and not nameless:
                    seen[identity] = known
            key, run = known
            if run is not None:
                row = dict(zip(others, cells[len(telling) : first], strict=True))
                self._read_row(run, key, row, zip(values, cells[first:], strict=True), line)

    def _run(self, row: Mapping[str, Any], line: int, *, nameless: bool) -> tuple[RunKey, _RunRows | None]:
        """Return the run of a row, or None for a further attempt at a run, which does not count as another seed."""
        own = f"{self.prefix}line {line}" if nameless else self._id(row, "run", line, id_text)
        key = (
            self._id(row, "variant", line, _stripped),
            self._id(row, "task", line, id_text),
            self._id(row, "seed", line, seed_text),
            own,
        )
        attempt = id_text(row.get("attempt"))
        if self.attempts.setdefault(key[:-1], attempt) != attempt and not nameless:
            return key, None
        run = self.runs.get(key)
        if run is None:
            run = self.runs[key] = _RunRows()
            self._refuse_too_many()
        return key, run

    def _read_row(
        self, run: _RunRows, key: RunKey, row: Mapping[str, Any], values: Iterable[tuple[str, Any]], line: int
    ) -> None:
        if "status" in row and not is_missing(row["status"]):
            run.status = self._status(row["status"], line) or run.status
        has_steps = "step" in row
        step = self._step(row["step"], line) if has_steps else 0.0
        if "metric" in row:
            metric = str(row["metric"]).strip()
            if metric in self.metrics:
                self._take(run, key, metric, step, self._number(row["value"], self.file.columns["value"] or "", line))
            return
        for metric, cell in values:
            if not has_steps or not is_missing(cell):
                self._take(run, key, metric, step, self._number(cell, metric, line))

    def _id(self, row: Mapping[str, Any], role: str, line: int, spelled: Any) -> str:
        value = row.get(role)
        if value is None or value != value:  # NaN, which Python's json module writes
            return ""
        why = refuse_shape(value, bools=role == "variant")
        if why is not None:
            self.problems.add(f"{self.file.place(line)}: {self.file.columns[role]} {why}")
            return ""
        return str(spelled(value))

    def _status(self, value: Any, line: int) -> tuple[Status, str | None] | None:
        text = str(value).strip()
        status = _status_of(text)
        if status is None:
            self.problems.add(
                f"{self.file.place(line)}: {self.file.columns['status']} is {text[:40]!r}, which is not a known status"
                f" ({known_statuses()}); pass --status-column none to ignore the column"
            )
            return None
        return status, None if status is Status.COMPLETED else text

    def _step(self, cell: Any, line: int) -> float:
        column = self.file.columns["step"] or ""
        step = self._number(cell, column, line)
        if not math.isfinite(step) and (is_missing(cell) or number_in(cell) is not None):
            message = f"{self.file.place(line)}: {column} is empty or not finite; every value needs a step"
            self.problems.add(message)
        return step

    def _number(self, cell: Any, column: str, line: int) -> float:
        number = number_in(cell)
        if number is not None:
            return number
        if not is_missing(cell):
            self.problems.add(f"{self.file.place(line)}: {column} {why_no_number(cell)}")
        return math.nan

    def _take(self, run: _RunRows, key: RunKey, metric: str, step: float, value: float) -> None:
        known = run.points.get(metric)
        if known is None:
            known = run.points[metric] = (self.file, array("d"), array("d"))
        elif known[0] is not self.file:
            self._refuse_two_files(key, known[0])
        elif self.file.columns["step"] is None:
            self._refuse_second_value(key)
        known[1].append(step)
        known[2].append(value)

    def _run_text(self, key: RunKey) -> str:
        variant, task, seed, run = key
        parts = {"variant": variant, "task": task, "seed": seed, "run": run}
        return ", ".join(f"{role} {value}" for role, value in parts.items() if value and self.file.columns[role])

    def _refuse_two_files(self, key: RunKey, first: TableFile) -> None:
        raise UserError(
            f"{first.label} and {self.file.label} both have values of {self._run_text(key) or 'one run'}",
            hint="Specify the column that identifies the run with --run-column, or omit one of the files.",
        )

    def _refuse_second_value(self, key: RunKey) -> None:
        """Refuse rows that no column distinguishes. They are not one run, so the user must name the column."""
        free = self.table.text_columns()
        guess = f", such as {free[0]}" if free else ""
        options = ["--task-column", "--step-column", "--run-column"]
        missing = self.file.columns["variant"] is None
        raise UserError(
            f"{self.file.label} has more than one value for {self._run_text(key) or 'a run'}"
            + (" and no column for the variant" if missing else ""),
            hint=f"Specify the column of the variant{guess}, with --variant-column."
            if missing
            else f"Specify the column that distinguishes them{guess}, with {', '.join(options[:-1])} or {options[-1]}.",
        )

    def _refuse_too_many(self) -> None:
        if len(self.runs) > MOST_RUNS:
            raise UserError(
                f"{self.table.label} has more than {MOST_RUNS:,} runs",
                hint="Without a run, seed or step column every row is a run. Specify one, for example with "
                "--seed-column.",
            )


def _stripped(value: Any) -> str:
    return str(value).strip()


def known_statuses() -> str:
    """Return the known status words as one line."""
    return "; ".join(f"{status}: {', '.join(words)}" for status, words in STATUS_WORDS.items())


def _trace(key: RunKey, status: tuple[Status, str | None], curves: Mapping[str, Any]) -> Trace:
    variant, task, seed, own = key
    run = own or (seed and f"seed {seed}")
    name = "/".join(filter(None, [variant, task, run]))
    return Trace(name, variant or "all", seed or None, curves, status[0], status[1], task or None)


# Opening files


def read_table(paths: Path | Sequence[Path], columns: Columns) -> Table:
    """Open one or more CSV, TSV, JSONL or JSON files as one table. Raises a UserError if they cannot be read."""
    given = [paths] if isinstance(paths, Path) else list(paths)
    _refuse_same_file(given)
    files: list[TableFile] = []
    left = MOST_BYTES
    for path in given:
        files.append(_open(path, columns, left))
        left -= len(files[-1].content)
    _refuse_other_roles(files)
    files = [_with_state(file, columns) for file in files]
    return Table(files, [_scan(file) for file in files])


def _refuse_same_file(paths: Sequence[Path]) -> None:
    seen: dict[Path, Path] = {}
    for path in paths:
        if seen.setdefault(path.resolve(), path) is not path:
            raise UserError(f"{path} was given twice", hint="Pass each file once.")


def _refuse_other_roles(files: Sequence[TableFile]) -> None:
    """Refuse files with different roles, for example one with a seed column and one without."""
    first = files[0]
    problems = []
    for file in files[1:]:
        for role, name in file.columns.items():
            if (name is None) != (first.columns[role] is None) and role != "status":
                having, lacking = (first, file) if name is None else (file, first)
                problems.append(
                    f"{having.label} has a column for the {role}, '{having.columns[role]}'; {lacking.label} has none"
                )
    if problems:
        raise UserError(
            problems[0], problems=problems[1:MOST_PROBLEMS], hint="Use the same columns in all files, or specify them."
        )


def _with_state(file: TableFile, columns: Columns) -> TableFile:
    """Use a column `State`, as in W&B, as the status column if at least one of its cells is a known status."""
    states = [name for name in file.names if name.lower() == "state" and name not in file.columns.values()]
    if columns.status is not None or not states:
        return file
    holding = [
        name
        for place, name in enumerate(states)
        if any(isinstance(cells[place], str) and _status_of(cells[place]) for _, cells in file.rows(states))
    ]
    candidates = [*filter(None, [file.columns["status"]]), *holding]
    if len(candidates) > 1:
        raise UserError(two_candidates("status", candidates, file.label))
    return replace(file, columns={**file.columns, "status": candidates[0]}) if candidates else file


def _status_of(text: str) -> Status | None:
    return _STATUSES.get(text.strip().lower().replace(" ", "_").replace("-", "_"))


def read_csv_rows(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a small CSV file as dictionaries, with the same rules and limits as tables."""
    file = _open(path, Columns(status=IGNORE), MOST_BYTES, roles=False)
    named = [name for name in file.names if name]
    return [dict(zip(named, cells, strict=True)) for _, cells in file.rows(named)]


def _open(path: Path, columns: Columns, most: int, *, roles: bool = True) -> TableFile:
    try:
        content = read_file(path, most=most, hint="Remove columns and rows that are not needed.")
    except FileNotFoundError:
        raise UserError(f"no file {path}") from None
    _refuse_binary(path, content)
    content = content.removeprefix(b"\xef\xbb\xbf")
    _refuse_too_long(path, content)
    delimiter, listed = ",", None
    if path.suffix.lower() in JSON_SUFFIXES and roles:
        if content.lstrip()[:1] == b"[":
            listed = _array(path, content)
        names = _json_names(path, content, listed)
    else:
        delimiter = _delimiter(content)
        if content.count(delimiter.encode()) > MOST_CELLS:
            raise UserError(f"{path.name} has more than {MOST_CELLS:,} cells")
        names = header_names(_header(path, content, delimiter), path.name)
    if not any(names):
        raise UserError(f"{path} has no rows", hint="It needs a header and one line per value.")
    if len(names) > MOST_COLUMNS:
        raise UserError(f"{path.name} has more than {MOST_COLUMNS:,} columns", hint="Remove those not needed.")
    by_role = columns.found_in(names, path.name) if roles else {}
    return TableFile(path, content, names, by_role, delimiter, listed)


def _refuse_binary(path: Path, content: bytes) -> None:
    hint = "Export it as CSV or JSONL, in UTF-8."
    kind = next((kind for mark, kind in _SIGNATURES if content.startswith(mark)), None)
    if kind is not None:
        raise UserError(f"{path} is {kind}, not a CSV or JSONL file", hint=hint)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UserError(f"{path} is encoded in UTF-16", hint="Save it as UTF-8.")
    if b"\0" in content:
        raise UserError(f"{path} is a binary file, not a CSV or JSONL file", hint=hint)
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"{path} is not valid UTF-8: byte 0x{content[error.start]:02x} in line {line}"
        raise UserError(message, hint="Save it as UTF-8.") from None


def _refuse_too_long(path: Path, content: bytes) -> None:
    if max(content.count(b"\n"), content.count(b"\r")) > MOST_LINES:
        raise UserError(
            f"{path.name} has more than {MOST_LINES:,} lines",
            hint="Keep only every tenth step, or only the metric that you need.",
        )


def _first_line(content: bytes) -> bytes:
    return content[:LONGEST_LINE_BYTES].lstrip(b"\r\n").replace(b"\r", b"\n").split(b"\n", 1)[0]


def _delimiter(content: bytes) -> str:
    head = _first_line(content)
    counts = {mark: head.count(mark.encode()) for mark in DELIMITERS}
    return max(DELIMITERS, key=lambda mark: counts[mark])


def _header(path: Path, content: bytes, delimiter: str) -> list[Any]:
    if _first_line(content).count(delimiter.encode()) > MOST_COLUMNS:
        raise UserError(f"{path.name} has more than {MOST_COLUMNS:,} columns", hint="Remove those not needed.")
    _, cells = next(_csv_rows(content, delimiter, path.name, header=True), (0, []))
    return cells


def _array(path: Path, content: bytes) -> list[dict[str, Any]]:
    if len(content) > MOST_ARRAY_BYTES:
        message = f"{path.name} is a JSON array of more than {MOST_ARRAY_BYTES >> 20} MB"
        raise UserError(message, hint="Write one object per line (.jsonl) instead.")
    if content.count(b",") > MOST_CELLS or content.count(b"{") > MOST_LINES:
        raise UserError(f"{path.name} has more than {MOST_LINES:,} rows or {MOST_CELLS:,} cells")
    rows = parse_json(content, where=path.name, hint=None, error=UserError)
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise UserError(f"{path.name}, row {number} is not a JSON object")
    return list(rows)


def _json_names(path: Path, content: bytes, listed: Sequence[Mapping[str, Any]] | None) -> list[str]:
    """Return the keys of all rows in order of appearance. Refuse keys that differ only by surrounding spaces."""
    names: dict[str, None] = {}
    rows = enumerate(listed, 1) if listed is not None else _json_rows(content, path.name, checked=False)
    for _, row in rows:
        if not row.keys() <= names.keys():
            names.update(dict.fromkeys(row))
            if len(names) > MOST_COLUMNS:
                raise UserError(f"{path.name} has more than {MOST_COLUMNS:,} different keys")
    spaced = [name for name in names if name != name.strip() and name.strip() in names]
    if spaced:
        message = f"{path.name} has the keys '{spaced[0].strip()}' and '{spaced[0]}', which differ only by spaces"
        raise UserError(message, hint="Rename or remove one of them.")
    return list(names)


def _scan(file: TableFile) -> _Scan:
    """Run the first pass, which finds numeric columns and the names of metrics."""
    scan = _Scan()
    columns = file.columns
    if columns["metric"] is not None and columns["value"] is not None:
        for line, [name] in file.rows([columns["metric"]]):
            scan.rows += 1
            if isinstance(name, list | dict):
                raise UserError(f"{file.place(line)}: {columns['metric']} {refuse_shape(name)}")
            if not is_missing(name):
                scan.metrics[str(name).strip()] = None
    else:
        taken = {name for role, name in columns.items() if name and role != "value"}
        names = [name for name in file.names if name not in taken and not is_index(name)]
        _scan_numbers(file, names, scan)
    if not scan.rows:
        raise UserError(f"{file.path} has no rows", hint="It needs a header and one line per value.")
    return scan


def _scan_numbers(file: TableFile, names: list[str], scan: _Scan) -> None:
    open_names = list(range(len(names)))
    counting = [place for place, name in enumerate(names) if name.lower() in ("index", "level_0")]
    counts = set(counting)
    for line, cells in file.rows(names):
        remaining = []
        for place in open_names:
            if number_in(cells[place]) is not None:
                scan.numeric[names[place]] = False
            else:
                remaining.append(place)
                if names[place] not in scan.examples and not is_missing(cells[place]):
                    scan.examples[names[place]] = f"{file.place(line)}: {names[place]} {why_no_number(cells[place])}"
        open_names = remaining
        for place in counting:
            if place in counts and number_in(cells[place]) != scan.rows:
                counts.discard(place)
        scan.rows += 1
    for place in counts:
        scan.numeric[names[place]] = True
    scan.numeric = {name: scan.numeric[name] for name in names if name in scan.numeric}
    scan.examples = {name: message for name, message in scan.examples.items() if name not in scan.numeric}


class TableReader(Reader):
    """Reader for tables in general. It accepts every path that no other reader recognizes."""

    def recognize(self, path: Path) -> str:
        return "JSON lines or a JSON array" if path.suffix.lower() in JSON_SUFFIXES else "a CSV or TSV table"

    def read(self, path: Path) -> Iterator[ImportedRun]:
        table = self.open([path], Columns())
        for trace in table.traces(table.metrics()):
            yield ImportedRun(
                trace.run, trace.curves, trace.variant, trace.seed, trace.task, status=trace.status.value,
                reason=trace.reason,
            )  # fmt: skip

    def open(self, paths: Sequence[Path], columns: Columns) -> Table:
        return read_table(paths, columns)


TABLE_READER = TableReader()
