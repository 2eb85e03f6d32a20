"""Files that are either the old one or the new one, never half of either."""

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
    errno.ENOTDIR: ("a file stands where a folder is needed", "Choose another place with --store."),
    errno.ELOOP: ("a symbolic link stands where a file is needed", "Look at it, and remove it if it is not yours."),
    errno.ENAMETOOLONG: ("the path is too long", "Choose shorter study and variant names."),
}


@contextlib.contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Turn what the operating system refuses into one sentence and a hint."""
    try:
        yield
    except OSError as error:
        if error.errno not in _HINTS:
            raise
        what, hint = _HINTS[error.errno]
        raise StoreError(f"cannot write {path}: {what}", hint=hint) from error


class SyncLevel(Enum):
    """How far a new file is pushed before it counts as written. None of them matters for a mere kill."""

    NOTHING = 0  # can be made again
    FILE = 1  # never half a file, even after a power cut
    FOLDER = 2  # the new file, not the old one, even after a power cut


def temporary_path(path: Path) -> Path:
    """A name for what is to become this file. Processes of two machines may have the same number."""
    return path.with_name(f".{path.name.lstrip('.')}.{os.getpid()}-{os.urandom(4).hex()}.tmp")


def replace_file(path: Path, write: Callable[[Path], None], *, sync: SyncLevel = SyncLevel.FOLDER) -> None:
    """Let `write` fill a temporary file beside `path`, make it durable, then put it in place."""
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
    """Make `path` another name of `source`, or a copy where there are no hard links, in one step.

    `source` must be synced already.
    """
    temporary = temporary_path(path)
    with store_errors(path):
        try:
            if not link_or_copy(source, temporary):
                sync_path(temporary)
            os.replace(temporary, path)  # noqa: PTH105
        finally:
            temporary.unlink(missing_ok=True)  # two names of one file are not renamed onto each other
        sync_path(path.parent)


_NO_LINKS = {errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}
"""How file systems say that they have no hard links, or no more of them for this file."""


def link_or_copy(source: Path, path: Path) -> bool:
    """Give a file a second name; where that is impossible, copy it. Returns whether it is a second name."""
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
