"""What the schedule makes of cells that another process has, with a launcher that only says what it is told to."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from fairtrial.core.runs import EXIT_CLAIMED, Outcome, Status
from fairtrial.core.specs import Job, RunSpec
from fairtrial.launch.contract import Exit
from fairtrial.launch.policy import ExecutionPolicy
from fairtrial.launch.schedule import Heartbeat, Schedule


class Told:
    """A launcher that gives the exits that it was told, one list per poll, and remembers what it was asked to do."""

    slots = 2

    def __init__(self, *polls: list[Exit]) -> None:
        self.polls = list(polls)
        self.submitted: list[dict[str, Any]] = []
        self.forgotten: list[str] = []
        self.at_poll: dict[int, Any] = {}
        self._count = 0

    def adopt(self, keys: Collection[str]) -> list[list[str]]:
        return []

    def submit(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        self.submitted.append({key: dict(request) for key, request in requests.items()})

    def poll(self, timeout: float) -> list[Exit]:
        self._count += 1
        self.at_poll.get(self._count, lambda: None)()
        return self.polls.pop(0) if self.polls else []

    def has_started(self, key: str) -> bool:
        return True

    def stop(self, key: str, *, kill: bool) -> None: ...

    def forget(self, key: str) -> None:
        self.forgotten.append(key)
        self.polls.append([Exit(key, 0, Outcome(Status.COMPLETED))])  # of the place that it is given to next

    def close(self) -> None: ...


class Clock:
    """Every look at it is a second later."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


class Store:
    """A `RunMonitor` whose runs stand as a list says, one after the other; the last stays."""

    def __init__(self, *outcomes: Outcome | None, heartbeat: Heartbeat | None = None, token: int | None = None) -> None:
        self.outcomes, self._heartbeat, self._token = list(outcomes), heartbeat, token

    def status(self, job: Job) -> Outcome | None:
        return self.outcomes.pop(0) if len(self.outcomes) > 1 else next(iter(self.outcomes), None)

    def mark_ended(self, job: Job, status: Status, reason: str) -> None: ...

    def heartbeat(self, job: Job) -> Heartbeat | None:
        return self._heartbeat

    def claim_token(self, job: Job) -> int | None:
        return self._token


JOB = Job(RunSpec("fake", {}, {}, seed=1, study="s", variant="v"), "unused")
KEY = JOB.spec.name


def test_a_cell_that_another_has_ends_with_ctrl_c() -> None:
    launcher = Told([], [Exit(KEY, EXIT_CLAIMED, None)])
    launcher.at_poll[1] = lambda: os.kill(os.getpid(), signal.SIGINT)
    schedule = Schedule([JOB], launcher, Store(), ExecutionPolicy(), clock=Clock())
    schedule.run()  # and does not wait for ever
    [run] = schedule.runs
    assert schedule.interrupted and run.outcome is not None and run.outcome.status is Status.INTERRUPTED
    assert len(launcher.submitted) == 1


def test_a_cell_whose_claim_was_taken_over_is_waited_for() -> None:
    launcher = Told([Exit(KEY, EXIT_CLAIMED, None)])
    store = Store(*[Outcome(Status.RUNNING)] * 3, Outcome(Status.COMPLETED, already_done=True))
    schedule = Schedule([JOB], launcher, store, ExecutionPolicy(), clock=Clock())
    schedule.run()
    assert schedule.runs[0].outcome == Outcome(Status.COMPLETED, already_done=True) and len(launcher.submitted) == 1


def test_the_claim_that_fell_silent_is_taken_over_and_no_newer_one() -> None:
    """By the time that a launcher acts, another may have given the run to a process that lives."""
    launcher = Told()
    store = Store(Outcome(Status.RUNNING), heartbeat=Heartbeat("x", 1, 0, 7), token=8)
    Schedule([JOB], launcher, store, ExecutionPolicy(lost_after=20), clock=Clock()).run()
    assert launcher.forgotten == [KEY] and [each[KEY]["over"] for each in launcher.submitted] == [None, 7]


def test_what_a_launcher_is_handed_is_the_document_of_the_job() -> None:
    """Jobs that wait in a queue are read by the version that is installed when they start: the keys must stay."""
    launcher = Told([Exit(KEY, 0, Outcome(Status.COMPLETED))])
    job = replace(JOB, needs={"teacher": ("_needs", "t.seed1")}, stack_key="fake 1")
    Schedule([job], launcher, Store(), ExecutionPolicy(), clock=Clock()).run()
    [requests] = launcher.submitted
    assert list(requests[KEY]) == ["spec", "store", "environment", "needs", "over"]
    assert Job.from_dict(requests[KEY]) == replace(job, stack_key=None)
