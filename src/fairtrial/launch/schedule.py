"""Which cells next? Fills the slots, keeps time, listens for signs of life, tries again, and stops cleanly.

A task is one cell, or several that share a process; a cell that has to be tried again is a task of its own. The
schedule knows launchers and cells, not the store. Its caller gives it `look`, which says how a cell stands
on disk, `settle`, which writes down how a cell ended whose process could not do so itself, `listen`, which gives its
last sign of life, and `holder`, which gives the token of the claim on it.

A run that *failed* says so, or its process is gone. One that is *silent* gives no sign of life any more: it is frozen,
or its machine is gone; it is killed, or where that does not help given up, and goes on elsewhere. One that is *slow*
beats and makes progress; one that beats without progress may *hang*: it is pointed out, and ended where that was asked.
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
LISTEN_S = 1.0
LOST_AFTER_S = 60.0
"""A run without a sign of life for this long is taken for lost."""
LOSSES = 3
"""So often a run may be lost in a row without having got further before it is left alone."""


class RunState(StrEnum):
    """Where a cell is, as the live table shows it."""

    QUEUED = "queued"
    RUNNING = "running"
    ELSEWHERE = "elsewhere"
    ENDED = "ended"


@dataclass(frozen=True)
class Heartbeat:
    """A sign of life: any difference to the one before is one. `saved` is the step that a resume would go on from,
    `token` that of the claim which gave it, where that is known."""

    mark: str
    step: int
    saved: int
    token: int | None = None


@dataclass
class LivenessTracker:
    """What was heard of a running cell, by this machine's clock alone."""

    sign: Heartbeat | None = None
    heard: float = 0.0
    progressed: float = 0.0

    def take(self, heartbeat: Heartbeat | None, now: float) -> None:
        if heartbeat is not None and heartbeat != self.sign:
            if self.sign is None or heartbeat.step != self.sign.step:
                self.progressed = now
            self.sign, self.heard = heartbeat, now


@dataclass
class ScheduledRun:
    """One cell on its way through the schedule."""

    key: str
    request: Mapping[str, Any]
    state: RunState = RunState.QUEUED
    tries: int = 0
    started: float | None = None
    ended: float | None = None
    stopping: str | None = None
    stop_at: float | None = None
    outcome: Outcome | None = None
    liveness: LivenessTracker = field(default_factory=LivenessTracker)
    listened: float = 0.0
    silenced: str | None = None
    losses: int = 0
    furthest: int = 0


@dataclass
class Schedule:
    """Runs tickets to their end. `changed` is told about every tick, for people who watch."""

    tasks: Sequence[Sequence[ScheduledRun]]
    launcher: Launcher
    status: Callable[[str], Outcome | None]
    mark_ended: Callable[[str, Status, str], None]
    timeout: float | None = None
    retries: int = 0
    heartbeat: Callable[[str], Heartbeat | None] = lambda _: None
    claim_token: Callable[[str], int | None] = lambda _: None
    lost_after: float = LOST_AFTER_S
    hung_after: float | None = None
    changed: Callable[[Sequence[ScheduledRun]], None] = lambda _: None
    clock: Callable[[], float] = time.monotonic
    interrupted: bool = False
    tell: Callable[[str], None] = lambda _: None
    runs: Sequence[ScheduledRun] = ()
    _queue: deque[Sequence[ScheduledRun]] = field(default_factory=deque)
    _started: list[Sequence[ScheduledRun]] = field(default_factory=list)
    _by_key: dict[str, ScheduledRun] = field(default_factory=dict)

    def run(self) -> None:
        """Until every ticket has ended. Ctrl-C stops the running cells after they have saved."""
        self.runs = self.runs or [run for task in self.tasks for run in task]
        self._queue = deque(self.tasks)
        self._by_key = {run.key: run for run in self.runs}
        self._adopt()
        with _counting_interrupts() as asked:
            heard = 0
            while any(run.state is not RunState.ENDED for run in self.runs):
                if len(asked) > heard:
                    heard = len(asked)
                    self._interrupt()
                self._tick()

    def _adopt(self) -> None:
        """Cells that an earlier launcher left running are watched, not started again."""
        adopted = {key for task in self.launcher.adopt(list(self._by_key)) for key in task}
        for run in self.runs:
            if run.key in adopted:
                self._set_running(run)
        waiting = ([run for run in task if run.key not in adopted] for task in self._queue)
        self._queue = deque(task for task in waiting if task)

    def _set_running(self, run: ScheduledRun) -> None:
        now = self.clock()
        run.state, run.started, run.tries = RunState.RUNNING, now, run.tries + 1
        run.stopping = run.stop_at = run.silenced = None
        run.liveness = LivenessTracker(heard=now, progressed=now)

    def _tick(self) -> None:
        self._fill_slots()
        for end in self.launcher.poll(POLL_S):
            self._take_back(end)
        self._watch_time()
        self._watch_life()
        self._watch_elsewhere()
        self.changed(self.runs)

    def _running(self) -> list[ScheduledRun]:
        return [run for run in self.runs if run.state is RunState.RUNNING]

    def _fill_slots(self) -> None:
        self._started = [task for task in self._started if any(run.state is RunState.RUNNING for run in task)]
        while len(self._started) < self.launcher.slots and self._queue and not self.interrupted:
            task = self._queue.popleft()
            for run in task:
                self._set_running(run)
            self.launcher.submit({run.key: run.request for run in task})
            self._started.append(task)

    def _take_back(self, end: Exit) -> None:
        run = self._by_key[end.key]
        lost = end.lost or (run.silenced if end.outcome is None else None)
        if lost is not None and not run.stopping:
            self._lose(run, lost)
            return
        if end.code == EXIT_CLAIMED and not self.interrupted:
            now = self.clock()
            run.state, run.started, run.tries = RunState.ELSEWHERE, now, run.tries - 1
            if not run.liveness.sign:
                run.liveness = LivenessTracker(heard=now)
            return
        said = "another process has it" if end.code == EXIT_CLAIMED else _how_it_ended(end.code)
        outcome = end.outcome or Outcome(Status.INTERRUPTED, said)
        if run.stopping and outcome.status is Status.INTERRUPTED:
            outcome = Outcome(Status.INTERRUPTED, run.stopping)
        if outcome.status is Status.INTERRUPTED and (end.outcome is None or run.stopping):
            self.mark_ended(run.key, outcome.status, outcome.reason or "")
        elif outcome.status is Status.FAILED and (found := self.status(run.key)) and found.status is not Status.FAILED:
            self.mark_ended(run.key, outcome.status, outcome.reason or "")  # its engine says so, not the run itself
        self._end_or_retry(run, outcome)

    def _lose(self, run: ScheduledRun, why: str) -> None:
        """Its place is gone, or no longer answers: another goes on with it, whether its old process lives or not."""
        if (outcome := self.status(run.key)) and outcome.status not in (Status.RUNNING, Status.INTERRUPTED):
            run.state, run.ended, run.outcome = RunState.ENDED, self.clock(), outcome  # it was only not heard
            return
        saved = run.liveness.sign.saved if run.liveness.sign else 0
        run.losses = 1 if saved > run.furthest else run.losses + 1
        run.furthest = max(saved, run.furthest)
        self.mark_ended(run.key, Status.INTERRUPTED, why)
        too_often = run.losses > max(LOSSES, self.retries)
        if self.interrupted or too_often:
            message = f"{why}; lost {run.losses} times without getting further" if too_often else why
            run.state, run.ended, run.outcome = RunState.ENDED, self.clock(), Outcome(Status.INTERRUPTED, message)
            return
        self.tell(f"{run.key}: {why}; it goes on elsewhere.")
        run.request = {**run.request, "over": self._silent_holder(run)}
        run.tries -= 1
        self._queue_again(run)

    def _silent_holder(self, run: ScheduledRun) -> int | None:
        """The token of the claim that fell silent; another may have been made since, by one who lives."""
        heartbeat = run.liveness.sign
        return heartbeat.token if heartbeat and heartbeat.token is not None else self.claim_token(run.key)

    def _end_or_retry(self, run: ScheduledRun, outcome: Outcome) -> None:
        again = outcome.status in (Status.FAILED, Status.INTERRUPTED) and run.tries <= self.retries
        if again and not self.interrupted:
            self._queue_again(run)
        else:
            run.state, run.ended, run.outcome = RunState.ENDED, self.clock(), outcome

    def _watch_time(self) -> None:
        now = self.clock()
        for run in self._running():
            if not run.stopping and not self.launcher.has_started(run.key):
                run.started = now  # waiting for a process is not running
            if run.stop_at is not None and now > run.stop_at:
                self.launcher.stop(run.key, kill=True)
            elif self.timeout and not run.stopping and now - (run.started or now) > self.timeout:
                self._stop(run, f"timed out after {self.timeout:g} s")

    def _watch_life(self) -> None:
        now = self.clock()
        for run in self._running():
            if not self.launcher.has_started(run.key):
                run.liveness.heard = run.liveness.progressed = now
            elif now - run.listened > LISTEN_S:
                run.listened = now
                run.liveness.take(self.heartbeat(run.key), now)
                self._judge_life(run, now)

    def _judge_life(self, run: ScheduledRun, now: float) -> None:
        silent, idle = now - run.liveness.heard, now - run.liveness.progressed
        if silent > self.lost_after + GRACE_S:
            self.launcher.forget(run.key)
            self._lose(run, f"no sign of life for {silent:.0f} s")
        elif silent > self.lost_after and not run.silenced:
            run.silenced = f"no sign of life for {silent:.0f} s"
            self.launcher.stop(run.key, kill=True)  # it comes back as killed, or is given up after a while
        elif self.hung_after and idle > self.hung_after and not run.stopping:
            self._stop(run, f"no progress for {self.hung_after:g} s")

    def _watch_elsewhere(self) -> None:
        """A cell that another launcher has is waited for, and taken over if it is gone or gives no sign of life."""
        now = self.clock()
        for run in self.runs:
            if run.state is not RunState.ELSEWHERE or now - (run.started or now) < RETRY_CLAIM_S:
                continue
            outcome = self.status(run.key)
            run.started = now
            run.liveness.take(self.heartbeat(run.key), now)
            if outcome is None or outcome.status is Status.INTERRUPTED:
                self._queue_again(run)
            elif outcome.status is not Status.RUNNING:
                run.state, run.ended, run.outcome = RunState.ENDED, now, outcome
            elif now - run.liveness.heard > self.lost_after + 2 * GRACE_S:  # its own launcher may act first
                run.request = {**run.request, "over": self._silent_holder(run)}
                self._queue_again(run)

    def _queue_again(self, run: ScheduledRun) -> None:
        run.state = RunState.QUEUED
        self._queue.append([run])

    def _stop(self, run: ScheduledRun, reason: str) -> None:
        run.stopping, run.stop_at = reason, self.clock() + GRACE_S
        self.launcher.stop(run.key, kill=False)

    def _interrupt(self) -> None:
        """The first Ctrl-C lets running cells save; the second does not wait for them."""
        again, self.interrupted = self.interrupted, True
        self.tell("Killing the runs …" if again else "Stopping: runs save first. Press Ctrl-C again to kill them.")
        self._queue.clear()
        for run in self.runs:
            if run.state is RunState.RUNNING and again:
                self.launcher.stop(run.key, kill=True)
            elif run.state is RunState.RUNNING:
                self._stop(run, "stopped by Ctrl-C")
            elif run.state is not RunState.ENDED:
                run.state = RunState.ENDED


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
