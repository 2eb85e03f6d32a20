"""Who may write a run directory: exactly one process, for as long as it lives.

The claim is an advisory lock on a file in the directory. The kernel gives it back when the process ends, however it
ends, so a claim can never be left behind by a kill. The file holds the claim's *token*, a number that grows with every
claim.

A machine that was declared dead may live on and hold its lock. Whoever knows that the claim with a certain token is
lost may take it over: the lock file is replaced by a new one with the next token, and so are the files that are
appended to, so that what the old process still writes goes to files without a name. The old process finds out at its
next write: every write asks first whether the lock file is still the one it holds.
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
    """This process was taken for dead and its run was given to another: it must not write any more."""


class RunGone(ClaimLost):
    """The directory of the run was taken away: nobody has it."""


class Fence:
    """Asks, before a write, whether a run directory is still this writer's: one look at a file.

    `also` is asked first, where the run is claimed in a second place too.
    """

    also: Callable[[], None] | None = None

    def __init__(self, lock: Path, held: int | None = None) -> None:
        """`held` is the lock file as it was opened; without it, the one that is there now is meant."""
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
            raise ClaimLost("this run was given to another process, which goes on with it")


class Claim:
    """Holds a run directory for this process until `release`, or until the process ends.

    `over` is the token of a claim that is known to be lost; only that one is taken over.
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
    """A forked child, such as a worker that loads data, must not hold its parent's runs when the parent is gone."""
    for claim in list(_held):
        claim.let_go()


os.register_at_fork(after_in_child=_let_go_in_child)


def _take(paths: RunPaths) -> tuple[int, int]:
    """The lock that nobody holds, under the next token."""
    with _one_at_a_time(paths):
        held = _lock(paths)
        try:
            return _put_new_lock(paths, _token(held) + 1)
        finally:
            os.close(held)


def _take_over(paths: RunPaths, token: int) -> tuple[int, int] | None:
    """The lock under the next token, whoever holds it, unless the claim is no longer the one that was meant."""
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
    """Whoever takes a claim and whoever takes one over replace the same files: never both at once."""
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
    """A new file for every claim: on a file system that keeps locks to one machine, the later claim wins."""
    fresh = temporary_path(paths.lock)
    with store_errors(paths.root):
        descriptor = open_lock(fresh, flags=os.O_RDWR | os.O_EXCL)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.pwrite(descriptor, f"{token}\n".encode(), 0)
            os.fsync(descriptor)  # without its content the next claim would have a number that was given before
            os.replace(fresh, paths.lock)  # noqa: PTH105
        except BaseException:
            os.close(descriptor)
            raise
    return descriptor, token


def _give_new_file(path: Path) -> None:
    """The same content in another file: who has the old one open writes into the void."""
    copy = temporary_path(path)
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(path, copy)
        sync_path(copy)  # what a checkpoint builds on was synced before, and must stay so
        os.replace(copy, path)  # noqa: PTH105


def token_of(paths: RunPaths) -> int | None:
    """The token of the last claim on a run directory."""
    try:
        return int(read_regular(paths.lock).decode() or 0)
    except (FileNotFoundError, ValueError):
        return None


def _token(descriptor: int) -> int:
    with contextlib.suppress(ValueError):
        return int(os.pread(descriptor, 32, 0) or 0)
    return 0


def _try_lock(descriptor: int) -> bool:
    """A reader that asks whether a run is claimed holds the lock for a moment: that is no claim."""
    for _ in range(5):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        else:
            return True
    return False


def _is_current(descriptor: int, path: Path) -> bool:
    """Whether the locked file is still the one at `path`: the directory may have been archived meanwhile."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def is_claimed(paths: RunPaths) -> bool:
    """Whether a living process is writing this run now."""
    return _is_held(paths.lock, fcntl.LOCK_SH)


def _is_held(path: Path, kind: int) -> bool:
    """Whether somebody's lock keeps us from ours, which is given back at once."""
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
    """A launcher is at work on a study; several may be. Whoever watches can tell, also after a kill."""
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
    """Whether a living launcher is at work on a study."""
    return _is_held(store.launching(study), fcntl.LOCK_EX)
