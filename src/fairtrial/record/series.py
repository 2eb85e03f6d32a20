"""The metrics of a run: append-only lines while it lives, columns once it has ended."""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from fairtrial.core.errors import StoreError
from fairtrial.core.paths import RunPaths
from fairtrial.record.atomic import Sync, replace_file

if TYPE_CHECKING:
    import numpy

RESERVED = ("step", "_time")
REWIND = "_rewind"
"""A line with this key takes back what was logged after that step: another attempt goes on from there."""

_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def spell(value: float) -> float | str:
    """JSON has no NaN and no infinity; they are written as words, so that they are not lost as null."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def unspell(value: Any) -> float:
    return _WORDS[value] if isinstance(value, str) else value


@dataclass(frozen=True)
class Lines:
    """The parsed lines of a JSONL file. `torn` says that the last one was cut off and ignored."""

    rows: list[dict[str, Any]]
    torn: bool


def read_lines(path: Path) -> Lines:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return Lines([], False)
    whole, _, rest = content.rpartition(b"\n")
    return Lines(_parse(path, whole), bool(rest))


def _parse(path: Path, content: bytes) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(content.split(b"\n"), 1):
        try:
            if line:
                rows.append(orjson.loads(line))
        except orjson.JSONDecodeError:
            raise StoreError(f"line {number} of {path} is not JSON", hint="The file was changed or damaged.") from None
    return rows


def drop_torn_line(path: Path) -> bool:
    """Cut an unfinished last line off, so that the next line starts cleanly. Whole lines are never touched."""
    if not path.exists():
        return False
    with path.open("r+b") as file:
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole == len(content):
            return False
        file.truncate(whole)
    return True


def last_row(path: Path) -> dict[str, Any] | None:
    """The newest whole line, read from the end: cheap enough to poll while the run goes on."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 8192))
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return None
    try:
        row: dict[str, Any] = orjson.loads(lines[-1])
    except (IndexError, orjson.JSONDecodeError):
        return None
    return row


LINES_BYTES = b"fairtrial.lines_bytes"
"""In the columnar copy: the size of the lines that it was made of. Times of files do not survive copying."""

Series = dict[str, tuple["numpy.ndarray[Any, Any]", "numpy.ndarray[Any, Any]"]]
Points = dict[str, dict[int, float]]


def last_step(path: Path) -> int | None:
    """The newest step that a run has logged."""
    row = last_row(path)
    return None if row is None else max(0, int(row.get("step", row.get(REWIND, 0))))


def points(rows: list[dict[str, Any]]) -> Points:
    """Metric → step → value. A step that was logged twice counts as last written; a rewind takes steps back."""
    found: Points = {}
    for row in rows:
        if REWIND in row:
            kept = ((name, {s: v for s, v in series.items() if s <= row[REWIND]}) for name, series in found.items())
            found = {name: series for name, series in kept if series}
            continue
        step = row["step"]
        for name, value in row.items():
            if name not in RESERVED:
                found.setdefault(name, {})[step] = unspell(value)
    return found


def write_columns(paths: RunPaths) -> dict[str, float]:
    """Make the columnar copy of `metrics.jsonl` and return the last value of each metric."""
    found = points(read_lines(paths.metrics).rows)
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:  # a bare node: readers make do with the lines
        return _last_values(found)
    names, codes, steps, values = list(found), array("i"), array("q"), array("d")
    for code, series in enumerate(found.values()):
        for step, value in sorted(series.items()):
            codes.append(code)
            steps.append(step)
            values.append(value)
    # The dictionary is made by hand: `dictionary_encode` would import pyarrow.compute, 60 ms in every job.
    metric = pyarrow.DictionaryArray.from_arrays(_numbers(pyarrow.int32(), codes), _strings(names))
    columns = [metric, _numbers(pyarrow.int64(), steps), _numbers(pyarrow.float64(), values)]
    made_of = {LINES_BYTES: str(paths.metrics.stat().st_size).encode()} if found else None
    table = pyarrow.Table.from_arrays(columns, names=["metric", "step", "value"]).replace_schema_metadata(made_of)
    replace_file(paths.columns, lambda path: _write_table(table, path), sync=Sync.FILE)
    return _last_values(found)


def _numbers(kind: Any, values: array[Any]) -> Any:
    """A column from memory as it is: `pyarrow.array` would import pandas where there is one, half a second."""
    import pyarrow

    return pyarrow.Array.from_buffers(kind, len(values), [None, pyarrow.py_buffer(values)])


def _strings(names: list[str]) -> Any:
    import pyarrow

    encoded = [name.encode() for name in names]
    ends = array("i", accumulate(map(len, encoded), initial=0))
    return pyarrow.StringArray.from_buffers(len(names), pyarrow.py_buffer(ends), pyarrow.py_buffer(b"".join(encoded)))


def _write_table(table: Any, path: Path) -> None:
    """Without statistics and dictionaries of values that do not repeat: smaller, and read a third faster."""
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, path, write_statistics=False, use_dictionary=["metric"])


def _last_values(found: Points) -> dict[str, float]:
    return {name: series[max(series)] for name, series in found.items()}


def read_series(paths: RunPaths) -> Series:
    """Metric → (steps, values), in the order of steps."""
    import numpy

    try:
        columns = _from_columns(paths)
    except (OSError, ValueError):  # none, or a damaged one; the lines are the truth
        columns = None
    if columns is not None:
        return columns
    found: Mapping[str, Mapping[int, float]] = points(read_lines(paths.metrics).rows)
    return {
        name: (
            numpy.array(sorted(series), dtype=numpy.int64),
            numpy.array([series[step] for step in sorted(series)], dtype=numpy.float64),
        )
        for name, series in found.items()
    }


def _from_columns(paths: RunPaths) -> Series | None:
    """The columnar copy, or None where it was not made of the lines as they are now.

    The file is small: read at once and decoded in this thread, a thousand of them take a third of the time.
    """
    import numpy
    import pyarrow
    import pyarrow.parquet

    with open(paths.columns, "rb") as file:  # noqa: PTH123 — as above, a thousand times
        content = pyarrow.py_buffer(file.read())
    table = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(content), read_dictionary=["metric"]).read(
        use_threads=False
    )
    made_of = (table.schema.metadata or {}).get(LINES_BYTES)
    if made_of != str(os.stat(paths.metrics).st_size).encode():  # noqa: PTH116
        return None
    metric, *columns = (
        column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in table.columns
    )
    names = metric.dictionary.to_pylist()
    # The rows of a metric stand together, in the order of its code.
    ends = numpy.searchsorted(column_in_memory(metric.indices, numpy.int32), range(len(names) + 1)).tolist()
    steps, values = column_in_memory(columns[0], numpy.int64), column_in_memory(columns[1], numpy.float64)
    return {name: (steps[a:b], values[a:b]) for name, (a, b) in zip(names, pairwise(ends), strict=True)}


def column_in_memory(chunk: Any, kind: Any) -> numpy.ndarray[Any, Any]:
    """An Arrow column as it lies there: `to_numpy` would import pandas where there is one."""
    import numpy

    return numpy.frombuffer(chunk.buffers()[1], dtype=kind, count=len(chunk)) if len(chunk) else numpy.empty(0, kind)
