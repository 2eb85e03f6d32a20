"""A list of all runs that is quick to read, and can always be rebuilt from the run directories.

A row is valid while its directory has the modification time that it had when the row was made: replacing
`metadata.json` in one step changes that time. Rows of runs that are still going on are never trusted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from fairtrial.core.errors import FairtrialError
from fairtrial.core.paths import RunPaths
from fairtrial.core.runs import Status, headline
from fairtrial.record.atomic import Sync, replace_bytes
from fairtrial.record.metadata import load_metadata, true_status
from fairtrial.record.store import Store

INDEX_SCHEMA = 1
Row = dict[str, Any]


def list_rows(store: Store, study: str | None = None) -> list[Row]:
    """One row per run, newest first. Reads only the directories that changed since the last time."""
    known = _read(store)
    rows: dict[str, Row] = {}
    changed = False
    for name, entry in store.directories(study):
        key = f"{name}/{entry.name}"
        stamp = entry.stat().st_mtime_ns
        row = known.get(key)
        if row is None or row["stamp"] != stamp or row["status"] == Status.RUNNING:
            row = _make_row(Path(entry.path), stamp)
            changed = True
        if row is not None:
            rows[key] = row
    if changed or (study is None and len(rows) != len(known)):
        _write(store, rows if study is None else {**known, **rows})
    return sorted(rows.values(), key=lambda row: -row["created"])


def _make_row(path: Path, stamp: int) -> Row | None:
    paths = RunPaths(path)
    try:
        metadata = load_metadata(paths)
    except FairtrialError as error:
        return _damaged(path, stamp, error)
    if metadata is None:
        return None
    timings, final = metadata["timings"], metadata["final"]
    shown = headline(metadata["metric"], final)
    return {
        "run": metadata["run_id"],
        "study": metadata["study"],
        "variant": metadata["variant"],
        "seed": metadata["seed"],
        "attempt": metadata["attempt"],
        "recipe": metadata["recipe"],
        "synthetic": metadata["synthetic"],
        "status": true_status(paths, metadata["status"]).value,
        "reason": metadata["reason"],
        "metric": shown,
        "value": final.get(shown),
        "final": final,
        "best_metric_name": metadata["best_metric_name"],
        "best_metric_value": metadata["best_metric_value"],
        "best_checkpoint_step": metadata["best_checkpoint_step"],
        "wall_s": timings["wall_s"],
        "cpu_s": timings["cpu_s"],
        "created": timings["created"],
        "options": metadata["options"],
        "fingerprint": metadata["fingerprint"],
        "commit": metadata["environment"].get("git_commit"),
        "path": str(path),
        "stamp": stamp,
    }


def _damaged(path: Path, stamp: int, error: FairtrialError) -> Row:
    """A run whose metadata cannot be read is listed, not hidden."""
    unknown = ("variant", "seed", "recipe", "metric", "value", "wall_s", "cpu_s", "fingerprint", "commit")
    best = ("best_metric_name", "best_metric_value", "best_checkpoint_step")
    return {
        **dict.fromkeys((*unknown, *best)),
        "run": path.name,
        "study": path.parent.name,
        "attempt": 1,
        "synthetic": False,
        "status": Status.FAILED.value,
        "reason": error.message,
        "final": {},
        "options": {},
        "created": path.stat().st_mtime,
        "path": str(path),
        "stamp": stamp,
    }


def _read(store: Store) -> dict[str, Row]:
    try:
        content = orjson.loads(store.paths.index.read_bytes())
    except (FileNotFoundError, NotADirectoryError, orjson.JSONDecodeError):
        return {}
    if content.get("schema") != INDEX_SCHEMA or content.get("root") != str(store.root):
        return {}
    rows: dict[str, Row] = content["rows"]
    return rows


def _write(store: Store, rows: dict[str, Row]) -> None:
    """Best effort: a store that cannot be written can still be listed."""
    content = {"schema": INDEX_SCHEMA, "root": str(store.root), "rows": rows}
    try:
        store.paths.index.parent.mkdir(parents=True, exist_ok=True)
        replace_bytes(store.paths.index, orjson.dumps(content), sync=Sync.NOTHING)
    except (FairtrialError, OSError):
        return
