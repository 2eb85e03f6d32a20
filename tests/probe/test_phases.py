"""Phases on a virtual clock: exclusive, nested, and adding up exactly."""

from __future__ import annotations

import pytest

from fairtrial.core.training import Watch
from fairtrial.probe.phases import ClockError, PhaseTimer, break_down, event_seconds


class Clock:
    """Time passes only when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def step(watch: Watch, clock: Clock, number: int, *, data: float = 0.002) -> None:
    """4 ms of forward within which 1 ms is a transfer, 3 ms backward, 1 ms in no phase."""
    with watch.phase("data"):
        clock.passes(data)
    with watch.phase("forward"):
        clock.passes(0.002)
        with watch.phase("transfer"):
            clock.passes(0.001)
        clock.passes(0.001)
    with watch.phase("backward"):
        clock.passes(0.003)
    clock.passes(0.001)
    watch.tell("step_ended", number)


def test_phases_are_exclusive_and_add_up_with_the_residual(clock: Clock) -> None:
    timer = PhaseTimer()
    watch = Watch([timer], clock)
    watch.tell("training_started", 1, 10)
    for number in range(1, 11):
        step(watch, clock, number)
    found = break_down(timer.steps)
    wanted = {"data": 0.02, "forward": 0.03, "transfer": 0.01, "backward": 0.03}
    assert found.phases == pytest.approx(wanted, abs=1e-9) and found.residual == pytest.approx(0.01, abs=1e-9)
    assert sum(found.phases.values()) + found.residual == pytest.approx(found.window, abs=1e-9)
    assert found.window == pytest.approx(0.1, abs=1e-9) and found.steps == 10


def test_a_stall_in_the_data_is_in_the_steps_and_belongs_to_data(clock: Clock) -> None:
    timer = PhaseTimer()
    watch = Watch([timer], clock)
    watch.tell("training_started", 1, 100)
    for number in range(1, 101):
        step(watch, clock, number, data=0.052 if number % 20 == 0 else 0.002)
    slow = [each for each in timer.steps if each.seconds > 0.05]
    assert len(slow) == 5 and all(each.phases["data"] == pytest.approx(0.052, abs=1e-9) for each in slow)
    assert sorted(each.seconds for each in timer.steps)[98] == pytest.approx(0.06, abs=1e-9)


def test_evaluation_and_checkpoints_lie_between_steps(clock: Clock) -> None:
    timer = PhaseTimer()
    watch = Watch([timer], clock)
    watch.tell("training_started", 1, 2)
    step(watch, clock, 1)
    with watch.phase("evaluation"):
        clock.passes(0.5)
    with watch.phase("checkpoint"):
        clock.passes(0.25)
    step(watch, clock, 2)
    assert [each.seconds for each in timer.steps] == pytest.approx([0.01, 0.01], abs=1e-9)
    found = break_down(timer.steps)
    assert found.phases["evaluation"] == pytest.approx(0.5, abs=1e-9) and found.window == pytest.approx(0.77, abs=1e-9)


def test_the_window_ends_with_the_last_step(clock: Clock) -> None:
    timer = PhaseTimer()
    watch = Watch([timer], clock)
    watch.tell("training_started", 1, 1)
    step(watch, clock, 1)
    with watch.phase("evaluation"):
        clock.passes(3)
    clock.passes(0.5)  # an observer that is slow to shut down
    watch.tell("training_ended")
    assert break_down(timer.steps).window == pytest.approx(0.01, abs=1e-9)


def test_a_clock_that_goes_back_and_phases_that_cross_are_errors(clock: Clock) -> None:
    timer = PhaseTimer()
    timer.training_started(1, 1, 5.0)
    timer.phase_started("data", 4.0)
    with pytest.raises(ClockError, match="went back"):
        _ = timer.steps
    crossed = PhaseTimer()
    crossed.training_started(1, 1, 0.0)
    crossed.phase_started("a", 1.0)
    crossed.phase_started("b", 2.0)
    crossed.phase_ended("a", 3.0)
    with pytest.raises(ClockError, match="not the one that began last"):
        _ = crossed.steps


def test_an_event_costs_something() -> None:
    assert event_seconds(200) > 0
