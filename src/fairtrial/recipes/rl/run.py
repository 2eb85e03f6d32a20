"""Proximal policy optimization. A training step is one rollout, its advantages, and the updates on it.

Runs with perceptron policies can be stepped together: a `RolloutEngine` holds one or many. All randomness is a function
of a run's own streams and the step number, so that results do not depend on the other runs or on resumption.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy
import torch
from torch import Tensor

from fairtrial.core.training import Split
from fairtrial.plugins import LoopEvents, RunContext
from fairtrial.recipes._stacks import RunStack
from fairtrial.recipes._supervised import waiting_for
from fairtrial.recipes.models.stacked import aligned
from fairtrial.recipes.rl.actions import Actions, actions_of
from fairtrial.recipes.rl.experience import MOST_DEVIATIONS, Moments, advantages
from fairtrial.recipes.rl.physics import Array
from fairtrial.recipes.rl.vector_env import Moved, VectorEnv

if TYPE_CHECKING:
    from fairtrial.recipes.ppo import Options


class Actor(Protocol):
    """Computes a policy's outputs from observations, and keeps the policy's memory of each episode."""

    @property
    def scale(self) -> Array | None: ...

    def outputs(self, obs: Tensor) -> Array: ...

    def forget(self, ended: Array) -> None:
        """Erase the memory of the environments whose episodes have ended."""
        ...


class Policy(Protocol):
    """The policies of all runs in an engine, with their value estimates and updates."""

    @property
    def player(self) -> Actor: ...

    def begin(self, lost: Array | None) -> None:
        """Prepare for a rollout. `lost` marks the environments that restarted because their episode was lost."""
        ...

    def critic(self, obs: Tensor, not_done: Array) -> tuple[Tensor, Tensor]:
        """Return outputs and values for observations [runs, steps · environments, …] from the rollout's start."""
        ...

    def value_after(self, step: int, final: Tensor) -> Tensor:
        """Return the values of observations [runs, environments, …] made after a step of the rollout."""
        ...

    def likelihood(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]: ...

    def learn(self, batch: RolloutBatch, steps: Sequence[int]) -> None: ...


class AgentState(Protocol):
    """The trained state of one run: its parameters and the state of their optimizer."""

    def player(self, count: int) -> Actor:
        """Return an actor for this many environments, with an empty memory."""
        ...

    def join(self, runs: Sequence[PpoRun]) -> Policy: ...

    def state(self) -> dict[str, Any]: ...

    def load_state(self, state: Mapping[str, Any]) -> None: ...

    def tensor_groups(self, policy: Any) -> dict[str, list[Tensor]]: ...


@dataclass(frozen=True)
class RolloutBatch:
    """The training data of a rollout: [runs, examples, …], with examples ordered by time, then environment."""

    obs: Tensor
    actions: Tensor
    old: Tensor
    """Log-likelihoods of the actions under the policy that took them."""
    advantages: Tensor
    value_targets: Tensor
    """Targets of the value network."""
    not_done: Array
    """[runs, steps, environments]: 0 where an episode ended with this step."""


MakeVectorEnv = Callable[[int], VectorEnv]


class PpoRun:
    """One run as a `Trainable`: its environments, its policy, and its running statistics."""

    def __init__(
        self,
        options: Options,
        context: RunContext,
        make_env: MakeVectorEnv,
        make_agent_state: Callable[[VectorEnv], AgentState],
    ) -> None:
        self.options, self.streams = options, context.streams
        self.device = torch.device(options.device)
        self._arena = functools.cache(make_env)
        self.rows = make_env(options.envs)
        self.actions: Actions = actions_of(self.rows.space)
        self.agent_state = make_agent_state(self.rows)
        self.obs_rms = Moments(self.rows.space.observation)
        self.gains = Moments(())
        self.returns, self.discounted = numpy.zeros((1, options.envs)), numpy.zeros((1, options.envs))
        self.env_steps = self.updates = 0
        self.episode_returns: list[float] = []
        self.rows.begin([self.streams.numpy("env", "starts", 0)], [options.spread_at(0)])
        self.rows.restart()
        self.stack = RunStack([self], RolloutEngine)

    def step(self, step: int, events: LoopEvents) -> Mapping[str, Any]:
        return self.stack.step({0: step}, events)[0]

    def evaluate(self, split: Split) -> Mapping[str, float]:
        """Play episodes of the run's `eval` or `report` stream, equal at every step, with the most likely actions."""
        episodes = self.options.eval_episodes if split == "eval" else self.options.report_episodes
        returns, lengths = self._play(split, episodes, 0)
        self.episode_returns = returns.tolist()
        metrics = {"return_mean": returns.mean(), "length_mean": lengths.mean()}
        return {**metrics, "return_sd": returns.std(ddof=1)} if episodes > 1 else metrics

    def evaluate_episodes(self, split: Split, episodes: int, part: int) -> list[float]:
        """Return the returns of further episodes. Part 0 is what `evaluate` plays; other parts have other episodes."""
        evaluate_episodes: list[float] = self._play(split, episodes, part)[0].tolist()
        return evaluate_episodes

    def _play(self, split: Split, episodes: int, part: int) -> tuple[Array, Array]:
        """Play one episode in each of `episodes` environments and return their returns and lengths."""
        rows, player = self._arena(episodes), self.agent_state.player(episodes)
        rows.begin([self.streams.numpy(split, "episodes", part)], [1.0])
        rows.restart()
        view = Sight(rows, [self.obs_rms] if self.options.normalize_observations else None)
        obs = aligned(torch.empty(0), 1, episodes, *rows.space.observation)
        returns, lengths = numpy.zeros((2, 1, episodes))
        playing = numpy.ones((1, episodes), bool)
        with numpy.errstate(invalid="ignore", over="ignore"):
            while playing.any():
                view.look(obs.numpy())
                moved = rows.step(self.actions.playable(self.actions.best(player.outputs(obs))))
                returns += moved.rewards * playing
                lengths += playing
                if moved.some_ended:
                    playing &= ~moved.ended
                    player.forget(moved.ended)
                    rows.retire(moved.ended)
        return returns[0], lengths[0]

    def state(self) -> dict[str, Any]:
        """Return a copy of the state, which further training does not change."""
        kept = {"returns": self.returns[0], "discounted": self.discounted[0]}
        return {
            **self.agent_state.state(),
            "rows": _as_tensors(self.rows.state()),
            "sights": _as_tensors(self.obs_rms.state()),
            "gains": _as_tensors(self.gains.state()),
            "episodes": _as_tensors(kept),
            "counts": {"env_steps": self.env_steps, "updates": self.updates},
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.agent_state.load_state(state)
        self.rows.load_state(_as_arrays(state["rows"]))
        self.obs_rms.load_state(_as_arrays(state["sights"]))
        self.gains.load_state(_as_arrays(state["gains"]))
        kept = _as_arrays(state["episodes"])
        self.returns[0], self.discounted[0] = kept["returns"], kept["discounted"]
        self.env_steps, self.updates = state["counts"]["env_steps"], state["counts"]["updates"]

    def tensor_groups(self) -> dict[str, list[Tensor]]:
        """Return the tensors that training keeps in memory, by kind. `probe` adds up their sizes."""
        return self.agent_state.tensor_groups(self.stack.engine.policy)

    @property
    def examples_per_step(self) -> int:
        return self.options.rollout * self.options.envs

    @property
    def synchronize(self) -> Callable[[], object] | None:
        return waiting_for(self.device)


def _as_tensors(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Convert arrays to tensors, as checkpoints store them. Other values are returned unchanged."""
    return {
        name: torch.from_numpy(value.copy()) if isinstance(value, numpy.ndarray) else value
        for name, value in arrays.items()
    }


def _as_arrays(tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.numpy() if isinstance(value, Tensor) else value for name, value in tensors.items()}


class Sight:
    """Reads observations and, if `moments` are given, standardizes them by each run's running moments."""

    def __init__(self, rows: VectorEnv, moments: Sequence[Moments] | None) -> None:
        self._rows, self._moments = rows, moments
        if moments is not None:
            self._means, self._deviations = (
                numpy.stack([getattr(each, name) for each in moments])[:, None].astype(numpy.float32)
                for name in ("mean", "deviation")
            )

    def look(self, out: Array, raw: Array | None = None) -> None:
        """Write the current observations to `out`, and the unnormalized ones to `raw`."""
        self._rows.observe(out)
        if raw is not None:
            raw[...] = out
        self.put_in_units(out)

    def put_in_units(self, obs: Array) -> None:
        if self._moments is not None:
            obs -= self._means
            obs /= self._deviations
            numpy.clip(obs, -MOST_DEVIATIONS, MOST_DEVIATIONS, out=obs)


class LazyQuantity:
    """A metric of a step, computed when it is converted to float. Convert it before the next step."""

    def __init__(self, look: Callable[[], Mapping[str, Tensor]], name: str, row: int) -> None:
        self._look, self._name, self._row = look, name, row

    def __float__(self) -> float:
        return float(self._look()[self._name][self._row])


REVIEWED = ("policy_loss", "value_loss", "loss", "entropy", "approx_kl", "clip_fraction")


class RolloutEngine:
    """Holds the environments and policies of several runs and computes one training step for all of them."""

    def __init__(self, runs: Sequence[PpoRun]) -> None:
        self.runs = list(runs)
        first = runs[0]
        self.options, self.actions, self.device = first.options, first.actions, first.device
        self.rows = first.rows.join([run.rows for run in runs[1:]])
        self.policy: Policy = first.agent_state.join(runs)
        self._returns, self._discounted = self._share("returns"), self._share("discounted")
        self._discount = numpy.array([run.options.gamma for run in runs])
        self._trace = numpy.array([run.options.gae_lambda for run in runs])
        self._make_buffers(len(runs), self.options.rollout, self.options.envs)
        self._reviewed: Mapping[str, Tensor] | None = None

    def _share(self, name: str) -> Array:
        """Concatenate the runs' arrays into one, of which the runs then hold views."""
        whole: Array = numpy.concatenate([getattr(run, name) for run in self.runs])
        for number, run in enumerate(self.runs):
            setattr(run, name, whole[number : number + 1])
        return whole

    def _make_buffers(self, runs: int, steps: int, envs: int) -> None:
        observation = self.rows.space.observation
        self._obs = aligned(torch.empty(0), runs, (steps + 1) * envs, *observation)
        by_time = torch.unflatten(self._obs, 1, (steps + 1, envs))
        self._now = [by_time[:, step] for step in range(steps + 1)]
        self._taken = torch.zeros((runs, steps, envs, *self.actions.shape), dtype=self.actions.dtype)
        self._rewards, self._ended = numpy.zeros((runs, steps, envs)), numpy.zeros((runs, steps, envs), bool)
        self._raw = numpy.zeros(by_time.shape, numpy.float32) if self.options.normalize_observations else None

    def step(self, steps: Sequence[int], events: LoopEvents) -> list[Mapping[str, Any]]:
        self._reviewed = None
        with numpy.errstate(invalid="ignore", over="ignore"):
            with events.phase("rollout"):
                self._play(steps)
            with events.phase("advantage"):
                self._batch = self._collect_batch()
            with events.phase("update"):
                self.policy.learn(self._batch, steps)
                self._see()
        for run in self.runs:
            run.env_steps += self.options.rollout * self.options.envs
            run.updates += self.options.passes
        return [self._tell(row, run) for row, run in enumerate(self.runs)]

    def _play(self, steps: Sequence[int]) -> None:
        runs = list(zip(self.runs, steps, strict=True))
        shape = (self.options.rollout, self.options.envs)
        noise = numpy.stack(
            [self.actions.noise(run.streams.numpy("env", "actions", step), shape) for run, step in runs]
        )
        lost = self.rows.begin(
            [run.streams.numpy("env", "starts", step) for run, step in runs],
            [run.options.spread_at(step) for run, step in runs],
        )
        self._sight = Sight(self.rows, [run.obs_rms for run in self.runs] if self._raw is not None else None)
        self._finished: list[list[float]] = [[] for _ in self.runs]
        self._cut: list[tuple[int, Moved]] = []
        self.policy.begin(lost)
        if lost is not None:
            self._returns[lost] = self._discounted[lost] = 0.0
        player, taken = self.policy.player, self._taken.numpy()
        for step in range(self.options.rollout):
            self._look(step)
            actions = self.actions.sample(player.outputs(self._now[step]), noise[:, step], player.scale)
            taken[:, step] = actions
            self._note(step, self.rows.step(self.actions.playable(actions)))
        self._look(self.options.rollout)

    def _look(self, step: int) -> None:
        self._sight.look(self._now[step].numpy(), None if self._raw is None else self._raw[:, step])

    def _note(self, step: int, moved: Moved) -> None:
        self._rewards[:, step] = moved.rewards
        self._returns += moved.rewards
        ended = self._ended[:, step] = moved.ended
        if moved.final is not None:
            self._cut.append((step, moved))
        if moved.some_ended:
            for run, row in zip(*numpy.nonzero(ended), strict=True):
                self._finished[run].append(float(self._returns[run, row]))
            self._returns[ended] = 0.0
            self.policy.player.forget(ended)

    def _collect_batch(self) -> RolloutBatch:
        """Return the rollout with its log-likelihoods, advantages and value targets."""
        shape = self._rewards.shape
        examples = shape[1] * shape[2]
        not_done = 1.0 - self._ended
        obs, taken = self._obs.to(self.device), self._taken.flatten(1, 2).to(self.device)
        outputs, values = self.policy.critic(obs, not_done)
        old, _ = self.policy.likelihood(outputs[:, :examples], taken)
        expected = values.cpu().numpy().reshape(shape[0], shape[1] + 1, shape[2]).astype(float)
        rewards = self._scaled_rewards(not_done)
        self._value_what_was_cut(rewards)
        gains = advantages(rewards, expected, not_done, self._discount, self._trace)
        tensor, value_targets = (
            torch.from_numpy(each.astype(numpy.float32)).flatten(1).to(self.device)
            for each in (gains, gains + expected[:, :-1])
        )
        return RolloutBatch(obs[:, :examples], taken, old, tensor, value_targets, not_done)

    def _scaled_rewards(self, not_done: Array) -> Array:
        """Return the rewards, divided by the standard deviation of discounted returns if `normalize_rewards` is set."""
        if not self.options.normalize_rewards:
            return self._rewards.copy()
        obs = numpy.empty_like(self._rewards)
        for step in range(obs.shape[1]):
            self._discounted *= self._discount[:, None]
            self._discounted += self._rewards[:, step]
            obs[:, step] = self._discounted
            self._discounted *= not_done[:, step]
        for run, values in zip(self.runs, obs, strict=True):
            run.gains.see(values.ravel())
        units = numpy.array([float(run.gains.deviation) for run in self.runs])
        scaled: Array = numpy.clip(self._rewards / units[:, None, None], -MOST_DEVIATIONS, MOST_DEVIATIONS)
        return scaled

    def _value_what_was_cut(self, rewards: Array) -> None:
        """Bootstrap truncated episodes: add the discounted value of the final observation to the last reward."""
        for step, moved in self._cut:
            assert moved.final is not None
            final = aligned(torch.empty(0), *moved.final.shape).copy_(torch.from_numpy(moved.final))
            self._sight.put_in_units(final.numpy())
            values = self.policy.value_after(step, final.to(self.device)).cpu().numpy()
            rewards[:, step] += self._discount[:, None] * values * moved.truncated

    def _see(self) -> None:
        """Add this rollout's observations to the running moments, which normalize only later rollouts."""
        if self._raw is not None:
            for run, raw in zip(self.runs, self._raw, strict=True):
                run.obs_rms.see(raw[:-1].reshape(-1, *raw.shape[2:]))

    def _tell(self, row: int, run: PpoRun) -> Mapping[str, Any]:
        document: dict[str, Any] = {name: LazyQuantity(self._review, name, row) for name in REVIEWED}
        document |= {"env_steps": run.env_steps, "updates": run.updates}
        if self._finished[row]:
            document["return_mean"] = sum(self._finished[row]) / len(self._finished[row])
        return document

    def _review(self) -> Mapping[str, Tensor]:
        """Return the losses of the updated policy on its rollout, relative to the policy that played it."""
        if self._reviewed is None:
            self._reviewed = self._compute_review()
        return self._reviewed

    def _compute_review(self) -> Mapping[str, Tensor]:
        """Compute the losses of each run separately, because a joint mean could add in another order."""
        batch = self._batch
        outputs, values = self.policy.critic(batch.obs, batch.not_done)
        logs, entropies = self.policy.likelihood(outputs, batch.actions)
        loss_inputs = (logs, entropies, values, batch.old, batch.advantages, batch.value_targets)
        tensors = [losses(run.options, *(each[row] for each in loss_inputs)) for row, run in enumerate(self.runs)]
        return {name: torch.stack([each[name] for each in tensors]) for name in REVIEWED}


def losses(
    options: Options, log: Tensor, entropies: Tensor, values: Tensor, old: Tensor, gains: Tensor, value_targets: Tensor
) -> dict[str, Tensor]:
    """Return the losses of one run and the change of its policy, averaged over the examples."""
    gains = (gains - gains.mean()) / (gains.std() + 1e-8)
    change = log - old
    ratio = change.exp()
    policy = -torch.minimum(ratio * gains, ratio.clamp(1 - options.clip, 1 + options.clip) * gains).mean()
    value = ((values - value_targets) ** 2).mean()
    entropy = entropies.mean()
    return {
        "policy_loss": policy,
        "value_loss": value,
        "loss": policy + options.value_weight * value - options.entropy_weight * entropy,
        "entropy": entropy,
        "approx_kl": (ratio - 1 - change).mean(),
        "clip_fraction": ((ratio - 1).abs() > options.clip).float().mean(),
    }
