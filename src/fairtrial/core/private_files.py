"""Opens files under predictable names, where another user of the machine may have put something first.

Three rules hold for every lock, log and key:

- A symbolic link is never followed at the last part of the name, and nothing that is there is ever truncated.
- In a folder that everybody may write to, such as the temporary folder, ours lie in one folder per user, which is used
  only after a check that it is a folder, belongs to this user and gives nobody else any rights.
- What was opened is judged by its descriptor, so that it cannot be exchanged between the check and the use.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from fairtrial.core.errors import StoreError, UserError

OTHERS = 0o077
"""Rights of everybody but the owner."""
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""A pipe is never waited for; for an ordinary file O_NONBLOCK changes nothing."""
_OURS_ALONE = "Another user may have put it there. Remove it, or set TMPDIR to a folder of your own."


def user_folder() -> Path:
    """This user's own folder in the shared temporary folder: the same for all of the user's processes.

    $XDG_RUNTIME_DIR is not used: a terminal has it and a cron job does not, so that their locks would not meet.
    """
    import tempfile  # not for those who only list runs

    folder = Path(tempfile.gettempdir()) / f"fairtrial-{os.geteuid()}"
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
    except OSError as error:
        raise UserError(f"cannot make {folder}: {error.strerror}", hint="Set TMPDIR to another folder.") from None
    file_status = folder.lstat()
    if not stat.S_ISDIR(file_status.st_mode):
        raise UserError(f"{folder} is not a folder", hint=_OURS_ALONE)
    if file_status.st_uid != os.geteuid():
        raise UserError(f"{folder} belongs to another user", hint=_OURS_ALONE)
    if file_status.st_mode & OTHERS:
        raise UserError(f"other users may use {folder}", hint=f"Take their rights away: chmod 700 {folder}")
    return folder


def open_private_lock(name: str) -> int:
    """A file to lock that only this user's processes share."""
    return open_lock(user_folder() / name, mode=0o600)


def open_lock(path: Path, *, mode: int = 0o644, flags: int = os.O_RDWR) -> int:
    """A file to lock, which is made where it is missing. Raises OSError where it cannot be opened."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    return _regular(descriptor, path)


def open_to_append(path: Path) -> int:
    """A log that only grows, which is made where it is missing. Raises OSError where it cannot be opened."""
    descriptor = os.open(path, _APPEND, 0o644)
    return _regular(descriptor, path)


def create(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """A new file with this content; FileExistsError where anything has its name, a link included."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _regular(descriptor: int, path: Path) -> int:
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise StoreError(f"{path} is not an ordinary file", hint="Somebody has put something else there; look at it.")


def is_trusted_note(path: Path) -> bool:
    """Whether a small file in a shared folder was left there by this user, or by the administrator."""
    try:
        file_status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(file_status.st_mode) and file_status.st_uid in (os.geteuid(), 0)


def require_own(folder: Path, what: str) -> None:
    """Refuse a folder that another user has put where ours belongs; one that is missing is fine."""
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
    """What a file of this user holds. Refused where it belongs to another, or, if `private`, where others may read it.

    A link that the user made, as managers of dot files do, is followed.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        file_status = os.fstat(descriptor)
        if not stat.S_ISREG(file_status.st_mode):
            raise UserError(f"{what} {path} is not an ordinary file")
        if file_status.st_uid != os.geteuid():
            raise UserError(f"{what} {path} belongs to another user", hint="Name one of your own.")
        if private and file_status.st_mode & OTHERS:
            raise UserError(f"others can read {what} {path}", hint=f"Take their rights away: chmod 600 {path}")
        return file.read(1 << 20)
