"""Data that rollouts and training exchange: requests, completions, and samples with an advantage.

A token has three log-probabilities, each with its own name:

    behaviour    under the distribution that it was sampled from, with temperature and mask
    policy       under the policy that played, at temperature 1, among the allowed tokens
    reference    under the frozen model, at temperature 1, among the allowed tokens

If only one token was allowed, all three are 0, and nothing is learned from the token.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fairtrial.recipes.lm.trie import Trie

Tokens = tuple[int, ...]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class SamplingRequest:
    """A text to continue. `seed` determines the random draws; `allowed` None allows every token.

    The first `prefix` tokens of the prompt are shared by many prompts, such as the rules of a game. They are cached per
    policy version.
    """

    prompt: Tokens
    seed: int
    allowed: Trie | None
    most_tokens: int
    prefix: int = 0


@dataclass(frozen=True)
class Timing:
    """The queue time of a request, and the prefill and decoding times of its batch, in seconds."""

    queue_s: float
    prefill_s: float
    decode_s: float


@dataclass(frozen=True)
class Completion:
    """A generated continuation. `allowed` has the ids that were allowed at each token, or is None if all were."""

    tokens: Tokens
    behaviour: Floats
    policy: Floats
    allowed: tuple[Tokens, ...] | None
    version: int
    timing: Timing


@dataclass(frozen=True)
class Sample:
    """A completion to train on. Adjacent samples with equal prompts are processed together."""

    prompt: Tokens
    completion: Completion
    reference: Floats | None
    advantage: float


@dataclass(frozen=True)
class OrderDecision:
    """One order: its prompt, completion, reference log-probabilities and reward."""

    prompt: Tokens
    completion: Completion
    reference: Floats | None
    phase: str
    reward: float
    position: str = ""
    """The position as a compact prompt, whatever form the model saw; recorded for scripted rollouts only."""


@dataclass(frozen=True)
class Trajectory:
    group: int
    sample: int
    decisions: Sequence[OrderDecision]

    @property
    def total(self) -> float:
        return math.fsum(decision.reward for decision in self.decisions)


@dataclass(frozen=True)
class RolloutPart:
    """The part of a rollout that was sampled in one batch. Times are those of the machine's monotonic clock."""

    step: int
    batch: int
    version: int
    trajectories: Sequence[Trajectory]
    begun: float
    ended: float
    notes: Sequence[Any] = ()
    player: int = 0
    peak_bytes: int | None = None
    counters: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Rollout:
    """The rollout of a step: all of its groups, in order."""

    step: int
    version: int
    parts: Sequence[RolloutPart]

    @property
    def trajectories(self) -> list[Trajectory]:
        return [each for part in self.parts for each in part.trajectories]

    @property
    def decisions(self) -> list[OrderDecision]:
        return [decision for each in self.trajectories for decision in each.decisions]

    @property
    def generated_tokens(self) -> int:
        return sum(len(decision.completion.tokens) for decision in self.decisions)

    @property
    def seconds(self) -> float:
        """Seconds from the start of the first part to the end of the last one."""
        return max(part.ended for part in self.parts) - min(part.begun for part in self.parts)

    @property
    def prompt_tokens(self) -> int:
        return sum(len(decision.prompt) for decision in self.decisions)

    @property
    def positions_hash(self) -> str:
        """A hash of all positions (or, if they were not recorded, prompts) at which an order was chosen."""
        digest = hashlib.sha256()
        for decision in self.decisions:
            digest.update(f"{decision.position or decision.prompt}\n".encode())
        return digest.hexdigest()[:16]


Values = Mapping[str, "np.ndarray"]
"""Trained parameters by name: those of the adapters or, in full training, all weights."""
