"""Atomic replacement of files: a reader sees either the old or the new content, never a mixture."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path

from fairtrial.core.durable import sync_path
from fairtrial.core.errors import StoreError

_HINTS = {
    errno.ENOSPC: ("the disk is full", "Free some space and run the same command again: it resumes."),
    errno.EDQUOT: (
        "the disk quota is used up",
        "Free some space and run the same command again: it resumes.",
    ),
    errno.EROFS: ("the file system is read-only", "Choose another place with --store or $FAIRTRIAL_STORE."),
    errno.EACCES: ("permission denied", "Choose another place with --store or $FAIRTRIAL_STORE."),
    errno.EPERM: ("permission denied", "Choose another place with --store or $FAIRTRIAL_STORE."),
    errno.ENOTDIR: ("part of the path is a file, not a folder", "Choose another place with --store."),
    errno.ELOOP: ("it is a symbolic link, not a regular file", "Inspect the link, and remove it if it is not yours."),
    errno.ENAMETOOLONG: ("the path is too long", "Choose shorter study and variant names."),
}


@contextlib.contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Convert common OS errors into a StoreError with a hint."""
    try:
        yield
    except OSError as error:
        if error.errno not in _HINTS:
            raise
        what, hint = _HINTS[error.errno]
        raise StoreError(f"cannot write {path}: {what}", hint=hint) from error


class SyncLevel(Enum):
    """What to fsync when a file is replaced. This matters only for a power loss: a kill loses nothing at any level."""

    NOTHING = 0  # for files that can be regenerated
    FILE = 1  # after a power loss, the file is either the old or the new one, and complete
    FOLDER = 2  # after a power loss, the file is the new one


def temporary_path(path: Path) -> Path:
    """Return a temporary name next to a file. It has a random part, as processes of two machines may share a PID."""
    return path.with_name(f".{path.name.lstrip('.')}.{os.getpid()}-{os.urandom(4).hex()}.tmp")


def replace_file(path: Path, write: Callable[[Path], None], *, sync: SyncLevel = SyncLevel.FOLDER) -> None:
    """Let `write` fill a temporary file next to `path`, fsync it, then rename it to `path`."""
    temporary = temporary_path(path)
    with store_errors(path):
        try:
            write(temporary)
            if sync is not SyncLevel.NOTHING:
                sync_path(temporary)
            os.replace(temporary, path)  # noqa: PTH105 — tests interpose on os.replace
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        if sync is SyncLevel.FOLDER:
            sync_path(path.parent)


def replace_bytes(path: Path, content: bytes, *, sync: SyncLevel = SyncLevel.FOLDER) -> None:
    replace_file(path, lambda temporary: _write(temporary, content), sync=sync)


def link_file(source: Path, path: Path) -> None:
    """Atomically make `path` a hard link to `source`, or a copy if the file system does not support hard links.

    `source` must already be synced.
    """
    temporary = temporary_path(path)
    with store_errors(path):
        try:
            if not link_or_copy(source, temporary):
                sync_path(temporary)
            os.replace(temporary, path)  # noqa: PTH105
        finally:
            temporary.unlink(missing_ok=True)  # rename does nothing if both names are links to the same file
        sync_path(path.parent)


_NO_LINKS = {errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}
"""Error numbers of file systems that do not support hard links, or no further ones for this file."""


def link_or_copy(source: Path, path: Path) -> bool:
    """Hard-link a file, or copy it if that is impossible. Return whether it was linked."""
    try:
        os.link(source, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copyfile(source, path)
        return False
    return True


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
