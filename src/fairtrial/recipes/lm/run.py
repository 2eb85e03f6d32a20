"""One run of GRPO: play groups of samples, compare them with each other, learn, publish the next policy version."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fairtrial.core.training import Setting, Split, Watch
from fairtrial.recipes.lm.building import (
    RemotePlayer,
    find_vocabulary,
    learning_terms,
    make_blueprint,
    make_player,
    play_terms,
    version_folder,
)
from fairtrial.recipes.lm.crew import Processes
from fairtrial.recipes.lm.learner import Learner
from fairtrial.recipes.lm.model import save_adapter
from fairtrial.recipes.lm.nouns import Rollout, Values
from fairtrial.recipes.lm.rollouts import Player, samples_of
from fairtrial.recipes.lm.schedule import Buffer, Taken, lag_of, version_for

if TYPE_CHECKING:
    from fairtrial.recipes.grpo import PlayOptions

Listener = Callable[[Taken], None]


class Run:
    """A `Trainable`. A step is one rollout and the updates on it; the policy's version counts the steps behind it.

    Without a buffer the run plays in its own process, between its updates. With one, others play, each rollout by the
    version that its appointment says; this process then only learns, evaluates, and publishes what it has learned.
    """

    def __init__(self, options: PlayOptions, setting: Setting, *, scripted: bool = False) -> None:
        self.options, self.setting, self.streams = options, setting, setting.streams
        self.vocabulary = find_vocabulary(options, setting.cache)
        self._tokenizer = self.vocabulary.load()
        self.blueprint = make_blueprint(options, self.streams, self._tokenizer.size)
        self.learner = Learner(self.blueprint, learning_terms(options))
        self.terms = play_terms(options, scripted=scripted)
        self.lag = lag_of(options.buffer_depth, options.policy_lag)
        self.version, self.generated = 0, 0
        self.episode_returns: list[float] = []
        self.listeners: list[Listener] = []
        self._versions: dict[int, Values] = {}
        self._publish(0)

    @cached_property
    def player(self) -> Player:
        """Who plays in this process: everything without a buffer, and evaluations always."""
        learner = self.learner if self.learner.terms.beta else None
        return make_player(
            self.options.game, self._tokenizer, self.blueprint, self._versions.__getitem__, self.terms, self.streams,
            learner,
        )  # fmt: skip

    @cached_property
    def buffer(self) -> Buffer:
        options, seed = self.options, self.streams.root
        self.streams.used.add("env")  # others draw from it in this run's name
        remote = RemotePlayer(
            options.game, self.vocabulary, self.blueprint, self.setting.run.adapters, self.terms, seed,
            self.learner.terms,
        )  # fmt: skip
        return Buffer(
            lambda buffer: Processes(buffer, remote, options.workers),
            lag=self.lag, batches=self.terms.batches, last=options.steps, clock=time.perf_counter,
        )  # fmt: skip

    def step(self, step: int, watch: Watch) -> Mapping[str, Any]:
        taken = self.take(step, watch)
        learned = self.learn(taken.rollout, watch)
        self.hear(taken)
        return learned | {"policy_lag": taken.lag}

    def take(self, step: int, watch: Watch) -> Taken:
        """The rollout of a step: played now, or waited for."""
        if not self.options.buffer_depth:
            return Taken(self.play(step, watch), 0, 0.0, 0)
        with watch.phase("wait"):
            return self.buffer.take(step)

    def play(self, step: int, watch: Watch, *, version: int | None = None) -> Rollout:
        """Play in this process; by another version than the step's own only where nothing is learned from it."""
        version = version_for(step, 0) if version is None else version
        parts = [self.player.part(step, version, batch, watch) for batch in range(self.terms.batches)]
        return Rollout(step, version, parts)

    def learn(self, rollout: Rollout, watch: Watch) -> dict[str, float]:
        """Improve the policy by what the samples of each group show, and publish it."""
        samples = samples_of(rollout)
        for _ in range(self.options.epochs):
            found = self.learner.step(samples, watch)
        self.generated += rollout.generated_tokens
        with watch.phase("publish"):
            self._publish(self.version + 1)
        returns = [each.total for each in rollout.trajectories]
        return found | {
            "return_mean": fmean(returns), "generated_tokens": self.generated,
            "trained_tokens": self.learner.counters.trained_tokens,
        }  # fmt: skip

    def hear(self, taken: Taken) -> None:
        for listener in self.listeners:
            listener(taken)

    def evaluate(self, split: Split) -> Mapping[str, float]:
        """Whole games of the run's `eval` or `report` stream, the same at every step, with the likeliest orders."""
        episodes = self.options.eval_episodes if split == "eval" else self.options.report_episodes
        self.episode_returns = self.evaluate_episodes(split, episodes, 0)
        found = {"return_mean": fmean(self.episode_returns)}
        return {**found, "return_sd": float(np.std(self.episode_returns, ddof=1))} if episodes > 1 else found

    def evaluate_episodes(self, split: Split, episodes: int, part: int) -> list[float]:
        """Returns of further games. Part 0 is what `evaluate` plays; any other number has games of its own."""
        return self.player.episodes(split, episodes, part, self.options.episode_decisions, self.version)

    def state(self) -> dict[str, Any]:
        """A snapshot. The versions that play rollouts under way are in it; what they play follows from that."""
        versions = {
            str(version): {name: torch.from_numpy(value.copy()) for name, value in values.items()}
            for version, values in self._versions.items()
        }
        counts = {"version": self.version, "generated": self.generated, "lag": self.lag}
        return {"learner": self.learner.state(), "versions": versions, "counts": counts}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.close()
        self.learner.load_state(state["learner"])
        self.version, self.generated = state["counts"]["version"], state["counts"]["generated"]
        self.player.engine.forget_all()
        self._versions.clear()
        for version, values in state["versions"].items():
            self._keep(int(version), {name: value.numpy().copy() for name, value in values.items()})
        if self.options.buffer_depth:
            self.buffer.begin(self.version)

    def close(self) -> None:
        """End what was started beside this process."""
        if "buffer" in self.__dict__:
            self.buffer.close()

    def tensor_groups(self) -> dict[str, list[torch.Tensor]]:
        return self.learner.tensor_groups()

    @property
    def examples_per_step(self) -> int:
        return self.options.groups * self.options.samples

    def _publish(self, version: int) -> None:
        """From now on this is what plays, where its appointment says so. Versions that nobody will ask for go."""
        self.version = version
        self._keep(version, self.learner.values())
        for old in [each for each in self._versions if each < version - self.lag]:
            del self._versions[old]
            shutil.rmtree(version_folder(self.setting.run.adapters, old), ignore_errors=True)
        if self.options.buffer_depth:
            self.buffer.publish(version)

    def _keep(self, version: int, values: Values) -> None:
        self._versions[version] = values
        if self.options.buffer_depth or self.blueprint.adapters:
            save_adapter(self.blueprint, values, version_folder(self.setting.run.adapters, version))
