"""Who plays when: rollouts by appointment, at most so many policy versions old.

Step t improves policy version t − 1 to version t. Its rollout is played by version t − 1 − lag, exactly, where the lag
is the smaller of the buffer's depth and the budget; the first rollouts are played by version 0. The bound holds because
nothing else can happen, and a run is the same whoever is slow. A rollout is asked for as soon as its version exists, so
at most `lag` of them wait while the trainer works.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fairtrial.core.errors import FairtrialError
from fairtrial.core.training import Clock
from fairtrial.recipes.lm.types import Rollout, RolloutPart


@dataclass(frozen=True)
class Task:
    """A batch of groups of a step, to be played by a version."""

    step: int
    version: int
    batch: int


class RolloutWorkers(Protocol):
    """Those who play beside the trainer. `assign` returns at once; parts come back through `deliver`, in any order."""

    def assign(self, task: Task) -> None: ...

    def close(self) -> None: ...


def lag_of(depth: int, budget: int) -> int:
    return min(depth, budget)


def version_for(step: int, lag: int) -> int:
    return max(0, step - 1 - lag)


@dataclass(frozen=True)
class Taken:
    """A rollout as the trainer got it: how old it was, how long it had to wait for it, and how many more were ready."""

    rollout: Rollout
    lag: int
    waited_s: float
    ready: int


class DepthMeter:
    """For how many seconds so many finished rollouts waited."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._depth = clock, 0
        self.restart()

    def restart(self) -> None:
        """Forget what was; the depth stays what it is."""
        self._seconds: dict[int, float] = {}
        self._since = self._clock()

    def note(self, depth: int) -> None:
        """From now on so many wait."""
        now = self._clock()
        self._seconds[self._depth] = self._seconds.get(self._depth, 0.0) + now - self._since
        self._depth, self._since = depth, now

    def read(self) -> dict[int, float]:
        self.note(self._depth)
        return dict(self._seconds)


class Buffer:
    """Between the crew and the trainer. The trainer publishes versions and takes rollouts in the order of steps.

    Its depth is the number of finished rollouts beyond the step that the trainer is at: `lag` at most.
    """

    def __init__(
        self, make_workers: Callable[[Buffer], RolloutWorkers], *, lag: int, batches: int, last: int, clock: Clock
    ) -> None:
        self.lag, self._batches, self._last, self._clock = lag, batches, last, clock
        self._make_workers = make_workers
        self._workers: RolloutWorkers | None = None
        self._asked = self._version = 0
        self._parts: dict[int, dict[int, RolloutPart]] = {}
        self._changed = threading.Condition()
        self._failure: FairtrialError | None = None
        self._meter = DepthMeter(clock)

    def begin(self, version: int) -> None:
        """Training goes on after `version` updates. Who played before is dismissed: it may have been another past."""
        self.close()
        with self._changed:
            self._parts, self._failure = {}, None
            self._asked = self._version = version
            self._note_depth()

    def publish(self, version: int) -> None:
        """A version can be played from now on."""
        with self._changed:
            self._version = version
            self._note_depth()
        if self._workers is not None:
            self._ask(version + 1 + self.lag)

    def take(self, step: int) -> Taken:
        """The rollout of a step; waits until it is whole. The crew is called together when it is first needed."""
        self._workers = self._workers or self._make_workers(self)
        self._last = max(self._last, step)  # somebody takes it after all
        self._ask(self._version + 1 + self.lag)
        begun = self._clock()
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._whole(step))
            if self._failure:
                raise self._failure
            parts = self._parts.pop(step)
            ready = sum(self._whole(each) for each in self._parts)
        oldest = min(part.version for part in parts.values())
        if step - 1 - oldest > self.lag:
            raise ValueError(f"the rollout of step {step} was played by version {oldest}, more than {self.lag} behind")
        rollout = Rollout(step, oldest, [parts[batch] for batch in sorted(parts)])
        return Taken(rollout, step - 1 - oldest, self._clock() - begun, ready)

    def deliver(self, part: RolloutPart) -> None:
        """Called by the crew, from a thread of its own."""
        with self._changed:
            self._parts.setdefault(part.step, {})[part.batch] = part
            self._note_depth()
            self._changed.notify_all()

    def fail(self, reason: FairtrialError) -> None:
        """Nothing more will come; whoever waits for it hears why."""
        with self._changed:
            self._failure = self._failure or reason
            self._changed.notify_all()

    def restart_depth_meter(self) -> None:
        with self._changed:
            self._meter.restart()

    def depth_seconds(self) -> dict[int, float]:
        """For how many seconds the buffer had each depth since its meter was restarted."""
        with self._changed:
            return self._meter.read()

    def close(self) -> None:
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.close()

    def _note_depth(self) -> None:
        self._meter.note(sum(self._whole(step) for step in self._parts if step > self._version + 1))

    def _whole(self, step: int) -> bool:
        return len(self._parts.get(step, ())) == self._batches

    def _ask(self, up_to: int) -> None:
        """Ask for the steps that were not asked for yet; none beyond the last, nobody would take it."""
        assert self._workers is not None
        while self._asked < min(up_to, self._last):
            self._asked += 1
            for batch in range(self._batches):
                self._workers.assign(Task(self._asked, version_for(self._asked, self.lag), batch))


def played_within(parts: Sequence[RolloutPart], updates: Sequence[tuple[float, float]]) -> float:
    """Seconds of playing, of all who played, that lie within updates: the true overlap of a rollout with learning."""
    return sum(max(0.0, min(part.ended, ended) - max(part.begun, begun)) for part in parts for begun, ended in updates)
