"""Runs cells in this very process, one after another: for debugging, notebooks and single runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from fairtrial.core.runs import EXIT_CLAIMED, Outcome
from fairtrial.launch.contract import Exit

Perform = Callable[[Mapping[str, Any]], Outcome | None]


class InlineLauncher:
    """Performs a cell when it is polled. `perform` runs a request; None means that it was claimed elsewhere."""

    slots = 1

    def __init__(self, perform: Perform) -> None:
        self._perform = perform
        self._waiting: list[tuple[str, Mapping[str, Any]]] = []

    def adopt(self, keys: Collection[str]) -> list[list[str]]:  # noqa: ARG002 — what ran here ended with its process
        return []

    def submit(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        self._waiting.extend(requests.items())

    def poll(self, timeout: float) -> list[Exit]:  # noqa: ARG002 — it never waits: it works
        exits = []
        while self._waiting:
            key, request = self._waiting.pop(0)
            outcome = self._perform(request)
            exits.append(Exit(key, EXIT_CLAIMED if outcome is None else 0, outcome))
        return exits

    def stop(self, key: str, *, kill: bool) -> None:  # noqa: ARG002 — a running cell holds this very thread
        self._waiting = [item for item in self._waiting if item[0] != key]

    def forget(self, key: str) -> None:
        self.stop(key, kill=True)

    def has_started(self, key: str) -> bool:
        return all(waiting != key for waiting, _ in self._waiting)

    def close(self) -> None:
        self._waiting.clear()
