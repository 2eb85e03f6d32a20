"""Rollouts by appointment: never older than the budget, whatever the crew does, and taken in order."""

from __future__ import annotations

import random
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairtrial.core.errors import FairtrialError
from fairtrial.recipes.lm.types import RolloutPart
from fairtrial.recipes.lm.version_schedule import Buffer, Taken, Task, lag_of, played_within, version_for


class Dawdlers:
    """Threads that deliver in an order of their own, and remember what they were asked for, and when."""

    def __init__(self, buffer: Buffer, published: list[int], seed: int, batches: int) -> None:
        self.buffer, self.published, self.chance = buffer, published, random.Random(seed)
        self.tasks: list[Task] = []
        self.held: list[Task] = []
        self.batches = batches

    def assign(self, task: Task) -> None:
        assert task.version <= self.published[-1], "asked for by a version that does not exist yet"
        self.tasks.append(task)
        threading.Thread(target=self._deliver, args=(task, self.chance.random() / 500), daemon=True).start()

    def _deliver(self, task: Task, pause: float) -> None:
        time.sleep(pause)
        self.buffer.deliver(RolloutPart(task.step, task.batch, task.version, (), 0.0, 0.0))

    def close(self) -> None: ...


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(0, 5), st.integers(1, 3), st.integers(1, 8), st.integers(0, 2**16))
def test_the_lag_is_never_above_the_budget_nor_the_buffer_above_its_depth(
    depth: int, budget: int, batches: int, steps: int, seed: int
) -> None:
    published, crews = [0], []

    def make(buffer: Buffer) -> Dawdlers:
        crews.append(Dawdlers(buffer, published, seed, batches))
        return crews[-1]

    buffer = Buffer(make, lag=lag_of(depth, budget), batches=batches, last=steps, clock=time.perf_counter)
    buffer.begin(0)
    for step in range(1, steps + 1):
        taken = buffer.take(step)
        assert taken.rollout.step == step
        assert [part.batch for part in taken.rollout.parts] == list(range(batches))
        assert taken.lag == step - 1 - taken.rollout.version <= budget
        assert taken.ready <= depth
        published.append(step)
        buffer.publish(step)
    [crew] = crews
    assert sorted((task.step, task.batch) for task in crew.tasks) == [
        (step, batch) for step in range(1, steps + 1) for batch in range(batches)
    ], "something was played twice, not at all, or for nobody"


class Eager:
    """Delivers at once."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.asked: list[tuple[int, int]] = []

    def assign(self, task: Task) -> None:
        self.asked.append((task.step, task.version))
        self.buffer.deliver(RolloutPart(task.step, task.batch, task.version, (), 0.0, 0.0))

    def close(self) -> None: ...


def test_a_rollout_is_asked_for_as_soon_as_its_version_exists() -> None:
    crews: list[Eager] = []

    def make(buffer: Buffer) -> Eager:
        crews.append(Eager(buffer))
        return crews[-1]

    buffer = Buffer(make, lag=2, batches=1, last=6, clock=time.perf_counter)
    buffer.begin(0)
    buffer.take(1)
    assert crews[0].asked == [(1, 0), (2, 0), (3, 0)]
    buffer.publish(1)
    assert crews[0].asked[3:] == [(4, 1)]


def test_the_depth_goes_back_and_forth_below_what_the_lag_allows() -> None:
    """Finished rollouts beyond the trainer's step: `lag` while it works, one less until the next one is played."""
    now = 0.0
    crews: list[Held] = []

    class Held(Eager):
        def assign(self, task: Task) -> None:
            self.asked.append((task.step, task.version))

        def play(self) -> None:
            step, version = self.asked.pop(0)
            self.buffer.deliver(RolloutPart(step, 0, version, (), 0.0, 0.0))

    def make(buffer: Buffer) -> Held:
        crews.append(Held(buffer))
        for step in (1, 2, 3):
            buffer.deliver(RolloutPart(step, 0, 0, (), 0.0, 0.0))
        return crews[-1]

    buffer = Buffer(make, lag=2, batches=1, last=9, clock=lambda: now)
    buffer.begin(0)
    buffer.take(1)
    crews[0].asked.clear()
    buffer.restart_depth_meter()
    now = 3.0
    buffer.publish(1)
    buffer.take(2)
    now = 5.0
    crews[0].play()
    now = 9.0
    assert buffer.depth_seconds() == {2: 3.0 + 4.0, 1: 2.0}
    buffer.restart_depth_meter()
    now = 10.0
    assert buffer.depth_seconds() == {2: 1.0}


def test_a_step_beyond_the_last_is_played_and_not_waited_for_in_vain() -> None:
    buffer = Buffer(Eager, lag=1, batches=1, last=3, clock=time.perf_counter)
    buffer.begin(3)
    taken: list[Taken] = []
    waiting = threading.Thread(target=lambda: taken.append(buffer.take(4)), daemon=True)
    waiting.start()
    waiting.join(10)
    assert [each.rollout.step for each in taken] == [4]


def test_a_crew_that_fails_fails_the_step_instead_of_letting_it_wait() -> None:
    class Failing:
        def __init__(self, buffer: Buffer) -> None:
            self.buffer = buffer

        def assign(self, task: Task) -> None:
            self.buffer.fail(FairtrialError("it broke"))

        def close(self) -> None: ...

    buffer = Buffer(Failing, lag=1, batches=1, last=3, clock=time.perf_counter)
    buffer.begin(0)
    with pytest.raises(FairtrialError, match="it broke"):
        buffer.take(1)


@given(st.integers(1, 10**6), st.integers(0, 50), st.integers(0, 50))
def test_versions_go_up_with_the_steps(step: int, depth: int, budget: int) -> None:
    lag = lag_of(depth, budget)
    assert 0 <= step - 1 - version_for(step, lag) <= min(depth, budget)
    assert version_for(step + 1, lag) >= version_for(step, lag)


def test_a_rollout_that_was_played_by_too_old_a_version_is_refused() -> None:
    class Late:
        def __init__(self, buffer: Buffer) -> None:
            self.buffer = buffer

        def assign(self, task: Task) -> None:
            self.buffer.deliver(RolloutPart(task.step, task.batch, max(0, task.version - 1), (), 0.0, 0.0))

        def close(self) -> None: ...

    buffer = Buffer(Late, lag=1, batches=1, last=9, clock=time.perf_counter)
    buffer.begin(4)
    with pytest.raises(ValueError, match="more than 1 behind"):
        buffer.take(5)


def test_overlap_is_the_playing_that_lies_within_updates() -> None:
    parts = [RolloutPart(3, 0, 1, (), 1.0, 4.0), RolloutPart(3, 1, 1, (), 3.5, 6.0)]
    assert played_within(parts, [(0.0, 2.0), (3.0, 5.0)]) == (1.0 + 1.0) + 1.5
    assert played_within(parts, [(6.0, 9.0)]) == 0
