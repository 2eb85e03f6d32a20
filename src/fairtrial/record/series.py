"""The metrics of a run: append-only lines while it is in progress, and a columnar copy once it has ended.

This module reads and writes in blocks, so that a run of ten million points takes no more memory than a short one.
`read_series` is the exception, because it returns all points.
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
    """All series of a run, readable block by block."""

    @property
    def names(self) -> Sequence[str]: ...

    def blocks(self, name: str) -> Iterator[Block]:
        """Yield the points of a metric in step order."""

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
    """Open the series of a run for block-wise reading, from the columns if they are valid, or else from the lines."""
    recorded = _recorded(paths, metadata)
    columns = _usable_columns(paths, recorded, in_blocks=True)
    if columns is not None and columns.is_whole():
        yield columns
        return
    with Spill() as spill:
        _collect_checked(paths, recorded, spill)
        yield _FromLines(spill)


def series_in_brief(paths: RunPaths, metadata: RunMetadata | None = None) -> dict[str, Brief]:
    """Return a brief of every series, from the header of the columns (which has its own checksum) or from all lines."""
    recorded = _recorded(paths, metadata)
    try:
        header = read_header(paths)
        if header is not None and _is_of_these_lines(header, paths, recorded):
            return dict(header.briefs)
    except DAMAGE:
        pass  # fall back to the lines, which are authoritative
    with Spill() as spill:
        _collect_checked(paths, recorded, spill)
        return _FromLines(spill).briefs()


# Recorded extent and hashes


@dataclass(frozen=True)
class _Recorded:
    """What the metadata record about the lines: whether the run has ended, and their extent and hashes at its end."""

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
    if not isinstance(document, dict):  # `load_metadata` reports the problem
        return _Recorded()
    hashes = document.get("series_sha256")
    return _Recorded(
        document.get("status") != "running",
        Extent.from_record(document.get("series")),
        hashes if isinstance(hashes, dict) else None,
    )


def _collect_checked(paths: RunPaths, recorded: _Recorded, spill: Spill) -> None:
    """Read the lines of a run. Raises a StoreError if they have changed since the run ended."""
    seen = survey(paths.metrics)
    problem = _problem_of_lines(paths, recorded, seen)
    if problem and _recorded(paths) == recorded:  # otherwise another attempt has started in the meantime
        raise StoreError(problem, hint="See what can be repaired: fairtrial doctor --damage")
    collect(paths.metrics, seen, spill)


def _problem_of_lines(paths: RunPaths, recorded: _Recorded, seen: Survey) -> str | None:
    if recorded.extent is not None:
        return _difference(paths.metrics, recorded.extent, seen.extent)
    if recorded.ended and (columns := _columns_or_none(paths)) and columns.lines_bytes > seen.size:
        return f"{paths.metrics} is shorter than when the run ended: {seen.size:,} of {columns.lines_bytes:,} bytes"
    return None


def _difference(path: Path, then: Extent, now: Extent) -> str | None:
    if now == then:
        return None
    if now.bytes < then.bytes:
        return f"{path} is shorter than recorded: {now.lines:,} of {then.lines:,} lines"
    return f"{path} was changed: it does not have the recorded hash"


def _columns_or_none(paths: RunPaths, *, in_blocks: bool = False) -> ColumnarRun | None:
    try:
        return ColumnarRun(paths, in_blocks=in_blocks)
    except (ImportError, *DAMAGE):  # missing or damaged; the lines are authoritative
        return None


def _usable_columns(paths: RunPaths, recorded: _Recorded, *, in_blocks: bool = False) -> ColumnarRun | None:
    """Return the columnar copy, or None if it was not made from the current lines."""
    columns = _columns_or_none(paths, in_blocks=in_blocks)
    return columns if columns is not None and _is_of_these_lines(columns, paths, recorded) else None


def _is_of_these_lines(columns: ColumnarRun | ColumnsHeader, paths: RunPaths, recorded: _Recorded) -> bool:
    """Return whether columns were made from the current lines, not from those of another run or attempt."""
    if columns.lines_bytes != _size(paths.metrics):
        return False
    return recorded.extent is None or columns.extent in (None, recorded.extent)


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except OSError:
        return -2


def read_series(paths: RunPaths, metadata: RunMetadata | None = None) -> Series:
    """Return metric → (steps, values) in step order. Pass `metadata` if the metadata of the run are already loaded.

    Raises a StoreError if the lines have changed since the run ended.
    """
    import numpy

    recorded = _recorded(paths, metadata)
    columns = _usable_columns(paths, recorded)
    if columns is not None:
        try:
            return columns.read()
        except DAMAGE:
            pass  # fall back to the lines, which are authoritative
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
    """The result of `write_columns`: the last value and the hash of each metric, and the extent of the lines."""

    final: dict[str, float]
    extent: Extent
    hashes: dict[str, str]


def write_columns(paths: RunPaths) -> Written:
    """Write the columnar copy of `metrics.jsonl`, block by block."""
    seen = survey(paths.metrics)
    with Spill(paths.root) as spill:
        collect(paths.metrics, seen, spill)
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:  # a minimal installation: readers use the lines
            briefs = _FromLines(spill).briefs()
        else:
            briefs = {}
            replace_file(
                paths.columns, lambda path: briefs.update(write_blocks(spill, seen, path)), sync=SyncLevel.FILE
            )
        hashes = _FromLines(spill).hashes()
    return Written({name: brief.last for name, brief in briefs.items()}, seen.extent, hashes)


# Damage detection


class SeriesProblem(str):
    """A problem with the series of a run, as a sentence. If `repairable`, `write_columns` fixes it."""

    repairable: bool

    def __new__(cls, text: str, *, repairable: bool = False) -> SeriesProblem:
        problem = super().__new__(cls, text)
        problem.repairable = repairable
        return problem


def verify_series(paths: RunPaths, metadata: RunMetadata | None = None) -> SeriesProblem | None:
    """Compare every byte of a run's series with the recorded hashes, in constant memory. Return None if all match."""
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
    """Return which metrics differ from their hashes at the end of the run, or None."""
    then, now = recorded.hashes or {}, from_lines.hashes()
    changed = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    if not changed:
        return None
    return f"{paths.metrics}: the series of {', '.join(sorted(changed)[:5])} do not match their recorded hashes"


def _problem_of_bases(paths: RunPaths) -> str | None:
    """Check an unfinished run, which has no recorded extent, against the extents that its checkpoints recorded."""
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
            return f"{paths.metrics} was truncated or changed before the checkpoint of step {step}"
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
        return None if columns.lines_bytes in (-1, seen.size) else "was made from different lines"
    return None if columns.is_whole() else "is damaged"
