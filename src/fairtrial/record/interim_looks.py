"""`looks.jsonl`: an append-only log of interim looks at the comparisons of a study, with their seeds and questions."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from fairtrial.core.durable import sync_path
from fairtrial.core.errors import StoreError
from fairtrial.core.private_files import open_to_append
from fairtrial.core.regular_files import read_regular
from fairtrial.record.atomic import SyncLevel, replace_bytes
from fairtrial.record.lines import drop_torn_line
from fairtrial.record.store import Store

Seeds = Mapping[str, Sequence[str]]
"""Variant → its seeds that were part of a look."""


@dataclass(frozen=True)
class Asked:
    """The question that a look at a difference answers. None: not part of the look, or not recorded by old versions."""

    metric: str | None
    method: str | None = None
    side: str | None = None
    summary: str | None = None

    def differs_from(self, other: Asked) -> bool:
        """Return whether a part that is known in both differs."""
        parts = zip(vars(self).values(), vars(other).values(), strict=True)
        return any(None not in (own, its) and own != its for own, its in parts)

    def completed_by(self, other: Asked) -> Asked:
        """Return this question with its unknown parts filled in from another one."""
        known = {name: value for name, value in vars(self).items() if value is not None}
        return replace(other, **known)


@dataclass(frozen=True)
class InterimLook:
    """One look at a difference: the question and the seeds of the runs that were shown.

    `planned` are the seeds that were planned when `launch` showed its table. Running these later is not a decision made
    after looking.
    """

    asked: Asked
    seeds: Seeds
    planned: Seeds = field(default_factory=dict)

    def to_row(self) -> dict[str, Any]:
        rows = {"seeds": self.seeds, **({"planned": self.planned} if self.planned else {})}
        return {
            **vars(self.asked),
            "n": max(map(len, self.seeds.values())),
            **{key: {name: sorted(each) for name, each in sorted(value.items())} for key, value in rows.items()},
        }


def read_interim_looks(store: Store, study: str) -> list[dict[str, Any]]:
    """Return the readable looks. Damaged lines are skipped here and reported by `why_interim_looks_damaged`."""
    try:
        lines = read_regular(store.paths.interim_looks(study)).split(b"\n")
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
    if type(row.get("metric", "")) is not str or type(row.get("time", 0.0)) not in (int, float):
        return False
    if any(type(row.get(name)) not in (str, type(None)) for name in ("method", "side", "summary")):
        return False
    return _are_seeds(row["seeds"]) and _are_seeds(row.get("planned", {}))


def _are_seeds(value: Any) -> bool:
    return isinstance(value, dict) and all(
        type(each) is list and all(type(seed) is str for seed in each) for each in value.values()
    )


def why_interim_looks_damaged(store: Store, study: str) -> str | None:
    """Return why the log of looks at this study is not reliable, or None if it is.

    An incomplete last line is not damage: a kill left it, and the next look truncates it.
    """
    path, seal = store.paths.interim_looks(study), _seal(store, study)
    try:
        content = read_regular(path)
    except FileNotFoundError:
        return f"{path} is missing" if seal else None
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    if seal and len(content) < seal[0]:
        return f"{path} has only {len(content):,} of {seal[0]:,} bytes"
    if seal and zlib.crc32(content[: seal[0]]) != seal[1]:
        return f"{path} was changed"
    for number, line in enumerate(content.split(b"\n")[:-1], 1):
        if line and not _is_look(_parsed(line)):
            return f"line {number} of {path} is not a valid record of a look"
    return None


def _seal(store: Store, study: str) -> tuple[int, int] | None:
    try:
        seal = orjson.loads(read_regular(store.paths.interim_looks_seal(study)))
    except (OSError, orjson.JSONDecodeError):
        return None
    if not isinstance(seal, dict) or type(seal.get("bytes")) is not int or type(seal.get("crc32")) is not int:
        return None
    return seal["bytes"], seal["crc32"]


def _write_seal(store: Store, study: str) -> None:
    content = read_regular(store.paths.interim_looks(study))
    seal = {"bytes": len(content), "crc32": zlib.crc32(content)}
    replace_bytes(store.paths.interim_looks_seal(study), orjson.dumps(seal), sync=SyncLevel.NOTHING)


def came_later(interim_looks: Iterable[Mapping[str, Any]], seeds: Seeds) -> bool:
    """Return whether seeds were added after a look at these variants, whichever of them was the control.

    A seed that was shown before, or that was planned when `launch` showed its table, was not added after a look.
    """
    seen: dict[str, set[str]] = {name: set() for name in seeds}
    for row in (row for row in interim_looks if row["seeds"].keys() == seeds.keys()):
        planned = row.get("planned", {})
        for name, each in seeds.items():
            seen[name].update(row["seeds"][name])
            if set(each) - seen[name] - set(planned.get(name, ())):
                return True
    return False


def first_asked(interim_looks: Iterable[Mapping[str, Any]], seeds: Seeds) -> Asked | None:
    """Return the first question asked about these variants on some of these runs, or None if there was no look.

    `launch` shows no test, so the first test of the same metric and summary completes its question.
    """
    views = [
        Asked(row.get("metric"), row.get("method"), row.get("side"), row.get("summary"))
        for row in interim_looks
        if row["seeds"].keys() == seeds.keys() and any(set(each) & set(row["seeds"][n]) for n, each in seeds.items())
    ]
    if not views:
        return None
    asked, *later = views
    for view in later:
        asked = asked if view.differs_from(asked) else asked.completed_by(view)
    return asked


def record_interim_look(store: Store, study: str, *, metric: str, seeds: Seeds) -> bool:
    """Record a look at a comparison. Return False if the store cannot be written."""
    return record_interim_looks(store, study, [InterimLook(Asked(metric), seeds)])


def record_interim_looks(store: Store, study: str, interim_looks: Sequence[InterimLook]) -> bool:
    """Record looks at differences in one write. Return False if the store cannot be written.

    A look with the same question and the same runs as an earlier one is not recorded again.
    """
    known, new = [_without_time(row) for row in read_interim_looks(store, study)], []
    for row in (look.to_row() for look in interim_looks):
        if row not in known and row not in new:
            new.append(row)
    if not new:
        return True
    now = time.time()
    lines = b"".join(orjson.dumps({"time": now, **row}, option=orjson.OPT_APPEND_NEWLINE) for row in new)
    try:
        path = store.paths.interim_looks(study)
        damaged = why_interim_looks_damaged(store, study)
        target = open_to_append(path)
        try:
            drop_torn_line(path)
            if os.write(target, lines) < len(lines):  # the disk is full: the next look drops the incomplete line
                return False
            os.fsync(target)
        finally:
            os.close(target)
        sync_path(path.parent)
        if not damaged:  # a new seal of a damaged file would hide the damage
            _write_seal(store, study)
    except (OSError, StoreError):
        return False
    return True


def _without_time(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**vars(Asked(None)), **{name: value for name, value in row.items() if name != "time"}}
