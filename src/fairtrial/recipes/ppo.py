"""Reinforcement learning by proximal policy optimization, on gymnasium's environments."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Literal

from pydantic import model_validator

from fairtrial.plugins import CpuOptions, Metric, References, Role, RunContext, Stack, StepSize, Trainable, option
from fairtrial.recipes._references import references_for
from fairtrial.recipes._stacks import RunStack, members_of
from fairtrial.recipes.rl.names import CLASSIC, why_unknown

SUMMARY = "Learn to act by PPO: CartPole, Acrobot, Pendulum and other environments of gymnasium."
REQUIRES = ("torch", "numpy", "gymnasium")
EXTRA = "rl"
METRIC = Metric("return_mean", "max")
EXAMPLE = {
    "options": {
        "hide_velocity": True, "parameters": 9000, "steps": 100, "rollout": 128, "epochs": 5, "minibatches": 2,
        "learning_rate": 2e-3, "gae_lambda": 0.95,
    },
    "variants": {"mlp": {"architecture": "mlp"}, "gru": {"architecture": "gru"}},
}  # fmt: skip
WIDENED_AT = 0.5
NARROWEST = 0.1


class Options(CpuOptions):
    steps: int = option(
        400,
        "Training steps; each is a rollout and the updates on it.",
        role=Role.TRAINING,
        unit="steps",
        ge=1,
        le=CpuOptions.most_steps,
    )
    eval_every: int = option(
        50, "Evaluate every N steps and at the end; 0: at the end only.", role=Role.EVALUATION, unit="steps", ge=0
    )
    checkpoint_every: int = option(
        100, "Save a checkpoint every N steps and at the end; 0: none.", role=Role.CHECKPOINT, unit="steps", ge=0
    )
    env: str = option("CartPole-v1", "Environment, as gymnasium names it.", role=Role.DATA)
    episode_limit: int = option(
        0, "Cut episodes off after so many steps; 0: where the environment does.", role=Role.DATA, unit="steps", ge=0
    )
    hide_velocity: bool = option(
        False, "Leave velocities out of what is observed, so that memory matters.", role=Role.DATA
    )
    curriculum: Literal["fixed", "widening"] = option(
        "fixed",
        "Initial states: always the environment's own, or a tenth of their range, widened to all of it by half-time.",
        role=Role.TRAINING,
    )
    architecture: Literal["mlp", "gru", "transformer"] = option("mlp", "Policy to train.", role=Role.MODEL)
    width: int = option(
        0,
        "Hidden units; 0: the architecture's own (mlp 64, gru 36, transformer 20; images 128).",
        role=Role.MODEL,
        ge=0,
    )
    parameters: int = option(
        0,
        "Choose the width whose number of parameters comes nearest to this one; 0: by --width.",
        role=Role.MODEL,
        unit="parameters",
        ge=0,
    )
    envs: int = option(8, "Environments that are played side by side.", role=Role.TRAINING, unit="environments", ge=1)
    rollout: int = option(32, "Steps in each environment between updates.", role=Role.TRAINING, unit="steps", ge=1)
    epochs: int = option(20, "Passes over a rollout.", role=Role.TRAINING, unit="passes", ge=1)
    minibatches: int = option(1, "Batches that a rollout is cut into.", role=Role.TRAINING, unit="batches", ge=1)
    learning_rate: float = option(1e-3, "Learning rate of Adam at the first step.", role=Role.TRAINING, gt=0)
    anneal: bool = option(True, "Let the learning rate fall to 0 over the steps.", role=Role.TRAINING)
    gamma: float = option(0.98, "Discount of later rewards.", role=Role.TRAINING, ge=0, le=1)
    gae_lambda: float = option(0.8, "How far advantages look ahead.", role=Role.TRAINING, ge=0, le=1)
    clip: float = option(0.2, "How far the likelihood of an action may move in a step.", role=Role.TRAINING, gt=0, lt=1)
    entropy_weight: float = option(0.0, "Weight of the policy's entropy in the loss.", role=Role.TRAINING, ge=0)
    value_weight: float = option(0.5, "Weight of the value error in the loss.", role=Role.TRAINING, ge=0)
    max_grad_norm: float = option(0.5, "Longest gradient; longer ones are shortened.", role=Role.TRAINING, gt=0)
    normalize_observations: bool = option(
        False, "Put observations in units of their running mean and deviation.", role=Role.TRAINING
    )
    normalize_rewards: bool = option(
        False, "Put rewards in units of the running deviation of discounted returns.", role=Role.TRAINING
    )
    eval_episodes: int = option(
        20, "Episodes that select the best checkpoint.", role=Role.EVALUATION, unit="episodes", ge=1
    )
    report_episodes: int = option(100, "Episodes that are reported on.", role=Role.EVALUATION, unit="episodes", ge=1)

    @model_validator(mode="after")
    def _environment_fits(self) -> Options:
        problem = why_unknown(self.env)
        if problem:
            raise ValueError(f"env: {problem}")
        for name, chosen in (("hide_velocity", self.hide_velocity), ("curriculum", self.curriculum == "widening")):
            if chosen and self.env not in CLASSIC:
                raise ValueError(f"{name}: not defined for {self.env}; it is for {', '.join(CLASSIC)}")
        return self

    @model_validator(mode="after")
    def _sizes_fit(self) -> Options:
        if self.width and self.parameters:
            raise ValueError("parameters: give either a width or a number of parameters")
        if self.architecture == "transformer" and self.width % 4:
            raise ValueError(f"width: must be a multiple of 4 for a transformer, not {self.width}")
        return self

    @model_validator(mode="after")
    def _rollout_divides(self) -> Options:
        if self.rollout * self.envs % self.minibatches:
            raise ValueError(
                f"minibatches: {self.minibatches} does not divide the {self.rollout * self.envs} examples of a rollout"
            )
        if self.batch_size < 2:
            raise ValueError("minibatches: a batch needs at least two examples, whose advantages are compared")
        return self

    @property
    def batch_size(self) -> int:
        return self.rollout * self.envs // self.minibatches

    @property
    def passes(self) -> int:
        """Updates of the weights in a step."""
        return self.epochs * self.minibatches

    def rate_at(self, step: int) -> float:
        return self.learning_rate * (1 - (step - 1) / self.steps) if self.anneal else self.learning_rate

    def spread_at(self, step: int) -> float:
        """The share of the usual range that initial states come from."""
        if self.curriculum == "fixed":
            return 1.0
        return min(1.0, NARROWEST + (1 - NARROWEST) * step / (WIDENED_AT * self.steps))


def warm() -> None:
    """Load what every run needs into the process that jobs are forked from."""
    from fairtrial.recipes._supervised import warm_up

    warm_up()
    importlib.import_module("fairtrial.recipes.rl.building")


def stack_key(options: Options) -> str | None:
    """Runs of one key have tensors of one shape; None is made alone."""
    if options.architecture != "mlp" or options.env not in CLASSIC or options.threads > 1:
        return None
    shape = (
        options.env, options.hide_velocity, options.episode_limit, options.width, options.parameters, options.envs,
        options.rollout, options.epochs, options.minibatches, options.normalize_observations, options.normalize_rewards,
    )  # fmt: skip
    return " ".join(map(str, shape))


def check(options: Options) -> None:
    """Environments of gymnasium are made once, to see whether a policy can be trained on them at all."""
    from fairtrial.recipes.rl.spaces import check_policy, make_environment, policy_kind, read_space

    if options.env in CLASSIC:
        check_policy(options, options.architecture)
        return
    environment = make_environment(options.env)
    try:
        check_policy(options, policy_kind(options, read_space(options.env, environment)))
    finally:
        environment.close()


def evaluates(options: Options) -> tuple[str, ...]:
    known = ("return_mean", "length_mean")
    return (*known, "return_sd") if options.eval_episodes > 1 else known


def step_size(options: Options) -> StepSize:
    return StepSize(options.envs * options.rollout, "frames", f"{options.envs} envs × {options.rollout} rollout steps")


def references(options: Options) -> References | None:
    return references_for(options.env)


def build(options: Options, context: RunContext) -> Trainable:
    from fairtrial.recipes.rl.building import build_run

    return build_run(options, context)


def stack(trainables: Sequence[Trainable]) -> Stack:
    """Runs that were built apart, to be stepped together from now on."""
    from fairtrial.recipes.rl.run import PpoRun, RolloutEngine

    return RunStack(members_of(trainables, PpoRun), RolloutEngine)
