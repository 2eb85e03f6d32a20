"""A check, before the first run, that the file system of a folder supports what a store needs.

A store needs exclusive file locks, appending, and atomic renames of files and folders. It does not need hard links:
without them, the second name of a checkpoint is a copy.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from fairtrial.core.errors import StoreError
from fairtrial.record.atomic import store_errors

_asked: set[tuple[int, int]] = set()
HINT = "Choose a folder on a local disk with --store or $FAIRTRIAL_STORE."


def check_file_system(root: Path) -> None:
    """Test the file system once per process and folder. This takes less than a millisecond and leaves no files."""
    file_status = root.stat()
    if (file_status.st_dev, file_status.st_ino) in _asked:
        return
    probe = root / f".probe-{os.getpid()}-{os.urandom(4).hex()}"
    with store_errors(root):
        try:
            probe.mkdir()
            _try_replacing(root, probe)
            _try_appending(root, probe)
            _try_locking(root, probe)
        finally:
            shutil.rmtree(probe, ignore_errors=True)
    _asked.add((file_status.st_dev, file_status.st_ino))


def _refused(root: Path, why: str) -> StoreError:
    return StoreError(f"{root} cannot be a store: its file system {why}", hint=HINT)


def _try_replacing(root: Path, probe: Path) -> None:
    old, new, folder = probe / "old", probe / "new", probe / "folder"
    old.write_bytes(b"old")
    new.write_bytes(b"new")
    os.replace(new, old)  # noqa: PTH105
    folder.mkdir()
    folder.rename(probe / "renamed")
    if old.read_bytes() != b"new" or new.exists() or folder.exists():
        raise _refused(root, "does not replace files atomically")


def _try_appending(root: Path, probe: Path) -> None:
    path = probe / "lines"
    first, second = (os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644) for _ in range(2))
    try:
        for descriptor, line in ((first, b"1\n"), (second, b"2\n"), (first, b"3\n")):
            os.write(descriptor, line)
    finally:
        os.close(first)
        os.close(second)
    if path.read_bytes() != b"1\n2\n3\n":
        raise _refused(root, "does not append to files")


def _try_locking(root: Path, probe: Path) -> None:
    """Test `flock` with two descriptors of one file, which conflict in the same way as two processes."""
    path = probe / "lock"
    first, second = (os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644) for _ in range(2))
    try:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
    except OSError as error:
        raise _refused(root, f"does not support file locks (flock: {error.strerror})") from error
    finally:
        os.close(first)
        os.close(second)
    raise _refused(root, "has file locks that are not exclusive")
