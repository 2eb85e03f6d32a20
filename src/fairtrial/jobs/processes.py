"""How a job's process is started, and ended together with everything that it started."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
"""Names the graphics cards that a process sees."""


def one_thread() -> dict[str, str]:
    """Small models run several times slower when their threads fight for cores: one each, unless asked."""
    return {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}


def kill_session(leader: int) -> None:
    """SIGKILL every process of the session that a job leads: its programs, and what they started.

    A program has a process group of its own, so that it can be ended without its job; the session is what they
    all share. Without /proc only the leader's group is reached.
    """
    for pid in (leader, *_members(leader)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def kill_with_children(pid: int) -> None:
    """SIGKILL a process and all that descends from it, also what has a session of its own or is frozen."""
    parents: dict[int, list[int]] = {}
    for child, fields in _processes():
        parents.setdefault(int(fields[1]), []).append(child)
    doomed = [pid]
    for each in doomed:
        doomed += parents.get(each, [])
    for each in doomed:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGKILL)


def _members(leader: int) -> Iterator[int]:
    return (pid for pid, fields in _processes() if int(fields[3]) == leader)


def _processes() -> Iterator[tuple[int, list[str]]]:
    """Every process with the fields of its `stat` that come after its name: state, parent, group, session …"""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield int(entry.name), (entry / "stat").read_text().rpartition(")")[2].split()
