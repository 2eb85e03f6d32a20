"""`looks.jsonl`: when a comparison of a study was looked at, with which seeds, and what was asked. Append-only."""

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
"""Variant → the seeds of it that were looked at."""


@dataclass(frozen=True)
class Asked:
    """What a view of a difference answers. None: it was not part of the view, or an older version did not record it."""

    metric: str | None
    method: str | None = None
    side: str | None = None
    summary: str | None = None

    def differs_from(self, other: Asked) -> bool:
        """Whether one of the parts that both of them know is another one."""
        parts = zip(vars(self).values(), vars(other).values(), strict=True)
        return any(None not in (own, its) and own != its for own, its in parts)

    def completed_by(self, other: Asked) -> Asked:
        """With the parts of another view of the same question where this one has none."""
        known = {name: value for name, value in vars(self).items() if value is not None}
        return replace(other, **known)


@dataclass(frozen=True)
class InterimLook:
    """A view of one difference: the runs on view and the question.

    `planned` are seeds that the study was to have when `launch` showed its table. Filling those in later adds nothing
    that was chosen after looking.
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
    """The notes that can be read: a damaged one must not keep anyone from looking (`why_looks_damaged` tells)."""
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
    """Why it is not known how often this study was looked at; None where all is well.

    An unfinished last line is no damage: a kill left it, and the next look cuts it off.
    """
    path, seal = store.paths.interim_looks(study), _seal(store, study)
    try:
        content = read_regular(path)
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
    """Whether some seeds were not there when these variants were first compared, whoever was called the control.

    A seed that was on view before, or that was planned when `launch` showed its table, was not added after looking.
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
    """What was asked first of these variants on some of these runs; None where nobody has looked at them.

    `launch` shows no test: the first test of the same metric and summary completes its question.
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
    """Record that a comparison was looked at now; False where the store cannot be written."""
    return record_interim_looks(store, study, [InterimLook(Asked(metric), seeds)])


def record_interim_looks(store: Store, study: str, interim_looks: Sequence[InterimLook]) -> bool:
    """Record views of differences, all in one write; False where the store cannot be written.

    A look that asks the same of the same runs as an earlier one adds nothing, and is not noted again.
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
            if os.write(target, lines) < len(lines):  # the disk is full: what was cut off is dropped by the next look
                return False
            os.fsync(target)
        finally:
            os.close(target)
        sync_path(path.parent)
        if not damaged:  # a seal of what is left would hide what was lost
            _write_seal(store, study)
    except (OSError, StoreError):
        return False
    return True


def _without_time(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**vars(Asked(None)), **{name: value for name, value in row.items() if name != "time"}}
