"""Heartbeats of runs, by which watchers distinguish a slow run from one that hangs or whose process has died.

A thread rewrites one small file per run every few seconds. While the file changes, the process is alive; while its step
increases, the training makes progress. Watchers time the changes with their own clock, so that the clocks of several
machines need not agree.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Self

import orjson

from fairtrial.core.errors import FairtrialError
from fairtrial.core.paths import RunPaths
from fairtrial.core.regular_files import read_regular
from fairtrial.core.untrusted import UntrustedDocument, checked, parse_json_fast
from fairtrial.record.atomic import SyncLevel, replace_bytes
from fairtrial.record.claims import Claim, ClaimLost
from fairtrial.record.recorder import Recorder

HEARTBEAT_S = 5.0
HEARTBEAT_VARIABLE = "FAIRTRIAL_PULSE_S"
"""The environment variable that overrides the heartbeat interval, in seconds."""


@dataclass(frozen=True)
class RecordedHeartbeat:
    """One heartbeat. `step` is the last logged step, `saved` the step of the last checkpoint."""

    host: str
    pid: int
    token: int | None
    at: float
    step: int
    saved: int


class RunHeartbeat:
    """Writes the heartbeat of one run of this process. `lost` is set when another process took over the run."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.recorder: Recorder | None = None
        self.lost = False

    @property
    def is_over(self) -> bool:
        return self.lost or self.claim.is_released or (self.recorder is not None and self.recorder.ended)

    def write(self) -> None:
        step, saved = (self.recorder.step, self.recorder.saved) if self.recorder else (0, 0)
        write = RecordedHeartbeat(socket.gethostname(), os.getpid(), self.claim.token, time.time(), step, saved)
        try:
            self.claim.fence.check()
            replace_bytes(self.claim.paths.heartbeat, orjson.dumps(asdict(write)), sync=SyncLevel.NOTHING)
        except ClaimLost:
            self.lost = True  # stops the loop at its next step, even if that step logs nothing
        except (FairtrialError, OSError):
            return  # the training loop reports a full disk


class HeartbeatThread:
    """A thread that writes the heartbeats of its runs within a `with` block, including their setup."""

    def __init__(self) -> None:
        self._heartbeats: list[RunHeartbeat] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._write_regularly, name="fairtrial pulse", daemon=True)

    def add(self, claim: Claim) -> RunHeartbeat:
        """Add a run and write its first heartbeat now, because the file may contain that of an earlier claim."""
        heartbeat = RunHeartbeat(claim)
        heartbeat.write()
        self._heartbeats = [*self._heartbeats, heartbeat]
        return heartbeat

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _write_regularly(self) -> None:
        every = heartbeat_seconds()
        while not self._done.wait(every):
            for heartbeat in self._heartbeats:
                if not heartbeat.is_over:
                    heartbeat.write()


def heartbeat_seconds() -> float:
    return float(os.environ.get(HEARTBEAT_VARIABLE, HEARTBEAT_S))


def read_heartbeat(paths: RunPaths) -> RecordedHeartbeat | None:
    """Return the last heartbeat of a run, or None if there is none."""
    from fairtrial.record.shared_schema import HeartbeatModel

    where = paths.heartbeat.name
    with contextlib.suppress(OSError, UntrustedDocument):
        write = checked(HeartbeatModel, parse_json_fast(read_regular(paths.heartbeat), where=where), where=where)
        return RecordedHeartbeat(**write.model_dump())
    return None
