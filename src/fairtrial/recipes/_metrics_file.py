"""Reads the metrics of a program from the JSONL or CSV file that it writes, while it writes it.

Programs do not only append. Lightning's CSVLogger writes the whole file again when a metric comes up for the first
time, Stable-Baselines3 overwrites it in place, others replace it by another file. So what was read before is checked
at every look: where it is no longer there as it was, the file is read again from its beginning once it has come to
rest, and only rows that were not logged before are logged.

Nothing that a file holds ends its program. What is wrong with it is judged when the program has ended.
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
"""What one look takes from a file, so that a program that writes without end can still be stopped."""
TAIL_BYTES = 1024
MOST_PROBLEMS = 5
_OWN_NAMES = {"step": "program_step", "_time": "program_time"}
"""Each line of a run has its own `step` and `_time`."""


class _Row(NamedTuple):
    """One row as it is logged, or why it cannot be."""

    step: int
    values: dict[str, float]
    problem: str | None = None


class _State(NamedTuple):
    """What tells one content of a file from another without reading it."""

    inode: int
    size: int
    changed_ns: int


@dataclass
class _Place:
    """How far a file was read, and what stood there."""

    offset: int = 0
    inode: int | None = None
    names: list[str] | None = None
    """Of a CSV file: its columns."""
    head: bytes = b""
    tail: bytes = b""
    rows: array[int] = field(default_factory=lambda: array("q"))
    """A hash of each row, to recognize it when the file was written again."""

    def remember(self, file: IO[bytes], reading: _Reading) -> None:
        """Keep the whole header, or the first bytes, and the last bytes that were read."""
        if not self.head:
            self.head = _bytes_at(file, 0, reading.header_end or min(reading.end, TAIL_BYTES))
        start = max(0, reading.end - TAIL_BYTES)
        self.tail = _bytes_at(file, start, reading.end - start)
        self.inode = os.fstat(file.fileno()).st_ino
        self.offset, self.names = reading.end, reading.names


class MetricsFile:
    """A file of metrics that another program is writing: JSONL, or CSV with a header."""

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
            raise UserError(f"{path} is a folder, not a file of metrics", hint="Check --metrics.")
        if path.exists():  # what another run or a person left there must not be taken for this run's
            path.rename(path.with_name(f"{path.name}.before-{time.time_ns()}"))

    def copy_new(self, logger: RunLogger, *, ended: bool = False) -> None:
        """Log what is new in the file. With `ended` everything that is left, and note what is wrong with it."""
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
        """Raise what is wrong with the file now that its program has ended. What was logged stays."""
        if self.problems:
            raise UserError(
                self.problems[0],
                problems=self.problems[1:MOST_PROBLEMS],
                hint="What could be read was logged. Check --metrics and --step-column.",
            )
        if not self._logged:
            raise UserError(f"the program wrote no metrics to {self.path}", hint="Check --metrics.")

    def _state(self) -> _State | None:
        try:
            file_status = self.path.stat()
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(file_status.st_mode):
            self.problems = [f"{self.path} is a pipe, device or folder, not a file of metrics"]
            return None
        return _State(file_status.st_ino, file_status.st_size, file_status.st_mtime_ns)

    # A file that grew

    def _append(self, logger: RunLogger, state: _State, *, ended: bool) -> bool:
        """Log the rows that were appended; False where what was read before is not there as it was."""
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
                if not self._is_continued(file):  # asked after reading: who overwrites a file begins at its head
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

    # A file that was written again

    def _read_again(self, logger: RunLogger) -> bool:
        """Find the rows that were logged before in a file that came to rest, and log the others; False if not found.

        A program may be in the middle of writing it: then a row is missing or another one, and nothing is logged.
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
                    return False  # so much at once is left to the end
            if len(place.rows) < len(before.rows) or reading.problems or reading.is_ragged:
                return False
            place.remember(file, reading)
        self._place = place
        self.problems = []
        for row in new:
            self._log(logger, row)
        return True

    def _read_at_end(self, logger: RunLogger) -> None:
        """The file as its program left it counts: rows that are not those logged before are logged over them."""
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
            raise OSError(0, "it is not a file")
        return os.fdopen(descriptor, "rb")

    def _log(self, logger: RunLogger, row: _Row) -> None:
        if row.problem is not None:
            self._note(row.problem)
        else:
            try:
                logger.log(row.step, row.values)
            except UserError as error:
                if type(error) is not UserError:  # such as a full disk: not the fault of this row
                    raise
                self._note(f"step {row.step} of {self.path} cannot be logged: {error.message}")
        self._logged += 1

    def _note(self, problem: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)

    # One row

    def row(self, cells: Mapping[str, Any], number: int) -> _Row:
        """A row as it is logged: its step as a whole number, and those of its values that are numbers."""
        where = f"row {number} of {self.path}"
        column = self._step_name(cells)
        given = None if column is None else cells[column]
        if given is None or is_missing(given):
            message = f"{where} has no '{self.step_column}'; it has: {', '.join(map(str, cells))[:200]}"
            return _Row(0, {}, message)
        step = None if isinstance(given, bool) else number_in(given)
        if step is None or not math.isfinite(step) or not step.is_integer() or abs(step) >= 2**63:
            return _Row(0, {}, f"{where} has the step {str(given)[:40]}; steps are whole numbers")
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
    """One pass over a file from a place on: yields its whole rows, and knows where they end."""

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
        """Whether rows have fewer cells than the header, as where a file is being overwritten with more columns."""

    def read(self, most: int | None) -> Iterator[_Row]:
        return self._csv_rows(most) if self.of._is_csv else self._json_rows(most)

    def _lines(self, most: int | None) -> Iterator[bytes]:
        """Whole lines, split at line feeds alone; the last may lack one when its program has ended."""
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
                        self.problems.append(f"row {self._number + 1} of {self.of.path} has a quote that does not end")
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
    """A row by its content, or by the part of it that an earlier header had columns for."""
    values = sorted(
        (name, "nan" if value != value else value)
        for name, value in row.values.items()
        if known is None or name in known
    )
    return hash((row.step, row.problem, tuple(values)))
