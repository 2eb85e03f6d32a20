"""Who may write a run directory: exactly one process, for as long as it lives.

The claim is an advisory lock on a file in the directory. The kernel gives it back when the process ends,
however it ends, so a claim can never be left behind by a kill.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

from fairtrial.core.paths import RunPaths, StorePaths
from fairtrial.record.atomic import store_errors


class ClaimedElsewhere(Exception):
    """Another process is writing this run."""


class Claim:
    """Holds a run directory for this process until `release`, or until the process ends."""

    def __init__(self, paths: RunPaths) -> None:
        self.paths = paths
        self.afterwards: Callable[[], None] = lambda: None
        self._descriptor = _lock(paths)
        _held.add(self)

    def release(self) -> None:
        if self._descriptor is not None:
            self.let_go()
            self.afterwards()

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


def _lock(paths: RunPaths) -> int | None:
    while True:
        with store_errors(paths.root):
            paths.root.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = os.open(paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except FileNotFoundError:
                continue  # archived or removed between the two calls
        if not _try_lock(descriptor):
            os.close(descriptor)
            raise ClaimedElsewhere(str(paths.root))
        if _is_current(descriptor, paths.lock):
            return descriptor
        os.close(descriptor)


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
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def is_launching(store: StorePaths, study: str) -> bool:
    """Whether a living launcher is at work on a study."""
    return _is_held(store.launching(study), fcntl.LOCK_EX)
