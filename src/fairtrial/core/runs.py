"""A recorded run: immutable, read from its directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from fairtrial.core.paths import RunPaths
from fairtrial.core.run_metadata import RunMetadata

EXIT_CLAIMED = 75
"""Exit status of a job whose cell is already claimed by another launcher."""
EVALUATION = "evaluation"
"""The event that records that one of the run's checkpoints was re-evaluated."""


class Status(StrEnum):
    """The status of a run.

    `interrupted` covers Ctrl-C, kills, timeouts and lost machines: the next launch resumes such a run.
    `diverged` is a result. `failed` runs are repeated only on request. `damaged` is never written: readers assign it to
    a run whose files differ from what was recorded.
    """

    RUNNING = "running"
    COMPLETED = "completed"
    DIVERGED = "diverged"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    DAMAGED = "damaged"

    @property
    def is_result(self) -> bool:
        return self in (Status.COMPLETED, Status.DIVERGED)


@dataclass(frozen=True)
class Run:
    """One run directory, read once. `status` is the actual status, which may differ from the last written one."""

    path: Path
    metadata: RunMetadata
    status: Status

    @property
    def paths(self) -> RunPaths:
        return RunPaths(self.path)

    @property
    def id(self) -> str:
        return self.metadata.run_id

    @property
    def study(self) -> str:
        return self.metadata.study

    @property
    def variant(self) -> str:
        return self.metadata.variant

    @property
    def seed(self) -> int:
        """The seed; 0 for a damaged run whose seed is unknown. Such a run is never scored."""
        return self.metadata.seed or 0

    @property
    def attempt(self) -> int:
        return self.metadata.attempt

    @property
    def name(self) -> str:
        return f"{self.study}/{self.id}"

    @property
    def reason(self) -> str | None:
        if self.metadata.reason is None and self.status is Status.INTERRUPTED:
            return "its process exited without reporting a status (killed, or the machine stopped)"
        return self.metadata.reason

    @property
    def final(self) -> Mapping[str, float]:
        """The last value of every metric."""
        return self.metadata.final


STOPPED = "stopped by Ctrl-C"
"""Reason of a run that was interrupted because the user stopped the command."""


@dataclass(frozen=True)
class Outcome:
    """How one attempt at a cell ended, as the job reports it to its launcher."""

    status: Status
    reason: str | None = None
    hint: str | None = None
    already_done: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {
            "status": self.status.value,
            "reason": self.reason,
            "hint": self.hint,
            "already_done": self.already_done,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Outcome:
        return cls(Status(values["status"]), values["reason"], values["hint"], values["already_done"])


def headline(metric: str | None, final: Mapping[str, Any]) -> str | None:
    """Return the metric to show for a run: its own, or the most likely one among those that a user's program logged."""
    if metric is not None:
        return metric
    for prefix in ("report_", "test", "eval_", "val"):
        if named := [name for name in final if name.startswith(prefix)]:
            return min(named)
    return min(final, default=None)
