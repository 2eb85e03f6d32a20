"""A launcher that trains in the process of the test, so that torch is loaded once for all documented lines.

What the real launchers do is tested in tests/launch; here only the time of starting processes is saved. Stacks stay stacks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from fairtrial.core.specs import Job
from fairtrial.jobs.server import run_task
from fairtrial.launch.contract import Exit, LaunchRequest


class InProcess:
    """Does a task when it is polled. `opened_with`: the orders of all launches so far."""

    slots = 1
    opened_with: ClassVar[list[LaunchRequest]] = []

    def __init__(self, request: LaunchRequest) -> None:
        self.opened_with.append(request)
        self._tasks: list[Mapping[str, Mapping[str, Any]]] = []

    def adopt(self, keys: Collection[str]) -> list[list[str]]:
        return []

    def submit(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        self._tasks.append(requests)

    def poll(self, timeout: float) -> list[Exit]:
        exits: list[Exit] = []
        for task in self._tasks:
            jobs = {key: Job.from_dict(request) for key, request in task.items()}
            run_task(jobs, lambda *end: exits.append(Exit(*end)), should_stop=lambda: False)
        self._tasks.clear()
        return exits

    def has_started(self, key: str) -> bool:
        return False

    def stop(self, key: str, *, kill: bool) -> None: ...

    def forget(self, key: str) -> None: ...

    def close(self) -> None: ...
