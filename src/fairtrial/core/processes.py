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


def _members(leader: int) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            session = (entry / "stat").read_text().rpartition(")")[2].split()[3]
            if int(session) == leader:
                yield int(entry.name)
