"""Phases on a virtual clock: exclusive, nested, and adding up exactly."""

from __future__ import annotations

import pytest

from fairtrial.core.training import LoopEvents, Observer
from fairtrial.probe.phases import ClockError, PhaseTimer, break_down, event_seconds
from tests.virtual import VirtualTime


@pytest.fixture
def clock() -> VirtualTime:
    return VirtualTime()


def step(events: LoopEvents, clock: VirtualTime, number: int, *, data: float = 0.002) -> None:
    """4 ms of forward within which 1 ms is a transfer, 3 ms backward, 1 ms in no phase."""
    with events.phase("data"):
        clock.passes(data)
    with events.phase("forward"):
        clock.passes(0.002)
        with events.phase("transfer"):
            clock.passes(0.001)
        clock.passes(0.001)
    with events.phase("backward"):
        clock.passes(0.003)
    clock.passes(0.001)
    events.tell("step_ended", number)


def test_phases_are_exclusive_and_add_up_with_the_residual(clock: VirtualTime) -> None:
    timer = PhaseTimer()
    events = LoopEvents([timer], clock)
    events.tell("training_started", 1, 10)
    for number in range(1, 11):
        step(events, clock, number)
    found = break_down(timer.steps)
    wanted = {"data": 0.02, "forward": 0.03, "transfer": 0.01, "backward": 0.03}
    assert found.phases == pytest.approx(wanted, abs=1e-9) and found.residual == pytest.approx(0.01, abs=1e-9)
    assert sum(found.phases.values()) + found.residual == pytest.approx(found.window, abs=1e-9)
    assert found.window == pytest.approx(0.1, abs=1e-9) and found.steps == 10


def test_a_stall_in_the_data_is_in_the_steps_and_belongs_to_data(clock: VirtualTime) -> None:
    timer = PhaseTimer()
    events = LoopEvents([timer], clock)
    events.tell("training_started", 1, 100)
    for number in range(1, 101):
        step(events, clock, number, data=0.052 if number % 20 == 0 else 0.002)
    slow = [each for each in timer.steps if each.seconds > 0.05]
    assert len(slow) == 5 and all(each.phases["data"] == pytest.approx(0.052, abs=1e-9) for each in slow)
    assert sorted(each.seconds for each in timer.steps)[98] == pytest.approx(0.06, abs=1e-9)


def test_evaluation_and_checkpoints_lie_between_steps(clock: VirtualTime) -> None:
    timer = PhaseTimer()
    events = LoopEvents([timer], clock)
    events.tell("training_started", 1, 2)
    step(events, clock, 1)
    with events.phase("evaluation"):
        clock.passes(0.5)
    with events.phase("checkpoint"):
        clock.passes(0.25)
    step(events, clock, 2)
    assert [each.seconds for each in timer.steps] == pytest.approx([0.01, 0.01], abs=1e-9)
    found = break_down(timer.steps)
    assert found.phases["evaluation"] == pytest.approx(0.5, abs=1e-9) and found.window == pytest.approx(0.77, abs=1e-9)


def test_the_window_ends_with_the_last_step(clock: VirtualTime) -> None:
    timer = PhaseTimer()
    events = LoopEvents([timer], clock)
    events.tell("training_started", 1, 1)
    step(events, clock, 1)
    with events.phase("evaluation"):
        clock.passes(3)
    clock.passes(0.5)  # an observer that is slow to shut down
    events.tell("training_ended")
    assert break_down(timer.steps).window == pytest.approx(0.01, abs=1e-9)


def test_a_clock_that_goes_back_and_phases_that_cross_are_errors(clock: VirtualTime) -> None:
    timer = PhaseTimer()
    events = LoopEvents([timer], clock)
    clock.passes(5)
    events.tell("training_started", 1, 1)
    clock.passes(-1)
    with events.phase("data"):
        pass
    with pytest.raises(ClockError, match="went back"):
        _ = timer.steps
    crossed = PhaseTimer()
    events = LoopEvents([crossed], clock)
    events.tell("training_started", 1, 1)
    first, second = events.phase("a"), events.phase("b")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    with pytest.raises(ClockError, match="not the innermost open phase"):
        _ = crossed.steps


def test_an_observer_that_is_told_hears_what_another_notes(clock: VirtualTime) -> None:
    class Told(Observer):
        def __init__(self) -> None:
            self.heard: list[tuple[str, float]] = []

        def phase_started(self, name: str, now: float) -> None:
            self.heard.append((name, now))

        def phase_ended(self, name: str, now: float) -> None:
            self.heard.append((f"end of {name}", now))

    timer, told = PhaseTimer(), Told()
    events = LoopEvents([timer, told], clock)
    events.tell("training_started", 1, 1)
    step(events, clock, 1)
    alone = PhaseTimer()
    again = VirtualTime()
    by_itself = LoopEvents([alone], again)
    by_itself.tell("training_started", 1, 1)
    step(by_itself, again, 1)
    assert timer.steps == alone.steps
    assert [name for name, _ in told.heard[:4]] == ["data", "end of data", "forward", "transfer"]


def test_an_event_costs_something() -> None:
    assert event_seconds(200) > 0


def test_accumulated_batches_share_the_cost_of_their_update(clock: VirtualTime) -> None:
    timer = PhaseTimer()
    events = LoopEvents([timer], clock)
    events.tell("training_started", 1, 3)
    for number in range(1, 4):
        for _ in range(4):
            with events.phase("forward"):
                clock.passes(0.002)
            with events.phase("backward"):
                clock.passes(0.003)
        with events.phase("optimizer"):
            clock.passes(0.008)
        events.tell("step_ended", number)
    found = break_down(timer.steps)
    assert found.batches == 4 and found.phases["optimizer"] == pytest.approx(0.024, abs=1e-9)
    assert timer.steps[0].counts == {"forward": 4, "backward": 4, "optimizer": 1}


def test_turns_of_others_are_not_counted(clock: VirtualTime) -> None:
    timer = PhaseTimer()
    events = LoopEvents([timer], clock)
    events.tell("training_started", 1, 2)
    clock.passes(5.0)
    events.tell("turn_started")
    step(events, clock, 1)
    with events.phase("evaluation"):
        clock.passes(0.5)
    clock.passes(7.0)
    events.tell("turn_started")
    step(events, clock, 2)
    found = break_down(timer.steps)
    assert [each.seconds for each in timer.steps] == pytest.approx([0.01, 0.01], abs=1e-9)
    assert found.window == pytest.approx(0.52, abs=1e-9) and found.residual == pytest.approx(0.002, abs=1e-9)


class AsynchronousDevice:
    """Takes work at once and does it later: asking costs nothing, waiting costs what is left."""

    def __init__(self, clock: VirtualTime) -> None:
        self.clock, self.free_at, self.waits = clock, 0.0, 0

    def submit(self, seconds: float) -> None:
        self.free_at = max(self.free_at, self.clock.now) + seconds

    def synchronize(self) -> None:
        self.waits += 1
        self.clock.now = max(self.clock.now, self.free_at)


def submit_steps(timer: PhaseTimer, clock: VirtualTime, device: AsynchronousDevice, *, waited: bool) -> None:
    events = LoopEvents([timer], clock)
    events.wait_with(device.synchronize if waited else None)
    events.tell("training_started", 1, 5)
    for number in range(1, 6):
        for name, seconds in (("forward", 0.002), ("backward", 0.004)):
            with events.phase(name):
                device.submit(seconds)
        with events.phase("logging"):
            device.synchronize()  # looking at a loss waits for it
        events.tell("step_ended", number)


def test_a_device_that_works_behind_the_programs_back_is_waited_for_at_the_borders(clock: VirtualTime) -> None:
    timer = PhaseTimer()
    submit_steps(timer, clock, AsynchronousDevice(clock), waited=True)
    found = break_down(timer.steps)
    wanted = {"forward": 0.01, "backward": 0.02, "logging": 0.0}
    assert found.phases == pytest.approx(wanted, abs=1e-9) and found.window == pytest.approx(0.03, abs=1e-9)


def test_without_waiting_its_time_would_be_found_in_the_wrong_phase(clock: VirtualTime) -> None:
    timer = PhaseTimer()
    submit_steps(timer, clock, AsynchronousDevice(clock), waited=False)
    assert break_down(timer.steps).phases == pytest.approx({"forward": 0.0, "backward": 0.0, "logging": 0.03}, abs=1e-9)


def test_whole_steps_wait_once_per_step_and_have_no_phases(clock: VirtualTime) -> None:
    timer, device = PhaseTimer(whole_steps=True), AsynchronousDevice(clock)
    submit_steps(timer, clock, device, waited=True)
    found = break_down(timer.steps)
    assert found.phases == {} and found.window == pytest.approx(0.03, abs=1e-9)
    assert device.waits == 5 + 6, "each look at a loss, each end of a step, and the beginning"


def test_whoever_needs_no_borders_is_not_waited_for(clock: VirtualTime) -> None:
    class Idle(Observer):
        def step_ended(self, step: int, now: float) -> None: ...

    device = AsynchronousDevice(clock)
    events = LoopEvents([Idle()], clock)
    events.wait_with(device.synchronize)
    events.tell("step_ended", 1)
    assert device.waits == 0
