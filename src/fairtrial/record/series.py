"""The metrics of a run: append-only lines while it lives, columns once it has ended.

A line of `metrics.jsonl` either has a `step` and holds values, or has none and is a control line. Names of metrics are
the user's and decide nothing. Everything here reads and writes in blocks, so that a run of ten million points takes no
more memory than a short one; only `read_series`, whose result is all points, does.
"""

from __future__ import annotations

import hashlib
import math
import os
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from fairtrial.core.errors import StoreError
from fairtrial.core.paths import RunPaths
from fairtrial.core.untrusted import DAMAGED
from fairtrial.record.atomic import Sync, replace_file
from fairtrial.record.lines import (
    Lines,
    drop_torn_line,
    events_named,
    is_torn,
    iter_rows,
    line_blocks,
    parse_block,
    read_lines,
    reversed_lines,
)
from fairtrial.record.spill import Block, Spill

if TYPE_CHECKING:
    import numpy

__all__ = ["Lines", "drop_torn_line", "is_torn", "iter_rows", "read_lines", "reversed_lines"]

STEP, TIME = RESERVED = ("step", "_time")
"""What each line has of its own, so that no metric can have these names."""
REWIND = "_rewind"
"""The key of a control line, which has no `step`: it takes back what was logged after the step that it names."""
KEPT_BYTES = "kept_bytes"
"""In a control line: of what stands before it, only so many bytes count. The rest was damaged."""
FROM_THE_BEGINNING = -1
MOST_STEP = 2**63 - 1

_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def spell(value: float) -> float | str:
    """JSON has no NaN and no infinity; they are written as words, so that they are not lost as null."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def unspell(value: Any) -> float:
    return _WORDS[value] if isinstance(value, str) else value


# Control lines


@dataclass(frozen=True)
class Rewind:
    """Another attempt goes on from `step`; -1 means from the beginning."""

    step: int
    kept_bytes: int | None = None

    def to_row(self) -> dict[str, int]:
        return {REWIND: self.step} if self.kept_bytes is None else {REWIND: self.step, KEPT_BYTES: self.kept_bytes}


def rewind_of(row: Any) -> Rewind | None:
    """What a control line says; None for every other line, whatever its metrics are called."""
    if type(row) is not dict or STEP in row or not row.keys() <= {REWIND, KEPT_BYTES}:
        return None
    step, kept = row.get(REWIND), row.get(KEPT_BYTES)
    if type(step) is not int or (kept is not None and type(kept) is not int):
        return None
    return Rewind(step, kept)


def metric_row(path: Path, line: bytes) -> dict[str, Any] | None:
    """A line that holds values; None for a control line or an empty one. Others are damaged."""
    if not line:
        return None
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        row = None
    if type(row) is dict and type(row.get(STEP)) is int and type(row.get(TIME, 0.0)) in (int, float):
        return {STEP: row.pop(STEP), TIME: row.pop(TIME, None), **row}
    if rewind_of(row) is None:
        shown = line[:60].decode(errors="replace")
        raise StoreError(f"{path} has a line that is not a line of metrics: {shown}", hint=DAMAGED)
    return None


def last_row(path: Path) -> dict[str, Any] | None:
    """The newest whole line, read from the end: cheap enough to poll while the run goes on."""
    try:
        _, line = next(reversed_lines(path), (0, b""))
        row = orjson.loads(line)
    except (StoreError, orjson.JSONDecodeError):
        return None
    return row if isinstance(row, dict) else None


def last_step(path: Path) -> int | None:
    """The newest step that a run has logged."""
    row = last_row(path)
    if row is None:
        return None
    rewind = rewind_of(row)
    step = rewind.step if rewind else row.get(STEP)
    return max(0, step) if type(step) is int else None


# The length and the hash of a file that grows


@dataclass(frozen=True)
class Extent:
    """How long the whole lines of a file are, how many there are, and the hash of their bytes."""

    lines: int
    bytes: int
    sha256: str

    def to_dict(self) -> dict[str, Any]:
        return {"lines": self.lines, "bytes": self.bytes, "sha256": self.sha256}

    @classmethod
    def from_record(cls, record: Any) -> Extent | None:
        """As it was recorded, or None where nothing was, as in runs of earlier versions."""
        if not isinstance(record, Mapping):
            return None
        found = [record.get(name) for name in ("lines", "bytes", "sha256")]
        return cls(*found) if list(map(type, found)) == [int, int, str] else None  # type: ignore[arg-type]


class GrowingHash:
    """Hashes the lines of a growing file, every byte once, when it is asked to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines, self._bytes = 0, 0
        self._hash = hashlib.sha256()

    def extent(self) -> Extent:
        """Of all whole lines that are there now, whoever wrote them."""
        if self.is_cut_off():
            raise StoreError(f"{self.path} was cut off while the run was being made", hint=DAMAGED)
        for _, block in line_blocks(self.path, self._bytes):
            self._add(block)
        return Extent(self._lines, self._bytes, self._hash.hexdigest())

    def is_cut_off(self) -> bool:
        """Whether the file is shorter than it was when it was last asked for."""
        return self._bytes > 0 and (not self.path.exists() or self.path.stat().st_size < self._bytes)

    def go_to(self, wanted: Sequence[int]) -> dict[int, Extent]:
        """The extents at these offsets, as far as the file reaches, in one pass; the hash then stands at the last."""
        found = {}
        for offset in sorted(set(wanted)):
            for _, block in line_blocks(self.path, self._bytes, offset):
                self._add(block)
            if self._bytes != offset:  # the file ends before it, or no line does there
                break
            found[offset] = Extent(self._lines, self._bytes, self._hash.hexdigest())
        return found

    def _add(self, block: bytes) -> None:
        self._hash.update(block)
        self._lines += block.count(b"\n")
        self._bytes += len(block)


@dataclass(frozen=True)
class Base:
    """The lines that a checkpoint builds on, as a resume finds them."""

    problem: str | None
    rest_is_damaged: bool = False


def check_base(path: Path, step: int, then: Extent) -> Base:
    """Whether the lines that a checkpoint of this step was made after are still there, byte for byte, and still count.

    `rest_is_damaged`: what was logged after the checkpoint cannot be read.
    """
    now = GrowingHash(path).go_to([then.bytes]).get(then.bytes)
    if now is None:
        return Base(f"{path.name} is shorter than the {then.lines:,} lines that the checkpoint builds on")
    if now != then:
        return Base(f"{path.name} was changed: its first {then.lines:,} lines are not those the checkpoint builds on")
    seen = survey(path)
    for offset, rewind in seen.rewinds:
        kept = then.bytes if rewind.kept_bytes is None else rewind.kept_bytes
        if offset >= then.bytes and (rewind.step < step or kept < then.bytes):
            return Base(f"a later attempt took back what {path.name} says up to the checkpoint")
    try:
        with Spill() as spill:
            collect(path, seen.after(then.bytes), spill)
    except StoreError:
        return Base(None, rest_is_damaged=True)
    return Base(None)


# Reading lines


@dataclass(frozen=True)
class Survey:
    """One look over a whole file: its extent, its size with a torn end, and the offsets between which lines count.

    `rewinds` are all control lines with the offsets at which they stand.
    """

    extent: Extent
    size: int
    counting: tuple[tuple[int, int], ...]
    rewinds: tuple[tuple[int, Rewind], ...] = ()

    def after(self, offset: int) -> Survey:
        """What counts of the lines from an offset on."""
        rest = tuple((max(start, offset), stop) for start, stop in self.counting if stop > offset)
        return replace(self, counting=rest)


def survey(path: Path) -> Survey:
    """What must be known before lines are read: a control line may say that lines before it do not count."""
    digest, lines, at = hashlib.sha256(), 0, 0
    ranges: list[tuple[int, int]] = []  # what counts up to `begun`
    rewinds: list[tuple[int, Rewind]] = []
    begun = 0
    for offset, block in line_blocks(path):
        digest.update(block)
        lines += block.count(b"\n")
        at = offset + len(block)
        place = -1
        while (place := block.find(b'{"' + REWIND.encode(), place + 1)) >= 0:
            if place and block[place - 1] != 0x0A:
                continue
            rewind = _control_line(block[place : block.find(b"\n", place)])
            if rewind is None:
                continue
            here = offset + place
            rewinds.append((here, rewind))
            kept = 0 if rewind.step == FROM_THE_BEGINNING else rewind.kept_bytes
            if kept is not None:
                ranges = [(a, min(b, kept)) for a, b in [*ranges, (begun, here)] if a < kept]
                begun = here
    size = path.stat().st_size if path.exists() else 0
    extent = Extent(lines, at, digest.hexdigest())
    return Survey(extent, max(size, at), (*ranges, (begun, at)), tuple(rewinds))


def _control_line(line: bytes) -> Rewind | None:
    try:
        return rewind_of(orjson.loads(line))
    except orjson.JSONDecodeError:
        return None


def collect(path: Path, seen: Survey, spill: Spill) -> None:
    """Read the lines that count. A step that was logged twice counts as last written; a rewind takes steps back."""
    for start, stop in seen.counting:
        for offset, block in line_blocks(path, start, stop):
            rows = _parse_at(path, offset, block)
            try:
                place = -1
                for row in rows:
                    place += 1
                    step = row.get(STEP)
                    if type(step) is int:
                        del row[STEP]
                        row.pop(TIME, None)
                        for value in row.values():
                            if type(value) is not float:
                                row = {name: _number(value) for name, value in row.items()}
                                break
                        spill.add(step, row)
                    elif (rewind := rewind_of(row)) is None:
                        raise TypeError
                    elif rewind.step != FROM_THE_BEGINNING:
                        spill.take_back_after(rewind.step)
            except (AttributeError, KeyError, TypeError):  # not an object, or what is in it is not a number
                number = _line_number(path, offset) + place
                raise StoreError(f"line {number} of {path} is not a line of metrics", hint=DAMAGED) from None
            except OverflowError:
                raise StoreError(f"{path} has a step beyond 64 bits", hint=DAMAGED) from None
    try:
        spill.close_input()
    except OverflowError:
        raise StoreError(f"{path} has a step beyond 64 bits", hint=DAMAGED) from None


def _number(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    return _WORDS[value]


def _parse_at(path: Path, offset: int, block: bytes) -> list[Any]:
    try:
        return parse_block(path, block)
    except StoreError:
        parse_block(path, block, _line_number(path, offset))  # the same with the right number
        raise


def _line_number(path: Path, offset: int) -> int:
    """The 1-based number of the line that begins there."""
    return 1 + sum(block.count(b"\n") for _, block in line_blocks(path, 0, offset))


# Blocks of series, from lines or from columns


@dataclass(frozen=True)
class Brief:
    """A series in brief. `low` and `high` are those of its finite values."""

    points: int
    last_step: int
    last: float
    low: float | None
    high: float | None


class SeriesBlocks(Protocol):
    """All series of a run, block by block."""

    @property
    def names(self) -> Sequence[str]: ...

    def blocks(self, name: str) -> Iterator[Block]:
        """The points of a metric in the order of steps."""

    def briefs(self) -> dict[str, Brief]: ...


class _FromLines:
    def __init__(self, spill: Spill) -> None:
        self._spill = spill

    @property
    def names(self) -> Sequence[str]:
        return self._spill.names

    def blocks(self, name: str) -> Iterator[Block]:
        return self._spill.blocks(name)

    def briefs(self) -> dict[str, Brief]:
        return {name: brief_of(self._spill.blocks(name)) for name in self._spill.names}


def brief_of(blocks: Iterator[Block]) -> Brief:
    """One pass over a series that has points."""
    points, last_step, last = 0, 0, math.nan
    low = high = None
    for steps, values in blocks:
        points, last_step, last = points + len(steps), steps[-1], values[-1]
        lowest, highest = _finite_range(values)
        if lowest is not None and highest is not None:
            low = lowest if low is None else min(low, lowest)
            high = highest if high is None else max(high, highest)
    return Brief(points, last_step, last, low, high)


def _finite_range(values: array[float]) -> tuple[float | None, float | None]:
    low, high = min(values), max(values)
    if math.isfinite(low) and math.isfinite(high) and math.isfinite(sum(values)):
        return low, high
    finite = list(filter(math.isfinite, values))
    return min(finite, default=None), max(finite, default=None)


@contextmanager
def open_series(paths: RunPaths, metadata: Mapping[str, Any] | None = None) -> Iterator[SeriesBlocks]:
    """The series of a run for whoever wants one block after the other: from the columns, or from the lines."""
    recorded = _recorded(paths, metadata)
    columns = _usable_columns(paths, recorded, in_blocks=True)
    if columns is not None and columns.is_whole():
        yield columns
        return
    with Spill() as spill:
        _collect_checked(paths, recorded, spill)
        yield _FromLines(spill)


def series_in_brief(paths: RunPaths, metadata: Mapping[str, Any] | None = None) -> dict[str, Brief]:
    """Every series in brief: from the header of the columns, which has its own checksum, or from all lines."""
    recorded = _recorded(paths, metadata)
    columns = _usable_columns(paths, recorded, in_blocks=True)
    if columns is not None and columns.has_header:
        return columns.briefs()
    with Spill() as spill:
        _collect_checked(paths, recorded, spill)
        return _FromLines(spill).briefs()


# What the metadata say about the lines


@dataclass(frozen=True)
class _Recorded:
    """What a run's metadata say about its lines: whether it has ended, and the extent that they had then."""

    ended: bool = False
    extent: Extent | None = None


def _recorded(paths: RunPaths, metadata: Mapping[str, Any] | None = None) -> _Recorded:
    if metadata is None:
        try:
            metadata = orjson.loads(paths.metadata.read_bytes())
        except (OSError, orjson.JSONDecodeError):
            metadata = None
    if not isinstance(metadata, Mapping):  # others say what is wrong with it
        return _Recorded()
    return _Recorded(metadata.get("status") != "running", Extent.from_record(metadata.get("series")))


def _collect_checked(paths: RunPaths, recorded: _Recorded, spill: Spill) -> None:
    """Read the lines of a run, and refuse those that are not what they were when the run ended."""
    seen = survey(paths.metrics)
    problem = _problem_of_lines(paths, recorded, seen)
    if problem and _recorded(paths) == recorded:  # else another attempt has begun meanwhile
        raise StoreError(problem, hint="See what can be repaired: fairtrial doctor --damage")
    collect(paths.metrics, seen, spill)


def _problem_of_lines(paths: RunPaths, recorded: _Recorded, seen: Survey) -> str | None:
    if recorded.extent is not None:
        return _difference(paths.metrics, recorded.extent, seen.extent)
    if recorded.ended and (columns := _columns_or_none(paths)) and columns.lines_bytes > seen.size:
        return f"{paths.metrics} is shorter than when the run ended: {seen.size:,} bytes of {columns.lines_bytes:,}"
    return None


def _difference(path: Path, then: Extent, now: Extent) -> str | None:
    if now == then:
        return None
    if now.bytes < then.bytes:
        return f"{path} is shorter than it was recorded: {now.lines:,} lines of {then.lines:,}"
    return f"{path} was changed: it does not have the recorded hash"


# Columns

LINES_BYTES = b"fairtrial.lines_bytes"
"""In the columnar copy: the size of the lines that it was made of. Times of files do not survive copying."""
HEADER = b"fairtrial.series"
"""In the columnar copy: where each metric stands, each series in brief, and checksums; behind a checksum of itself."""
GROUP_POINTS = 1 << 17

Series = dict[str, tuple["numpy.ndarray[Any, Any]", "numpy.ndarray[Any, Any]"]]


@dataclass(frozen=True)
class Written:
    """What came of making columns: the last value of each metric, and the extent of the lines."""

    final: dict[str, float]
    extent: Extent


def write_columns(paths: RunPaths) -> Written:
    """Make the columnar copy of `metrics.jsonl`, block by block."""
    seen = survey(paths.metrics)
    with Spill(paths.root) as spill:
        collect(paths.metrics, seen, spill)
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:  # a bare node: readers make do with the lines
            briefs = _FromLines(spill).briefs()
        else:
            briefs = {}
            replace_file(paths.columns, lambda path: briefs.update(_write(spill, seen, path)), sync=Sync.FILE)
    return Written({name: brief.last for name, brief in briefs.items()}, seen.extent)


class _GroupWriter:
    """Writes row groups of a limited size, and notes what a reader wants to know before it reads any."""

    def __init__(self, names: Sequence[str], path: Path, made_of: Mapping[bytes, bytes] | None) -> None:
        import pyarrow
        import pyarrow.parquet

        # The dictionary is made by hand: `dictionary_encode` would import pyarrow.compute, 60 ms in every job.
        self._names = _strings(names)
        kinds = [pyarrow.dictionary(pyarrow.int32(), pyarrow.string()), pyarrow.int64(), pyarrow.float64()]
        self._schema = pyarrow.schema(list(zip(("metric", "step", "value"), kinds, strict=True)), metadata=made_of)
        # Without statistics and dictionaries of values that do not repeat: smaller, and read a third faster.
        self._file = pyarrow.parquet.ParquetWriter(
            path, self._schema, write_statistics=False, use_dictionary=["metric"]
        )
        self._codes, self._steps, self._values = array("i"), array("q"), array("d")
        self.groups: list[tuple[int, int]] = []

    def add(self, code: int, block: Block) -> None:
        steps, values = block
        for start in range(0, len(steps), GROUP_POINTS):
            end = min(start + GROUP_POINTS, len(steps))
            if self._steps and len(self._steps) + end - start > GROUP_POINTS:
                self._flush()
            self._codes.extend(array("i", [code]) * (end - start))
            self._steps.extend(steps[start:end])
            self._values.extend(values[start:end])

    def _flush(self) -> None:
        import pyarrow

        metric = pyarrow.DictionaryArray.from_arrays(_numbers(pyarrow.int32(), self._codes), self._names)
        columns = [metric, _numbers(pyarrow.int64(), self._steps), _numbers(pyarrow.float64(), self._values)]
        table = pyarrow.Table.from_arrays(columns, schema=self._schema)
        self._file.write_table(table, row_group_size=max(1, len(self._steps)))
        self.groups.append((len(self._steps), checksum(self._steps, self._values)))
        self._codes, self._steps, self._values = array("i"), array("q"), array("d")

    def close(self, header: Callable[[], bytes] | None) -> None:
        if self._steps or not self.groups:
            self._flush()
        if header:
            self._file.add_key_value_metadata({HEADER: header()})
        self._file.close()


def _write(spill: Spill, seen: Survey, path: Path) -> dict[str, Brief]:
    names = spill.names
    made_of = {LINES_BYTES: str(seen.size).encode()} if names else None
    writer = _GroupWriter(names, path, made_of)
    briefs: dict[str, Brief] = {}
    for code, name in enumerate(names):

        def passed_on(code: int = code, name: str = name) -> Iterator[Block]:
            for block in spill.blocks(name):
                writer.add(code, block)
                yield block

        briefs[name] = brief_of(passed_on())
    writer.close((lambda: _header(seen, writer.groups, briefs)) if names else None)
    return briefs


def _header(seen: Survey, groups: Sequence[tuple[int, int]], briefs: Mapping[str, Brief]) -> bytes:
    shown = [
        (name, each.points, each.last_step, spell(each.last), each.low, each.high) for name, each in briefs.items()
    ]
    document = {"schema": 1, "lines": seen.extent.to_dict(), "groups": groups, "metrics": shown}
    content = orjson.dumps(document)
    return b"%08x %b" % (zlib.crc32(content), content)


def checksum(steps: Any, values: Any) -> int:
    return zlib.crc32(values, zlib.crc32(steps))


def _numbers(kind: Any, values: array[Any]) -> Any:
    """A column from memory as it is: `pyarrow.array` would import pandas where there is one, half a second."""
    import pyarrow

    return pyarrow.Array.from_buffers(kind, len(values), [None, pyarrow.py_buffer(values)])


def _strings(names: Sequence[str]) -> Any:
    import pyarrow

    encoded = [name.encode() for name in names]
    ends = array("i", accumulate(map(len, encoded), initial=0))
    return pyarrow.StringArray.from_buffers(len(names), pyarrow.py_buffer(ends), pyarrow.py_buffer(b"".join(encoded)))


DAMAGE = (OSError, ValueError, KeyError, TypeError, NotImplementedError, MemoryError)
"""What pyarrow raises for a file whose bytes were changed; a length may have become one that no memory holds."""


class Columns:
    """The columnar copy of a run. Raises one of DAMAGE where the file is damaged."""

    def __init__(self, paths: RunPaths, *, in_blocks: bool = False) -> None:
        import pyarrow
        import pyarrow.parquet

        # The file is small: read at once and decoded in this thread, a thousand of them take a third of the time.
        if in_blocks:
            source = pyarrow.OSFile(str(paths.columns))  # not mapped: what is mapped counts as memory of the process
        else:
            with open(paths.columns, "rb") as file:  # noqa: PTH123 — as above, a thousand times
                source = pyarrow.BufferReader(pyarrow.py_buffer(file.read()))
        self._file = pyarrow.parquet.ParquetFile(source, read_dictionary=["metric"])
        told = self._file.metadata.metadata or {}
        self.lines_bytes = int(told.get(LINES_BYTES, b"-1"))
        self._header = _checked_header(told[HEADER], self._file.metadata) if HEADER in told else None
        self._last: tuple[int, Block] | None = None

    @property
    def has_header(self) -> bool:
        """Files of earlier versions have none."""
        return self._header is not None

    @property
    def extent(self) -> Extent | None:
        """Of the lines that it was made of; unknown in files of earlier versions."""
        return Extent.from_record(self._header["lines"]) if self._header else None

    def read(self) -> Series:
        """All of it."""
        import numpy

        if self._header is None:
            return self._read_unchecked()
        rows = sum(count for count, _ in self._header["groups"])
        if len(self._header["groups"]) == 1:
            steps, values = self._group(0)
        else:
            steps, values, at = numpy.empty(rows, numpy.int64), numpy.empty(rows, numpy.float64), 0
            for number, (count, _) in enumerate(self._header["groups"]):
                steps[at : at + count], values[at : at + count] = self._group(number)
                at += count
        metrics = self._header["metrics"]
        ends = accumulate((each[1] for each in metrics), initial=0)
        return {each[0]: (steps[a:b], values[a:b]) for each, (a, b) in zip(metrics, pairwise(ends), strict=True)}

    def _read_unchecked(self) -> Series:
        """A file of an earlier version, which has no checksums."""
        import numpy

        table = self._file.read(use_threads=False)
        metric, *columns = (
            column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in table.columns
        )
        names = metric.dictionary.to_pylist()
        # The rows of a metric stand together, in the order of its code.
        ends = numpy.searchsorted(column_in_memory(metric.indices, numpy.int32), range(len(names) + 1)).tolist()
        steps, values = column_in_memory(columns[0], numpy.int64), column_in_memory(columns[1], numpy.float64)
        return {name: (steps[a:b], values[a:b]) for name, (a, b) in zip(names, pairwise(ends), strict=True)}

    def _group(self, number: int) -> tuple[Any, Any]:
        """The steps and values of one row group; a ValueError where they are not those that were written."""
        import numpy

        table = self._file.read_row_group(number, columns=["step", "value"], use_threads=False)
        steps, values = (
            column_in_memory(column.chunk(0) if column.num_chunks == 1 else column.combine_chunks(), kind)
            for column, kind in zip(table.columns, (numpy.int64, numpy.float64), strict=True)
        )
        count, expected = self._header["groups"][number]  # type: ignore[index]
        if len(steps) != count or checksum(steps, values) != expected:
            raise ValueError("a row group is damaged")
        return steps, values

    # Block by block, for files that say where each metric stands.

    def is_whole(self) -> bool:
        """Whether every block has its checksum. Files of earlier versions have none, and are read by `read`."""
        if self._header is None:
            return False
        try:
            for number in range(len(self._header["groups"])):
                self._group(number)
        except DAMAGE:
            return False
        return True

    @property
    def names(self) -> Sequence[str]:
        return [each[0] for each in self._header["metrics"]] if self._header else []

    def briefs(self) -> dict[str, Brief]:
        if self._header is None:
            return {}
        return {
            name: Brief(points, last_step, unspell(last), low, high)
            for name, points, last_step, last, low, high in self._header["metrics"]
        }

    def blocks(self, name: str) -> Iterator[Block]:
        assert self._header is not None
        begin = 0
        for each, points, *_ in self._header["metrics"]:
            if each == name:
                break
            begin += points
        end, at = begin + points, 0
        for number, (count, _) in enumerate(self._header["groups"]):
            if at < end and at + count > begin:
                steps, values = self._kept_group(number)
                a, b = max(begin, at) - at, min(end, at + count) - at
                yield steps[a:b], values[a:b]
            at += count

    def _kept_group(self, number: int) -> Block:
        """Metrics share groups, so the last one is kept."""
        if self._last is None or self._last[0] != number:
            found = self._group(number)
            steps, values = array("q"), array("d")
            steps.frombytes(memoryview(found[0]).cast("B"))
            values.frombytes(memoryview(found[1]).cast("B"))
            self._last = number, (steps, values)
        return self._last[1]


def _checked_header(content: bytes, facts: Any) -> dict[str, Any]:
    """The header, if it is as it was written and fits the file."""
    told, _, document = content.partition(b" ")
    if told != b"%08x" % zlib.crc32(document):
        raise ValueError("the header is damaged")
    header: dict[str, Any] = orjson.loads(document)
    points = sum(each[1] for each in header["metrics"])
    if not facts.num_rows == points == sum(count for count, _ in header["groups"]):
        raise ValueError("the header does not fit the file")
    if facts.num_row_groups != len(header["groups"]):
        raise ValueError("the header does not fit the file")
    return header


def _columns_or_none(paths: RunPaths, *, in_blocks: bool = False) -> Columns | None:
    try:
        return Columns(paths, in_blocks=in_blocks)
    except (ImportError, *DAMAGE):  # none, or a damaged one; the lines are the truth
        return None


def _usable_columns(paths: RunPaths, recorded: _Recorded, *, in_blocks: bool = False) -> Columns | None:
    """The columnar copy, or None where it was not made of the lines as they are now."""
    columns = _columns_or_none(paths, in_blocks=in_blocks)
    if columns is None or columns.lines_bytes != _size(paths.metrics):
        return None
    if recorded.extent is not None and columns.extent not in (None, recorded.extent):
        return None  # the copy of another run, or of an earlier attempt
    return columns


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except OSError:
        return -2


def read_series(paths: RunPaths, metadata: Mapping[str, Any] | None = None) -> Series:
    """Metric → (steps, values), in the order of steps. `metadata` are those of the run, if they are at hand.

    Raises a StoreError where the lines of a run that has ended are not what they were then.
    """
    import numpy

    recorded = _recorded(paths, metadata)
    columns = _usable_columns(paths, recorded)
    if columns is not None:
        try:
            return columns.read()
        except DAMAGE:
            pass  # the lines are the truth
    series: Series = {}
    with Spill() as spill:
        _collect_checked(paths, recorded, spill)
        for name in spill.names:
            blocks = list(spill.blocks(name))
            if any(len(steps) for steps, _ in blocks):
                series[name] = (
                    numpy.concatenate([numpy.frombuffer(steps, numpy.int64) for steps, _ in blocks]),
                    numpy.concatenate([numpy.frombuffer(values, numpy.float64) for _, values in blocks]),
                )
    return series


def column_in_memory(chunk: Any, kind: Any) -> numpy.ndarray[Any, Any]:
    """An Arrow column as it lies there: `to_numpy` would import pandas where there is one."""
    import numpy

    if not len(chunk):
        return numpy.empty(0, kind)
    offset = chunk.offset * numpy.dtype(kind).itemsize
    return numpy.frombuffer(chunk.buffers()[1], dtype=kind, count=len(chunk), offset=offset)


# Looking for damage


class SeriesProblem(str):
    """What is wrong with the series of a run, as a sentence. `repairable`: `write_columns` makes it right again."""

    repairable: bool

    def __new__(cls, text: str, *, repairable: bool = False) -> SeriesProblem:
        problem = super().__new__(cls, text)
        problem.repairable = repairable
        return problem


def verify_series(paths: RunPaths, metadata: Mapping[str, Any] | None = None) -> SeriesProblem | None:
    """Hold every byte of a run's series against what was recorded, in constant memory; None where all is well."""
    recorded = _recorded(paths, metadata)
    try:
        seen = survey(paths.metrics)
        problem = _problem_of_lines(paths, recorded, seen)
        if problem:
            return SeriesProblem(problem)
        with Spill() as spill:
            collect(paths.metrics, seen, spill)
        if not recorded.ended and (problem := _problem_of_bases(paths)):
            return SeriesProblem(problem)
    except (StoreError, OSError) as error:
        return SeriesProblem(str(error))
    if not paths.columns.exists() or not recorded.ended:
        return None
    if problem := _problem_of_columns(paths, seen):
        return SeriesProblem(f"{paths.columns} {problem}", repairable=True)
    return None


def _problem_of_bases(paths: RunPaths) -> str | None:
    """A run that has not ended has no recorded extent; but each of its checkpoints says what it builds on."""
    bases: dict[int, Extent] = {}
    for row in events_named(paths.events, "checkpoint_saved", "rewound"):
        step, base = row.get("step"), Extent.from_record(row.get("series"))
        if type(step) is not int:
            continue
        if row["event"] == "rewound":
            bases = {each: extent for each, extent in bases.items() if each <= step}
        elif base is not None:
            bases[step] = base
    now = GrowingHash(paths.metrics).go_to([each.bytes for each in bases.values()])
    for step, then in sorted(bases.items()):
        if now.get(then.bytes) != then:
            return f"{paths.metrics} is not what the checkpoint of step {step} builds on: it was cut off or changed"
    return None


def _problem_of_columns(paths: RunPaths, seen: Survey) -> str | None:
    try:
        columns = Columns(paths, in_blocks=True)
    except ImportError:
        return None
    except DAMAGE:
        return "cannot be read"
    if columns.extent not in (None, seen.extent):
        return "was not made from the lines of this run"
    if columns.extent is None:
        return None if columns.lines_bytes in (-1, seen.size) else "was made from other lines"
    return None if columns.is_whole() else "is damaged"
