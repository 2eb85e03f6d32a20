"""`looks.jsonl`: when a comparison of a study was looked at, and with which seeds. Append-only."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from fairtrial.core.durable import sync_path
from fairtrial.core.errors import StoreError
from fairtrial.core.private_files import open_to_append
from fairtrial.record.atomic import Sync, replace_bytes
from fairtrial.record.lines import drop_torn_line
from fairtrial.record.store import Store

Seeds = Mapping[str, Sequence[str]]
"""Variant → the seeds of it that were looked at."""


def read_looks(store: Store, study: str) -> list[dict[str, Any]]:
    """The notes that can be read: a damaged one must not keep anyone from looking (`why_looks_damaged` tells)."""
    try:
        lines = store.paths.looks(study).read_bytes().split(b"\n")
    except OSError:
        return []
    return [row for line in lines if line and _is_look(row := _parsed(line))]


def _parsed(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


def _is_look(row: Any) -> bool:
    if not isinstance(row, dict) or not isinstance(row.get("seeds"), dict):
        return False
    named = all(type(each) is list and all(type(seed) is str for seed in each) for each in row["seeds"].values())
    return named and type(row.get("metric", "")) is str and type(row.get("time", 0.0)) in (int, float)


def why_looks_damaged(store: Store, study: str) -> str | None:
    """Why it is not known how often this study was looked at; None where all is well.

    An unfinished last line is no damage: a kill left it, and the next look cuts it off.
    """
    path, seal = store.paths.looks(study), _seal(store, study)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return f"{path} is missing" if seal else None
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    if seal and len(content) < seal[0]:
        return f"{path} has {len(content):,} bytes of {seal[0]:,}"
    if seal and zlib.crc32(content[: seal[0]]) != seal[1]:
        return f"{path} was changed"
    for number, line in enumerate(content.split(b"\n")[:-1], 1):
        if line and not _is_look(_parsed(line)):
            return f"line {number} of {path} is not the note of a look"
    return None


def _seal(store: Store, study: str) -> tuple[int, int] | None:
    try:
        found = orjson.loads(store.paths.looks_seal(study).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    if not isinstance(found, dict) or type(found.get("bytes")) is not int or type(found.get("crc32")) is not int:
        return None
    return found["bytes"], found["crc32"]


def _seal_looks(store: Store, study: str) -> None:
    content = store.paths.looks(study).read_bytes()
    seal = {"bytes": len(content), "crc32": zlib.crc32(content)}
    replace_bytes(store.paths.looks_seal(study), orjson.dumps(seal), sync=Sync.NOTHING)


def seeds_came_later(store: Store, study: str, seeds: Seeds) -> bool:
    """Whether some seeds were not there when these variants were first compared, whoever was called the control."""
    first = next((row for row in read_looks(store, study) if row["seeds"].keys() == seeds.keys()), None)
    return first is not None and any(set(each) - set(first["seeds"][name]) for name, each in seeds.items())


def note_look(store: Store, study: str, *, metric: str, seeds: Seeds) -> bool:
    """Write down that a comparison was looked at now; False where the store cannot be written.

    A look with the same seeds and metric as an earlier one adds nothing, and is not noted again.
    """
    row = {
        "metric": metric,
        "n": max(map(len, seeds.values())),
        "seeds": {n: sorted(s) for n, s in sorted(seeds.items())},
    }
    if any({name: old.get(name) for name in row} == row for old in read_looks(store, study)):
        return True
    line = orjson.dumps({"time": time.time(), **row}, option=orjson.OPT_APPEND_NEWLINE)
    try:
        path = store.paths.looks(study)
        damaged = why_looks_damaged(store, study)
        target = open_to_append(path)
        try:
            drop_torn_line(path)
            os.write(target, line)
            os.fsync(target)
        finally:
            os.close(target)
        sync_path(path.parent)
        if not damaged:  # a seal of what is left would hide what was lost
            _seal_looks(store, study)
    except (OSError, StoreError):
        return False
    return True
