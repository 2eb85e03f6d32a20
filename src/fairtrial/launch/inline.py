"""Run cells in the current process, one after another: for debugging, notebooks and single runs."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Mapping
from typing import Any

from fairtrial.core.runs import EXIT_CLAIMED, Outcome
from fairtrial.launch.contract import Exit

Perform = Callable[[Mapping[str, Any]], Outcome | None]


class InlineLauncher:
    """Runs each cell within `poll`. `perform` runs a request; it returns None if another process has the run."""

    slots = 1

    def __init__(self, perform: Perform) -> None:
        self._perform = perform
        self._waiting: list[tuple[str, Mapping[str, Any]]] = []
        self._stopped: list[Exit] = []

    def adopt(self, keys: Collection[str]) -> list[list[str]]:  # noqa: ARG002 — cells end with their launcher's process
        return []

    def submit(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        self._waiting.extend(requests.items())

    def poll(self, timeout: float) -> list[Exit]:  # noqa: ARG002 — it runs cells instead of waiting
        exits, self._stopped = self._stopped, []
        while self._waiting:
            key, request = self._waiting.pop(0)
            outcome = self._perform(request)
            exits.append(Exit(key, EXIT_CLAIMED if outcome is None else 0, outcome))
        return exits

    def stop(self, key: str, *, kill: bool) -> None:  # a running cell blocks this thread
        if not self.has_started(key):
            self.forget(key)
            self._stopped.append(Exit(key, -(signal.SIGKILL if kill else signal.SIGTERM), None))

    def forget(self, key: str) -> None:
        self._waiting = [item for item in self._waiting if item[0] != key]

    def has_started(self, key: str) -> bool:
        return all(waiting != key for waiting, _ in self._waiting)

    def close(self) -> None:
        self._waiting.clear()
