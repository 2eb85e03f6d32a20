"""The lines of `metrics.jsonl`: values, control lines, and the lines that a checkpoint depends on.

A line with a `step` contains values; a line without one is a control line. Users choose the names of metrics, so names
do not distinguish the two.
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
"""Keys of every line, which are therefore not allowed as names of metrics."""
REWIND = "_rewind"
"""The key of a control line, which discards everything that was logged after the given step."""
KEPT_BYTES = "kept_bytes"
"""The key of a control line that limits the preceding content to this many bytes, because the rest was damaged."""
FROM_THE_BEGINNING = -1
MOST_STEP = 2**63 - 1

_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def spell(value: float) -> float | str:
    """Return a float as a JSON value: NaN and infinities become strings, because JSON would turn them into null."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def unspell(value: Any) -> float:
    return _WORDS[value] if isinstance(value, str) else value


# Control lines


@dataclass(frozen=True)
class Rewind:
    """The point at which another attempt resumed: after `step`, or from the beginning if it is -1."""

    step: int
    kept_bytes: int | None = None

    def to_row(self) -> dict[str, int]:
        return {REWIND: self.step} if self.kept_bytes is None else {REWIND: self.step, KEPT_BYTES: self.kept_bytes}


def rewind_of(row: Any) -> Rewind | None:
    """Parse a control line; None for any other line, regardless of its metric names."""
    if type(row) is not dict or not row.keys() <= {REWIND, KEPT_BYTES}:
        return None
    step, kept = row.get(REWIND), row.get(KEPT_BYTES)
    if type(step) is not int or (kept is not None and type(kept) is not int):
        return None
    return Rewind(step, kept)


def metric_row(path: Path, line: bytes) -> dict[str, Any] | None:
    """Parse a line of values; None for a control line or an empty line. Raises a StoreError for any other line."""
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
        raise StoreError(f"{path} has an invalid line: {shown}", hint=DAMAGED)
    return None


def last_row(path: Path) -> dict[str, Any] | None:
    """Return the last complete line, read from the end: cheap enough to poll while the run is in progress."""
    try:
        _, line = next(reversed_lines(path), (0, b""))
        row = orjson.loads(line)
    except (StoreError, orjson.JSONDecodeError):
        return None
    return row if isinstance(row, dict) else None


def last_step(path: Path) -> int | None:
    """Return the last step that a run has logged."""
    row = last_row(path)
    if row is None:
        return None
    rewind = rewind_of(row)
    step = rewind.step if rewind else row.get(STEP)
    return max(0, step) if type(step) is int else None


# Length and hash of a growing file


@dataclass(frozen=True)
class Extent:
    """The number, total bytes and hash of the complete lines of a file."""

    lines: int
    bytes: int
    sha256: str

    def to_dict(self) -> dict[str, Any]:
        return {"lines": self.lines, "bytes": self.bytes, "sha256": self.sha256}

    @classmethod
    def from_record(cls, record: Any) -> Extent | None:
        """Parse a recorded extent, or return None if there is none, as in runs of earlier versions."""
        if not isinstance(record, Mapping):
            return None
        fields = [record.get(name) for name in ("lines", "bytes", "sha256")]
        return cls(*fields) if list(map(type, fields)) == [int, int, str] else None  # type: ignore[arg-type]


class GrowingHash:
    """Hashes the lines of a growing file on request, reading every byte only once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines, self._bytes = 0, 0
        self._hash = hashlib.sha256()

    def extent(self) -> Extent:
        """Return the extent of all complete lines in the file now, including those of other processes."""
        if self.is_cut_off():
            raise StoreError(f"{self.path} was truncated while the run was in progress", hint=DAMAGED)
        for _, block in line_blocks(self.path, self._bytes):
            self._add(block)
        return Extent(self._lines, self._bytes, self._hash.hexdigest())

    def is_cut_off(self) -> bool:
        """Return whether the file is shorter than at the last call of `extent`."""
        return self._bytes > 0 and (not self.path.exists() or self.path.stat().st_size < self._bytes)

    def go_to(self, wanted: Sequence[int]) -> dict[int, Extent]:
        """Return the extents at these offsets in one pass, as far as the file reaches. The hash stops at the last."""
        extents = {}
        for offset in sorted(set(wanted)):
            for _, block in line_blocks(self.path, self._bytes, offset):
                self._add(block)
            if self._bytes != offset:  # the file ends earlier, or no line ends at this offset
                break
            extents[offset] = Extent(self._lines, self._bytes, self._hash.hexdigest())
        return extents

    def _add(self, block: bytes) -> None:
        self._hash.update(block)
        self._lines += block.count(b"\n")
        self._bytes += len(block)


@dataclass(frozen=True)
class Base:
    """The result of checking the metrics lines that precede a checkpoint."""

    problem: str | None
    rest_is_damaged: bool = False


def check_base(path: Path, step: int, then: Extent) -> Base:
    """Check that the lines before a checkpoint are unchanged byte for byte and that no later rewind discards them.

    `rest_is_damaged` means that the lines after the checkpoint cannot be read.
    """
    now = GrowingHash(path).go_to([then.bytes]).get(then.bytes)
    if now is None:
        return Base(f"{path.name} is shorter than the {then.lines:,} lines that precede the checkpoint")
    if now != then:
        return Base(f"{path.name} was changed: its first {then.lines:,} lines differ from those before the checkpoint")
    seen = survey(path)
    for offset, rewind in seen.rewinds:
        kept = then.bytes if rewind.kept_bytes is None else rewind.kept_bytes
        if offset >= then.bytes and (rewind.step < step or kept < then.bytes):
            return Base(f"a later attempt discarded lines of {path.name} that precede the checkpoint")
    try:
        with Spill() as spill:
            collect(path, seen.after(then.bytes), spill)
    except StoreError:
        return Base(None, rest_is_damaged=True)
    return Base(None)


# Reading lines


@dataclass(frozen=True)
class Survey:
    """The result of scanning a whole file: its extent, its size including a torn last line, and the valid ranges.

    `counting` are the offset ranges whose lines count; `rewinds` are all control lines with their offsets.
    """

    extent: Extent
    size: int
    counting: tuple[tuple[int, int], ...]
    rewinds: tuple[tuple[int, Rewind], ...] = ()

    def after(self, offset: int) -> Survey:
        """Return the survey restricted to the lines from an offset on."""
        rest = tuple((max(start, offset), stop) for start, stop in self.counting if stop > offset)
        return replace(self, counting=rest)


def survey(path: Path) -> Survey:
    """Scan a file before its lines are read, because a control line may discard lines before it."""
    digest, lines, at = hashlib.sha256(), 0, 0
    ranges: list[tuple[int, int]] = []  # the ranges that count before `begun`
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
    """Read the lines that count. If a step was logged twice, the last line wins; a rewind discards later steps."""
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
            except (AttributeError, KeyError, TypeError):  # not an object, or a value is not a number
                number = _line_number(path, offset) + place
                raise StoreError(f"line {number} of {path} is not a valid metrics line", hint=DAMAGED) from None
            except OverflowError:
                raise StoreError(f"{path} has a step that exceeds 64 bits", hint=DAMAGED) from None
    try:
        spill.close_input()
    except OverflowError:
        raise StoreError(f"{path} has a step that exceeds 64 bits", hint=DAMAGED) from None


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
        parse_block(path, block, _line_number(path, offset))  # raises the same error with the right line number
        raise


def _line_number(path: Path, offset: int) -> int:
    """Return the 1-based number of the line that starts at an offset."""
    return 1 + sum(block.count(b"\n") for _, block in line_blocks(path, 0, offset))
