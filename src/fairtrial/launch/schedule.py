"""Schedule runs: fill the launcher's slots, enforce time limits, watch heartbeats, retry, and stop cleanly.

A task is one run, or several that share a process; a retried run is a separate task. The schedule knows launchers and
jobs, but not the store: it reads and writes the store through a `RunMonitor`.

A *failed* run reports its failure, or its process has exited. A *silent* run has no new heartbeat, because its process
is frozen or its machine is down: it is killed or, if that has no effect, abandoned, and then rescheduled. A *slow* run
has heartbeats and makes progress. A run with heartbeats but no progress may be *hung*: it is pointed out and, with
`hung_after`, stopped.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from fairtrial.core.runs import EXIT_CLAIMED, STOPPED, Outcome, Status
from fairtrial.core.specs import Job
from fairtrial.launch.contract import Exit, Launcher
from fairtrial.launch.policy import ExecutionPolicy
from fairtrial.launch.stacks import divide

POLL_S = 0.2
GRACE_S = 8.0
RETRY_CLAIM_S = 1.0
HEARTBEAT_CHECK_S = 1.0
LOST_AFTER_S = 60.0
"""A run without a heartbeat for this long is considered lost."""
LOSSES = 3
"""Number of times in a row that a run may be lost without saving further progress before it is abandoned."""


class RunState(StrEnum):
    """The state of a run, as the live table shows it."""

    QUEUED = "queued"
    RUNNING = "running"
    ELSEWHERE = "elsewhere"
    ENDED = "ended"


@dataclass(frozen=True)
class Heartbeat:
    """The latest heartbeat of a run. A new heartbeat always differs from the previous one, at least in its `tag`.

    `saved` is the step that a resumed run would continue from; `token` is that of the claim that wrote the heartbeat,
    if known.
    """

    tag: str
    step: int
    saved: int
    token: int | None = None


class RunMonitor(Protocol):
    """The schedule's access to the recorded state of runs."""

    def status(self, job: Job) -> Outcome | None:
        """Return the run's recorded outcome, or None if it is not in the store."""
        ...

    def mark_ended(self, job: Job, status: Status, reason: str) -> None:
        """Record the end of a run whose process could not do so itself."""
        ...

    def heartbeat(self, job: Job) -> Heartbeat | None: ...

    def claim_token(self, job: Job) -> int | None:
        """Return the token of the claim on the run."""
        ...


@dataclass
class LivenessTracker:
    """Times of a run's last new heartbeat and last progress, by this machine's clock only."""

    heartbeat: Heartbeat | None = None
    heard_at: float = 0.0
    progressed_at: float = 0.0

    def update(self, heartbeat: Heartbeat | None, now: float) -> None:
        if heartbeat is not None and heartbeat != self.heartbeat:
            if self.heartbeat is None or heartbeat.step != self.heartbeat.step:
                self.progressed_at = now
            self.heartbeat, self.heard_at = heartbeat, now


@dataclass
class ScheduledRun:
    """A job and its state in the schedule."""

    job: Job
    state: RunState = RunState.QUEUED
    tries: int = 0
    started: float | None = None
    ended: float | None = None
    stop_reason: str | None = None
    kill_at: float | None = None
    outcome: Outcome | None = None
    liveness: LivenessTracker = field(default_factory=LivenessTracker)
    heartbeat_checked: float = 0.0
    silence: str | None = None
    """Why it was killed, if it was killed for a missing heartbeat."""
    losses: int = 0
    furthest_saved: int = 0

    @property
    def key(self) -> str:
        return self.job.spec.name


class Schedule:
    """Runs jobs until all have ended. Every tick calls `policy.watch` with all runs."""

    def __init__(
        self,
        jobs: Sequence[Job],
        launcher: Launcher,
        monitor: RunMonitor,
        policy: ExecutionPolicy,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.runs = [ScheduledRun(job) for job in jobs]
        self.launcher, self.monitor, self.policy, self.clock = launcher, monitor, policy, clock
        self.interrupted = False
        self._lost_after = policy.lost_after or LOST_AFTER_S
        self._by_key = {run.key: run for run in self.runs}
        stacked = policy.stack and policy.timeout is None  # a time limit applies to a single run
        tasks = divide(self.runs, lambda run: run.job.stack_key if stacked else None, launcher.slots)
        self._queue: deque[Sequence[ScheduledRun]] = deque(tasks)
        self._started: list[Sequence[ScheduledRun]] = []

    def run(self) -> None:
        """Run until every run has ended. Ctrl-C stops running ones after they have saved."""
        self._adopt()
        with _counting_interrupts() as interrupts:
            handled = 0
            while any(run.state is not RunState.ENDED for run in self.runs):
                if len(interrupts) > handled:
                    handled = len(interrupts)
                    self._interrupt()
                self._tick()

    def _adopt(self) -> None:
        """Watch the runs that an earlier launcher left running instead of starting them again."""
        adopted = {key for task in self.launcher.adopt(list(self._by_key)) for key in task}
        for run in self.runs:
            if run.key in adopted:
                self._set_running(run)
        waiting = ([run for run in task if run.key not in adopted] for task in self._queue)
        self._queue = deque(task for task in waiting if task)

    def _set_running(self, run: ScheduledRun) -> None:
        now = self.clock()
        run.state, run.started, run.tries = RunState.RUNNING, now, run.tries + 1
        run.stop_reason = run.kill_at = run.silence = None
        run.liveness = LivenessTracker(heard_at=now, progressed_at=now)

    def _tick(self) -> None:
        self._fill_slots()
        for end in self.launcher.poll(POLL_S):
            self._take_back(end)
        self._watch_time()
        self._watch_heartbeats()
        self._watch_elsewhere()
        self.policy.watch(self.runs)

    def _running(self) -> list[ScheduledRun]:
        return [run for run in self.runs if run.state is RunState.RUNNING]

    def _fill_slots(self) -> None:
        self._started = [task for task in self._started if any(run.state is RunState.RUNNING for run in task)]
        while len(self._started) < self.launcher.slots and self._queue and not self.interrupted:
            task = self._queue.popleft()
            for run in task:
                self._set_running(run)
            self.launcher.submit({run.key: run.job.to_dict() for run in task})
            self._started.append(task)

    def _take_back(self, end: Exit) -> None:
        run = self._by_key[end.key]
        lost = end.lost or (run.silence if end.outcome is None else None)
        if lost is not None and not run.stop_reason:
            self._lose(run, lost)
            return
        if end.code == EXIT_CLAIMED and not self.interrupted:
            now = self.clock()
            run.state, run.started, run.tries = RunState.ELSEWHERE, now, run.tries - 1
            if not run.liveness.heartbeat:
                run.liveness = LivenessTracker(heard_at=now)
            return
        reason = "another process is running it" if end.code == EXIT_CLAIMED else _exit_reason(end.code)
        outcome = end.outcome or Outcome(Status.INTERRUPTED, reason)
        if run.stop_reason and outcome.status is Status.INTERRUPTED:
            outcome = Outcome(Status.INTERRUPTED, run.stop_reason)
        if outcome.status is Status.INTERRUPTED and (end.outcome is None or run.stop_reason):
            self.monitor.mark_ended(run.job, outcome.status, outcome.reason or "")
        elif outcome.status is Status.FAILED:
            recorded = self.monitor.status(run.job)
            if recorded and recorded.status is not Status.FAILED:  # reported by the engine and not recorded by the run
                self.monitor.mark_ended(run.job, outcome.status, outcome.reason or "")
        self._end_or_retry(run, outcome)

    def _lose(self, run: ScheduledRun, why: str) -> None:
        """Reschedule a run whose machine is down or no longer responds, whether its old process is alive or not."""
        if (outcome := self.monitor.status(run.job)) and outcome.status not in (Status.RUNNING, Status.INTERRUPTED):
            run.state, run.ended, run.outcome = RunState.ENDED, self.clock(), outcome  # only its report was lost
            return
        saved = run.liveness.heartbeat.saved if run.liveness.heartbeat else 0
        run.losses = 1 if saved > run.furthest_saved else run.losses + 1
        run.furthest_saved = max(saved, run.furthest_saved)
        self.monitor.mark_ended(run.job, Status.INTERRUPTED, why)
        too_often = run.losses > max(LOSSES, self.policy.retries)
        if self.interrupted or too_often:
            message = f"{why}; lost {run.losses} times without progress" if too_often else why
            run.state, run.ended, run.outcome = RunState.ENDED, self.clock(), Outcome(Status.INTERRUPTED, message)
            return
        self.policy.tell(f"{run.key}: {why}; rescheduling it.")
        run.job = replace(run.job, takeover_token=self._silent_token(run))
        run.tries -= 1
        self._queue_again(run)

    def _silent_token(self, run: ScheduledRun) -> int | None:
        """Return the token of the silent claim, so that a newer claim by a live process is never taken over."""
        heartbeat = run.liveness.heartbeat
        return heartbeat.token if heartbeat and heartbeat.token is not None else self.monitor.claim_token(run.job)

    def _end_or_retry(self, run: ScheduledRun, outcome: Outcome) -> None:
        again = outcome.status in (Status.FAILED, Status.INTERRUPTED) and run.tries <= self.policy.retries
        if again and not self.interrupted:
            self._queue_again(run)
        else:
            run.state, run.ended, run.outcome = RunState.ENDED, self.clock(), outcome

    def _watch_time(self) -> None:
        now, timeout = self.clock(), self.policy.timeout
        for run in self._running():
            if not run.stop_reason and not self.launcher.has_started(run.key):
                run.started = now  # the time limit does not include the wait for a process
            if run.kill_at is not None and now > run.kill_at:
                self.launcher.stop(run.key, kill=True)
            elif timeout and not run.stop_reason and now - (run.started or now) > timeout:
                self._stop(run, f"timed out after {timeout:g} s")

    def _watch_heartbeats(self) -> None:
        now = self.clock()
        for run in self._running():
            if not self.launcher.has_started(run.key):
                run.liveness.heard_at = run.liveness.progressed_at = now
            elif now - run.heartbeat_checked > HEARTBEAT_CHECK_S:
                run.heartbeat_checked = now
                run.liveness.update(self.monitor.heartbeat(run.job), now)
                self._check_liveness(run, now)

    def _check_liveness(self, run: ScheduledRun, now: float) -> None:
        hung_after = self.policy.hung_after
        silent, idle = now - run.liveness.heard_at, now - run.liveness.progressed_at
        if silent > self._lost_after + GRACE_S:
            self.launcher.forget(run.key)
            self._lose(run, f"no heartbeat for {silent:.0f} s")
        elif silent > self._lost_after and not run.silence:
            run.silence = f"no heartbeat for {silent:.0f} s"
            self.launcher.stop(run.key, kill=True)  # poll reports it as killed, or it is abandoned after GRACE_S
        elif hung_after and idle > hung_after and not run.stop_reason:
            self._stop(run, f"no progress for {hung_after:g} s")

    def _watch_elsewhere(self) -> None:
        """Wait for runs that another launcher has claimed, and take over those that ended early or are silent."""
        now = self.clock()
        for run in self.runs:
            if run.state is not RunState.ELSEWHERE or now - (run.started or now) < RETRY_CLAIM_S:
                continue
            outcome = self.monitor.status(run.job)
            run.started = now
            run.liveness.update(self.monitor.heartbeat(run.job), now)
            if outcome is None or outcome.status is Status.INTERRUPTED:
                self._queue_again(run)
            elif outcome.status is not Status.RUNNING:
                run.state, run.ended, run.outcome = RunState.ENDED, now, outcome
            elif now - run.liveness.heard_at > self._lost_after + 2 * GRACE_S:  # its own launcher may act first
                run.job = replace(run.job, takeover_token=self._silent_token(run))
                self._queue_again(run)

    def _queue_again(self, run: ScheduledRun) -> None:
        run.state = RunState.QUEUED
        self._queue.append([run])

    def _stop(self, run: ScheduledRun, reason: str) -> None:
        run.stop_reason, run.kill_at = reason, self.clock() + GRACE_S
        self.launcher.stop(run.key, kill=False)

    def _interrupt(self) -> None:
        """Stop all runs: the first Ctrl-C lets running jobs save; the second kills them."""
        again, self.interrupted = self.interrupted, True
        message = "Killing the runs …" if again else "Stopping: runs save first. Press Ctrl-C again to kill them."
        self.policy.tell(message)
        self._queue.clear()
        for run in self.runs:
            if run.state is RunState.RUNNING and again:
                self.launcher.stop(run.key, kill=True)
            elif run.state is RunState.RUNNING:
                self._stop(run, STOPPED)
            elif run.state is not RunState.ENDED:
                run.state = RunState.ENDED


@contextlib.contextmanager
def _counting_interrupts() -> Iterator[list[int]]:
    """Count Ctrl-C instead of raising KeyboardInterrupt, which could interrupt a state change halfway."""
    interrupts: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    previous = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, previous)


def _exit_reason(code: int) -> str:
    if code < 0:
        return f"its process was killed by {signal.Signals(-code).name}"
    return f"its process exited with status {code} without reporting an outcome"
