"""Environments in rows: those of one run, or of many runs side by side, none of which notices the others.

Arrays are [runs, environments]. Whatever is random for a run comes from a generator of its own, given for each
training step, so nothing random has to be saved, and a run's environments are the same in any company.
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
    """What one step of all environments gave. Where an episode ended, the next one has begun already."""

    rewards: Array
    ended: Array
    some_ended: bool
    truncated: Array | None = None
    """Where an episode was cut off and had not ended by itself; None where none ended at all."""
    final: Array | None = None
    """What was observed before the new episodes began; only where one was cut off, to value what was left of it."""


class VectorEnv(Protocol):
    """Environments that are stepped together."""

    space: Space

    def begin(self, draws: Sequence[numpy.random.Generator], spreads: Sequence[float]) -> Array | None:
        """From now on new episodes of each run start from these generators, in this share of the usual range.

        Returns where an episode under way was lost, after a state was loaded; None: nowhere.
        """
        ...

    def restart(self) -> None:
        """Begin a new episode everywhere."""
        ...

    def observe(self, out: Array) -> None: ...

    def step(self, actions: Array) -> Moved: ...

    def retire(self, ended: Array) -> None:
        """What happens there is not asked for any more."""
        ...

    def join(self, others: Sequence[Any]) -> VectorEnv:
        """These and the environments of other runs in one block; from now on the members look into it."""
        ...

    def state(self) -> dict[str, Any]:
        """Of the first run: where its environments are, as arrays by name."""
        ...

    def load_state(self, state: Mapping[str, Any]) -> None: ...


class PhysicsVectorEnv:
    """Environments whose equations are known."""

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
        """It costs more to leave rows out than to move them."""

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
