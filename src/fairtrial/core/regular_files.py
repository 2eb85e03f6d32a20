"""Open files that another user may have created: regular files only.

Reading a pipe waits for a writer that may never come, and a device such as `/dev/zero` never ends. Files of runs,
studies and projects are therefore opened only here; `tests/test_architecture.py` enforces it.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader, FileIO
from pathlib import Path


def open_regular(path: str | Path) -> BufferedReader:
    """Open a regular file for reading. Raises an OSError for anything else, as `open` does for a folder."""
    return os.fdopen(_descriptor(path), "rb")


def open_unbuffered(path: str | Path) -> FileIO:
    """Open a regular file without buffering, to read large blocks or only the end."""
    return os.fdopen(_descriptor(path), "rb", buffering=0)


def _descriptor(path: str | Path) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if kind := irregular_kind(descriptor):
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"it is {kind}, not a file", str(path))
    return descriptor


def irregular_kind(descriptor: int) -> str | None:
    """Return a description of an open file that is not regular; None for a regular file."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return None
    return "a folder" if stat.S_ISDIR(mode) else "a pipe, device or socket"


def read_regular(path: str | Path) -> bytes:
    with open_regular(path) as file:
        return file.read()
