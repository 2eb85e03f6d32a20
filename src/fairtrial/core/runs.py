"""A run that happened, as everyone but its own job sees it: immutable, and read from its directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from fairtrial.core.paths import RunPaths
from fairtrial.core.run_metadata import RunMetadata

EXIT_CLAIMED = 75
"""Exit status of a job that found its cell taken by another launcher."""
EVALUATION = "evaluation"
"""The event by which a run remembers that one of its checkpoints was evaluated again."""


class Status(StrEnum):
    """Where a run stands.

    `interrupted` covers Ctrl-C, kills, time-outs and lost machines: it is run again and resumes.
    `diverged` is a result. `failed` is run again only on request. `damaged` is never written: readers give it to a run
    whose files are not what was recorded.
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
    """One run directory, read once. `status` is what is true now, not only what was last written."""

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
        """Of a damaged run whose folder does not name it, the metadata have null; such a run is never scored."""
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
            return "its process ended without a word (killed, or the machine stopped)"
        return self.metadata.reason

    @property
    def final(self) -> Mapping[str, float]:
        """The last value of every metric."""
        return self.metadata.final


@dataclass(frozen=True)
class Outcome:
    """How one attempt at a cell ended, as the job tells its launcher."""

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
    """The metric to show for a run: its own, or the likeliest among those that a foreign program logged."""
    if metric is not None:
        return metric
    for prefix in ("report_", "test", "eval_", "val"):
        if named := [name for name in final if name.startswith(prefix)]:
            return min(named)
    return min(final, default=None)
