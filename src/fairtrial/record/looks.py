"""`looks.jsonl`: when a comparison of a study was looked at, and with which seeds. Append-only."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import orjson

from fairtrial.record.series import read_lines
from fairtrial.record.store import Store


def first_look(store: Store, study: str, arms: Sequence[str]) -> dict[str, Any] | None:
    """The first note of a comparison between these arms, whichever was called the control."""
    wanted = sorted(arms)
    rows = read_lines(store.paths.looks(study)).rows
    return next((row for row in rows if sorted(row.get("arms", ())) == wanted), None)


def note_look(store: Store, study: str, *, arms: Sequence[str], metric: str, seeds: Sequence[str]) -> bool:
    """Write down that a comparison was looked at now; False where the store cannot be written.

    A look with the same seeds and metric as the last one adds nothing, and is not noted again.
    """
    row = {"arms": sorted(arms), "metric": metric, "n": len(seeds), "seeds": sorted(seeds)}
    earlier = [dict(old) for old in read_lines(store.paths.looks(study)).rows]
    if any({name: old.get(name) for name in row} == row for old in earlier):
        return True
    line = orjson.dumps({"time": time.time(), **row}, option=orjson.OPT_APPEND_NEWLINE)
    try:
        target = os.open(store.paths.looks(study), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(target, line)
        finally:
            os.close(target)
    except OSError:
        return False
    return True
