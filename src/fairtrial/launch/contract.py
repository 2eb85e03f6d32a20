"""What every launcher guarantees.

`submit` starts a task, which is one cell or several that share a process, and returns at once; `poll` gives each
submitted cell's exit exactly once; `has_started` says whether the process of a cell is there; `stop` asks that
process to save and leave, or kills it, also one that has not started yet. A launcher never decides what to run,
never retries and never reads the store: `schedule.py` does the first two and its caller the third.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fairtrial.core.runs import Outcome


@dataclass(frozen=True)
class Exit:
    """A cell that came back. No outcome: its process ended without a word."""

    key: str
    code: int
    outcome: Outcome | None


class Launcher(Protocol):
    """Runs tasks somewhere. `slots` is how many at once."""

    slots: int

    def submit(self, requests: Mapping[str, Mapping[str, Any]]) -> None: ...

    def poll(self, timeout: float) -> list[Exit]: ...

    def has_started(self, key: str) -> bool: ...

    def stop(self, key: str, *, kill: bool) -> None: ...

    def close(self) -> None: ...
