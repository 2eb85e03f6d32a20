"""An index of all runs for fast listing, which can always be rebuilt from the run directories.

A row is valid while `metadata.json` has the same change time (ctime) as when the row was made: replacing or writing the
file changes it. Rows of runs in progress are never trusted, nor is an index that does not match its checksum.

On disk, the rows are stored as columns, and values that many runs share (options, names of metrics) are stored once.
Reading ten thousand runs takes a few hundredths of a second.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from fairtrial.core.errors import FairtrialError
from fairtrial.core.paths import RunPaths, parts_of_run_id
from fairtrial.core.regular_files import open_regular
from fairtrial.core.runs import Status, headline
from fairtrial.core.untrusted import read_file
from fairtrial.record.atomic import SyncLevel, replace_bytes
from fairtrial.record.metadata import DamagedRun, parse_metadata, settle_best, true_status, why_misplaced
from fairtrial.record.store import Store

INDEX_SCHEMA = 3
USUAL_BYTES = 1 << 20
LARGEST_INDEX_BYTES = 1 << 30
Row = Mapping[str, Any]
Rows = dict[tuple[str, str], Row]
Stamps = dict[tuple[str, str], int]

_PLAIN = (
    "run", "study", "variant", "seed", "attempt", "synthetic", "status", "reason", "value", "best_metric_value",
    "best_checkpoint_step", "wall_s", "cpu_s", "created", "fingerprint",
)  # fmt: skip
_NEVER_TRUSTED = (Status.RUNNING, Status.DAMAGED)
_SHARED = ("recipe", "metric", "direction", "best_metric_name", "options", "identity", "data", "commit")


class _View(Mapping[str, Any]):
    """A lazy view of one row of the index. Most rows of a long list are never read."""

    __slots__ = ("_at", "_columns")

    def __init__(self, columns: Mapping[str, Any], at: int) -> None:
        self._columns = columns
        self._at = at

    def __getitem__(self, name: str) -> Any:
        if name == "final":
            metrics, values = self._columns["final"][self._at]
            return dict(zip(metrics, values, strict=True))
        return self._columns[name][self._at]

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def pick(row: Row, names: Iterable[str]) -> dict[str, Any]:
    """Return some columns of a row as a new dictionary."""
    if isinstance(row, _View):
        columns, at = row._columns, row._at
        return {name: columns[name][at] if name != "final" else row["final"] for name in names}
    return {name: row[name] for name in names}


def list_rows(store: Store, study: str | None = None) -> list[Row]:
    """Return one row per run, newest first. Reads only the directories that changed since the last call."""
    return newest_first(all_rows(store, study))


def newest_first(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: -row["created"])


def all_rows(store: Store, study: str | None = None) -> list[Row]:
    """Return one row per run in no particular order, for callers that filter before sorting."""
    known, stamps = _read(store)
    rows: Rows = {}
    now: Stamps = {}
    changed = False
    for name, entry in store.directories(study):
        key = (name, entry.name)
        try:
            file_status = os.stat(f"{entry.path}/metadata.json")  # noqa: PTH116 — a path object per run would cost more
        except (FileNotFoundError, NotADirectoryError):
            continue
        stamp = file_status.st_ctime_ns
        row = known.get(key) if stamps.get(key) == stamp else None
        if row is None or row["status"] in _NEVER_TRUSTED:
            row = _make_row(name, entry, file_status)
            changed = True
        if row is not None:
            rows[key], now[key] = row, stamp
    if changed or (study is None and len(rows) != len(known)):
        _write(store, *((rows, now) if study is None else ({**known, **rows}, {**stamps, **now})))
    return list(rows.values())


def indexed_rows(store: Store) -> list[Row]:
    """Return the rows of the index as it is, without looking at any run. They may be out of date."""
    return list(_read(store)[0].values())


def _make_row(study: str, entry: os.DirEntry[str], file_status: os.stat_result) -> Row | None:
    where = f"{entry.path}/metadata.json"
    try:
        metadata = parse_metadata(_content(where, file_status), where)
        if why := why_misplaced(metadata, study, entry.name):
            raise DamagedRun(f"{where} {why}")
        status = metadata.status
        if status == Status.RUNNING or metadata.best_pending:
            paths = RunPaths(Path(entry.path))
            metadata, status = settle_best(paths, metadata), true_status(paths, status).value
    except (FileNotFoundError, NotADirectoryError):
        return None
    except FairtrialError as error:
        return _damaged(study, entry, "; ".join((error.message, *error.problems)))
    except OSError as error:
        return _damaged(study, entry, f"{where} cannot be read: {error.strerror}")
    final, timings = metadata.final, metadata.timings
    shown = headline(metadata.metric, final)
    return {
        "run": entry.name,
        "study": study,
        "variant": metadata.variant,
        "seed": metadata.seed,
        "attempt": metadata.attempt,
        "recipe": metadata.recipe,
        "synthetic": metadata.synthetic,
        "status": status,
        "reason": metadata.reason,
        "metric": shown,
        "direction": metadata.direction,
        "value": None if shown is None else final.get(shown),
        "final": final,
        "best_metric_name": metadata.best_metric_name,
        "best_metric_value": metadata.best_metric_value,
        "best_checkpoint_step": metadata.best_checkpoint_step,
        "wall_s": timings.wall_s,
        "cpu_s": timings.cpu_s,
        "created": timings.created,
        "options": metadata.options,
        "identity": metadata.identity,
        "data": metadata.data_sha256,
        "fingerprint": metadata.fingerprint,
        "commit": metadata.environment.git_commit,
    }


def _damaged(study: str, entry: os.DirEntry[str], reason: str) -> Row:
    """Return the row of a run whose metadata cannot be read. Only the name of its folder is trusted."""
    variant, seed, attempt = parts_of_run_id(entry.name) or (None, None, 1)
    known = {
        "run": entry.name, "study": study, "variant": variant, "seed": seed, "attempt": attempt, "synthetic": False,
        "status": Status.DAMAGED.value, "reason": reason,
    }  # fmt: skip
    empty = {"final": {}, "options": {}, "identity": {}, "created": entry.stat().st_mtime}
    return {**dict.fromkeys((*_PLAIN, *_SHARED)), **known, **empty}


def _content(where: str, file_status: os.stat_result) -> bytes:
    """Read a regular file of usual size directly. `read_file` rejects pipes and huge files."""
    if not stat.S_ISREG(file_status.st_mode) or file_status.st_size > USUAL_BYTES:
        return read_file(Path(where))
    with open_regular(where) as file:
        return file.read()


def _read(store: Store) -> tuple[Rows, Stamps]:
    """Read the index. If it is missing, damaged or from another version, return nothing, and all rows are rebuilt."""
    try:
        stored = read_file(store.paths.index, most=LARGEST_INDEX_BYTES)
    except (OSError, FairtrialError):
        return {}, {}
    checksum, _, content = stored.partition(b"\n")
    if checksum != _checksum(content):
        return {}, {}
    try:
        return _unpack(orjson.loads(content))
    except (orjson.JSONDecodeError, KeyError, TypeError, IndexError, ValueError):
        return {}, {}


def is_whole_index(store: Store) -> bool:
    """Return whether the index matches its checksum. An index of an earlier version has none and is accepted."""
    try:
        stored = read_file(store.paths.index, most=LARGEST_INDEX_BYTES)
    except (OSError, FairtrialError):
        return False
    checksum, _, content = stored.partition(b"\n")
    return checksum == _checksum(content) or stored.startswith(b'{"schema":')


def _checksum(content: bytes) -> bytes:
    return b"fairtrial index %d %08x" % (INDEX_SCHEMA, zlib.crc32(content))


def _unpack(content: Mapping[str, Any]) -> tuple[Rows, Stamps]:
    shared, tables = content["shared"], content["tables"]
    columns = dict(content["plain"])
    columns |= {name: [tables[name][code] for code in shared[name]] for name in _SHARED}
    metrics = tables["metrics"]
    columns["final"] = [
        (metrics[code], values) for code, values in zip(content["metrics"], content["final"], strict=True)
    ]
    keys = list(zip(columns["study"], columns["run"], strict=True))
    rows: Rows = {key: _View(columns, at) for at, key in enumerate(keys)}
    return rows, dict(zip(keys, content["stamps"], strict=True))


class _Table:
    """Assigns integer codes to distinct values, for dictionary encoding."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._codes: dict[str | bytes | None, int] = {}

    def code(self, value: Any) -> int:
        key = value if value is None or type(value) is str else orjson.dumps(value)
        if key not in self._codes:
            self._codes[key] = len(self.values)
            self.values.append(value)
        return self._codes[key]


def _write(store: Store, rows: Rows, stamps: Stamps) -> None:
    """Write the index. Errors are ignored, because a read-only store can still be listed."""
    if not store.root.is_dir():
        return
    tables = {name: _Table() for name in (*_SHARED, "metrics")}
    listed = list(rows.values())
    content = {
        "plain": {name: [row[name] for row in listed] for name in _PLAIN},
        "shared": {name: [tables[name].code(row[name]) for row in listed] for name in _SHARED},
        "metrics": [tables["metrics"].code(list(row["final"])) for row in listed],
        "final": [list(row["final"].values()) for row in listed],
        "stamps": [stamps[key] for key in rows],
        "tables": {name: table.values for name, table in tables.items()},
    }
    try:
        store.paths.index.parent.mkdir(exist_ok=True)
        packed = orjson.dumps(content)
        replace_bytes(store.paths.index, _checksum(packed) + b"\n" + packed, sync=SyncLevel.NOTHING)
    except (FairtrialError, OSError):
        return
