"""Open files with predictable names, where another user of the machine may have created something first.

Three rules apply to every lock, log and key:

- A symbolic link is never followed at the last part of the name, and an existing file is never truncated.
- In a world-writable folder, such as the temporary folder, the files are in one folder per user, which is used only
  after a check that it is a folder, belongs to this user and gives other users no permissions.
- An open file is checked by its file descriptor, so that it cannot be replaced between the check and the use.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from fairtrial.core.errors import StoreError, UserError

OTHERS = 0o077
"""Permission bits of all users except the owner."""
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""O_NONBLOCK avoids waiting for a pipe; it has no effect on a regular file."""
_OURS_ALONE = "Another user may have created it. Remove it, or set TMPDIR to a folder of your own."


def user_folder() -> Path:
    """Return this user's private folder in the shared temporary folder; it is the same for all of the user's processes.

    $XDG_RUNTIME_DIR is not used: it is set in a terminal but not in a cron job, so their locks would differ.
    """
    import tempfile  # imported here because listing runs does not need it

    folder = Path(tempfile.gettempdir()) / f"fairtrial-{os.geteuid()}"
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
    except OSError as error:
        raise UserError(f"cannot create {folder}: {error.strerror}", hint="Set TMPDIR to another folder.") from None
    file_status = folder.lstat()
    if not stat.S_ISDIR(file_status.st_mode):
        raise UserError(f"{folder} is not a folder", hint=_OURS_ALONE)
    if file_status.st_uid != os.geteuid():
        raise UserError(f"{folder} belongs to another user", hint=_OURS_ALONE)
    if file_status.st_mode & OTHERS:
        raise UserError(f"other users have access to {folder}", hint=f"Remove their permissions: chmod 700 {folder}")
    return folder


def open_private_lock(name: str) -> int:
    """Open a lock file that only this user's processes share."""
    return open_lock(user_folder() / name, mode=0o600)


def open_lock(path: Path, *, mode: int = 0o644, flags: int = os.O_RDWR) -> int:
    """Open a lock file, and create it if it does not exist. Raises OSError if it cannot be opened."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    return _regular(descriptor, path)


def open_to_append(path: Path) -> int:
    """Open a log for appending, and create it if it does not exist. Raises OSError if it cannot be opened."""
    descriptor = os.open(path, _APPEND, 0o644)
    return _regular(descriptor, path)


def create(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Create a file with this content. Raises FileExistsError if the name exists, even as a symbolic link."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _regular(descriptor: int, path: Path) -> int:
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise StoreError(f"{path} is not a regular file", hint="Check what it is and who created it.")


def is_trusted_note(path: Path) -> bool:
    """Return whether a small file in a shared folder belongs to this user or to root."""
    try:
        file_status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(file_status.st_mode) and file_status.st_uid in (os.geteuid(), 0)


def require_own(folder: Path, what: str) -> None:
    """Raise an error if a folder belongs to another user; a missing folder is fine."""
    try:
        owner = folder.stat().st_uid
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"cannot use {what} in {folder}: {error.strerror}") from None
    if owner != os.geteuid():
        raise StoreError(
            f"{what} in {folder} belongs to another user", hint="Set $FAIRTRIAL_MIRRORS to your own folder."
        )


def read_owned(path: Path, what: str, *, private: bool) -> bytes:
    """Return the content of a file of this user. Raises an error if it belongs to another user, or if `private` and
    other users can read it.

    Symbolic links are followed, because dotfile managers create them.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        file_status = os.fstat(descriptor)
        if not stat.S_ISREG(file_status.st_mode):
            raise UserError(f"{what} {path} is not a regular file")
        if file_status.st_uid != os.geteuid():
            raise UserError(f"{what} {path} belongs to another user", hint="Use a file of your own.")
        if private and file_status.st_mode & OTHERS:
            raise UserError(f"other users can read {what} {path}", hint=f"Remove their permissions: chmod 600 {path}")
        return file.read(1 << 20)
