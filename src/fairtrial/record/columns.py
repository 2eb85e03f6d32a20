"""The columnar copy of series, `metrics.parquet`, written and read in row groups, each with a checksum."""

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
"""Parquet metadata key: the size of the lines that the copy was made from. File times do not survive copying."""
HEADER = b"fairtrial.series"
"""Parquet metadata key: the position and brief of each series, and checksums, preceded by the header's own checksum."""
GROUP_POINTS = 1 << 17

Series = dict[str, tuple["numpy.ndarray[Any, Any]", "numpy.ndarray[Any, Any]"]]


@dataclass(frozen=True)
class Brief:
    """A summary of a series. `low` and `high` are the minimum and maximum of its finite values."""

    points: int
    last_step: int
    last: float
    low: float | None
    high: float | None


def brief_of(blocks: Iterator[Block]) -> Brief:
    """Compute the brief of a non-empty series in one pass."""
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
    """Return the SHA-256 of a series: the step and value of each point, 8 bytes each, little-endian.

    Equal hashes mean that two runs have the same numbers, bit for bit, regardless of the rest of their files.
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
    """Writes row groups of limited size, and collects their lengths and checksums for the header."""

    def __init__(self, names: Sequence[str], path: Path, made_of: Mapping[bytes, bytes] | None) -> None:
        import pyarrow
        import pyarrow.parquet

        # The dictionary is built by hand, because `dictionary_encode` would import pyarrow.compute: 60 ms per job.
        self._names = _strings(names)
        kinds = [pyarrow.dictionary(pyarrow.int32(), pyarrow.string()), pyarrow.int64(), pyarrow.float64()]
        self._schema = pyarrow.schema(list(zip(("metric", "step", "value"), kinds, strict=True)), metadata=made_of)
        # Values do not repeat, so without statistics and dictionaries the file is smaller and reads a third faster.
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
    """Wrap an array as an Arrow column without copying. `pyarrow.array` would import pandas if installed: 0.5 s."""
    import pyarrow

    return pyarrow.Array.from_buffers(kind, len(values), [None, pyarrow.py_buffer(values)])


def _strings(names: Sequence[str]) -> Any:
    import pyarrow

    encoded = [name.encode() for name in names]
    ends = array("i", accumulate(map(len, encoded), initial=0))
    return pyarrow.StringArray.from_buffers(len(names), pyarrow.py_buffer(ends), pyarrow.py_buffer(b"".join(encoded)))


DAMAGE = (OSError, ValueError, LookupError, TypeError, NotImplementedError, MemoryError, struct.error)
"""Exceptions that readers raise for a damaged file. MemoryError: a damaged length can exceed the memory."""


class ColumnarRun:
    """The columnar copy of a run. Raises one of DAMAGE if the file is damaged."""

    def __init__(self, paths: RunPaths, *, in_blocks: bool = False) -> None:
        import pyarrow
        import pyarrow.parquet

        # Files are small: reading them whole and decoding them in this thread takes a third of the time.
        if in_blocks:
            open_regular(paths.columns).close()  # pyarrow would block on a named pipe
            source = pyarrow.OSFile(str(paths.columns))  # not memory-mapped: mapped pages count as process memory
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
        """The extent of the lines that the copy was made from; None in files of earlier versions."""
        return Extent.from_record(self._header["lines"]) if self._header else None

    def read(self) -> Series:
        """Read all series."""
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
        """Read a file of an earlier version, which has no checksums."""
        import numpy

        table = self._file.read(use_threads=False)
        metric, *columns = (
            column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in table.columns
        )
        names = metric.dictionary.to_pylist()
        # The rows are sorted by metric code, so each metric is one range.
        ends = numpy.searchsorted(column_in_memory(metric.indices, numpy.int32), range(len(names) + 1)).tolist()
        steps, values = column_in_memory(columns[0], numpy.int64), column_in_memory(columns[1], numpy.float64)
        return {name: (steps[a:b], values[a:b]) for name, (a, b) in zip(names, pairwise(ends), strict=True)}

    def _group(self, number: int) -> tuple[Any, Any]:
        """Return the steps and values of one row group. Raises a ValueError if they do not match the checksum."""
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

    # Block-wise reading, for files with a header.

    def is_whole(self) -> bool:
        """Return whether every row group matches its checksum; False for files of earlier versions, which have none."""
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
        """Return a row group, caching the last one, because several metrics can share a group."""
        if self._last is None or self._last[0] != number:
            columns = self._group(number)
            steps, values = array("q"), array("d")
            steps.frombytes(memoryview(columns[0]).cast("B"))
            values.frombytes(memoryview(columns[1]).cast("B"))
            self._last = number, (steps, values)
        return self._last[1]


def _checked_header(content: bytes, facts: Any) -> dict[str, Any]:
    """Parse the header and check that it is intact and matches the file."""
    header = _parsed_header(content)
    points = sum(each[1] for each in header["metrics"])
    if not facts.num_rows == points == sum(count for count, _ in header["groups"]):
        raise ValueError("the header does not match the file")
    if facts.num_row_groups != len(header["groups"]):
        raise ValueError("the header does not match the file")
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


# The header only


@dataclass(frozen=True)
class ColumnsHeader:
    """The header of a columnar copy: the lines that it was made from, and the brief of each series."""

    lines_bytes: int
    extent: Extent | None
    briefs: Mapping[str, Brief]


def read_header(paths: RunPaths) -> ColumnsHeader | None:
    """Read the header without pyarrow, whose import takes longer than everything else that `runs show` does.

    Return None for files of earlier versions. Raises one of DAMAGE if the file is damaged.
    """
    with open_regular(paths.columns) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _FOOTER_END_BYTES))
        length, magic = struct.unpack("<I4s", file.read())
        if magic != b"PAR1" or length > min(size - _FOOTER_END_BYTES, LARGEST_DOCUMENT_BYTES):
            raise ValueError("not a Parquet file written by Fairtrial")
        file.seek(size - _FOOTER_END_BYTES - length)
        footer = file.read(length)
    content, lines_bytes = _footer_value(footer, HEADER), _footer_value(footer, LINES_BYTES)
    if content is None or lines_bytes is None:
        return None
    header = _parsed_header(content)
    return ColumnsHeader(int(lines_bytes), Extent.from_record(header["lines"]), _briefs(header))


_FOOTER_END_BYTES = 8
_THRIFT_STRING = b"\x18"
"""In a footer, each string is this byte, its length as a varint, and its content. JSON never contains this byte."""


def _footer_value(footer: bytes, key: bytes) -> bytes | None:
    """Return the value of a key in the Parquet footer: the string that follows the key."""
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
    """View an Arrow column as a NumPy array without copying. `to_numpy` would import pandas if installed."""
    import numpy

    if not len(chunk):
        return numpy.empty(0, kind)
    offset = chunk.offset * numpy.dtype(kind).itemsize
    return numpy.frombuffer(chunk.buffers()[1], dtype=kind, count=len(chunk), offset=offset)
