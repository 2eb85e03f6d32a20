"""A cache of all ended runs of a study in one columnar file, for fast repeated reads.

The run directories are authoritative. A cached run is valid while the modification time of its directory and the size
of its `metrics.jsonl` are unchanged; any other run is read again. The cache can be deleted without loss.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow

from fairtrial.core.errors import FairtrialError
from fairtrial.core.paths import RunPaths
from fairtrial.core.regular_files import open_regular
from fairtrial.core.run_metadata import RunMetadata
from fairtrial.core.runs import Run, Status
from fairtrial.record.atomic import SyncLevel, replace_file
from fairtrial.record.columns import DAMAGE
from fairtrial.record.metadata import load_run_or_damage
from fairtrial.record.recorded import with_series
from fairtrial.record.series import Series, checksum, column_in_memory
from fairtrial.record.store import Store

SCHEMA = 2
HEADER = b"fairtrial.runs"
MOST_POINTS = 20_000_000
"""Number of points above which the cache is not written, because its size would outweigh the time saved."""

Stamp = tuple[int, int]


@dataclass(frozen=True)
class Recorded:
    """A run with all of its series."""

    run: Run
    series: Series


class _Kept(NamedTuple):
    """A run in the cache: its stamp, its metadata, and the range of points of each metric."""

    stamp: Stamp
    metadata: RunMetadata
    places: Mapping[str, tuple[int, int]]


def read_study(store: Store, study: str) -> list[Recorded]:
    """Return every run of a study, sorted by name. A run whose files are damaged has the status `damaged`."""
    kept, steps, values = _load(store.paths.series_cache(study))
    recorded_runs: dict[str, Recorded] = {}
    stamps: dict[str, Stamp] = {}
    for _, entry in store.directories(study):
        stamp = _stamp(entry)
        hit = kept.get(entry.name)
        if hit is not None and hit.stamp == stamp:
            series = {name: (steps[a:b], values[a:b]) for name, (a, b) in hit.places.items()}
            run = Run(Path(entry.path), hit.metadata, Status(hit.metadata.status))
            recorded_runs[entry.name], stamps[entry.name] = Recorded(run, series), stamp
        elif recorded := record_of(RunPaths(Path(entry.path))):
            recorded_runs[entry.name] = recorded
            if recorded.run.metadata.status not in (Status.RUNNING, Status.DAMAGED):
                stamps[entry.name] = stamp
    if stamps.keys() != kept.keys() or any(kept[name].stamp != stamp for name, stamp in stamps.items()):
        _save(store.paths.series_cache(study), recorded_runs, stamps)
    return [recorded_runs[name] for name in sorted(recorded_runs)]


def record_of(paths: RunPaths, *, in_store: bool = True) -> Recorded | None:
    """Read one run from its directory. A damaged run has no series, because its values cannot be trusted."""
    run = load_run_or_damage(paths, in_store=in_store)
    return None if run is None else Recorded(*with_series(run))


def _stamp(entry: os.DirEntry[str]) -> Stamp:
    try:
        size = os.stat(f"{entry.path}/metrics.jsonl").st_size  # noqa: PTH116 — a path object per run would cost more
    except OSError:
        size = 0
    return entry.stat().st_mtime_ns, size


_Columns = tuple[dict[str, _Kept], np.ndarray[Any, Any], np.ndarray[Any, Any]]


def _load(path: Path) -> _Columns:
    """Read the cache. A missing or damaged cache is empty."""
    empty = np.empty(0, np.int64), np.empty(0, np.float64)
    try:
        open_regular(path).close()  # pyarrow would block on a named pipe
        table = pyarrow.ipc.open_file(pyarrow.memory_map(str(path))).read_all()
        recorded_checksum, _, content = (table.schema.metadata or {})[HEADER].partition(b" ")
        columns = (table.column(place).combine_chunks() for place in (0, 1))
        steps, values = map(column_in_memory, columns, (np.int64, np.float64))
        if recorded_checksum != _checksum(content, steps, values):
            return {}, *empty
        header = orjson.loads(content)
        if header["schema"] != SCHEMA:
            return {}, *empty
        kept, runs = {}, header["runs"]
        while runs:  # popped, so that no run is in memory twice
            name, stamp, document, places = runs.pop()
            kept[name] = _Kept(tuple(stamp), RunMetadata.of(document), places)
        return kept, steps, values
    except DAMAGE:
        return {}, *empty


def is_whole_copy(path: Path) -> bool:
    """Return whether the cache file of a study can be read and contains runs."""
    return bool(_load(path)[0])


def _checksum(content: bytes, steps: Any, values: Any) -> bytes:
    return b"%08x" % zlib.crc32(content, checksum(steps, values))


def _save(path: Path, recorded_runs: Mapping[str, Recorded], stamps: Mapping[str, Stamp]) -> None:
    """Write the cache. Errors are ignored, because a read-only store can still be read."""
    runs, steps, values, at = [], [], [], 0
    for name, stamp in stamps.items():
        places = {}
        for metric, (s, v) in recorded_runs[name].series.items():
            places[metric] = (at, at + len(s))
            at += len(s)
            steps.append(np.asarray(s, np.int64))
            values.append(np.asarray(v, np.float64))
        runs.append((name, stamp, recorded_runs[name].run.metadata, places))
    if not at or at > MOST_POINTS:
        return
    numbers = np.concatenate(steps), np.concatenate(values)
    columns = [
        pyarrow.Array.from_buffers(kind, at, [None, pyarrow.py_buffer(part)])
        for kind, part in zip((pyarrow.int64(), pyarrow.float64()), numbers, strict=True)
    ]
    content = orjson.dumps({"schema": SCHEMA, "runs": runs})
    header = {HEADER: _checksum(content, *numbers) + b" " + content}
    batch = pyarrow.RecordBatch.from_arrays(columns, names=["step", "value"]).replace_schema_metadata(header)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, lambda target: _write(batch, target), sync=SyncLevel.FILE)
    except (FairtrialError, OSError):
        return


def _write(batch: Any, target: Path) -> None:
    with pyarrow.OSFile(str(target), "wb") as file, pyarrow.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
