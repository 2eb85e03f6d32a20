"""The training loop of GRPO: play a rollout, update the policy on it, and publish the next policy version."""

from __future__ import annotations

import itertools
import shutil
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError

from fairtrial.core.errors import StoreError
from fairtrial.core.training import Split
from fairtrial.plugins import LoopEvents, RunContext, UserError
from fairtrial.recipes._supervised import waiting_for
from fairtrial.recipes.lm.building import (
    RemotePlayer,
    find_vocabulary,
    grpo_config,
    make_blueprint,
    make_player,
    play_config,
)
from fairtrial.recipes.lm.learner import Learner, LearningCounters
from fairtrial.recipes.lm.model import save_adapter, save_values
from fairtrial.recipes.lm.rollout_workers import Processes
from fairtrial.recipes.lm.rollouts import GamePlayer, samples_of
from fairtrial.recipes.lm.types import Rollout, Values
from fairtrial.recipes.lm.version_schedule import Buffer, Taken, lag_of, played_within

if TYPE_CHECKING:
    from fairtrial.recipes.grpo import PlayOptions


DEVICE_STATS_EVERY_S = 5.0
"""Minimum interval between `device_stats` events, the first of which follows the first step of an attempt."""


class GrpoRun:
    """One run as a `Trainable`. A step is one rollout and the updates on it; the policy version counts the steps.

    Without a buffer, the run plays in its own process, between updates. With a buffer, workers play each rollout with
    the policy version that the schedule assigns to it. This process then only trains, evaluates and publishes versions.
    """

    can_be_rehearsed = False  # a step may start worker processes, and games are not tensor operations

    def __init__(self, options: PlayOptions, context: RunContext, *, scripted: bool = False) -> None:
        self.options, self.context, self.streams = options, context, context.streams
        self.vocabulary = find_vocabulary(options, context.cache)
        self._tokenizer = self.vocabulary.load()
        self.blueprint = make_blueprint(options, self.streams, self._tokenizer.size)
        if self._tokenizer.size > self.blueprint.vocabulary:
            sizes = f"{self._tokenizer.size} tokens, but its model only {self.blueprint.vocabulary}"
            raise UserError(f"the tokenizer in {options.model} has {sizes}", hint="Use the tokenizer of this model.")
        self.learner = Learner(self.blueprint, grpo_config(options), options.device)
        self.play_config = play_config(options, scripted=scripted)
        self.lag = lag_of(options.buffer_depth, options.policy_lag)
        self.version, self.generated = 0, 0
        self.episode_returns: list[float] = []
        self._device_stats_at: float | None = None
        self._updates: deque[tuple[float, float]] = deque(maxlen=self.lag + 1)
        self._versions: dict[int, Values] = {0: self.learner.values()}

    @cached_property
    def player(self) -> GamePlayer:
        """The player in this process: it plays evaluations and, without a buffer, rollouts."""
        learner = self.learner if self.learner.config.beta else None
        return make_player(
            self.options.game,
            self._tokenizer,
            self.blueprint,
            self._versions.__getitem__,
            self.play_config,
            self.streams,
            learner,
            self.options.device,
        )

    @cached_property
    def buffer(self) -> Buffer:
        options = self.options
        self.streams.used.add("env")  # the workers draw from it on behalf of this run
        remote = RemotePlayer(
            options.game, self.vocabulary, self.blueprint, self.context.run, self.play_config, self.streams,
            self.learner.config, options.device,
        )  # fmt: skip

        def call_together(buffer: Buffer) -> Processes:
            self._save_versions()
            return Processes(buffer, remote, options.workers)

        return Buffer(
            call_together,
            lag=self.lag,
            batches=self.play_config.batches,
            last=options.steps,
            clock=time.perf_counter,
        )

    def step(self, step: int, events: LoopEvents) -> Mapping[str, Any]:
        marks = [events.clock()]
        counted = replace(self.learner.counters)
        taken = self.take(step, events)
        marks.append(events.clock())
        learned = self.learn(taken.rollout, events)
        marks.append(events.clock())
        self._tell(taken, counted, marks)
        return learned | {"policy_lag": taken.lag}

    def take(self, step: int, events: LoopEvents) -> Taken:
        """Return the rollout of a step: play it now or, with a buffer, wait for it."""
        if not self.options.buffer_depth:
            rollout = self.play(step, events)
            return Taken(rollout, self.version - rollout.version, 0.0, 0)
        with events.phase("wait"):
            return self.buffer.take(self.version + 1)

    def play(self, step: int, events: LoopEvents, *, version: int | None = None) -> Rollout:
        """Play a rollout in this process. Pass an older `version` only for rollouts that are not trained on."""
        version = self.version if version is None else version
        parts = [self.player.part(step, version, batch, events) for batch in range(self.play_config.batches)]
        return Rollout(step, version, parts)

    def learn(self, rollout: Rollout, events: LoopEvents) -> dict[str, float]:
        """Update the policy on a rollout and publish the new version."""
        samples = samples_of(rollout)
        for _ in range(self.options.epochs):
            step = self.learner.step(samples, events)
        self.generated += rollout.generated_tokens
        with events.phase("publish"):
            self._publish(self.version + 1)
        returns = [each.total for each in rollout.trajectories]
        return step | {
            "return_mean": fmean(returns),
            "generated_tokens": self.generated,
            "trained_tokens": self.learner.counters.trained_tokens,
        }

    def evaluate(self, split: Split) -> Mapping[str, float]:
        """Play games of the run's `eval` or `report` stream, equal at every step, with the most likely orders."""
        episodes = self.options.eval_episodes if split == "eval" else self.options.report_episodes
        self.episode_returns = self.evaluate_episodes(split, episodes, 0)
        metrics = {"return_mean": fmean(self.episode_returns)}
        return {**metrics, "return_sd": float(np.std(self.episode_returns, ddof=1))} if episodes > 1 else metrics

    def evaluate_episodes(self, split: Split, episodes: int, part: int) -> list[float]:
        """Return the returns of further games. Part 0 is what `evaluate` plays; other parts have other games."""
        return self.player.episodes(split, episodes, part, self.options.episode_decisions, self.version)

    def state(self) -> dict[str, Any]:
        """Return a copy of the state. It includes the versions of pending rollouts, which a resumed run replays."""
        versions = {
            str(version): {name: torch.from_numpy(value.copy()) for name, value in values.items()}
            for version, values in self._versions.items()
        }
        counts = {"version": self.version, "generated": self.generated}
        return {"learner": self.learner.state(), "versions": versions, "counts": counts}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.close()
        self.learner.load_state(state["learner"])
        self.version, self.generated = state["counts"]["version"], state["counts"]["generated"]
        self.__dict__.pop("player", None)  # its caches may contain versions from before the reload
        self._versions.clear()
        for version, values in state["versions"].items():
            self._versions[int(version)] = {name: value.numpy().copy() for name, value in values.items()}
        if self.options.buffer_depth:
            self.buffer.begin(self.version)

    def close(self) -> None:
        """Stop the rollout workers."""
        if "buffer" in self.__dict__:
            self.buffer.close()

    def tensor_groups(self) -> dict[str, list[torch.Tensor]]:
        return self.learner.tensor_groups()

    @property
    def device(self) -> torch.device:
        return self.learner.device

    @property
    def synchronize(self) -> Callable[[], object] | None:
        return waiting_for(self.device)

    @property
    def examples_per_step(self) -> int:
        return self.options.groups * self.options.samples

    def _publish(self, version: int) -> None:
        """Make the current weights available as this version, and delete versions that no rollout needs any more."""
        self.version = version
        self._versions[version] = self.learner.values()
        self._save(version)
        for old in [each for each in self._versions if each < version - self.lag]:
            del self._versions[old]
            shutil.rmtree(self.context.run.adapter(old), ignore_errors=True)
        if self.options.buffer_depth:
            self.buffer.publish(version)

    def _save_versions(self) -> None:
        for version in self._versions:
            self._save(version)

    def _save(self, version: int) -> None:
        """Save a version: adapters always, as they are small; full weights only if workers have to read them."""
        folder = self.context.run.adapter(version)
        try:
            if self.blueprint.adapters:
                save_adapter(self.blueprint, self._versions[version], folder)
            elif self.options.buffer_depth:
                save_values(self._versions[version], folder)
        except (OSError, SafetensorError) as error:
            raise StoreError(
                f"cannot write {folder}: {error}", hint="Free some disk space and launch again to resume the run."
            ) from None

    def _tell(self, taken: Taken, before: LearningCounters, marks: Sequence[float]) -> None:
        """Report the events of this step to the run's observers."""
        tell, rollout, counters = self.context.tell, taken.rollout, self.learner.counters
        for each in rollout.decisions:
            timing, written = each.completion.timing, each.completion
            tell(
                "inference_response", version=written.version, phase=each.phase, queue_ms=1000 * timing.queue_s,
                prefill_ms=1000 * timing.prefill_s, decode_ms=1000 * timing.decode_s, prompt_tokens=len(each.prompt),
                completion_tokens=len(written.tokens),
            )  # fmt: skip
        tell(
            "rollout_complete", step=rollout.step, version=rollout.version, groups=self.options.groups,
            samples=self.options.samples, generated_tokens=rollout.generated_tokens, seconds=rollout.seconds,
            overlap_s=played_within(rollout.parts, self._updates),
            reward_mean=fmean(each.total for each in rollout.trajectories),
        )  # fmt: skip
        self._updates.append((marks[1], marks[2]))
        played, learned = (1000 * (end - begin) for begin, end in itertools.pairwise(marks))
        tell(
            "training_step",
            step=rollout.step,
            version=rollout.step,
            lag=taken.lag,
            trained_tokens=counters.trained_tokens - before.trained_tokens,
            forwarded_tokens=counters.forwarded_tokens - before.forwarded_tokens,
            buffered=taken.ready,
            phases_ms={"wait" if self.options.buffer_depth else "rollout": played, "update": learned},
        )
        now = time.monotonic()
        if self._device_stats_at is None or now - self._device_stats_at >= DEVICE_STATS_EVERY_S:
            self._device_stats_at = now
            tell("device_stats", step=rollout.step)
