"""Export of events to an OTLP receiver while runs are in progress, without blocking the training.

`events.jsonl` is the queue. A background thread reads the complete lines that were not delivered yet, sends them in
batches, and retries with exponential backoff. The training thread writes its lines as usual. It only registers a run at
the start, and waits a few seconds for the rest at the end.

The delivered position is stored in the run's directory, so that a resumed run continues from there. If the process is
killed between a response and this record, a batch is sent twice; record ids are stable, so receivers can deduplicate.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from fairtrial.core.errors import FairtrialError
from fairtrial.core.paths import RunPaths
from fairtrial.core.regular_files import open_regular, read_regular
from fairtrial.record.atomic import SyncLevel, replace_bytes
from fairtrial.record.otlp import Answer, EventSource, Line, NotAcceptable, encode, send
from fairtrial.record.recorder import Recorder

POLL_S = 0.5
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 30.0
TIMEOUT_S = 10.0
LINGER_S = 3.0
"""Seconds that the end of a job waits for undelivered events."""
MOST_LINES = 512
MOST_BYTES = 1 << 20

Send = Callable[[str, bytes, float], Answer]


@dataclass(frozen=True)
class Delivered:
    """The delivered part of `events.jsonl`: bytes and lines. `rejected` are lines that the receiver rejected."""

    offset: int = 0
    lines: int = 0
    rejected: int = 0


def read_delivered(paths: RunPaths) -> Delivered:
    """Read the delivered position of a run. If the file is damaged, all lines are sent again, so that none is lost."""
    try:
        delivered = Delivered(**orjson.loads(read_regular(paths.delivered)))
        size = paths.events.stat().st_size
    except (OSError, orjson.JSONDecodeError, TypeError):
        return Delivered()
    numbers = delivered.offset, delivered.lines, delivered.rejected
    return delivered if all(type(each) is int and 0 <= each <= size for each in numbers) else Delivered()


@dataclass(frozen=True)
class Batch:
    """Lines to send in one request, and their size in the file in bytes."""

    lines: tuple[Line, ...]
    size: int


class Spool:
    """The queue of undelivered events of one run for one receiver."""

    def __init__(self, recorder: Recorder, receiver: str, send_to: Send) -> None:
        self.recorder, self.receiver = recorder, receiver
        self._send = send_to
        self._source = EventSource.of(recorder.metadata)
        self._done = read_delivered(recorder.paths)
        self._failing = False
        self._retries = 0
        self._last_error: str | None = None

    def next_batch(self) -> Batch | None:
        """Return the next undelivered complete lines, up to the limits of one request, or None."""
        lines: list[Line] = []
        size = 0
        try:
            with open_regular(self.recorder.paths.events) as file:
                file.seek(self._done.offset)
                while len(lines) < MOST_LINES and size < MOST_BYTES and (content := file.readline()).endswith(b"\n"):
                    size += len(content)
                    lines.append(Line(self._done.lines + len(lines) + 1, content))
        except OSError:  # the run was removed
            return None
        return Batch(tuple(lines), size) if lines else None

    def bring(self, batch: Batch, timeout: float) -> Delivered | None:
        """Try to send a batch. Return the new delivered position, or None if the batch must be retried."""
        self._retries += self._failing
        try:
            answer = self._send(self.receiver, encode(self._source, batch.lines), timeout)
        except NotAcceptable as refusal:
            answer = Answer(len(batch.lines), str(refusal))
        except Exception as error:  # noqa: BLE001 — an export error must not stop the training
            self._failing, self._last_error = True, str(error) or type(error).__name__
            return None
        self._failing = False
        if answer.rejected:
            self._last_error = answer.why or f"{answer.rejected} records were rejected"
        done = self._done
        return Delivered(done.offset + batch.size, done.lines + len(batch.lines), done.rejected + answer.rejected)

    def note(self, done: Delivered) -> None:
        self._done = done
        with contextlib.suppress(FairtrialError, OSError):  # a resumed run then sends these lines again
            replace_bytes(self.recorder.paths.delivered, orjson.dumps(asdict(done)), sync=SyncLevel.NOTHING)

    def account(self) -> dict[str, Any]:
        """Return the delivery statistics for `metadata.json`."""
        with open_regular(self.recorder.paths.events) as file:
            file.seek(self._done.offset)
            left = sum(block.count(b"\n") for block in iter(lambda: file.read(MOST_BYTES), b""))
        return {
            "endpoint": self.receiver,
            "sent": self._done.lines - self._done.rejected,
            "dropped": left + self._done.rejected,
            "retries": self._retries,
            "last_error": self._last_error,
        }


class OtlpExporter:
    """Exports the events of all runs of one job in one thread, which starts with the first run.

    The training thread calls `add` before the first step and `settle` after the last, and nothing in between.
    """

    def __init__(self, send_to: Send = send, linger: float = LINGER_S) -> None:
        self._send_to, self._linger = send_to, linger
        self._spools: list[Spool] = []
        self._ending = threading.Event()
        self._over = threading.Event()
        self._noting = threading.Lock()
        self._thread = threading.Thread(target=self._work, daemon=True, name="fairtrial-delivery")

    def add(self, recorder: Recorder, receiver: str) -> None:
        """Start to export the events of a run to a receiver."""
        self._spools = [*self._spools, Spool(recorder, receiver, self._send_to)]
        if self._thread.ident is None:
            self._thread.start()

    def settle(self) -> None:
        """Wait a few seconds for undelivered events, then record the delivery statistics in the metadata."""
        if not self._spools or self._over.is_set():
            return
        self._ending.set()
        self._thread.join(self._linger)
        with self._noting:
            self._over.set()
        for spool in self._spools:
            if not spool.recorder.ended:
                with contextlib.suppress(FairtrialError, OSError):
                    spool.recorder.update(telemetry=spool.account())

    # Runs in the thread.

    def _work(self) -> None:
        pause = FIRST_PAUSE_S
        was_ending = False
        while not self._over.is_set():
            is_ending = self._ending.is_set()
            if is_ending and not was_ending:
                was_ending, pause = True, FIRST_PAUSE_S
            failed = self._bring_all()
            if is_ending and not failed:
                return
            self._rest(pause if failed else POLL_S)
            pause = min(2 * pause, LONGEST_PAUSE_S) if failed else FIRST_PAUSE_S

    def _bring_all(self) -> bool:
        """Send all pending events, run by run. Return whether a delivery failed; a failed receiver is then skipped."""
        down: set[str] = set()
        for spool in self._spools:
            while spool.receiver not in down and not self._over.is_set() and (batch := spool.next_batch()):
                done = spool.bring(batch, self._linger if self._ending.is_set() else TIMEOUT_S)
                if done is None:
                    down.add(spool.receiver)
                    continue
                with self._noting:
                    if not self._over.is_set():  # the statistics are already recorded
                        spool.note(done)
        return bool(down)

    def _rest(self, seconds: float) -> None:
        """Sleep, but wake up early once when the job ends."""
        (self._over if self._ending.is_set() else self._ending).wait(seconds)
