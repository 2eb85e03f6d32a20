"""Files of JSON lines that only grow: read in blocks, forwards or from the end, however long they are."""

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
"""The first step back from the end of a file: enough for the last line, which is asked for again and again."""
LONGEST_LINE_BYTES = 64 << 20
"""No line that a run writes comes near this size. Without a limit, a file without line ends would be read whole."""

WRITE_S = 0.01
"""More than any write of one line takes."""


@dataclass(frozen=True)
class Lines:
    """The parsed lines of a JSONL file. `torn` says that the last one was cut off and ignored."""

    rows: list[Any]
    torn: bool


def read_lines(path: Path) -> Lines:
    """All lines at once, for files that are known to be short."""
    return Lines(list(iter_rows(path)), is_torn(path))


def iter_rows(path: Path) -> Iterator[Any]:
    """Every whole line of a file, parsed, in constant memory. A file that is not there has no lines."""
    number = 1
    for _, block in line_blocks(path):
        rows = parse_block(path, block, number)
        number += block.count(b"\n")
        yield from rows


def events_named(path: Path, *names: str) -> Iterator[dict[str, Any]]:
    """The events of these names, in the order in which they were written. Other lines are not even parsed."""
    marks = _marks(names)
    for _, block in line_blocks(path):
        if any(mark in block for mark in marks):
            for line in block.split(b"\n"):
                if any(mark in line for mark in marks) and (row := _event(path, line, names)) is not None:
                    yield row


def newest_event_named(path: Path, *names: str) -> dict[str, Any] | None:
    """The last of these events, looked for from the end."""
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
    """A file of lines; a StoreError where something else is in its place, so that the run counts as damaged."""
    try:
        return open_unbuffered(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}", hint=DAMAGED) from None


def line_blocks(path: Path, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
    """The whole lines between two offsets in blocks: where each block begins, and its bytes up to a line end."""
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
                        f"{path} has a line of more than {LONGEST_LINE_BYTES >> 20} MB at byte {start}", hint=DAMAGED
                    )
                continue
            block = rest + chunk[:end]
            yield start, block
            start += len(block)
            rest = chunk[end:]


def parse_block(path: Path, block: bytes, number: int = 1) -> list[Any]:
    """The lines of a block, which `number` is the first of. Raises a StoreError that names the line that is not JSON.

    All lines are parsed at once, which takes less time than one by one. Where their number is not that of the line
    ends, something joined or split lines, so each is looked at by itself.
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
    """The whole lines of a file from its end, each with the offset at which it begins."""
    try:
        file = _open_lines(path)
    except FileNotFoundError:
        return
    with file:
        at = file.seek(0, os.SEEK_END)
        rest: bytes | None = None  # the beginning of a line that ends in a later block; None: nothing ended yet
        length = FIRST_BYTES
        while at:
            size = min(at, length)
            length = min(4 * length, BLOCK_BYTES)
            at -= size
            file.seek(at)
            content = file.read(size)
            if rest is None:
                content = content[: content.rfind(b"\n") + 1]  # what was cut off is not a line
                if not content:
                    continue
                content = content[:-1]
            else:
                content += rest
            if len(content) > LONGEST_LINE_BYTES + BLOCK_BYTES:
                raise StoreError(f"{path} has a line of more than {LONGEST_LINE_BYTES >> 20} MB", hint=DAMAGED)
            end = len(content)
            while (newline := content.rfind(b"\n", 0, end)) >= 0:
                if newline + 1 < end:
                    yield at + newline + 1, content[newline + 1 : end]
                end = newline
            rest = content[:end]
        if rest:
            yield 0, rest


def is_torn(path: Path) -> bool:
    """Whether the last line was cut off, as a kill in the middle of a write leaves it."""
    try:
        with _open_lines(path) as file:
            if not file.seek(0, os.SEEK_END):
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except FileNotFoundError:
        return False


def end_of_lines(path: Path) -> int:
    """Where the last whole line ends."""
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
    """Cut an unfinished last line off, so that the next line starts cleanly. Whole lines are never touched.

    A line that another process of the run is writing at this very moment is not unfinished for long.
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
