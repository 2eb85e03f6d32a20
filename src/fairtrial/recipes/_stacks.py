"""A stack of runs that are stepped together. An engine defines the arithmetic of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from fairtrial.plugins import LoopEvents, Trainable

Member = TypeVar("Member")


class StepEngine(Protocol):
    """Computes the training steps of a fixed list of runs."""

    runs: list[Any]

    def step(self, steps: Sequence[int], events: LoopEvents) -> Sequence[Mapping[str, Any]]:
        """Perform one step of each run, at its own step number, and return each run's metrics."""
        ...


OwnEngine = TypeVar("OwnEngine", bound=StepEngine)


class RunStack(Generic[Member, OwnEngine]):
    """Steps runs together. When a run is no longer due, a new engine is built for the remaining ones."""

    def __init__(self, runs: Sequence[Member], make: Callable[[Sequence[Member]], OwnEngine]) -> None:
        self.runs = list(runs)
        self._make = make
        self.engine = make(self.runs)

    def step(self, due: Mapping[int, int], events: LoopEvents) -> dict[int, Mapping[str, Any]]:
        runs = [self.runs[member] for member in due]
        if runs != self.engine.runs:
            self.engine = self._make(runs)
        return dict(zip(due, self.engine.step(list(due.values()), events), strict=True))


def members_of(trainables: Sequence[Trainable], kind: type[Member]) -> list[Member]:
    """Return the runs, checked to be of the kind that can be stacked."""
    members: list[Member] = [run for run in trainables if isinstance(run, kind)]
    if len(members) < len(trainables):
        raise TypeError("a run that cannot be stacked was added to a stack")
    return members
