"""Opens files that somebody else may have put there: regular files only.

Reading a pipe waits for a writer that may never come, and a device such as `/dev/zero` never ends. Files of runs,
studies and projects are therefore opened here, and nowhere else: `tests/test_architecture.py` keeps it so.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader, FileIO
from pathlib import Path


def open_regular(path: str | Path) -> BufferedReader:
    """A regular file, to be read. Raises an OSError for anything else, as `open` does for a folder."""
    return os.fdopen(_descriptor(path), "rb")


def open_unbuffered(path: str | Path) -> FileIO:
    """The same for those who read large blocks, or only the end."""
    return os.fdopen(_descriptor(path), "rb", buffering=0)


def _descriptor(path: str | Path) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if kind := irregular_kind(descriptor):
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"it is {kind}, not a file", str(path))
    return descriptor


def irregular_kind(descriptor: int) -> str | None:
    """What an open file is, where it is not a regular one."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return None
    return "a folder" if stat.S_ISDIR(mode) else "a pipe, device or socket"


def read_regular(path: str | Path) -> bytes:
    with open_regular(path) as file:
        return file.read()
