"""Helpers to start a job's process and to kill it together with its descendants."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
"""The environment variable that selects the GPUs visible to a process."""


def one_thread() -> dict[str, str]:
    """Return the environment of a job process, with one OpenMP thread unless the user set OMP_NUM_THREADS.

    Small models run several times slower when concurrent jobs compete for cores.
    """
    return {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}


def kill_session(leader: int) -> None:
    """Send SIGKILL to every process in the session of a job, including its programs and their children.

    Each program has its own process group, so that it can be stopped without its job. All of them share the session.
    Without /proc, only the process group of the leader is killed.
    """
    for pid in (leader, *_members(leader)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def kill_with_children(pid: int) -> None:
    """Send SIGKILL to a process and all of its descendants, including suspended ones and those in other sessions."""
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
    """Yield each PID with the fields that follow the name in /proc/PID/stat: state, parent, group, session, …"""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield int(entry.name), (entry / "stat").read_text().rpartition(")")[2].split()
