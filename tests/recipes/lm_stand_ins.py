"""What tests of language models share: a small trie, prompts and requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairtrial.recipes.lm.types import SamplingRequest, Tokens

VOCABULARY = 40


@dataclass(frozen=True)
class Node:
    """The interface of `fairtrial.recipes.lm.trie.Trie`, over a list of sequences."""

    sequences: tuple[Tokens, ...]

    @property
    def allowed(self) -> Tokens:
        return tuple(dict.fromkeys(each[0] for each in self.sequences if each))

    def after(self, token: int) -> Node:
        return Node(tuple(each[1:] for each in self.sequences if each and each[0] == token))

    @property
    def done(self) -> bool:
        return not self.allowed


def orders(seed: int, count: int = 9) -> Any:
    """Sequences of unequal length that share beginnings, with runs of tokens that have no alternative."""
    draw = np.random.default_rng(seed)
    heads = [tuple(draw.integers(2, VOCABULARY, 2).tolist()) for _ in range(3)]
    tails = [tuple(draw.integers(2, VOCABULARY, size).tolist()) for size in draw.integers(0, 6, count)]
    return Node(tuple((*heads[number % 3], *tail, 1) for number, tail in enumerate(tails)))


def prompt(seed: int, length: int, prefix: Sequence[int] = ()) -> Tokens:
    return (*prefix, *np.random.default_rng(seed).integers(2, VOCABULARY, length).tolist())


RULES = prompt(99, 12)
LONG_RULES = prompt(98, 70)


def game_requests(
    groups: int = 6, samples: int = 4, first_seed: int = 0, rules: Tokens = RULES
) -> list[SamplingRequest]:
    """Groups of unequal prompts after the same rules, with legal orders only."""
    made = []
    for group in range(groups):
        text = prompt(group, 3 + 2 * (group % 4), rules)
        made += [
            SamplingRequest(text, first_seed + 100 * group + number, orders(group), 12, prefix=len(rules))
            for number in range(samples)
        ]
    return made


def open_requests(groups: int = 4, samples: int = 3, length: int = 6) -> list[SamplingRequest]:
    return [
        SamplingRequest(prompt(group, 1 + 3 * group), 50 * group + number, None, length)
        for group in range(groups)
        for number in range(samples)
    ]
