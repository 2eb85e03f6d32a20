"""Make files and folders survive a power failure. Without fsync, a file system may lose or reorder writes.

Three rules apply to all files that are trusted later:

- The content of a file is synced before the file gets the name that readers look for.
- A name (new, renamed, linked) is synced, by syncing its folder, before anything reports or records that it exists.
- A folder is a name in its parent folder, so the same rule applies to it.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fairtrial.core.regular_files import open_regular

BLOCK = 1 << 20
_CANNOT_SYNC = {errno.EINVAL, errno.EBADF, errno.ENOSYS, errno.EOPNOTSUPP}
"""Errors of file systems that cannot sync folders; names are then as durable as the file system allows."""


def sync_path(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Create a folder and its missing parents. All new names are on disk when this returns."""
    missing = list(_missing(path))
    path.mkdir(mode, parents=True, exist_ok=True)
    for folder in missing:
        sync_path(folder.parent)


def _missing(path: Path) -> Iterator[Path]:
    for folder in (path, *path.parents):
        if folder.exists():
            return
        yield folder


def set_lost_tail_aside(path: Path) -> Path | None:
    """Remove lines whose content was lost in a power failure; return the file that keeps the removed part, or None.

    Zero bytes appear where the file's length reached the disk but its content did not; JSON lines never contain them.
    Everything from that line on was not synced, so nothing relied on it. It is still moved to a separate file, in case
    the zero bytes have another cause. The name of that file starts with a dot, so other readers ignore it.
    """
    hole = _first_zero(path)
    if hole is None:
        return None
    aside = path.with_name(f".{path.name}.lost-{time.time_ns()}")
    with path.open("r+b") as file:
        start = _line_start(file, hole)
        file.seek(start)
        with aside.open("xb") as kept:
            shutil.copyfileobj(file, kept)
            kept.flush()
            os.fsync(kept.fileno())
        sync_path(path.parent)  # the copy must be on disk before the original is truncated
        file.truncate(start)
    return aside


def _first_zero(path: Path) -> int | None:
    try:
        with open_regular(path) as file:
            start = 0
            while block := file.read(BLOCK):
                if (at := block.find(b"\0")) >= 0:
                    return start + at
                start += len(block)
    except FileNotFoundError:
        pass
    return None


def _line_start(file: IO[bytes], place: int) -> int:
    """Return the start of the line that contains the byte at `place`."""
    end = place
    while end > 0:
        begin = max(0, end - BLOCK)
        file.seek(begin)
        if (at := file.read(end - begin).rfind(b"\n")) >= 0:
            return begin + at + 1
        end = begin
    return 0
