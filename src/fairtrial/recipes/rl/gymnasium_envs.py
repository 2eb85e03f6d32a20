"""Gymnasium environments, and Atari games through the Arcade Learning Environment.

Every episode starts from a seed that the run draws, so the seed of the episode and the actions since determine the
state of an environment. A checkpoint contains these, and a resumed run replays the actions. If an environment does not
reach the recorded observation, it is not reproducible: the run adds a caution and starts a new episode there.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import torch
from torch import Tensor

from fairtrial.core.cautions import EPISODES_RESTARTED
from fairtrial.plugins import RunContext
from fairtrial.recipes.rl.names import ATARI
from fairtrial.recipes.rl.physics import Array
from fairtrial.recipes.rl.spaces import FRAMES, SIDE, make_environment, read_space
from fairtrial.recipes.rl.vector_env import Moved

SEEDS = 2**31


class GymnasiumVectorEnv:
    """The environments of one run, stepped one after another."""

    def __init__(self, name: str, count: int, context: RunContext, *, limit: int = 0) -> None:
        self._name, self._context, self._limit = name, context, limit
        self._environments = [make_environment(name) for _ in range(count)]
        self.space = read_space(name, self._environments[0])
        self._first_action = getattr(self._environments[0].action_space, "start", 0)
        self._eye = Eye(count) if name.startswith(ATARI) else None
        self._obs: Array = numpy.zeros((1, count, *self.space.observation), numpy.float32)
        self._seeds = [0] * count
        self._actions: list[list[Any]] = [[] for _ in range(count)]
        self._playing = numpy.ones(count, bool)
        self._saved: Mapping[str, Any] | None = None

    def begin(self, draws: Sequence[numpy.random.Generator], spreads: Sequence[float]) -> Array | None:  # noqa: ARG002
        [self._draw] = draws
        saved, self._saved = self._saved, None
        return None if saved is None else self._play_again(saved)

    def restart(self) -> None:
        self._playing[:] = True
        for row in range(len(self._environments)):
            self._start(row, int(self._draw.integers(SEEDS)))

    def _start(self, row: int, seed: int) -> None:
        self._seeds[row], self._actions[row] = seed, []
        obs, _ = self._environments[row].reset(seed=seed)
        self._see(row, obs, new=True)

    def _see(self, row: int, obs: Any, *, new: bool = False) -> None:
        self._obs[0, row] = numpy.ravel(obs) if self._eye is None else self._eye.look(row, obs, new=new)

    def observe(self, out: Array) -> None:
        out[...] = self._obs

    def step(self, actions: Array) -> Moved:
        shape = (1, len(self._environments))
        rewards, terminated, truncated = numpy.zeros(shape), numpy.zeros(shape, bool), numpy.zeros(shape, bool)
        final = None
        for row in numpy.flatnonzero(self._playing).tolist():
            rewards[0, row], terminated[0, row], truncated[0, row] = self._move(row, actions[0, row])
            if truncated[0, row]:
                final = self._obs.copy() if final is None else final
                final[0, row] = self._obs[0, row]
            if terminated[0, row] or truncated[0, row]:
                self._start(row, int(self._draw.integers(SEEDS)))
        ended = terminated | truncated
        return Moved(rewards, ended, bool(ended.any()), truncated, final)

    def _move(self, row: int, action: Any) -> tuple[float, bool, bool]:
        played = int(action) if self.space.is_discrete else action.copy()
        self._actions[row].append(played)
        if self.space.is_discrete:
            played += self._first_action
        obs, reward, terminated, truncated, _ = self._environments[row].step(played)
        self._see(row, obs)
        cut = truncated or (bool(self._limit) and len(self._actions[row]) >= self._limit)
        return float(reward), bool(terminated), bool(cut and not terminated)

    def retire(self, ended: Array) -> None:
        self._playing &= ~ended[0]

    def join(self, others: Sequence[Any]) -> GymnasiumVectorEnv:
        assert not others, "runs on Gymnasium environments cannot be stacked"
        return self

    def state(self) -> dict[str, Any]:
        if self._saved is not None:
            return dict(self._saved)
        played = [numpy.array(actions, numpy.float32).tolist() for actions in self._actions]
        return {"seeds": list(self._seeds), "actions": played, "seen": self._obs.copy()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Store the state. `begin` replays the episodes, so that a run that is only evaluated skips the replay."""
        self._saved = dict(state)

    def _play_again(self, state: Mapping[str, Any]) -> Array:
        """Replay the saved episodes. Return a mask of the environments that did not reach their saved observation."""
        kind = int if self.space.is_discrete else lambda action: numpy.array(action, numpy.float32)
        for row, (seed, actions) in enumerate(zip(state["seeds"], state["actions"], strict=True)):
            self._start(row, seed)
            for action in actions:
                self._move(row, kind(action))
        lost: Array = (self._obs != state["seen"]).reshape(1, len(self._seeds), -1).any(2)
        for row in numpy.flatnonzero(lost[0]).tolist():
            self._start(row, int(self._draw.integers(SEEDS)))
        if lost.any():
            self._tell_of(int(lost.sum()))
        return lost

    def _tell_of(self, lost: int) -> None:
        caution, lineage = EPISODES_RESTARTED.fill(env=self._name), self._context.lineage
        if caution not in self._context.cautions:
            self._context.cautions.append(caution)
        lineage["episodes_restarted"] = lineage.get("episodes_restarted", 0) + lost


class Eye:
    """The usual preprocessing of Atari frames: the last four in grayscale, 84 × 84, scaled to 0..1."""

    def __init__(self, count: int) -> None:
        self._frames: Array = numpy.zeros((count, FRAMES, SIDE, SIDE), numpy.float32)

    def look(self, row: int, obs: Array, *, new: bool) -> Array:
        frames: Array = self._frames[row]
        rows, columns = (_shrinking(size) for size in obs.shape)
        small = rows @ torch.from_numpy(obs).to(torch.float32) @ columns.T / 255  # a NumPy product would use all cores
        if new:
            frames[:] = 0
        frames[:-1] = frames[1:]
        frames[-1] = small.numpy()
        return frames


@functools.cache
def _shrinking(size: int) -> Tensor:
    """Return the matrix that averages `size` points into SIDE points."""
    edges, points = numpy.linspace(0, size, SIDE + 1), numpy.arange(size)
    overlap = numpy.minimum(edges[1:, None], points + 1) - numpy.maximum(edges[:-1, None], points)
    return torch.from_numpy((numpy.clip(overlap, 0, None) * SIDE / size).astype(numpy.float32))
