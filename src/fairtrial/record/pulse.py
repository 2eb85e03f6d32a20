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
from fairtrial.record.atomic import Sync, replace_bytes
from fairtrial.record.claims import ClaimLost
from fairtrial.record.recorder import Recorder

PULSE_S = 5.0
PULSE_VARIABLE = "FAIRTRIAL_PULSE_S"
"""Seconds between two signs of life, for those who cannot wait."""


@dataclass(frozen=True)
class Beat:
    """One sign of life. `step` is the last that was logged, `saved` the last that a resume could go on from."""

    host: str
    pid: int
    token: int | None
    at: float
    step: int
    saved: int


class Pulse:
    """Beats for the recorders that it is given, from `with` to the end of it."""

    def __init__(self) -> None:
        self.lost = False
        self._recorders: list[Recorder] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="fairtrial pulse", daemon=True)

    def add(self, recorder: Recorder) -> None:
        self._recorders = [*self._recorders, recorder]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _beat_on(self) -> None:
        every = float(os.environ.get(PULSE_VARIABLE, PULSE_S))
        while not self._done.wait(every):
            for recorder in self._recorders:
                if not recorder.ended:
                    self._beat(recorder)

    def _beat(self, recorder: Recorder) -> None:
        beat = Beat(socket.gethostname(), os.getpid(), recorder.token, time.time(), recorder.step, recorder.saved)
        try:
            recorder.check_claim()
            replace_bytes(recorder.paths.pulse, orjson.dumps(asdict(beat)), sync=Sync.NOTHING)
        except ClaimLost:
            self.lost = True  # the loop finds out at its next step, also one that logs nothing
        except (FairtrialError, OSError):
            return  # a full disk is the loop's to tell


def read_pulse(paths: RunPaths) -> Beat | None:
    """The last sign of life of a run, or None where it has given none."""
    with contextlib.suppress(OSError, orjson.JSONDecodeError, TypeError):
        return Beat(**orjson.loads(paths.pulse.read_bytes()))
    return None
