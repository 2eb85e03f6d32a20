"""Train a policy on Gymnasium environments with proximal policy optimization (PPO)."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Literal

from pydantic import model_validator

from fairtrial.plugins import Metric, References, Role, RunContext, Stack, StepSize, TorchOptions, Trainable, option
from fairtrial.recipes._references import references_for
from fairtrial.recipes._stacks import RunStack, members_of
from fairtrial.recipes.rl.names import CLASSIC, why_unknown

SUMMARY = "Train a policy with PPO on CartPole, Acrobot, Pendulum or another Gymnasium environment."
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
MAIN_OPTIONS = ("env", "architecture", "width", "envs", "rollout", "epochs", "learning_rate", "hide_velocity")
WIDENED_AT = 0.5
NARROWEST = 0.1


class Options(TorchOptions):
    steps: int = option(
        400,
        "Training steps; each is one rollout and the updates on it.",
        role=Role.TRAINING,
        unit="steps",
        ge=1,
        le=TorchOptions.most_steps,
    )
    eval_every: int = option(
        50, "Evaluate every N steps and at the end; 0: at the end only.", role=Role.EVALUATION, unit="steps", ge=0
    )
    checkpoint_every: int = option(
        100, "Save a checkpoint every N steps and at the end; 0: none.", role=Role.CHECKPOINT, unit="steps", ge=0
    )
    env: str = option("CartPole-v1", "ID of the Gymnasium environment.", role=Role.DATA)
    episode_limit: int = option(
        0, "Truncate episodes after N steps; 0: the environment's own limit.", role=Role.DATA, unit="steps", ge=0
    )
    hide_velocity: bool = option(
        False, "Remove velocities from the observations, so that the policy needs memory.", role=Role.DATA
    )
    curriculum: Literal["fixed", "widening"] = option(
        "fixed",
        "Range of initial states: fixed, or widening from a tenth to the full range over the first half of the steps.",
        role=Role.TRAINING,
    )
    architecture: Literal["mlp", "gru", "transformer"] = option("mlp", "Architecture of the policy.", role=Role.MODEL)
    width: int = option(
        0,
        "Hidden units; 0: the architecture's default (mlp 64, gru 36, transformer 20; images 128).",
        role=Role.MODEL,
        ge=0,
    )
    parameters: int = option(
        0,
        "Use the width whose parameter count is closest to this number; 0: use --width.",
        role=Role.MODEL,
        unit="parameters",
        ge=0,
    )
    envs: int = option(8, "Environments that are stepped in parallel.", role=Role.TRAINING, unit="environments", ge=1)
    rollout: int = option(32, "Steps per environment in each rollout.", role=Role.TRAINING, unit="steps", ge=1)
    epochs: int = option(20, "Passes over each rollout.", role=Role.TRAINING, unit="passes", ge=1)
    minibatches: int = option(1, "Minibatches per rollout.", role=Role.TRAINING, unit="batches", ge=1)
    learning_rate: float = option(1e-3, "Learning rate of Adam at the first step.", role=Role.TRAINING, gt=0)
    anneal: bool = option(True, "Anneal the learning rate linearly to 0 over the steps.", role=Role.TRAINING)
    gamma: float = option(0.98, "Discount factor of rewards.", role=Role.TRAINING, ge=0, le=1)
    gae_lambda: float = option(0.8, "Lambda of generalized advantage estimation.", role=Role.TRAINING, ge=0, le=1)
    clip: float = option(0.2, "Clip the probability ratio to 1 plus or minus this.", role=Role.TRAINING, gt=0, lt=1)
    entropy_weight: float = option(0.0, "Weight of the entropy bonus in the loss.", role=Role.TRAINING, ge=0)
    value_weight: float = option(0.5, "Weight of the value loss.", role=Role.TRAINING, ge=0)
    max_grad_norm: float = option(0.5, "Clip the gradient norm to this value.", role=Role.TRAINING, gt=0)
    normalize_observations: bool = option(
        False, "Standardize observations by their running mean and standard deviation.", role=Role.TRAINING
    )
    normalize_rewards: bool = option(
        False, "Divide rewards by the running standard deviation of discounted returns.", role=Role.TRAINING
    )
    eval_episodes: int = option(
        20, "Episodes per evaluation, which selects the best checkpoint.", role=Role.EVALUATION, unit="episodes", ge=1
    )
    report_episodes: int = option(100, "Episodes in the final report.", role=Role.EVALUATION, unit="episodes", ge=1)

    @model_validator(mode="after")
    def _environment_fits(self) -> Options:
        problem = why_unknown(self.env)
        if problem:
            raise ValueError(f"env: {problem}")
        for name, chosen in (("hide_velocity", self.hide_velocity), ("curriculum", self.curriculum == "widening")):
            if chosen and self.env not in CLASSIC:
                raise ValueError(f"{name}: not available for {self.env}; available for {', '.join(CLASSIC)}")
        return self

    @model_validator(mode="after")
    def _sizes_fit(self) -> Options:
        if self.width and self.parameters:
            raise ValueError("parameters: pass either a width or a number of parameters, not both")
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
            raise ValueError("minibatches: a minibatch needs at least two examples to normalize advantages")
        return self

    @property
    def batch_size(self) -> int:
        return self.rollout * self.envs // self.minibatches

    @property
    def passes(self) -> int:
        """Number of optimizer updates per training step."""
        return self.epochs * self.minibatches

    def rate_at(self, step: int) -> float:
        return self.learning_rate * (1 - (step - 1) / self.steps) if self.anneal else self.learning_rate

    def spread_at(self, step: int) -> float:
        """Return the fraction of the environment's range that initial states are drawn from at this step."""
        if self.curriculum == "fixed":
            return 1.0
        return min(1.0, NARROWEST + (1 - NARROWEST) * step / (WIDENED_AT * self.steps))


def warm() -> None:
    """Import the modules that every run needs, in the process from which jobs are forked."""
    from fairtrial.recipes._supervised import warm_up

    warm_up()
    importlib.import_module("fairtrial.recipes.rl.building")


def stack_key(options: Options) -> str | None:
    """Return a key that is equal for runs whose tensors have equal shapes, or None for a run that cannot be stacked."""
    if options.architecture != "mlp" or options.env not in CLASSIC or options.threads > 1:
        return None
    shape = (
        options.env, options.hide_velocity, options.episode_limit, options.width, options.parameters, options.envs,
        options.rollout, options.epochs, options.minibatches, options.normalize_observations, options.normalize_rewards,
        options.device,
    )  # fmt: skip
    return " ".join(map(str, shape))


def check(options: Options) -> None:
    """Check that ppo supports the environment's spaces. A Gymnasium environment is created once to read them."""
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
    """Return a stack that steps these separately built runs together."""
    from fairtrial.recipes.rl.run import PpoRun, RolloutEngine

    return RunStack(members_of(trainables, PpoRun), RolloutEngine)
