"""What the schedule makes of cells that another process has, with a launcher that only says what it is told to."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Mapping
from typing import Any

from fairtrial.core.runs import EXIT_CLAIMED, Outcome, Status
from fairtrial.launch.contract import Exit
from fairtrial.launch.schedule import Heartbeat, Schedule, ScheduledRun


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


def test_a_cell_that_another_has_ends_with_ctrl_c() -> None:
    launcher = Told([], [Exit("a", EXIT_CLAIMED, None)])
    launcher.at_poll[1] = lambda: os.kill(os.getpid(), signal.SIGINT)
    [run] = runs = [ScheduledRun("a", {})]
    schedule = Schedule([runs], launcher, lambda _: None, lambda *_: None, clock=Clock())
    schedule.run()  # and does not wait for ever
    assert schedule.interrupted and run.outcome is not None and run.outcome.status is Status.INTERRUPTED
    assert len(launcher.submitted) == 1


def test_a_cell_whose_claim_was_taken_over_is_waited_for() -> None:
    launcher = Told([Exit("a", EXIT_CLAIMED, None)])
    found = [Outcome(Status.RUNNING)] * 3 + [Outcome(Status.COMPLETED, already_done=True)]
    [run] = runs = [ScheduledRun("a", {})]
    Schedule([runs], launcher, lambda _: found.pop(0), lambda *_: None, clock=Clock()).run()
    assert run.outcome == Outcome(Status.COMPLETED, already_done=True) and len(launcher.submitted) == 1


def test_the_claim_that_fell_silent_is_taken_over_and_no_newer_one() -> None:
    """By the time that a launcher acts, another may have given the run to a process that lives."""
    launcher = Told()
    Schedule(
        [[ScheduledRun("a", {})]], launcher, lambda _: Outcome(Status.RUNNING), lambda *_: None, heartbeat=lambda _: Heartbeat("x", 1, 0, 7),
        claim_token=lambda _: 8, lost_after=20, clock=Clock(),
    ).run()  # fmt: skip
    assert launcher.forgotten == ["a"] and [each["a"].get("over") for each in launcher.submitted] == [None, 7]
