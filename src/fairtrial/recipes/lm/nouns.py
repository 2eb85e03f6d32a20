"""What passes between playing and learning: requests, completions, and samples that carry an advantage.

Three log-probabilities belong to a token, and each has its own name:

    behaviour    by the distribution that it was drawn from, with temperature and mask
    policy       by the policy that played, at temperature 1, among the tokens that were allowed
    reference    by the frozen model, at temperature 1, among the tokens that were allowed

Where only one token was allowed all three are 0: nothing was decided there, and nothing is learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fairtrial.recipes.lm.trie import Trie

Tokens = tuple[int, ...]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Request:
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


Values = Mapping[str, "np.ndarray"]
"""The numbers of an adapter by the name of the parameter; full training has all weights here."""


def generated_tokens(samples: Sequence[Sample]) -> int:
    return sum(len(sample.completion.tokens) for sample in samples)
