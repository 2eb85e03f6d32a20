"""Read a program's metrics from its JSONL or CSV file while the program writes it.

Programs do not only append. Lightning's CSVLogger rewrites the whole file when a new metric appears, Stable-Baselines3
overwrites it in place, and others replace it with another file. Each poll therefore checks that the part read before
is unchanged. If it has changed, the file is read again from the start as soon as two polls in a row find it
unmodified, and only rows that were not logged before are logged.

Errors in the file never stop the program. They are reported after the program has ended.
"""

from __future__ import annotations

import csv
import math
import os
import stat
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

from fairtrial.core.cells import csv_records, is_index, is_missing, number_in, repeated
from fairtrial.core.untrusted import parse_json_line
from fairtrial.plugins import RunLogger, UserError

LONGEST_LINE_BYTES = 8 << 20
MOST_AT_ONCE_BYTES = 8 << 20
"""Limit of bytes read per poll, so that a program that writes without pause can still be stopped."""
TAIL_BYTES = 1024
MOST_PROBLEMS = 5
_OWN_NAMES = {"step": "program_step", "_time": "program_time"}
"""Metric names to rename, because each logged line of a run has its own `step` and `_time`."""


class _Row(NamedTuple):
    """One row to log, or the problem that prevents it."""

    step: int
    values: dict[str, float]
    problem: str | None = None


class _State(NamedTuple):
    """File attributes that change when the file changes. Comparing them avoids reading the file."""

    inode: int
    size: int
    changed_ns: int


@dataclass
class _Place:
    """The position up to which a file was read, and what is needed to detect that the part before it has changed."""

    offset: int = 0
    inode: int | None = None
    names: list[str] | None = None
    """The columns of a CSV file."""
    head: bytes = b""
    tail: bytes = b""
    rows: array[int] = field(default_factory=lambda: array("q"))
    """A hash of each row, to recognize rows after the file was rewritten."""

    def remember(self, file: IO[bytes], reading: _Reading) -> None:
        """Store the CSV header (or the first bytes) and the last bytes that were read, for later comparison."""
        if not self.head:
            self.head = _bytes_at(file, 0, reading.header_end or min(reading.end, TAIL_BYTES))
        start = max(0, reading.end - TAIL_BYTES)
        self.tail = _bytes_at(file, start, reading.end - start)
        self.inode = os.fstat(file.fileno()).st_ino
        self.offset, self.names = reading.end, reading.names


class MetricsFile:
    """A metrics file that another program is writing: JSONL, or CSV with a header."""

    def __init__(self, path: Path, step_column: str) -> None:
        self.path = path
        self.step_column = step_column
        self.problems: list[str] = []
        self._is_csv = path.suffix == ".csv"
        self._place = _Place()
        self._logged = 0
        self._changed = False
        self._last: _State | None = None
        self._judged: _State | None = None
        if path.is_dir():
            raise UserError(f"{path} is a folder, not a metrics file", hint="Check --metrics.")
        if path.exists():  # rows left by another run or by the user must not be logged as this run's
            path.rename(path.with_name(f"{path.name}.before-{time.time_ns()}"))

    def copy_new(self, logger: RunLogger, *, ended: bool = False) -> None:
        """Log the new rows of the file. With `ended`, log all remaining rows and collect the file's problems."""
        try:
            state = self._state()
            if state is None or (state == self._judged and not ended):
                return
            settled, self._last = state == self._last, state
            if not self._changed and not (ended and self.problems):
                self._changed = not self._append(logger, state, ended=ended)
            if self._changed or (ended and self.problems):
                if ended:
                    self._read_at_end(logger)
                elif settled and self._read_again(logger):
                    self._changed = False
                self._judged = state if settled else None
        except OSError as error:
            if ended and not isinstance(error, FileNotFoundError):
                self.problems.append(f"cannot read {self.path}: {error.strerror or error}")

    def check(self) -> None:
        """Raise UserError if the file has problems or no rows. Call this after the program has ended."""
        if self.problems:
            raise UserError(
                self.problems[0],
                problems=self.problems[1:MOST_PROBLEMS],
                hint="All readable rows were logged. Check --metrics and --step-column.",
            )
        if not self._logged:
            raise UserError(f"the program wrote no metrics to {self.path}", hint="Check --metrics.")

    def _state(self) -> _State | None:
        try:
            file_status = self.path.stat()
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(file_status.st_mode):
            self.problems = [f"{self.path} is a pipe, device or folder, not a metrics file"]
            return None
        return _State(file_status.st_ino, file_status.st_size, file_status.st_mtime_ns)

    # Appended files

    def _append(self, logger: RunLogger, state: _State, *, ended: bool) -> bool:
        """Log the rows that were appended. Return False if the part read before has changed."""
        place = self._place
        if place.inode not in (None, state.inode) or state.size < place.offset:
            return False
        more = True
        while more:
            if state.size == place.offset and not ended:
                return True
            with self._open() as file:
                file.seek(place.offset)
                rows = _Reading(self, file, place.names, place.offset, ended=ended, number=len(place.rows))
                new = list(rows.read(MOST_AT_ONCE_BYTES))
                # Checked after reading: a program that overwrites the file meanwhile starts at its first bytes.
                if not self._is_continued(file):
                    return False
                more = ended and rows.end > place.offset
                place.remember(file, rows)
            self.problems += rows.problems
            for row in new:
                self._log(logger, row)
                place.rows.append(_hash(row, None))
        if ended and place.offset < state.size and not self.problems:
            self._note(f"row {len(place.rows) + 1} of {self.path} is longer than {LONGEST_LINE_BYTES >> 20} MB")
        return True

    def _is_continued(self, file: IO[bytes]) -> bool:
        place = self._place
        now = os.fstat(file.fileno())
        if now.st_size < place.offset or place.inode not in (None, now.st_ino):
            return False
        start = place.offset - len(place.tail)
        return (
            _bytes_at(file, 0, len(place.head)) == place.head and _bytes_at(file, start, len(place.tail)) == place.tail
        )

    # Rewritten files

    def _read_again(self, logger: RunLogger) -> bool:
        """Read a rewritten file from the start and log the rows and columns that are new.

        Return False and log nothing if the file does not contain all rows that were logged before. The program may
        still be writing it.
        """
        before = self._place
        known = None if before.names is None else {_logged_name(name) for name in before.names}
        place = _Place()
        with self._open() as file:
            reading = _Reading(self, file, None, 0, ended=False, number=0)
            new: list[_Row] = []
            for number, row in enumerate(reading.read(None)):
                place.rows.append(_hash(row, None))
                if number >= len(before.rows):
                    new.append(row)
                elif _hash(row, known) != before.rows[number]:
                    return False
                elif known is not None and (more := {k: v for k, v in row.values.items() if k not in known}):
                    new.append(_Row(row.step, more))
                if len(new) > MOST_AT_ONCE_BYTES // 64:
                    return False  # too many rows to hold in memory: they are logged after the program has ended
            if len(place.rows) < len(before.rows) or reading.problems or reading.is_ragged:
                return False
            place.remember(file, reading)
        self._place = place
        self.problems = []
        for row in new:
            self._log(logger, row)
        return True

    def _read_at_end(self, logger: RunLogger) -> None:
        """Log the final contents of the file. If earlier rows have changed, log all rows again over the old ones."""
        before = self._place
        known = None if before.names is None else {_logged_name(name) for name in before.names}
        same = 0
        for number, row in enumerate(self._all_rows([])):
            if number >= len(before.rows) or _hash(row, known) != before.rows[number]:
                break
            same += 1
        from_start = same < len(before.rows)
        self.problems = []
        for number, row in enumerate(self._all_rows(self.problems)):
            if from_start or number >= same:
                self._log(logger, row)
            elif known is not None and (more := {k: v for k, v in row.values.items() if k not in known}):
                self._log(logger, _Row(row.step, more, row.problem))
            elif row.problem:
                self._note(row.problem)

    def _all_rows(self, problems: list[str]) -> Iterator[_Row]:
        with self._open() as file:
            reading = _Reading(self, file, None, 0, ended=True, number=0)
            yield from reading.read(None)
            problems += reading.problems

    def _open(self) -> IO[bytes]:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(0, "it is not a regular file")
        return os.fdopen(descriptor, "rb")

    def _log(self, logger: RunLogger, row: _Row) -> None:
        if row.problem is not None:
            self._note(row.problem)
        else:
            try:
                logger.log(row.step, row.values)
            except UserError as error:
                if type(error) is not UserError:  # a subclass, such as for a full disk, is not caused by this row
                    raise
                self._note(f"cannot log step {row.step} of {self.path}: {error.message}")
        self._logged += 1

    def _note(self, problem: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)

    # Single rows

    def row(self, cells: Mapping[str, Any], number: int) -> _Row:
        """Convert a row to the form that is logged: its integer step and its numeric values."""
        where = f"row {number} of {self.path}"
        column = self._step_name(cells)
        given = None if column is None else cells[column]
        if given is None or is_missing(given):
            message = f"{where} has no '{self.step_column}'; it has: {', '.join(map(str, cells))[:200]}"
            return _Row(0, {}, message)
        step = None if isinstance(given, bool) else number_in(given)
        if step is None or not math.isfinite(step) or not step.is_integer() or abs(step) >= 2**63:
            return _Row(0, {}, f"{where} has the step {str(given)[:40]}; steps must be integers")
        values: dict[str, float] = {}
        for name, value in cells.items():
            parsed = float(value) if isinstance(value, bool) else number_in(value)
            if parsed is not None and name != column and not is_index(name):
                values[_logged_name(name)] = parsed
        return _Row(given if type(given) is int else int(step), values)

    def _step_name(self, cells: Mapping[str, Any]) -> str | None:
        if self.step_column in cells:
            return self.step_column
        alike = [name for name in cells if name.lower() == self.step_column.lower()]
        return alike[0] if len(alike) == 1 else None


class _Reading:
    """One pass over a file from an offset: yields its complete rows and tracks where they end."""

    def __init__(
        self, of: MetricsFile, file: IO[bytes], names: list[str] | None, offset: int, *, ended: bool, number: int
    ) -> None:
        self.of, self.file, self.names = of, file, names
        self.end = offset
        self.header_end = 0
        self.problems: list[str] = []
        self._ended = ended
        self._number = number
        self._taken = offset
        self._at_end = False
        self.is_ragged = False
        """Whether a row has more or fewer cells than the header, as while a program rewrites it with more columns."""

    def read(self, most: int | None) -> Iterator[_Row]:
        return self._csv_rows(most) if self.of._is_csv else self._json_rows(most)

    def _lines(self, most: int | None) -> Iterator[bytes]:
        """Yield complete lines, split at line feeds only. After the program has ended, the last may lack one."""
        first = self._taken
        while most is None or self._taken - first < most:
            line = self.file.readline(LONGEST_LINE_BYTES + 1)
            if len(line) > LONGEST_LINE_BYTES:
                self.problems.append(
                    f"row {self._number + 1} of {self.of.path} is longer than {LONGEST_LINE_BYTES >> 20} MB"
                )
                return
            if not line or not (line.endswith(b"\n") or self._ended):
                self._at_end = True
                return
            is_first, self._taken = self._taken == 0, self._taken + len(line)
            yield line.removeprefix(b"\xef\xbb\xbf") if is_first else line

    def _json_rows(self, most: int | None) -> Iterator[_Row]:
        for line in self._lines(most):
            self.end = self._taken
            if line.strip():
                self._number += 1
                yield self._json_row(line.strip())

    def _json_row(self, line: bytes) -> _Row:
        where = f"row {self._number} of {self.of.path}"
        try:
            json_line = parse_json_line(line.decode(errors="replace").encode(), where=where)
        except UserError as error:
            shown = line[:60].decode(errors="replace")
            is_json = "valid JSON" not in error.message
            return _Row(0, {}, error.message if is_json else f"{where} is not JSON: {shown!r}")
        if not isinstance(json_line, dict):
            return _Row(0, {}, f"{where} is not a JSON object: {line[:60].decode(errors='replace')!r}")
        return self.of.row(json_line, self._number)

    def _csv_rows(self, most: int | None) -> Iterator[_Row]:
        lines = (line.decode(errors="replace") for line in self._lines(most))
        try:
            for cells, is_whole, _ in csv_records(lines):
                if not is_whole:
                    if self._ended and self._at_end:
                        self.problems.append(f"row {self._number + 1} of {self.of.path} has an unclosed quote")
                    return
                self.end = self._taken
                if self.names is None:
                    self._take_header(cells)
                elif any(cells) and cells != self.names:
                    self._number += 1
                    yield self._csv_row(cells)
        except csv.Error as error:
            self.problems.append(f"{self.of.path} is not a CSV file: {error}")

    def _take_header(self, cells: Sequence[str]) -> None:
        if not any(cells):
            return
        self.names = [cell.strip() for cell in cells]
        self.header_end = self._taken
        for name, first, second in repeated(self.names)[:MOST_PROBLEMS]:
            self.problems.append(f"{self.of.path} has the column '{name}' twice, as columns {first} and {second}")

    def _csv_row(self, cells: Sequence[str]) -> _Row:
        names = self.names or []
        if len(cells) > len(names) and any(cells[len(names) :]):
            self.is_ragged = True
            message = f"row {self._number} of {self.of.path} has {len(cells)} cells, its header has {len(names)}"
            return _Row(0, {}, message)
        self.is_ragged |= len(cells) != len(names)
        twice = {name for name, *_ in repeated(names)}
        return self.of.row(
            {name: cell for name, cell in zip(names, cells, strict=False) if name not in twice}, self._number
        )


def _logged_name(name: str) -> str:
    return _OWN_NAMES.get(name, name)


def _bytes_at(file: IO[bytes], start: int, count: int) -> bytes:
    return os.pread(file.fileno(), count, start) if count else b""


def _hash(row: _Row, known: set[str] | None) -> int:
    """Return a hash of a row's content, restricted to the columns in `known` if given."""
    values = sorted(
        (name, "nan" if value != value else value)
        for name, value in row.values.items()
        if known is None or name in known
    )
    return hash((row.step, row.problem, tuple(values)))
