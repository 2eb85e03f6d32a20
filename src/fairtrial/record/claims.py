"""Claims on run directories: exactly one live process may write a run.

A claim is an advisory lock on a file in the directory. The kernel releases it when the process ends for any reason, so
a kill cannot leave a stale claim. The lock file contains the claim's *token*, a number that increases with every claim.

A machine that was declared dead may still be running and hold its lock. A process that knows that the claim with a
certain token is lost may take it over. It replaces the lock file by a new one with the next token, and it replaces the
files that are appended to, so that later writes of the old process go to unlinked files. The old process notices at its
next write, because every write first checks whether the lock file is still the one that the process holds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

from fairtrial.core.durable import sync_path
from fairtrial.core.errors import RunsFailed
from fairtrial.core.paths import RunPaths, StorePaths
from fairtrial.core.private_files import open_lock
from fairtrial.core.regular_files import read_regular
from fairtrial.record.atomic import store_errors, temporary_path


class ClaimedElsewhere(Exception):
    """Another process is writing this run."""


class ClaimLost(RunsFailed):
    """This process was presumed dead and another process took over its run. It must not write any more."""


class RunGone(ClaimLost):
    """The directory of the run was removed. No process holds the run."""


class Fence:
    """Checks before a write that this process still holds the run directory, at the cost of one `stat`.

    `also` is called first. A run of a shared store uses it to check its lease.
    """

    also: Callable[[], None] | None = None

    def __init__(self, lock: Path, held: int | None = None) -> None:
        """`held` is the file descriptor of the lock file; by default, the file that is at the path now counts."""
        self._lock = os.fspath(lock)
        file_status = os.stat(self._lock if held is None else held)  # noqa: PTH116 — a path object costs a third more
        self._device, self._file = file_status.st_dev, file_status.st_ino

    def check(self) -> None:
        if self.also is not None:
            self.also()
        try:
            file_status = os.stat(self._lock)  # noqa: PTH116
        except FileNotFoundError:
            raise RunGone(f"the directory of this run is gone: {os.path.dirname(self._lock)}") from None  # noqa: PTH120
        if file_status.st_ino != self._file or file_status.st_dev != self._device:
            raise ClaimLost("another process took over this run and continues it")


class Claim:
    """A claim of this process on a run directory, held until `release` or until the process ends.

    `takeover_token` is the token of a claim that is known to be lost; no other claim is taken over.
    """

    def __init__(self, paths: RunPaths, *, takeover_token: int | None = None) -> None:
        self.paths = paths
        self.afterwards: Callable[[], None] = lambda: None
        taken = None if takeover_token is None else _take_over(paths, takeover_token)
        descriptor, self.token = taken or _take(paths)
        self._descriptor: int | None = descriptor
        _held.add(self)
        self.fence = Fence(paths.lock, descriptor)

    def release(self) -> None:
        if self._descriptor is not None:
            self.let_go()
            self.afterwards()

    @property
    def is_released(self) -> bool:
        return self._descriptor is None

    def let_go(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_held: weakref.WeakSet[Claim] = weakref.WeakSet()


def _let_go_in_child() -> None:
    """Drop inherited locks in a forked child, such as a data loader worker, which may outlive its parent."""
    for claim in list(_held):
        claim.let_go()


os.register_at_fork(after_in_child=_let_go_in_child)


def _take(paths: RunPaths) -> tuple[int, int]:
    """Take the free lock under the next token. Raises ClaimedElsewhere if another process holds it."""
    with _one_at_a_time(paths):
        held = _lock(paths)
        try:
            return _put_new_lock(paths, _token(held) + 1)
        finally:
            os.close(held)


def _take_over(paths: RunPaths, token: int) -> tuple[int, int] | None:
    """Take the lock under the next token even if another process holds it, but only if its token is `token`."""
    if token_of(paths) != token:
        return None
    with _one_at_a_time(paths):
        if token_of(paths) != token:
            return None
        taken = _put_new_lock(paths, token + 1)
        for path in paths.appended:
            _give_new_file(path)
        return taken


@contextlib.contextmanager
def _one_at_a_time(paths: RunPaths) -> Iterator[None]:
    """Serialize claims and takeovers, which replace the same files."""
    taking = _open(paths, paths.taking_over)
    try:
        fcntl.flock(taking, fcntl.LOCK_EX)
        yield
    finally:
        os.close(taking)


def _lock(paths: RunPaths) -> int:
    while True:
        descriptor = _open(paths, paths.lock)
        if not _try_lock(descriptor):
            os.close(descriptor)
            raise ClaimedElsewhere(str(paths.root))
        if _is_current(descriptor, paths.lock):
            return descriptor
        os.close(descriptor)


def _open(paths: RunPaths, path: Path) -> int:
    while True:
        with store_errors(paths.root):
            paths.root.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # archived or removed between the two calls
                return open_lock(path)


def _put_new_lock(paths: RunPaths, token: int) -> tuple[int, int]:
    """Create a new lock file for every claim, so that the later claim wins if locks are local to one machine."""
    fresh = temporary_path(paths.lock)
    with store_errors(paths.root):
        descriptor = open_lock(fresh, flags=os.O_RDWR | os.O_EXCL)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.pwrite(descriptor, f"{token}\n".encode(), 0)
            os.fsync(descriptor)  # if the content were lost, the next claim would reuse a token
            os.replace(fresh, paths.lock)  # noqa: PTH105
        except BaseException:
            os.close(descriptor)
            raise
    return descriptor, token


def _give_new_file(path: Path) -> None:
    """Replace a file by a copy, so that writes through old file descriptors go to an unlinked file."""
    copy = temporary_path(path)
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(path, copy)
        sync_path(copy)  # the lines before a checkpoint were synced, and the copy must be too
        os.replace(copy, path)  # noqa: PTH105


def token_of(paths: RunPaths) -> int | None:
    """Return the token of the last claim on a run directory, or None if there was none."""
    try:
        return int(read_regular(paths.lock).decode() or 0)
    except (FileNotFoundError, ValueError):
        return None


def _token(descriptor: int) -> int:
    with contextlib.suppress(ValueError):
        return int(os.pread(descriptor, 32, 0) or 0)
    return 0


def _try_lock(descriptor: int) -> bool:
    """Try to lock a file. Retry briefly, because `is_claimed` in another process holds the lock for a moment."""
    for _ in range(5):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        else:
            return True
    return False


def _is_current(descriptor: int, path: Path) -> bool:
    """Return whether the locked file is still the one at `path`: the directory may have been archived meanwhile."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def is_claimed(paths: RunPaths) -> bool:
    """Return whether a live process is writing this run."""
    return _is_held(paths.lock, fcntl.LOCK_SH)


def _is_held(path: Path, kind: int) -> bool:
    """Return whether another process holds a conflicting lock. Our own lock is released immediately."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def launching(store: StorePaths, study: str) -> Iterator[None]:
    """Mark a study as being launched. Several launchers may do so; the kernel removes the mark after a kill."""
    path = store.launching(study)
    with store_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = open_lock(path, flags=os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def is_launching(store: StorePaths, study: str) -> bool:
    """Return whether a live launcher is working on a study."""
    return _is_held(store.launching(study), fcntl.LOCK_EX)
