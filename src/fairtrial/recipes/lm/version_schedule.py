"""A fixed schedule of which policy version plays which rollout, and the buffer between workers and trainer.

Step t updates policy version t − 1 to version t. Its rollout is always played by version t − 1 − lag, where the lag is
the smaller of the buffer's depth and `policy_lag`; version 0 plays the first rollouts. The schedule itself limits the
lag, and results do not depend on the speed of workers or trainer. A rollout is requested as soon as its version exists,
so that at most `lag` of them wait while the trainer works.
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
    """One batch of a step's groups, and the policy version that plays it."""

    step: int
    version: int
    batch: int


class RolloutWorkers(Protocol):
    """Workers that play in parallel with the trainer. `assign` does not block; parts arrive through `deliver`."""

    def assign(self, task: Task) -> None: ...

    def close(self) -> None: ...


def lag_of(depth: int, budget: int) -> int:
    return min(depth, budget)


def version_for(step: int, lag: int) -> int:
    return max(0, step - 1 - lag)


@dataclass(frozen=True)
class Taken:
    """A rollout that the trainer took: its lag, how long the trainer waited, and how many more were ready."""

    rollout: Rollout
    lag: int
    waited_s: float
    ready: int


class DepthMeter:
    """Measures for how many seconds the buffer had each depth (number of waiting rollouts)."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._depth = clock, 0
        self.restart()

    def restart(self) -> None:
        """Reset the times. The current depth stays."""
        self._seconds: dict[int, float] = {}
        self._since = self._clock()

    def note(self, depth: int) -> None:
        """Record a new depth from now on."""
        now = self._clock()
        self._seconds[self._depth] = self._seconds.get(self._depth, 0.0) + now - self._since
        self._depth, self._since = depth, now

    def read(self) -> dict[int, float]:
        self.note(self._depth)
        return dict(self._seconds)


class Buffer:
    """A buffer between workers and trainer. The trainer publishes versions and takes rollouts in the order of steps.

    Its depth is the number of finished rollouts beyond the trainer's current step: at most `lag`.
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
        """Resume after `version` updates. Stop the workers, whose rollouts may come from discarded versions."""
        self.close()
        with self._changed:
            self._parts, self._failure = {}, None
            self._asked = self._version = version
            self._note_depth()

    def publish(self, version: int) -> None:
        """Announce that a version can play, and request the rollouts that it is scheduled for."""
        with self._changed:
            self._version = version
            self._note_depth()
        if self._workers is not None:
            self._ask(version + 1 + self.lag)

    def take(self, step: int) -> Taken:
        """Wait until the rollout of a step is complete, and return it. The first call starts the workers."""
        self._workers = self._workers or self._make_workers(self)
        self._last = max(self._last, step)  # a caller may take more steps than were planned
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
        """Add a part. The workers' listener thread calls this."""
        with self._changed:
            self._parts.setdefault(part.step, {})[part.batch] = part
            self._note_depth()
            self._changed.notify_all()

    def fail(self, reason: FairtrialError) -> None:
        """Record that the workers failed. A waiting or later `take` raises this reason."""
        with self._changed:
            self._failure = self._failure or reason
            self._changed.notify_all()

    def restart_depth_meter(self) -> None:
        with self._changed:
            self._meter.restart()

    def depth_seconds(self) -> dict[int, float]:
        """Return the seconds at each depth since the meter was restarted."""
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
        """Request the rollouts of all steps up to `up_to` that were not requested yet, but none after the last step."""
        assert self._workers is not None
        while self._asked < min(up_to, self._last):
            self._asked += 1
            for batch in range(self._batches):
                self._workers.assign(Task(self._asked, version_for(self._asked, self.lag), batch))


def played_within(parts: Sequence[RolloutPart], updates: Sequence[tuple[float, float]]) -> float:
    """Return the seconds of playing, summed over all parts, that fall within updates: the overlap with training."""
    return sum(max(0.0, min(part.ended, ended) - max(part.begun, begun)) for part in parts for begun, ended in updates)
