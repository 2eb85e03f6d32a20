"""What passes between playing and learning: requests, completions, and samples that carry an advantage.

Three log-probabilities belong to a token, and each has its own name:

    behaviour    by the distribution that it was drawn from, with temperature and mask
    policy       by the policy that played, at temperature 1, among the tokens that were allowed
    reference    by the frozen model, at temperature 1, among the tokens that were allowed

Where only one token was allowed all three are 0: nothing was decided there, and nothing is learned.
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
    """A text to continue. `seed` alone decides what is drawn; `allowed` None leaves every token open.

    The first `prefix` tokens of the prompt are those of many prompts, such as the rules of a game: they are read once
    per policy version.
    """

    prompt: Tokens
    seed: int
    allowed: Trie | None
    most_tokens: int
    prefix: int = 0


@dataclass(frozen=True)
class Timing:
    """How long a request waited, and how long the batch that it was part of took to read and to write."""

    queue_s: float
    prefill_s: float
    decode_s: float


@dataclass(frozen=True)
class Completion:
    """What was written. `allowed`: the ids that were open at each token, or None where all were."""

    tokens: Tokens
    behaviour: Floats
    policy: Floats
    allowed: tuple[Tokens, ...] | None
    version: int
    timing: Timing


@dataclass(frozen=True)
class Sample:
    """A completion to learn from. Samples of equal prompts that follow each other are read together."""

    prompt: Tokens
    completion: Completion
    reference: Floats | None
    advantage: float


@dataclass(frozen=True)
class OrderDecision:
    """One order: what was shown, what was written, what it was worth, and how the frozen model liked it."""

    prompt: Tokens
    completion: Completion
    reference: Floats | None
    phase: str
    reward: float
    position: str = ""
    """What was decided about, whatever it was shown as; empty where nobody will ask."""


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
    """The share of a rollout that was sampled together. Times are of the machine's monotonic clock."""

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
    """All groups of a step, in order."""

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
        """From the first that began to play to the last that ended."""
        return max(part.ended for part in self.parts) - min(part.begun for part in self.parts)

    @property
    def prompt_tokens(self) -> int:
        return sum(len(decision.prompt) for decision in self.decisions)

    @property
    def positions_hash(self) -> str:
        """Equal where the same was decided about: by position where that is known, else by what was shown."""
        digest = hashlib.sha256()
        for decision in self.decisions:
            digest.update(f"{decision.position or decision.prompt}\n".encode())
        return digest.hexdigest()[:16]


Values = Mapping[str, "np.ndarray"]
"""The numbers of an adapter by the name of the parameter; full training has all weights here."""
