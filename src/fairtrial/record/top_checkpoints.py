"""The top-k checkpoints of a run, `top-<step>.pt`, in addition to `best.pt`. Events record which ones are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from fairtrial.core.errors import StoreError
from fairtrial.core.paths import RunPaths
from fairtrial.core.untrusted import DAMAGED
from fairtrial.record.checkpoints import write_checkpoint
from fairtrial.record.lines import events_named

KEPT, DROPPED, REWOUND = "top_kept", "top_dropped", "rewound"


@dataclass(frozen=True)
class TopCheckpoint:
    """A checkpoint that is among the best of its run."""

    step: int
    value: float
    sha256: str
    path: Path


def list_top_checkpoints(paths: RunPaths, mode: str) -> list[TopCheckpoint]:
    """Return the top checkpoints that exist, best first; ties are ordered by step."""
    by_step: dict[int, TopCheckpoint] = {}
    for row in events_named(paths.events, KEPT, DROPPED, REWOUND):
        step, value, sha256 = row.get("step"), row.get("value"), row.get("sha256")
        if type(step) is not int:
            raise StoreError(f"{paths.events} has the event {row['event']} with invalid step {step!r}", hint=DAMAGED)
        if row["event"] == KEPT:
            if not isinstance(value, int | float) or not isinstance(sha256, str):
                raise StoreError(f"{paths.events} has the event {KEPT} without a valid value or hash", hint=DAMAGED)
            by_step[step] = TopCheckpoint(step, value, sha256, paths.top(step))
        elif row["event"] == DROPPED:
            by_step.pop(step, None)
        else:  # a resume discards checkpoints after its step
            by_step = {each: checkpoint for each, checkpoint in by_step.items() if each <= step}
    sign = -1 if mode == "max" else 1
    return sorted(
        (checkpoint for checkpoint in by_step.values() if checkpoint.path.is_file()),
        key=lambda checkpoint: (sign * checkpoint.value, checkpoint.step),
    )


class TopCheckpoints:
    """Keeps the `most` best checkpoints. An event is written after a file is created and before a file is deleted."""

    def __init__(self, paths: RunPaths, most: int, mode: str, event: Callable[..., None]) -> None:
        self._paths, self._most, self._mode, self._event = paths, most, mode, event

    def consider(self, step: int, value: float, metric: str, state: Callable[[], Mapping[str, Any]]) -> None:
        if self._most < 2 or not isfinite(value):
            return
        top = list_top_checkpoints(self._paths, self._mode)
        if len(top) >= self._most and not self._beats(value, top[-1].value):
            return
        sha256 = write_checkpoint(self._paths.top(step), step, state(), metric=metric, value=value)
        self._event(KEPT, step=step, metric=metric, value=value, sha256=sha256)
        for old in list_top_checkpoints(self._paths, self._mode)[self._most :]:
            self._event(DROPPED, step=old.step)
            old.path.unlink(missing_ok=True)

    def _beats(self, value: float, other: float) -> bool:
        return value > other if self._mode == "max" else value < other

    def sweep(self) -> None:
        """Remove files without a valid event, left by a kill between file and event or discarded by a resume."""
        known = {checkpoint.path for checkpoint in list_top_checkpoints(self._paths, self._mode)}
        for path in self._paths.checkpoints.glob("top-*.pt"):
            if path not in known:
                path.unlink(missing_ok=True)
