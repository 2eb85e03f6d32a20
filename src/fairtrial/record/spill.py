"""External sorting of the points of many metrics by step, with bounded memory.

Points are buffered up to a limit, then sorted and written to a temporary file as one *part*. A part contains all
metrics, each sorted by step. At the end, the parts of a metric are concatenated if their steps do not overlap, as in a
run that logs its steps in order, or merged otherwise. Of points with equal steps, the last written one wins.
"""

from __future__ import annotations

import heapq
import itertools
import os
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

BLOCK_POINTS = 1 << 17
"""Number of points held in memory, about 10 MB."""

Block = tuple["array[int]", "array[float]"]
NUMBER_BYTES = 8


class _Buffer:
    """The points of one metric that are not yet written to a part."""

    __slots__ = ("in_order", "last", "steps", "values")

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.values: list[float] = []
        self.last: int | None = None
        self.in_order = True

    def take_back_after(self, step: int) -> None:
        if self.last is not None and (self.last > step or not self.in_order):
            kept = [(s, v) for s, v in zip(self.steps, self.values, strict=True) if s <= step]
            self.steps, self.values = [s for s, _ in kept], [v for _, v in kept]
            self.last = max(self.steps, default=None)

    def sorted(self) -> Block:
        """Return the points sorted by step, without duplicates. Raises OverflowError for a step beyond 64 bits."""
        if self.in_order:
            return array("q", self.steps), array("d", self.values)
        points = dict(zip(self.steps, self.values, strict=True))
        ordered = sorted(points)
        return array("q", ordered), array("d", map(points.__getitem__, ordered))


@dataclass(frozen=True)
class _Part:
    """The location of a part in the file. `ends` are the cumulative numbers of points, one per metric."""

    offset: int
    ends: array[int]

    def place(self, code: int) -> tuple[int, int]:
        if code >= len(self.ends):
            return 0, 0
        return (self.ends[code - 1] if code else 0), self.ends[code]

    @property
    def points(self) -> int:
        return self.ends[-1] if self.ends else 0


@dataclass(frozen=True)
class _Piece:
    """The points of one metric in one part that were not discarded."""

    steps_at: int
    values_at: int
    count: int
    first: int
    last: int


class Spill:
    """Collects points and returns them sorted by step. `scratch` is the folder for the temporary file, if needed."""

    def __init__(self, scratch: Path | None = None, block_points: int = BLOCK_POINTS) -> None:
        self._scratch, self._most = scratch, block_points
        self._codes: dict[str, int] = {}
        self._buffers: dict[str, _Buffer] = {}
        self._buffered = 0
        self._sorted: dict[str, Block] = {}  # the result, if everything fits in memory
        self._parts: list[_Part] = []
        self._taken_back: list[tuple[int, int]] = []  # (number of parts written before, last step to keep)
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, step: int, values: dict[str, float]) -> None:
        """Add the values of one logged line."""
        buffers = self._buffers
        for name, value in values.items():
            buffer = buffers.get(name)
            if buffer is None:
                buffer = buffers[name] = _Buffer()
            if buffer.last is not None and step <= buffer.last:
                buffer.in_order = False
            else:
                buffer.last = step
            buffer.steps.append(step)
            buffer.values.append(value)
        self._buffered += len(values)
        if self._buffered >= self._most:
            self._write_part()

    def take_back_after(self, step: int) -> None:
        """Discard everything that was added so far for later steps."""
        for name, buffer in list(self._buffers.items()):
            buffer.take_back_after(step)
            if not buffer.steps:
                del self._buffers[name]
        self._buffered = sum(len(buffer.steps) for buffer in self._buffers.values())
        self._taken_back.append((len(self._parts), step))

    def close_input(self) -> None:
        """End the input. If parts were written to the file, write the rest there too."""
        if self._parts:
            self._write_part()
        for name, buffer in self._buffers.items():
            self._codes.setdefault(name, len(self._codes))
            self._sorted[name] = buffer.sorted()
        self._buffers.clear()

    @property
    def names(self) -> list[str]:
        """The metrics that have points, in the order of their first value."""
        return [name for name, code in self._codes.items() if not self._parts or self._pieces(code)]

    def blocks(self, name: str) -> Iterator[Block]:
        """Yield the points of a metric sorted by step."""
        if not self._parts:
            if name in self._sorted:
                yield self._sorted[name]
            return
        pieces = self._pieces(self._codes[name])
        in_order = all(before.last < after.first for before, after in itertools.pairwise(pieces))
        if in_order:
            for piece in pieces:
                yield self._read(piece, 0, piece.count)
        else:
            yield from self._merged(pieces)

    # Internals.

    def _write_part(self) -> None:
        for name in self._buffers:
            self._codes.setdefault(name, len(self._codes))
        ends, steps, values = array("q"), array("q"), array("d")
        for name in self._codes:
            buffer = self._buffers.pop(name, None)
            if buffer is not None:
                own_steps, own_values = buffer.sorted()
                steps += own_steps
                values += own_values
            ends.append(len(steps))
        file = self._file = self._file or _temporary_file(self._scratch)
        offset = file.seek(0, os.SEEK_END)
        file.write(memoryview(steps).cast("B"))
        file.write(memoryview(values).cast("B"))
        file.flush()
        self._parts.append(_Part(offset, ends))
        self._buffered = 0

    def _pieces(self, code: int) -> list[_Piece]:
        """Return the pieces of a metric in the order in which they were written."""
        pieces = []
        for part, limit in zip(self._parts, self._limits(), strict=True):
            start, end = part.place(code)
            if start == end:
                continue
            steps_at = part.offset + NUMBER_BYTES * start
            values_at = part.offset + NUMBER_BYTES * (part.points + start)
            count, last = end - start, self._numbers("q", steps_at + NUMBER_BYTES * (end - start - 1), 1)[0]
            if limit is not None and last > limit:
                steps = self._numbers("q", steps_at, count)
                count = bisect_right(steps, limit)
                if not count:
                    continue
                last = steps[count - 1]
            pieces.append(_Piece(steps_at, values_at, count, self._numbers("q", steps_at, 1)[0], last))
        return pieces

    def _limits(self) -> list[int | None]:
        """Return, for each part, the lowest step that a later rewind went back to, or None."""
        limits: list[int | None] = []
        pending = list(self._taken_back)
        lowest: int | None = None
        for number in reversed(range(len(self._parts))):
            while pending and pending[-1][0] > number:
                _, step = pending.pop()
                lowest = step if lowest is None else min(lowest, step)
            limits.append(lowest)
        return limits[::-1]

    def _merged(self, pieces: list[_Piece]) -> Iterator[Block]:
        """Merge overlapping pieces with a bounded part of each in memory. Of equal steps, the later piece wins."""
        share = max(64, self._most // len(pieces))
        runs = [self._points(piece, -place, share) for place, piece in enumerate(pieces)]
        steps, values = array("q"), array("d")
        last: int | None = None
        for step, _, value in heapq.merge(*runs):
            if step == last:
                continue
            last = step
            steps.append(step)
            values.append(value)
            if len(steps) >= self._most:
                yield steps, values
                steps, values = array("q"), array("d")
        if steps:
            yield steps, values

    def _points(self, piece: _Piece, rank: int, share: int) -> Iterator[tuple[int, int, float]]:
        for start in range(0, piece.count, share):
            steps, values = self._read(piece, start, min(start + share, piece.count))
            for step, value in zip(steps, values, strict=True):
                yield step, rank, value

    def _read(self, piece: _Piece, start: int, end: int) -> Block:
        steps = self._numbers("q", piece.steps_at + NUMBER_BYTES * start, end - start)
        return steps, self._numbers("d", piece.values_at + NUMBER_BYTES * start, end - start)

    def _numbers(self, kind: Any, at: int, count: int) -> array[Any]:
        assert self._file is not None
        numbers: array[Any] = array(kind)
        numbers.frombytes(os.pread(self._file.fileno(), NUMBER_BYTES * count, at))
        if len(numbers) != count:
            raise OSError("a temporary file was truncated")
        return numbers


def _temporary_file(folder: Path | None) -> IO[bytes]:
    """Open a temporary file, unnamed if the system supports it, so that a kill leaves nothing behind."""
    import tempfile  # only long runs need one

    try:
        return tempfile.TemporaryFile(dir=folder)
    except OSError:
        if folder is None:
            raise
        return tempfile.TemporaryFile()  # the store is read-only
