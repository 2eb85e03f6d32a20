"""Makes files and folders survive a power cut. A file system may otherwise lose or reorder what it was given.

Three rules hold for everything that is trusted later:

- The content of a file is synced before the file gets the name that readers look for.
- A name (new, renamed, linked) is synced, by syncing its folder, before anybody is told that the file is there.
- A folder is a name in its parent, and needs the same.
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
"""How file systems say that folders cannot be synced there: their names are then as durable as they can be."""


def sync_path(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make a folder and those above it. The names of all that are new are on the disk when this returns."""
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
    """Take out of a file of lines what a power cut left without content; returns where it is kept, or None.

    A zero byte stands where the disk has the length of a file and not its content; lines of JSON never hold one.
    Everything from that line on was not synced, so that nobody was told that it is there. It is kept in a file of its
    own all the same, in case the zero bytes came there in another way. Its name has a dot: nobody else reads it.
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
        sync_path(path.parent)  # what is cut off below must be there under its new name
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
    """Where the line that holds a place begins."""
    end = place
    while end > 0:
        begin = max(0, end - BLOCK)
        file.seek(begin)
        if (at := file.read(end - begin).rfind(b"\n")) >= 0:
            return begin + at + 1
        end = begin
    return 0
