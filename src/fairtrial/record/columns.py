"""Series in columns: `metrics.parquet`, in row groups that are written and read one by one, each with a checksum."""

from __future__ import annotations

import hashlib
import math
import os
import struct
import sys
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from fairtrial.core.paths import RunPaths
from fairtrial.core.regular_files import open_regular
from fairtrial.core.untrusted import LARGEST_DOCUMENT_BYTES
from fairtrial.record.metric_lines import Extent, Survey, spell, unspell
from fairtrial.record.spill import Block, Spill

if TYPE_CHECKING:
    import numpy

LINES_BYTES = b"fairtrial.lines_bytes"
"""In the columnar copy: the size of the lines that it was made of. Times of files do not survive copying."""
HEADER = b"fairtrial.series"
"""In the columnar copy: where each metric stands, each series in brief, and checksums; behind a checksum of itself."""
GROUP_POINTS = 1 << 17

Series = dict[str, tuple["numpy.ndarray[Any, Any]", "numpy.ndarray[Any, Any]"]]


@dataclass(frozen=True)
class Brief:
    """A series in brief. `low` and `high` are those of its finite values."""

    points: int
    last_step: int
    last: float
    low: float | None
    high: float | None


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


def hash_of(blocks: Iterator[Block]) -> str:
    """SHA-256 of a series: of every point its step and its value, 8 bytes each, little-endian.

    It says whether two runs have the same numbers, bit for bit, whatever else their files hold.
    """
    digest = hashlib.sha256()
    for steps, values in blocks:
        pairs = array("q", bytes(16 * len(steps)))
        pairs[0::2], pairs[1::2] = steps, array("q", values.tobytes())
        if sys.byteorder == "big":
            pairs.byteswap()
        digest.update(pairs)
    return digest.hexdigest()


def _finite_range(values: array[float]) -> tuple[float | None, float | None]:
    low, high = min(values), max(values)
    if math.isfinite(low) and math.isfinite(high) and math.isfinite(sum(values)):
        return low, high
    finite = list(filter(math.isfinite, values))
    return min(finite, default=None), max(finite, default=None)


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


def write_blocks(spill: Spill, seen: Survey, path: Path) -> dict[str, Brief]:
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


DAMAGE = (OSError, ValueError, LookupError, TypeError, NotImplementedError, MemoryError, struct.error)
"""What readers raise for a file whose bytes were changed; a length may have become one that no memory holds."""


class ColumnarRun:
    """The columnar copy of a run. Raises one of DAMAGE where the file is damaged."""

    def __init__(self, paths: RunPaths, *, in_blocks: bool = False) -> None:
        import pyarrow
        import pyarrow.parquet

        # The file is small: read at once and decoded in this thread, a thousand of them take a third of the time.
        if in_blocks:
            open_regular(paths.columns).close()  # pyarrow would wait for a pipe
            source = pyarrow.OSFile(str(paths.columns))  # not mapped: what is mapped counts as memory of the process
        else:
            with open_regular(paths.columns) as file:
                source = pyarrow.BufferReader(pyarrow.py_buffer(file.read()))
        self._file = pyarrow.parquet.ParquetFile(source, read_dictionary=["metric"])
        footer = self._file.metadata.metadata or {}
        self.lines_bytes = int(footer.get(LINES_BYTES, b"-1"))
        self._header = _checked_header(footer[HEADER], self._file.metadata) if HEADER in footer else None
        self._last: tuple[int, Block] | None = None

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
        return _briefs(self._header) if self._header else {}

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
            columns = self._group(number)
            steps, values = array("q"), array("d")
            steps.frombytes(memoryview(columns[0]).cast("B"))
            values.frombytes(memoryview(columns[1]).cast("B"))
            self._last = number, (steps, values)
        return self._last[1]


def _checked_header(content: bytes, facts: Any) -> dict[str, Any]:
    """The header, if it is as it was written and fits the file."""
    header = _parsed_header(content)
    points = sum(each[1] for each in header["metrics"])
    if not facts.num_rows == points == sum(count for count, _ in header["groups"]):
        raise ValueError("the header does not fit the file")
    if facts.num_row_groups != len(header["groups"]):
        raise ValueError("the header does not fit the file")
    return header


def _parsed_header(content: bytes) -> dict[str, Any]:
    checksum_text, _, document = content.partition(b" ")
    if checksum_text != b"%08x" % zlib.crc32(document):
        raise ValueError("the header is damaged")
    header: dict[str, Any] = orjson.loads(document)
    return header


def _briefs(header: Mapping[str, Any]) -> dict[str, Brief]:
    return {
        name: Brief(points, last_step, unspell(last), low, high)
        for name, points, last_step, last, low, high in header["metrics"]
    }


# The header alone


@dataclass(frozen=True)
class ColumnsHeader:
    """What the columnar copy says about itself: the lines it was made of, and each series in brief."""

    lines_bytes: int
    extent: Extent | None
    briefs: Mapping[str, Brief]


def read_header(paths: RunPaths) -> ColumnsHeader | None:
    """The header, read without pyarrow, which takes longer to import than all else that `runs show` does.

    None in files of earlier versions. Raises one of DAMAGE where the file is damaged.
    """
    with open_regular(paths.columns) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _FOOTER_END_BYTES))
        length, magic = struct.unpack("<I4s", file.read())
        if magic != b"PAR1" or length > min(size - _FOOTER_END_BYTES, LARGEST_DOCUMENT_BYTES):
            raise ValueError("not a Parquet file of ours")
        file.seek(size - _FOOTER_END_BYTES - length)
        footer = file.read(length)
    content, lines_bytes = _footer_value(footer, HEADER), _footer_value(footer, LINES_BYTES)
    if content is None or lines_bytes is None:
        return None
    header = _parsed_header(content)
    return ColumnsHeader(int(lines_bytes), Extent.from_record(header["lines"]), _briefs(header))


_FOOTER_END_BYTES = 8
_THRIFT_STRING = b"\x18"
"""In a footer every string is this byte, its length as a varint, and its content. JSON never contains the byte."""


def _footer_value(footer: bytes, key: bytes) -> bytes | None:
    """The value that Parquet's footer has for a key: the string that follows the key."""
    marked = _THRIFT_STRING + bytes([len(key)]) + key + _THRIFT_STRING
    at = footer.find(marked)
    if at < 0:
        return None
    at += len(marked)
    length = shift = 0
    while True:
        byte = footer[at]
        length |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:  # the last byte of a varint
            return footer[at : at + length]


def column_in_memory(chunk: Any, kind: Any) -> numpy.ndarray[Any, Any]:
    """An Arrow column as it lies there: `to_numpy` would import pandas where there is one."""
    import numpy

    if not len(chunk):
        return numpy.empty(0, kind)
    offset = chunk.offset * numpy.dtype(kind).itemsize
    return numpy.frombuffer(chunk.buffers()[1], dtype=kind, count=len(chunk), offset=offset)
