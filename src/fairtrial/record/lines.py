"""Reading of append-only JSONL files of any size in blocks, forward or from the end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import orjson

from fairtrial.core.errors import StoreError
from fairtrial.core.regular_files import open_unbuffered
from fairtrial.core.untrusted import DAMAGED

BLOCK_BYTES = 1 << 20
FIRST_BYTES = 1 << 13
"""Size of the first block when reading from the end: enough for the last line, which is polled frequently."""
LONGEST_LINE_BYTES = 64 << 20
"""Limit far above any line of a run. Without it, a file without newlines would be read into memory completely."""

WRITE_S = 0.01
"""Seconds to wait for a write of one line to complete, far longer than it takes."""


@dataclass(frozen=True)
class Lines:
    """The parsed lines of a JSONL file. `torn` is True if the last line was incomplete and ignored."""

    rows: list[Any]
    torn: bool


def read_lines(path: Path) -> Lines:
    """Read all lines into memory, for files that are known to be short."""
    return Lines(list(iter_rows(path)), is_torn(path))


def iter_rows(path: Path) -> Iterator[Any]:
    """Yield every complete line of a file, parsed, in constant memory. A missing file has no lines."""
    number = 1
    for _, block in line_blocks(path):
        rows = parse_block(path, block, number)
        number += block.count(b"\n")
        yield from rows


def events_named(path: Path, *names: str) -> Iterator[dict[str, Any]]:
    """Yield the events with these names in the order in which they were written, without parsing other lines."""
    marks = _marks(names)
    for _, block in line_blocks(path):
        if any(mark in block for mark in marks):
            for line in block.split(b"\n"):
                if any(mark in line for mark in marks) and (row := _event(path, line, names)) is not None:
                    yield row


def newest_event_named(path: Path, *names: str) -> dict[str, Any] | None:
    """Return the last event with one of these names, searching from the end."""
    marks = _marks(names)
    for _, line in reversed_lines(path):
        if any(mark in line for mark in marks) and (row := _event(path, line, names)) is not None:
            return row
    return None


def _marks(names: tuple[str, ...]) -> list[bytes]:
    return [orjson.dumps(name) for name in names]


def _event(path: Path, line: bytes, names: tuple[str, ...]) -> dict[str, Any] | None:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise StoreError(f"a line of {path} is not JSON: {line[:60].decode(errors='replace')}", hint=DAMAGED) from None
    return row if isinstance(row, dict) and row.get("event") in names else None


def _open_lines(path: Path) -> FileIO:
    """Open a file of lines. Raises a StoreError if it is not a regular file, so that the run counts as damaged."""
    try:
        return open_unbuffered(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}", hint=DAMAGED) from None


def line_blocks(path: Path, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield the complete lines between two offsets in blocks, as (offset, bytes up to a newline)."""
    try:
        file = _open_lines(path)
    except FileNotFoundError:
        return
    with file:
        file.seek(start)
        rest = b""
        while chunk := file.read(BLOCK_BYTES if stop is None else min(BLOCK_BYTES, stop - start - len(rest))):
            end = chunk.rfind(b"\n") + 1
            if not end:
                rest += chunk
                if len(rest) > LONGEST_LINE_BYTES:
                    raise StoreError(
                        f"{path} has a line longer than {LONGEST_LINE_BYTES >> 20} MB at byte {start}", hint=DAMAGED
                    )
                continue
            block = rest + chunk[:end]
            yield start, block
            start += len(block)
            rest = chunk[end:]


def parse_block(path: Path, block: bytes, number: int = 1) -> list[Any]:
    """Parse the lines of a block whose first line has the 1-based number `number`.

    Raises a StoreError with the number of the first line that is not JSON. All lines are parsed together, which is
    faster than one by one. If the number of values differs from the number of newlines, damage joined or split lines,
    so each line is parsed separately.
    """
    try:
        rows = orjson.loads(b"[" + block[:-1].replace(b"\n", b",") + b"]")
        if len(rows) == block.count(b"\n"):
            return rows  # type: ignore[no-any-return]
    except orjson.JSONDecodeError:
        pass
    rows = []
    for at, line in enumerate(block.split(b"\n"), number):
        try:
            if line:
                rows.append(orjson.loads(line))
        except orjson.JSONDecodeError:
            raise StoreError(f"line {at} of {path} is not JSON", hint=DAMAGED) from None
    return rows


def reversed_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the complete lines of a file from its end, each with its offset."""
    try:
        file = _open_lines(path)
    except FileNotFoundError:
        return
    with file:
        at = file.seek(0, os.SEEK_END)
        rest: bytes | None = None  # the start of a line that ends in a later block; None before the first newline
        length = FIRST_BYTES
        while at:
            size = min(at, length)
            length = min(4 * length, BLOCK_BYTES)
            at -= size
            file.seek(at)
            content = file.read(size)
            if rest is None:
                content = content[: content.rfind(b"\n") + 1]  # drop an incomplete last line
                if not content:
                    continue
                content = content[:-1]
            else:
                content += rest
            if len(content) > LONGEST_LINE_BYTES + BLOCK_BYTES:
                raise StoreError(f"{path} has a line longer than {LONGEST_LINE_BYTES >> 20} MB", hint=DAMAGED)
            end = len(content)
            while (newline := content.rfind(b"\n", 0, end)) >= 0:
                if newline + 1 < end:
                    yield at + newline + 1, content[newline + 1 : end]
                end = newline
            rest = content[:end]
        if rest:
            yield 0, rest


def is_torn(path: Path) -> bool:
    """Return whether the last line is incomplete, as after a kill during a write."""
    try:
        with _open_lines(path) as file:
            if not file.seek(0, os.SEEK_END):
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except FileNotFoundError:
        return False


def end_of_lines(path: Path) -> int:
    """Return the offset at which the last complete line ends."""
    with _open_lines(path) as file:
        at = file.seek(0, os.SEEK_END)
        while at:
            size = min(at, BLOCK_BYTES)
            file.seek(at - size)
            newline = file.read(size).rfind(b"\n")
            if newline >= 0:
                return at - size + newline + 1
            at -= size
    return 0


def drop_torn_line(path: Path) -> bool:
    """Truncate an incomplete last line, so that the next line starts cleanly. Complete lines are never changed.

    Another process of the run may be in the middle of a write, so the file is checked again after WRITE_S.
    """
    if not is_torn(path):
        return False
    size = path.stat().st_size
    time.sleep(WRITE_S)
    if path.stat().st_size != size or not is_torn(path):
        return False
    whole = end_of_lines(path)
    with path.open("r+b") as file:
        file.truncate(whole)
        os.fsync(file.fileno())
    return True
