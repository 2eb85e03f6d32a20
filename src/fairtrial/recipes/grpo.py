"""Train a language model to play a game with group relative policy optimization (GRPO)."""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path
from typing import Literal

from pydantic import field_validator, model_validator

from fairtrial.plugins import (
    Cache,
    Dataset,
    Metric,
    Role,
    RunContext,
    StepSize,
    TorchOptions,
    Trainable,
    UserError,
    cautions,
    option,
)
from fairtrial.recipes._hugging import hash_files, model_folder_or
from fairtrial.recipes.lm.games import hash_game, require_game

SUMMARY = "Train a language model to play a game with GRPO, which compares samples from the same position."
REQUIRES = ("torch", "numpy", "transformers", "peft", "tokenizers", "safetensors", "threadpoolctl")
EXTRA = "lm"
METRIC = Metric("return_mean", "max")
EXAMPLE = {"variants": {"untrained": {"learning_rate": 0.0}, "trained": {}}}
MAIN_OPTIONS = ("game", "model", "method", "groups", "samples", "horizon", "learning_rate", "temperature")
BUILT_IN = "tiny"
MOST = 100_000


class PlayOptions(TorchOptions):
    """Options of rollouts, of training steps and of `profile`, which also accepts one sample per group."""

    steps: int = option(
        60,
        "Training steps; each is one rollout and the updates on it.",
        role=Role.TRAINING,
        unit="steps",
        ge=1,
        le=TorchOptions.most_steps,
    )
    eval_every: int = option(
        20, "Evaluate every N steps and at the end; 0: at the end only.", role=Role.EVALUATION, unit="steps", ge=0
    )
    checkpoint_every: int = option(
        20, "Save a checkpoint every N steps and at the end; 0: none.", role=Role.CHECKPOINT, unit="steps", ge=0
    )
    game: str = option("orders", "Game to play: orders, diplomacy, or the path of a Python file.", role=Role.DATA)
    compact_prompts: bool = option(
        False, "Use minimal prompts that only distinguish positions instead of full descriptions.", role=Role.DATA
    )
    opening_decisions: int = option(
        8, "Most random decisions that precede a group's start position.", role=Role.DATA, unit="decisions", ge=0
    )
    state_age: int = option(
        4, "Draw new start positions every N policy versions.", role=Role.DATA, unit="versions", ge=1
    )
    model: str = option(
        BUILT_IN, "Model to train: the built-in tiny Llama, or a Hugging Face model directory.", role=Role.MODEL
    )
    method: Literal["lora", "full"] = option(
        "lora", "Train low-rank adapters (lora) or all weights (full).", role=Role.MODEL
    )
    rank: int = option(16, "Rank of the LoRA adapters.", role=Role.MODEL, ge=1)
    groups: int = option(
        8, "Groups per step; each has its own start position.", role=Role.TRAINING, unit="groups", ge=1, le=MOST
    )
    samples: int = option(8, "Samples per group.", role=Role.TRAINING, unit="samples", ge=1, le=MOST)
    horizon: int = option(4, "Decisions per sample.", role=Role.TRAINING, unit="decisions", ge=1, le=MOST)
    temperature: float = option(1.0, "Sampling temperature.", role=Role.TRAINING, ge=0.01, le=100)
    batch_groups: int = option(8, "Groups that are sampled in one batch.", role=Role.TRAINING, unit="groups", ge=1)
    epochs: int = option(1, "Passes over each rollout.", role=Role.TRAINING, unit="passes", ge=1)
    chunk: int = option(
        16,
        "Prompts, each with all of its completions, per forward pass of training.",
        role=Role.TRAINING,
        unit="prompts",
        ge=1,
    )
    learning_rate: float = option(5e-3, "Learning rate of AdamW.", role=Role.TRAINING, ge=0)
    clip_low: float = option(
        0.2, "Clip the probability ratio of a token at 1 minus this.", role=Role.TRAINING, gt=0, lt=1
    )
    clip_high: float = option(0.28, "Clip the probability ratio of a token at 1 plus this.", role=Role.TRAINING, gt=0)
    kl_weight: float = option(0.01, "Weight of the KL divergence from the frozen model.", role=Role.TRAINING, ge=0)
    max_grad_norm: float = option(1.0, "Clip the gradient norm to this value.", role=Role.TRAINING, gt=0)
    buffer_depth: int = option(
        0, "Rollouts that may wait for the trainer; 0: play and train in turn.", role=Role.TRAINING, ge=0
    )
    policy_lag: int = option(
        1, "Most policy versions that a rollout may lag behind.", role=Role.TRAINING, unit="versions", ge=0
    )
    workers: int = option(1, "Rollout processes; only used with --buffer-depth.", role=Role.SPEED, ge=1)
    use_state_cache: bool = option(False, "Cache start positions until new ones are drawn.", role=Role.SPEED)
    use_prefix_cache: bool = option(True, "Cache the model's keys and values for prompt prefixes.", role=Role.SPEED)
    eval_episodes: int = option(
        20, "Episodes per evaluation, which selects the best checkpoint.", role=Role.EVALUATION, unit="episodes", ge=1
    )
    report_episodes: int = option(100, "Episodes in the final report.", role=Role.EVALUATION, unit="episodes", ge=1)
    episode_decisions: int = option(
        16, "Truncate evaluation episodes after N decisions.", role=Role.EVALUATION, unit="decisions", ge=1
    )

    @property
    def built_in(self) -> bool:
        return self.model == BUILT_IN

    _model_exists = field_validator("model")(model_folder_or(BUILT_IN))

    @model_validator(mode="after")
    def _game_is_installed(self) -> PlayOptions:
        try:
            require_game(self.game)
        except UserError as error:
            raise ValueError(f"game: {error.message}. {error.hint or ''}".strip()) from None
        return self


class Options(PlayOptions):
    @model_validator(mode="after")
    def _groups_have_a_baseline(self) -> Options:
        if self.samples < 2:
            raise ValueError(
                "samples: must be 2 or more; with one sample per group, every advantage is 0 and nothing is learned"
            )
        return self


def warm() -> None:
    for package in ("torch", "peft", "transformers", "tokenizers"):
        importlib.import_module(package)


def data(options: PlayOptions, _cache: Cache) -> Dataset | None:
    """Return a data set that identifies the user's model directory and game file, or None if both are built in.

    They are part of the run's identity. The built-in model and games are determined by the options and the seed.
    """
    hashes = {} if options.built_in else {options.model: hash_files(Path(options.model), tokenizer=True)}
    if options.game.endswith(".py"):
        hashes[options.game] = hash_game(options.game)
    if not hashes:
        return None
    known = hashlib.sha256(" ".join(hashes.values()).encode()).hexdigest()
    return Dataset(" and ".join(Path(each).name for each in hashes), known, Path(next(iter(hashes))).parent)


def evaluates(options: PlayOptions) -> tuple[str, ...]:
    return ("return_mean", "return_sd") if options.eval_episodes > 1 else ("return_mean",)


def step_size(options: PlayOptions) -> StepSize:
    return StepSize(options.groups * options.samples, "samples", f"{options.groups} groups × {options.samples} samples")


def build(options: PlayOptions, context: RunContext) -> Trainable:
    from fairtrial.recipes.lm.run import GrpoRun

    context.cautions.extend(cautions_of(options))
    return GrpoRun(options, context)


def cautions_of(options: PlayOptions) -> list[dict[str, str]]:
    """Return the cautions that these options call for."""
    chosen = options.differing()
    why = {} if options.method == "lora" else {"rank": "method full does not use it"}
    if not options.buffer_depth:
        why |= dict.fromkeys(("policy_lag", "workers"), "without --buffer-depth, playing and training take turns")
    filled = [cautions.INERT_OPTION.fill(option=name, why=reason) for name, reason in why.items() if name in chosen]
    if options.buffer_depth > options.policy_lag:
        filled.append(cautions.LAG_LIMITS_BUFFER.fill(depth=options.buffer_depth, lag=options.policy_lag))
    return [*([cautions.NO_GROUP_BASELINE.fill()] if options.samples < 2 else []), *filled]
