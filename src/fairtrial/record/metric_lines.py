"""The lines of `metrics.jsonl`: which hold values, which control what counts, and what a checkpoint builds on.

A line either has a `step` and holds values, or has none and is a control line. Names of metrics are the user's and
decide nothing.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from fairtrial.core.errors import StoreError
from fairtrial.core.untrusted import DAMAGED
from fairtrial.record.lines import line_blocks, parse_block, reversed_lines
from fairtrial.record.spill import Spill

STEP, TIME = RESERVED = ("step", "_time")
"""What each line has of its own, so that no metric can have these names."""
REWIND = "_rewind"
"""The key of a control line, which has no `step`: it takes back what was logged after the step that it names."""
KEPT_BYTES = "kept_bytes"
"""In a control line: of what stands before it, only so many bytes count. The rest was damaged."""
FROM_THE_BEGINNING = -1
MOST_STEP = 2**63 - 1

_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def spell(value: float) -> float | str:
    """JSON has no NaN and no infinity; they are written as words, so that they are not lost as null."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def unspell(value: Any) -> float:
    return _WORDS[value] if isinstance(value, str) else value


# Control lines


@dataclass(frozen=True)
class Rewind:
    """Another attempt goes on from `step`; -1 means from the beginning."""

    step: int
    kept_bytes: int | None = None

    def to_row(self) -> dict[str, int]:
        return {REWIND: self.step} if self.kept_bytes is None else {REWIND: self.step, KEPT_BYTES: self.kept_bytes}


def rewind_of(row: Any) -> Rewind | None:
    """What a control line says; None for every other line, whatever its metrics are called."""
    if type(row) is not dict or not row.keys() <= {REWIND, KEPT_BYTES}:
        return None
    step, kept = row.get(REWIND), row.get(KEPT_BYTES)
    if type(step) is not int or (kept is not None and type(kept) is not int):
        return None
    return Rewind(step, kept)


def metric_row(path: Path, line: bytes) -> dict[str, Any] | None:
    """A line that holds values; None for a control line or an empty one. Others are damaged."""
    if not line:
        return None
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        row = None
    if type(row) is dict and type(row.get(STEP)) is int and type(row.get(TIME, 0.0)) in (int, float):
        return {STEP: row.pop(STEP), TIME: row.pop(TIME, None), **row}
    if rewind_of(row) is None:
        shown = line[:60].decode(errors="replace")
        raise StoreError(f"{path} has a line that is not a line of metrics: {shown}", hint=DAMAGED)
    return None


def last_row(path: Path) -> dict[str, Any] | None:
    """The newest whole line, read from the end: cheap enough to poll while the run goes on."""
    try:
        _, line = next(reversed_lines(path), (0, b""))
        row = orjson.loads(line)
    except (StoreError, orjson.JSONDecodeError):
        return None
    return row if isinstance(row, dict) else None


def last_step(path: Path) -> int | None:
    """The newest step that a run has logged."""
    row = last_row(path)
    if row is None:
        return None
    rewind = rewind_of(row)
    step = rewind.step if rewind else row.get(STEP)
    return max(0, step) if type(step) is int else None


# The length and the hash of a file that grows


@dataclass(frozen=True)
class Extent:
    """How long the whole lines of a file are, how many there are, and the hash of their bytes."""

    lines: int
    bytes: int
    sha256: str

    def to_dict(self) -> dict[str, Any]:
        return {"lines": self.lines, "bytes": self.bytes, "sha256": self.sha256}

    @classmethod
    def from_record(cls, record: Any) -> Extent | None:
        """As it was recorded, or None where nothing was, as in runs of earlier versions."""
        if not isinstance(record, Mapping):
            return None
        fields = [record.get(name) for name in ("lines", "bytes", "sha256")]
        return cls(*fields) if list(map(type, fields)) == [int, int, str] else None  # type: ignore[arg-type]


class GrowingHash:
    """Hashes the lines of a growing file, every byte once, when it is asked to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines, self._bytes = 0, 0
        self._hash = hashlib.sha256()

    def extent(self) -> Extent:
        """Of all whole lines that are there now, whoever wrote them."""
        if self.is_cut_off():
            raise StoreError(f"{self.path} was truncated while the run was in progress", hint=DAMAGED)
        for _, block in line_blocks(self.path, self._bytes):
            self._add(block)
        return Extent(self._lines, self._bytes, self._hash.hexdigest())

    def is_cut_off(self) -> bool:
        """Whether the file is shorter than it was when it was last asked for."""
        return self._bytes > 0 and (not self.path.exists() or self.path.stat().st_size < self._bytes)

    def go_to(self, wanted: Sequence[int]) -> dict[int, Extent]:
        """The extents at these offsets, as far as the file reaches, in one pass; the hash then stands at the last."""
        extents = {}
        for offset in sorted(set(wanted)):
            for _, block in line_blocks(self.path, self._bytes, offset):
                self._add(block)
            if self._bytes != offset:  # the file ends before it, or no line does there
                break
            extents[offset] = Extent(self._lines, self._bytes, self._hash.hexdigest())
        return extents

    def _add(self, block: bytes) -> None:
        self._hash.update(block)
        self._lines += block.count(b"\n")
        self._bytes += len(block)


@dataclass(frozen=True)
class Base:
    """The lines that a checkpoint builds on, as a resume finds them."""

    problem: str | None
    rest_is_damaged: bool = False


def check_base(path: Path, step: int, then: Extent) -> Base:
    """Whether the lines that a checkpoint of this step was made after are still there, byte for byte, and still count.

    `rest_is_damaged`: what was logged after the checkpoint cannot be read.
    """
    now = GrowingHash(path).go_to([then.bytes]).get(then.bytes)
    if now is None:
        return Base(f"{path.name} is shorter than the {then.lines:,} lines that the checkpoint builds on")
    if now != then:
        return Base(f"{path.name} was changed: its first {then.lines:,} lines are not those the checkpoint builds on")
    seen = survey(path)
    for offset, rewind in seen.rewinds:
        kept = then.bytes if rewind.kept_bytes is None else rewind.kept_bytes
        if offset >= then.bytes and (rewind.step < step or kept < then.bytes):
            return Base(f"a later attempt took back what {path.name} says up to the checkpoint")
    try:
        with Spill() as spill:
            collect(path, seen.after(then.bytes), spill)
    except StoreError:
        return Base(None, rest_is_damaged=True)
    return Base(None)


# Reading lines


@dataclass(frozen=True)
class Survey:
    """One look over a whole file: its extent, its size with a torn end, and the offsets between which lines count.

    `rewinds` are all control lines with the offsets at which they stand.
    """

    extent: Extent
    size: int
    counting: tuple[tuple[int, int], ...]
    rewinds: tuple[tuple[int, Rewind], ...] = ()

    def after(self, offset: int) -> Survey:
        """What counts of the lines from an offset on."""
        rest = tuple((max(start, offset), stop) for start, stop in self.counting if stop > offset)
        return replace(self, counting=rest)


def survey(path: Path) -> Survey:
    """What must be known before lines are read: a control line may say that lines before it do not count."""
    digest, lines, at = hashlib.sha256(), 0, 0
    ranges: list[tuple[int, int]] = []  # what counts up to `begun`
    rewinds: list[tuple[int, Rewind]] = []
    begun = 0
    for offset, block in line_blocks(path):
        digest.update(block)
        lines += block.count(b"\n")
        at = offset + len(block)
        place = -1
        while (place := block.find(b'{"' + REWIND.encode(), place + 1)) >= 0:
            if place and block[place - 1] != 0x0A:
                continue
            rewind = _control_line(block[place : block.find(b"\n", place)])
            if rewind is None:
                continue
            here = offset + place
            rewinds.append((here, rewind))
            kept = 0 if rewind.step == FROM_THE_BEGINNING else rewind.kept_bytes
            if kept is not None:
                ranges = [(a, min(b, kept)) for a, b in [*ranges, (begun, here)] if a < kept]
                begun = here
    size = path.stat().st_size if path.exists() else 0
    extent = Extent(lines, at, digest.hexdigest())
    return Survey(extent, max(size, at), (*ranges, (begun, at)), tuple(rewinds))


def _control_line(line: bytes) -> Rewind | None:
    try:
        return rewind_of(orjson.loads(line))
    except orjson.JSONDecodeError:
        return None


def collect(path: Path, seen: Survey, spill: Spill) -> None:
    """Read the lines that count. A step that was logged twice counts as last written; a rewind takes steps back."""
    for start, stop in seen.counting:
        for offset, block in line_blocks(path, start, stop):
            rows = _parse_at(path, offset, block)
            try:
                place = -1
                for row in rows:
                    place += 1
                    step = row.get(STEP)
                    if type(step) is int:
                        del row[STEP]
                        row.pop(TIME, None)
                        for value in row.values():
                            if type(value) is not float:
                                row = {name: _number(value) for name, value in row.items()}
                                break
                        spill.add(step, row)
                    elif (rewind := rewind_of(row)) is None:
                        raise TypeError
                    elif rewind.step != FROM_THE_BEGINNING:
                        spill.take_back_after(rewind.step)
            except (AttributeError, KeyError, TypeError):  # not an object, or what is in it is not a number
                number = _line_number(path, offset) + place
                raise StoreError(f"line {number} of {path} is not a line of metrics", hint=DAMAGED) from None
            except OverflowError:
                raise StoreError(f"{path} has a step beyond 64 bits", hint=DAMAGED) from None
    try:
        spill.close_input()
    except OverflowError:
        raise StoreError(f"{path} has a step beyond 64 bits", hint=DAMAGED) from None


def _number(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    return _WORDS[value]


def _parse_at(path: Path, offset: int, block: bytes) -> list[Any]:
    try:
        return parse_block(path, block)
    except StoreError:
        parse_block(path, block, _line_number(path, offset))  # the same with the right number
        raise


def _line_number(path: Path, offset: int) -> int:
    """The 1-based number of the line that begins there."""
    return 1 + sum(block.count(b"\n") for _, block in line_blocks(path, 0, offset))
