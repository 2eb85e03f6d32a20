"""Pack samples into arrays. The samples of a prompt follow it, and each attends to the prompt and to itself.

The last token of a prompt is the first input of each of its samples, so that every input predicts one token of the
completion. The tokens before it are the context, which is processed once.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairtrial.recipes.lm.llama_numpy import Ints
from fairtrial.recipes.lm.types import Floats, Sample

Pack = tuple[Sample, ...]


@dataclass(frozen=True)
class Chunk:
    """Packs that are processed in one forward pass.

    `context` (packs, tokens) and `inputs` (packs, samples, tokens) are padded with 0. `decided` has the flat indices of
    the inputs that predict a token with an alternative. `ids` (decided, most) are the tokens that were allowed there,
    padded where `closed` is true, and `targets` has the index of the chosen token among them. If `ids` is None, all
    tokens were allowed, and `targets` are token ids.
    """

    context: Ints
    context_lengths: Ints
    inputs: Ints
    decided: Ints
    targets: Ints
    ids: Ints | None
    closed: np.ndarray | None

    @property
    def tokens(self) -> int:
        return self.context.size + self.inputs.size

    def positions(self) -> Ints:
        """Return the position of each token: (packs, context + samples × tokens)."""
        _, samples, length = self.inputs.shape
        before = np.broadcast_to(np.arange(self.context.shape[1]), self.context.shape)
        after = np.tile(np.arange(length), samples) + self.context_lengths[:, None]
        return np.concatenate([before, after], axis=1)

    def seen(self) -> np.ndarray:
        """Return the attention mask of each pack: (packs, queries, keys)."""
        packs, samples, length = self.inputs.shape
        context = self.context.shape[1]
        number = np.concatenate([np.full(context, -1), np.repeat(np.arange(samples), length)])
        place = np.concatenate([np.arange(context), context + np.tile(np.arange(length), samples)])
        same_text = (number == -1) | (number[:, None] == number)
        there = np.concatenate(
            [np.arange(context) < self.context_lengths[:, None], np.ones((packs, samples * length), bool)], axis=1
        )
        itself = np.eye(len(number), dtype=bool)
        seen: np.ndarray = (same_text & (place <= place[:, None])) & there[:, None, :] | itself
        return seen


def make_packs(samples: Sequence[Sample]) -> list[Pack]:
    """Group consecutive samples with equal prompts into packs."""
    return [tuple(pack) for _, pack in itertools.groupby(samples, key=lambda sample: sample.prompt)]


def make_chunk(packs: Sequence[Pack], vocabulary: int) -> Chunk:
    lengths = np.array([len(pack[0].prompt) - 1 for pack in packs])
    context = np.zeros((len(packs), lengths.max()), np.int64)
    needed = [[_needed(sample) for sample in pack] for pack in packs]
    inputs = np.zeros((len(packs), max(map(len, packs)), max(1, *map(max, needed))), np.int64)
    for number, pack in enumerate(packs):
        context[number, : lengths[number]] = pack[0].prompt[:-1]
        for place, sample in enumerate(pack):
            read = needed[number][place]
            inputs[number, place, :read] = (sample.prompt[-1], *sample.completion.tokens[: max(0, read - 1)])[:read]
    decided = _decided(packs, inputs.shape)
    return Chunk(context, lengths, inputs, decided, *_open_ids([each for pack in packs for each in pack], vocabulary))


def decisions(sample: Sample) -> list[int]:
    """Return the indices of the completion's tokens that had an alternative."""
    allowed = sample.completion.allowed
    if allowed is None:
        return list(range(len(sample.completion.tokens)))
    return [place for place, ids in enumerate(allowed) if len(ids) > 1]


def _needed(sample: Sample) -> int:
    """Return the number of inputs: those after the last decision are not needed."""
    places = decisions(sample)
    return places[-1] + 1 if places else 0


def _decided(packs: Sequence[Pack], shape: tuple[int, ...]) -> Ints:
    _, samples, length = shape
    rows = (
        (number * samples + place, sample) for number, pack in enumerate(packs) for place, sample in enumerate(pack)
    )
    return np.array([row * length + each for row, sample in rows for each in decisions(sample)], np.int64)


def _open_ids(samples: Sequence[Sample], vocabulary: int) -> tuple[Ints, Ints | None, np.ndarray | None]:
    if all(sample.completion.allowed is None for sample in samples):
        return np.array([token for each in samples for token in each.completion.tokens], np.int64), None, None
    everything = tuple(range(vocabulary))
    opened, chosen = [], []
    for sample in samples:
        allowed = sample.completion.allowed
        for place in decisions(sample):
            opened.append(everything if allowed is None else allowed[place])
            chosen.append(sample.completion.tokens[place])
    return _table(opened, chosen)


def _table(opened: Sequence[Sequence[int]], chosen: Sequence[int]) -> tuple[Ints, Ints, np.ndarray]:
    sizes = np.array([len(ids) for ids in opened], np.int64)
    closed = np.arange(sizes.max(initial=1)) >= sizes[:, None]
    ids = np.zeros(closed.shape, np.int64)
    ids[~closed] = np.fromiter(itertools.chain.from_iterable(opened), np.int64)
    targets = np.argmax((ids == np.array(chosen, np.int64)[:, None]) & ~closed, axis=1)
    return targets, ids, closed


def at_decisions(samples: Sequence[Sample], each: Sequence[Floats]) -> Floats:
    """Select each sample's per-token values at its decided tokens, and concatenate them."""
    picked = [np.asarray(values, np.float32)[decisions(sample)] for sample, values in zip(samples, each, strict=True)]
    return np.concatenate([np.zeros(0, np.float32), *picked])
