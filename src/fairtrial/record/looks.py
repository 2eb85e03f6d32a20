"""`looks.jsonl`: when a comparison of a study was looked at, and with which seeds. Append-only."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from fairtrial.core.private_files import open_to_append
from fairtrial.record.series import drop_torn_line
from fairtrial.record.store import Store

Seeds = Mapping[str, Sequence[str]]
"""Variant → the seeds of it that were looked at."""


def read_looks(store: Store, study: str) -> list[dict[str, Any]]:
    """The notes that can be read: a damaged one must not keep anyone from looking."""
    found = []
    try:
        lines = store.paths.looks(study).read_bytes().split(b"\n")
    except OSError:
        return []
    for line in lines:
        with contextlib.suppress(orjson.JSONDecodeError):
            row = orjson.loads(line)
            if isinstance(row, dict) and isinstance(row.get("seeds"), dict):
                found.append(row)
    return found


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
        target = open_to_append(store.paths.looks(study))
        try:
            drop_torn_line(store.paths.looks(study))
            os.write(target, line)
        finally:
            os.close(target)
    except OSError:
        return False
    return True
