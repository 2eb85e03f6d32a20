"""Where the time of a step goes: exclusive phases that add up, by construction, to the time that passed.

Every moment belongs to the innermost phase that is open, or to the residual where none is. What happens between steps
(evaluation, checkpoints) is kept apart from the steps. The clock is the loop's: on a virtual one the sums are exact.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fairtrial.core.errors import FairtrialError
from fairtrial.core.training import Observer, Watch

RESIDUAL = "residual"
BETWEEN = ("evaluation", "checkpoint")
"""Phases that are not part of a step."""
SLACK = 1e-6
"""Seconds by which sums of many times may differ from the time that passed, by rounding alone."""


class ClockError(FairtrialError):
    """The clock went back, or phases were closed in another order than they were opened."""


@dataclass(frozen=True)
class StepTimes:
    """One step: when it ended, and the seconds of each phase in it. `between` is what came after it."""

    step: int
    begun: float
    ended: float
    phases: Mapping[str, float]
    between: Mapping[str, float]

    @property
    def seconds(self) -> float:
        return self.ended - self.begun


@dataclass
class PhaseTimer(Observer):
    """Collects the phases of every step."""

    steps: list[StepTimes] = field(default_factory=list)
    _open: list[str] = field(default_factory=list)
    _inside: dict[str, float] = field(default_factory=dict)
    _begun: float = 0.0
    _mark: float = 0.0

    def training_started(self, first_step: int, steps: int, now: float) -> None:  # noqa: ARG002
        self._begun, self._mark = now, now

    def phase_started(self, name: str, now: float) -> None:
        self._pass(now)
        self._open.append(name)

    def phase_ended(self, name: str, now: float) -> None:
        self._pass(now)
        if not self._open or self._open.pop() != name:
            raise ClockError(f"phase '{name}' ended, but it was not the one that began last")

    def step_ended(self, step: int, now: float) -> None:
        self._pass(now)
        if self._open:
            raise ClockError(f"step {step} ended within phase '{self._open[-1]}'")
        begun = self._begun
        between = {name: self._inside.pop(name) for name in BETWEEN if name in self._inside}
        if between and self.steps:  # it came after the step before, and did not delay the computing of this one
            self.steps[-1] = replace(self.steps[-1], between=between)
            begun += sum(between.values())
        self.steps.append(StepTimes(step, begun, now, self._inside, {}))
        self._inside, self._begun = {}, now

    def _pass(self, now: float) -> None:
        """The time since the last event belongs to the innermost open phase."""
        if now < self._mark:
            raise ClockError(f"the clock went back by {self._mark - now:g} s")
        name = self._open[-1] if self._open else RESIDUAL
        self._inside[name] = self._inside.get(name, 0.0) + now - self._mark
        self._mark = now


@dataclass(frozen=True)
class Breakdown:
    """The phases of a window of steps, in seconds; with the residual they are the window's time."""

    window: float
    phases: Mapping[str, float]
    residual: float
    steps: int


def break_down(steps: Sequence[StepTimes]) -> Breakdown:
    """Add up the phases of consecutive steps, one or more. The window ends with the last: what follows is not in it."""
    parts = [each.phases for each in steps] + [each.between for each in steps[:-1]]
    names = dict.fromkeys(name for part in parts for name in part if name != RESIDUAL)
    phases = {name: sum(part.get(name, 0.0) for part in parts) for name in names}
    window = steps[-1].ended - steps[0].begun
    residual = window - sum(phases.values())
    if residual < -SLACK * len(steps):
        raise ClockError(f"the phases add up to {-residual:g} s more than the time that passed")
    return Breakdown(window, phases, max(residual, 0.0), len(steps))


def event_seconds(rounds: int = 2000) -> float:
    """What the timer takes for one event, on this machine and now; a phase has two, the end of a step is a third."""
    watch = Watch([PhaseTimer()])
    watch.tell("training_started", 1, rounds)
    start = time.perf_counter()
    for number in range(rounds):
        with watch.phase("forward"):
            pass
        watch.tell("step_ended", number)
    return (time.perf_counter() - start) / (3 * rounds)
