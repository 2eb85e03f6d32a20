"""Runs that are stepped together: who is due takes part, who is not has left. What a step is, the engine knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from fairtrial.plugins import LoopEvents, Trainable

Member = TypeVar("Member")


class StepEngine(Protocol):
    """The arithmetic of some runs."""

    runs: list[Any]

    def step(self, steps: Sequence[int], events: LoopEvents) -> Sequence[Mapping[str, Any]]:
        """One step of each, at its own number; what it gave."""
        ...


OwnEngine = TypeVar("OwnEngine", bound=StepEngine)


class RunStack(Generic[Member, OwnEngine]):
    """Steps runs together. A run that is no longer asked for leaves, and the others close up."""

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
    """Runs that were built apart, to be stepped together from now on."""
    members: list[Member] = [run for run in trainables if isinstance(run, kind)]
    if len(members) < len(trainables):
        raise TypeError("a run that is made alone cannot join a stack")
    return members
