"""Build the parts of a GRPO run, in the trainer's process and in rollout workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fairtrial.core.paths import RunPaths
from fairtrial.plugins import Cache, Streams
from fairtrial.recipes.lm.engine import SamplingEngine
from fairtrial.recipes.lm.games import load_game
from fairtrial.recipes.lm.learner import GrpoConfig, Learner
from fairtrial.recipes.lm.model import load_adapter, model_from, tiny_model
from fairtrial.recipes.lm.rollouts import GamePlayer, PlayConfig, Reference
from fairtrial.recipes.lm.tokens import Tokenizer, tokenizer_file
from fairtrial.recipes.lm.types import Completion, Floats, Sample, Tokens, Values
from fairtrial.recipes.lm.weights import Blueprint

if TYPE_CHECKING:
    from fairtrial.recipes.grpo import PlayOptions

VERSIONS_KEPT = 2
"""Number of policy versions that an engine keeps: the one that plays, and the one that is evaluated."""

PREFIXES_KEPT = VERSIONS_KEPT
"""Number of cached prompt prefixes: all prompts of a game start with the same rules, cached once per version."""


@dataclass(frozen=True)
class Vocabulary:
    """The location of a tokenizer: a file that Fairtrial generated (`ours`), or a model directory."""

    path: Path
    ours: bool

    def load(self) -> Tokenizer:
        return Tokenizer.from_file(self.path) if self.ours else Tokenizer.from_directory(self.path)


def find_vocabulary(options: PlayOptions, cache: Cache) -> Vocabulary:
    if options.built_in:
        return Vocabulary(tokenizer_file(cache), ours=True)
    return Vocabulary(Path(options.model), ours=False)


def make_blueprint(options: PlayOptions, streams: Streams, vocabulary: int) -> Blueprint:
    method, rank, start = options.method, options.rank, streams.seed("init", "adapters")
    if options.built_in:
        return tiny_model(vocabulary, streams.seed("init"), method=method, rank=rank, lora_seed=start)
    return model_from(Path(options.model), method=method, rank=rank, lora_seed=start)


def play_config(options: PlayOptions, *, scripted: bool = False) -> PlayConfig:
    return PlayConfig(
        groups=options.groups, samples=options.samples, horizon=options.horizon, compact=options.compact_prompts,
        temperature=options.temperature, batch_groups=options.batch_groups, opening_decisions=options.opening_decisions,
        state_age=options.state_age, state_cache=options.use_state_cache,
        prefixes=PREFIXES_KEPT if options.use_prefix_cache else 0, scripted=scripted,
    )  # fmt: skip


def grpo_config(options: PlayOptions) -> GrpoConfig:
    return GrpoConfig(
        learning_rate=options.learning_rate,
        beta=options.kl_weight,
        clip_low=options.clip_low,
        clip_high=options.clip_high,
        max_grad_norm=options.max_grad_norm,
        chunk=options.chunk,
        most_weight=None if options.temperature == 1 else MOST_WEIGHT,
    )


MOST_WEIGHT = 2.0
"""Limit of the importance weight of tokens that were sampled at a temperature other than 1."""


def make_player(
    game: str, tokenizer: Tokenizer, blueprint: Blueprint, load: Callable[[int], Values], config: PlayConfig,
    streams: Streams, learner: Learner | None, device: str,
) -> GamePlayer:  # fmt: skip
    engine = SamplingEngine(
        blueprint, load, batch=config.batch_groups * config.samples, adapters=VERSIONS_KEPT, prefixes=config.prefixes,
        device=device,
    )  # fmt: skip
    return GamePlayer(load_game(game), tokenizer, engine, config, streams, frozen_opinion(learner) if learner else None)


def frozen_opinion(learner: Learner) -> Reference:
    """Return a function that computes log-probabilities under the frozen model.

    It sorts completions by prompt, so that each prompt is processed once.
    """

    def ask(written: Sequence[tuple[Tokens, Completion]]) -> list[Floats]:
        order = sorted(range(len(written)), key=lambda number: written[number][0])
        samples = [Sample(*written[number], None, 0.0) for number in order]
        values = dict(zip(order, learner.reference_logprobs(samples), strict=True))
        return [values[number] for number in range(len(written))]

    return ask


@dataclass(frozen=True)
class RemotePlayer:
    """Builds a player in another process, from plain values and files.

    For a Llama on the CPU, that process need not import `transformers`.
    """

    game: str
    vocabulary: Vocabulary
    blueprint: Blueprint
    run: RunPaths
    config: PlayConfig
    streams: Streams
    learning: GrpoConfig
    device: str

    def __call__(self) -> GamePlayer:
        learner = Learner(self.blueprint, self.learning, self.device) if self.learning.beta else None
        tokenizer = self.vocabulary.load()
        return make_player(
            self.game, tokenizer, self.blueprint, self._load, self.config, self.streams, learner, self.device
        )

    def _load(self, version: int) -> Values:
        return load_adapter(self.run.adapter(version))
