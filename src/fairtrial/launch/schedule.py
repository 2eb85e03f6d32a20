"""Which cells next? Fills the slots, keeps time, tries again, and stops cleanly.

A task is one cell, or several that share a process; a cell that has to be tried again is a task of its own. The
schedule knows launchers and cells, not the store. Its caller gives it `look`, which says how a cell stands
on disk, and `settle`, which writes down how a cell ended whose process could not do so itself.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fairtrial.core.runs import EXIT_CLAIMED, Outcome, Status
from fairtrial.launch.contract import Exit, Launcher

POLL_S = 0.2
GRACE_S = 8.0
RETRY_CLAIM_S = 1.0


class Place(StrEnum):
    """Where a cell is, as the live table shows it."""

    QUEUED = "queued"
    RUNNING = "running"
    ELSEWHERE = "elsewhere"
    ENDED = "ended"


@dataclass
class Ticket:
    """One cell on its way through the schedule."""

    key: str
    request: Mapping[str, Any]
    place: Place = Place.QUEUED
    tries: int = 0
    started: float | None = None
    ended: float | None = None
    stopping: str | None = None
    stop_at: float | None = None
    outcome: Outcome | None = None


@dataclass
class Schedule:
    """Runs tickets to their end. `changed` is told about every tick, for people who watch."""

    tasks: Sequence[Sequence[Ticket]]
    launcher: Launcher
    look: Callable[[str], Outcome | None]
    settle: Callable[[str, Status, str], None]
    timeout: float | None = None
    retries: int = 0
    changed: Callable[[Sequence[Ticket]], None] = lambda _: None
    clock: Callable[[], float] = time.monotonic
    interrupted: bool = False
    tell: Callable[[str], None] = lambda _: None
    tickets: Sequence[Ticket] = ()
    _queue: deque[Sequence[Ticket]] = field(default_factory=deque)
    _started: list[Sequence[Ticket]] = field(default_factory=list)
    _by_key: dict[str, Ticket] = field(default_factory=dict)

    def run(self) -> None:
        """Until every ticket has ended. Ctrl-C stops the running cells after they have saved."""
        self.tickets = self.tickets or [ticket for task in self.tasks for ticket in task]
        self._queue = deque(self.tasks)
        self._by_key = {ticket.key: ticket for ticket in self.tickets}
        with _counting_interrupts() as asked:
            heard = 0
            while any(ticket.place is not Place.ENDED for ticket in self.tickets):
                if len(asked) > heard:
                    heard = len(asked)
                    self._interrupt()
                self._tick()

    def _tick(self) -> None:
        self._fill_slots()
        for end in self.launcher.poll(POLL_S):
            self._take_back(end)
        self._watch_time()
        self._watch_elsewhere()
        self.changed(self.tickets)

    def _running(self) -> list[Ticket]:
        return [ticket for ticket in self.tickets if ticket.place is Place.RUNNING]

    def _fill_slots(self) -> None:
        self._started = [task for task in self._started if any(ticket.place is Place.RUNNING for ticket in task)]
        while len(self._started) < self.launcher.slots and self._queue and not self.interrupted:
            task = self._queue.popleft()
            for ticket in task:
                ticket.place, ticket.started, ticket.tries = Place.RUNNING, self.clock(), ticket.tries + 1
                ticket.stopping = ticket.stop_at = None
            self.launcher.submit({ticket.key: ticket.request for ticket in task})
            self._started.append(task)

    def _take_back(self, end: Exit) -> None:
        ticket = self._by_key[end.key]
        if end.code == EXIT_CLAIMED:
            ticket.place, ticket.started, ticket.tries = Place.ELSEWHERE, self.clock(), ticket.tries - 1
            return
        outcome = end.outcome or Outcome(Status.INTERRUPTED, _how_it_ended(end.code))
        if ticket.stopping and outcome.status is Status.INTERRUPTED:
            outcome = Outcome(Status.INTERRUPTED, ticket.stopping)
        if outcome.status is Status.INTERRUPTED and (end.outcome is None or ticket.stopping):
            self.settle(ticket.key, outcome.status, outcome.reason or "")
        self._end_or_retry(ticket, outcome)

    def _end_or_retry(self, ticket: Ticket, outcome: Outcome) -> None:
        again = outcome.status in (Status.FAILED, Status.INTERRUPTED) and ticket.tries <= self.retries
        if again and not self.interrupted:
            ticket.place = Place.QUEUED
            self._queue.append([ticket])
        else:
            ticket.place, ticket.ended, ticket.outcome = Place.ENDED, self.clock(), outcome

    def _watch_time(self) -> None:
        now = self.clock()
        for ticket in self._running():
            if not ticket.stopping and not self.launcher.has_started(ticket.key):
                ticket.started = now  # waiting for a process is not running
            if ticket.stop_at is not None and now > ticket.stop_at:
                self.launcher.stop(ticket.key, kill=True)
            elif self.timeout and not ticket.stopping and now - (ticket.started or now) > self.timeout:
                self._stop(ticket, f"timed out after {self.timeout:g} s")

    def _watch_elsewhere(self) -> None:
        """A cell that another launcher has is waited for, and taken over if that launcher is gone."""
        now = self.clock()
        for ticket in self.tickets:
            if ticket.place is not Place.ELSEWHERE or now - (ticket.started or now) < RETRY_CLAIM_S:
                continue
            found = self.look(ticket.key)
            ticket.started = now
            if found is None or found.status is Status.INTERRUPTED:
                ticket.place = Place.QUEUED
                self._queue.append([ticket])
            elif found.status is not Status.RUNNING:
                ticket.place, ticket.ended, ticket.outcome = Place.ENDED, now, found

    def _stop(self, ticket: Ticket, reason: str) -> None:
        ticket.stopping, ticket.stop_at = reason, self.clock() + GRACE_S
        self.launcher.stop(ticket.key, kill=False)

    def _interrupt(self) -> None:
        """The first Ctrl-C lets running cells save; the second does not wait for them."""
        again, self.interrupted = self.interrupted, True
        self.tell("Killing the runs …" if again else "Stopping: runs save first. Press Ctrl-C again to kill them.")
        self._queue.clear()
        for ticket in self.tickets:
            if ticket.place is Place.RUNNING and again:
                self.launcher.stop(ticket.key, kill=True)
            elif ticket.place is Place.RUNNING:
                self._stop(ticket, "stopped by Ctrl-C")
            elif ticket.place is not Place.ENDED:
                ticket.place = Place.ENDED


@contextlib.contextmanager
def _counting_interrupts() -> Iterator[list[int]]:
    """Note each Ctrl-C instead of raising it: one that came in the middle of a change would leave half of it."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    kept = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, kept)


def _how_it_ended(code: int) -> str:
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    return f"its process ended with exit status {code} and said nothing"
