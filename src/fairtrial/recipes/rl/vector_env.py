"""Vectorized environments of one run, or of many independent runs.

Arrays are [runs, environments]. Each run gets its own random generator for each training step. Checkpoints therefore
need no generator state, and a run's environments do not depend on the other runs.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy

from fairtrial.recipes.rl.physics import Array, Physics, Space


@dataclass(frozen=True)
class Moved:
    """The result of one step of all environments. Where an episode ended, the next one has already started."""

    rewards: Array
    ended: Array
    some_ended: bool
    truncated: Array | None = None
    """Mask of episodes that were truncated but not terminated; None if no episode ended."""
    final: Array | None = None
    """The last observations of truncated episodes, to bootstrap their value; None if none was truncated."""


class VectorEnv(Protocol):
    """Environments that are stepped together."""

    space: Space

    def begin(self, draws: Sequence[numpy.random.Generator], spreads: Sequence[float]) -> Array | None:
        """Set the generator of each run's new episodes, and the fraction of the usual range of their initial states.

        Return a mask of the episodes that could not be restored from a loaded state, or None if there is none.
        """
        ...

    def restart(self) -> None:
        """Start a new episode in every environment."""
        ...

    def observe(self, out: Array) -> None: ...

    def step(self, actions: Array) -> Moved: ...

    def retire(self, ended: Array) -> None:
        """Allow these environments to stop: their results are no longer used."""
        ...

    def join(self, others: Sequence[Any]) -> VectorEnv:
        """Combine these and the environments of other runs into one, of which the members then hold views."""
        ...

    def state(self) -> dict[str, Any]:
        """Return the state of the first run's environments, as arrays by name."""
        ...

    def load_state(self, state: Mapping[str, Any]) -> None: ...


class PhysicsVectorEnv:
    """Environments that `physics` implements."""

    def __init__(self, physics: Physics, count: int, *, hide_velocity: bool = False, limit: int = 0) -> None:
        self.physics = physics
        self._limit = min(limit or physics.limit, physics.limit)
        self._kept = list(physics.positions) if hide_velocity else None  # components that are observed; None: all
        space = physics.space
        self.space = space if self._kept is None else Space((len(self._kept),), space.actions, space.low, space.high)
        components = len(physics.start(numpy.random.Generator(numpy.random.PCG64(0)), 1, 1.0))
        self.states: Array = numpy.zeros((components, 1, count))
        self.ages: Array = numpy.zeros((1, count), int)
        self._obs = numpy.zeros((1, count, *space.observation), numpy.float32)

    def begin(self, draws: Sequence[numpy.random.Generator], spreads: Sequence[float]) -> None:
        self._draws, self._spreads = list(draws), list(spreads)

    def restart(self) -> None:
        self._start(numpy.ones(self.ages.shape, bool))

    def _start(self, where: Array) -> None:
        for run in numpy.flatnonzero(where.any(1)):
            rows = numpy.flatnonzero(where[run])
            self.states[:, run, rows] = self.physics.start(self._draws[run], len(rows), self._spreads[run])
        self.ages[where] = 0

    def observe(self, out: Array) -> None:
        if self._kept is None:
            self.physics.observe(self.states, out)
        else:
            self.physics.observe(self.states, self._obs)
            out[...] = self._obs[..., self._kept]

    def step(self, actions: Array) -> Moved:
        moved, rewards, terminated = self.physics.advance(self.states, actions)
        self.states[...] = moved
        self.ages += 1
        ended = terminated | (self.ages >= self._limit)
        if not ended.any():
            return Moved(rewards, ended, False)
        truncated, final = ended & ~terminated, None
        if truncated.any():
            final = numpy.empty((*self.ages.shape, *self.space.observation), numpy.float32)
            self.observe(final)
        self._start(ended)
        return Moved(rewards, ended, True, truncated, final)

    def retire(self, ended: Array) -> None:
        """Do nothing: stepping all rows costs less than leaving some out."""

    def state(self) -> dict[str, Any]:
        return {"states": self.states[:, 0].copy(), "ages": self.ages[0].copy()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.states[:, 0] = state["states"]
        self.ages[0] = state["ages"]

    def join(self, others: Sequence[PhysicsVectorEnv]) -> PhysicsVectorEnv:
        members = [self, *others]
        joined = copy.copy(self)
        joined.states = numpy.concatenate([each.states for each in members], axis=1)
        joined.ages = numpy.concatenate([each.ages for each in members])
        joined._obs = numpy.concatenate([each._obs for each in members])
        for run, member in enumerate(members):
            member.states, member.ages = joined.states[:, run : run + 1], joined.ages[run : run + 1]
        return joined
