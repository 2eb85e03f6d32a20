"""The metrics of a run: append-only lines while it lives, columns once it has ended.

Everything here reads and writes in blocks, so that a run of ten million points takes no more memory than a short one;
only `read_series`, whose result is all points, does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson

from fairtrial.core.errors import StoreError
from fairtrial.core.paths import RunPaths
from fairtrial.core.regular_files import read_regular
from fairtrial.core.run_metadata import RunMetadata
from fairtrial.record.atomic import SyncLevel, replace_file
from fairtrial.record.columns import (
    DAMAGE,
    Brief,
    ColumnarRun,
    ColumnsHeader,
    Series,
    brief_of,
    checksum,
    column_in_memory,
    hash_of,
    read_header,
    write_blocks,
)
from fairtrial.record.lines import Lines, drop_torn_line, events_named, read_lines
from fairtrial.record.metric_lines import (
    RESERVED,
    REWIND,
    Extent,
    GrowingHash,
    Survey,
    collect,
    last_row,
    last_step,
    metric_row,
    spell,
    survey,
    unspell,
)
from fairtrial.record.spill import Block, Spill

__all__ = [
    "RESERVED", "REWIND", "Brief", "Lines", "Series", "checksum", "column_in_memory", "drop_torn_line", "last_row",
    "last_step", "metric_row", "open_series", "read_lines", "read_series", "series_in_brief", "spell", "unspell",
    "verify_series", "write_columns",
]  # fmt: skip


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

    def hashes(self) -> dict[str, str]:
        return {name: hash_of(self._spill.blocks(name)) for name in self._spill.names}


@contextmanager
def open_series(paths: RunPaths, metadata: RunMetadata | None = None) -> Iterator[SeriesBlocks]:
    """The series of a run for whoever wants one block after the other: from the columns, or from the lines."""
    recorded = _recorded(paths, metadata)
    columns = _usable_columns(paths, recorded, in_blocks=True)
    if columns is not None and columns.is_whole():
        yield columns
        return
    with Spill() as spill:
        _collect_checked(paths, recorded, spill)
        yield _FromLines(spill)


def series_in_brief(paths: RunPaths, metadata: RunMetadata | None = None) -> dict[str, Brief]:
    """Every series in brief: from the header of the columns, which has its own checksum, or from all lines."""
    recorded = _recorded(paths, metadata)
    try:
        header = read_header(paths)
        if header is not None and _is_of_these_lines(header, paths, recorded):
            return dict(header.briefs)
    except DAMAGE:
        pass  # the lines are the truth
    with Spill() as spill:
        _collect_checked(paths, recorded, spill)
        return _FromLines(spill).briefs()


# What the metadata say about the lines


@dataclass(frozen=True)
class _Recorded:
    """What a run's metadata say about its lines: whether it has ended, and the extent and hashes that they had then."""

    ended: bool = False
    extent: Extent | None = None
    hashes: Mapping[str, str] | None = None


def _recorded(paths: RunPaths, metadata: RunMetadata | None = None) -> _Recorded:
    document: Any = metadata
    if metadata is None:
        try:
            document = orjson.loads(read_regular(paths.metadata))
        except (OSError, orjson.JSONDecodeError):
            return _Recorded()
    if not isinstance(document, dict):  # others say what is wrong with it
        return _Recorded()
    hashes = document.get("series_sha256")
    return _Recorded(
        document.get("status") != "running",
        Extent.from_record(document.get("series")),
        hashes if isinstance(hashes, dict) else None,
    )


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


def _columns_or_none(paths: RunPaths, *, in_blocks: bool = False) -> ColumnarRun | None:
    try:
        return ColumnarRun(paths, in_blocks=in_blocks)
    except (ImportError, *DAMAGE):  # none, or a damaged one; the lines are the truth
        return None


def _usable_columns(paths: RunPaths, recorded: _Recorded, *, in_blocks: bool = False) -> ColumnarRun | None:
    """The columnar copy, or None where it was not made of the lines as they are now."""
    columns = _columns_or_none(paths, in_blocks=in_blocks)
    return columns if columns is not None and _is_of_these_lines(columns, paths, recorded) else None


def _is_of_these_lines(columns: ColumnarRun | ColumnsHeader, paths: RunPaths, recorded: _Recorded) -> bool:
    """Whether columns were made of the lines as they are now, not of another run's or of an earlier attempt's."""
    if columns.lines_bytes != _size(paths.metrics):
        return False
    return recorded.extent is None or columns.extent in (None, recorded.extent)


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except OSError:
        return -2


def read_series(paths: RunPaths, metadata: RunMetadata | None = None) -> Series:
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


# Writing


@dataclass(frozen=True)
class Written:
    """What came of making columns: the last value and the hash of each metric, and the extent of the lines."""

    final: dict[str, float]
    extent: Extent
    hashes: dict[str, str]


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
            replace_file(
                paths.columns, lambda path: briefs.update(write_blocks(spill, seen, path)), sync=SyncLevel.FILE
            )
        hashes = _FromLines(spill).hashes()
    return Written({name: brief.last for name, brief in briefs.items()}, seen.extent, hashes)


# Looking for damage


class SeriesProblem(str):
    """What is wrong with the series of a run, as a sentence. `repairable`: `write_columns` makes it right again."""

    repairable: bool

    def __new__(cls, text: str, *, repairable: bool = False) -> SeriesProblem:
        problem = super().__new__(cls, text)
        problem.repairable = repairable
        return problem


def verify_series(paths: RunPaths, metadata: RunMetadata | None = None) -> SeriesProblem | None:
    """Hold every byte of a run's series against what was recorded, in constant memory; None where all is well."""
    recorded = _recorded(paths, metadata)
    try:
        seen = survey(paths.metrics)
        problem = _problem_of_lines(paths, recorded, seen)
        if problem:
            return SeriesProblem(problem)
        with Spill() as spill:
            collect(paths.metrics, seen, spill)
            problem = _problem_of_hashes(paths, recorded, _FromLines(spill)) if recorded.hashes is not None else None
        if problem or (not recorded.ended and (problem := _problem_of_bases(paths))):
            return SeriesProblem(problem)
    except (StoreError, OSError) as error:
        return SeriesProblem(str(error))
    if not paths.columns.exists() or not recorded.ended:
        return None
    if problem := _problem_of_columns(paths, seen):
        return SeriesProblem(f"{paths.columns} {problem}", repairable=True)
    return None


def _problem_of_hashes(paths: RunPaths, recorded: _Recorded, from_lines: _FromLines) -> str | None:
    """Whether every metric still reads as it did when the run ended."""
    then, now = recorded.hashes or {}, from_lines.hashes()
    changed = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    if not changed:
        return None
    return f"{paths.metrics}: the series of {', '.join(sorted(changed)[:5])} does not have its recorded hash"


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
        columns = ColumnarRun(paths, in_blocks=True)
    except ImportError:
        return None
    except DAMAGE:
        return "cannot be read"
    if columns.extent not in (None, seen.extent):
        return "was not made from the lines of this run"
    if columns.extent is None:
        return None if columns.lines_bytes in (-1, seen.size) else "was made from other lines"
    return None if columns.is_whole() else "is damaged"
