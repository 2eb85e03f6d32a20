"""Signs of life of the runs that a process makes: how others tell a slow run from one that hangs or is gone.

A thread renews one small file per run every few seconds. While the file changes, the process lives; while its step
grows, the training goes on. Whoever watches goes by the changes that it sees with its own clock, so that clocks of
several machines need not agree.
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
"""Seconds between two signs of life, for those who cannot wait."""


@dataclass(frozen=True)
class RecordedHeartbeat:
    """One sign of life. `step` is the last that was logged, `saved` the last that a resume could go on from."""

    host: str
    pid: int
    token: int | None
    at: float
    step: int
    saved: int


class RunHeartbeat:
    """The life of one run in this process, from its claim on: `lost` when the run was given to another process."""

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
            self.lost = True  # the loop finds out at its next step, also one that logs nothing
        except (FairtrialError, OSError):
            return  # a full disk is the loop's to tell


class HeartbeatThread:
    """Beats for the runs that it is given, from `with` to the end of it: also while they are set up."""

    def __init__(self) -> None:
        self._heartbeats: list[RunHeartbeat] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._write_regularly, name="fairtrial pulse", daemon=True)

    def add(self, claim: Claim) -> RunHeartbeat:
        """From now on this run gives signs of life, the first one at once: the last one may be of another claim."""
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
    """The last sign of life of a run, or None where it has given none."""
    from fairtrial.record.shared_schema import HeartbeatModel

    where = paths.heartbeat.name
    with contextlib.suppress(OSError, UntrustedDocument):
        write = checked(HeartbeatModel, parse_json_fast(read_regular(paths.heartbeat), where=where), where=where)
        return RecordedHeartbeat(**write.model_dump())
    return None
