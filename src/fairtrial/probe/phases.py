"""Time per phase of a step: exclusive phases that add up, by construction, to the elapsed time.

All time is assigned to the innermost open phase, or to the residual if none is open. Work between steps (evaluation,
checkpoints) is separate from the steps. The clock is the loop's; with a virtual clock the sums are exact.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from fairtrial.core.errors import FairtrialError
from fairtrial.core.training import LoopEvents, Observer

RESIDUAL = "residual"
BETWEEN = ("evaluation", "checkpoint")
"""Phases that are not part of a step."""
EVENTS_PER_PHASE = 2
SLACK = 1e-6
"""Seconds by which sums of many times may differ from the elapsed time because of rounding."""


class ClockError(FairtrialError):
    """The clock went backwards, or phases were not closed in the reverse order of opening."""


class StepTimes(NamedTuple):
    """One step: when it began and ended, the seconds of each phase in it, and how often each was entered.

    `between` has the seconds of the phases after it, before the next step.
    """

    step: int
    begun: float
    ended: float
    phases: Mapping[str, float]
    counts: Mapping[str, int]
    between: Mapping[str, float]

    @property
    def seconds(self) -> float:
        return self.ended - self.begun


class PhaseTimer(Observer):
    """Records when phases and steps begin and end; with `whole_steps` only steps, which needs fewer device waits.

    It only records, because its own work is part of the measured times. Sums are computed on demand.
    """

    def __init__(self, *, whole_steps: bool = False) -> None:
        self.borders: Literal["steps", "phases"] = "steps" if whole_steps else "phases"
        self.notes: list[Any] = []
        """Marks, each followed by its time: None at the start of steps, a number at the end of one, or a phase mark."""
        self._note = self.notes.append
        self._whole = whole_steps
        self._read = 0
        self._replay = _Replay()

    @property
    def steps(self) -> list[StepTimes]:
        """All steps recorded so far."""
        while self._read < len(self.notes):
            mark, now = self.notes[self._read], self.notes[self._read + 1]
            self._read += 2
            if mark is None:
                self._replay.begin(now)
            elif isinstance(mark, int):
                self._replay.end_step(mark, now)
            elif not self._whole or mark[1] in BETWEEN:
                getattr(self._replay, mark[0])(mark[1], now)
        return self._replay.steps

    def training_started(self, first_step: int, steps: int, now: float) -> None:  # noqa: ARG002
        self.turn_started(now)

    def turn_started(self, now: float) -> None:
        self._note(None)
        self._note(now)

    def step_ended(self, step: int, now: float) -> None:
        self._note(step)  # plain numbers, because a new tuple per step would trigger the garbage collector
        self._note(now)


class _Replay:
    """Replays the recorded marks and assigns all time to phases."""

    def __init__(self) -> None:
        self.steps: list[StepTimes] = []
        self._open: list[str] = []
        self._inside: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._begun = 0.0
        self._mark = 0.0

    def begin(self, now: float) -> None:
        """Start the steps here; the time before belongs to no phase."""
        self._set_between_apart()
        self._inside = {}
        self._begun = self._mark = now

    def open(self, name: str, now: float) -> None:
        self._pass(now)
        self._open.append(name)
        self._counts[name] = self._counts.get(name, 0) + 1

    def close(self, name: str, now: float) -> None:
        self._pass(now)
        if not self._open or self._open.pop() != name:
            raise ClockError(f"phase '{name}' ended, but it is not the innermost open phase")

    def end_step(self, step: int, now: float) -> None:
        self._pass(now)
        if self._open:
            raise ClockError(f"step {step} ended inside phase '{self._open[-1]}'")
        begun = self._begun + self._set_between_apart()
        self.steps.append(StepTimes(step, begun, now, self._inside, self._counts, {}))
        self._inside, self._counts, self._begun = {}, {}, now

    def _set_between_apart(self) -> float:
        """Move phases between steps to the previous step, since the next excludes them; return their seconds."""
        inside = self._inside
        between = {name: inside.pop(name) for name in BETWEEN if name in inside}
        if not between or not self.steps:
            return 0.0
        for name in between:
            self._counts.pop(name, None)
        self.steps[-1] = self.steps[-1]._replace(between=between)
        return sum(between.values())

    def _pass(self, now: float) -> None:
        """Assign the time since the last event to the innermost open phase."""
        passed = now - self._mark
        if passed < 0:
            raise ClockError(f"the clock went backwards by {-passed:g} s")
        name = self._open[-1] if self._open else RESIDUAL
        self._inside[name] = self._inside.get(name, 0.0) + passed
        self._mark = now


@dataclass(frozen=True)
class Breakdown:
    """The phases of a window of steps, in seconds; phases and residual add up to the window."""

    window: float
    phases: Mapping[str, float]
    residual: float
    steps: int
    batches: float | None
    """Batches per step: more than one with gradient accumulation. None if phases were not timed."""


def break_down(steps: Sequence[StepTimes]) -> Breakdown:
    """Add up the phases of one or more steps. The window ends with the last step and excludes what follows it."""
    parts = [each.phases for each in steps] + [each.between for each in steps[:-1]]
    names = dict.fromkeys(name for part in parts for name in part if name != RESIDUAL)
    phases = {name: sum(part.get(name, 0.0) for part in parts) for name in names}
    window = sum(each.seconds for each in steps) + sum(sum(each.between.values()) for each in steps[:-1])
    residual = window - sum(phases.values())
    if residual < -SLACK * len(steps):
        raise ClockError(f"the phases add up to {-residual:g} s more than the elapsed time")
    return Breakdown(window, phases, max(residual, 0.0), len(steps), _batches(steps))


def _batches(steps: Sequence[StepTimes]) -> float | None:
    """Return the observed number of backward passes per update."""
    backward, updates = (sum(each.counts.get(name, 0) for each in steps) for name in ("backward", "optimizer"))
    if not any(each.counts for each in steps):
        return None
    return backward / updates if backward and updates else 1.0


def event_seconds(rounds: int = 2000) -> float:
    """Measure the timer's own cost per event on this machine; a phase has two events, the end of a step is a third."""
    events = LoopEvents([PhaseTimer()])
    events.tell("training_started", 1, rounds)
    start = time.perf_counter()
    for number in range(rounds):
        with events.phase("forward"):
            pass
        events.tell("step_ended", number)
    return (time.perf_counter() - start) / (3 * rounds)
