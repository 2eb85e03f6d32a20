"""Run any other causal language model with `transformers`, with weights that the caller passes.

The classes here implement the same protocols as those of the built-in Llama, but are slower: each row has its own copy
of its prompt's keys and values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fairtrial.recipes.lm.llama_numpy import Ints, KVCache
from fairtrial.recipes.lm.model import make_transformer
from fairtrial.recipes.lm.types import Floats, Values

if TYPE_CHECKING:
    from torch import Tensor

    from fairtrial.recipes.lm.packing import Chunk


class TransformersReader:
    """One policy version. All versions share the module and pass their own weights to it."""

    def __init__(self, module: torch.nn.Module, weights: Values) -> None:
        self.module = module
        self.weights = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in weights.items()}

    def nothing(self) -> KVCache:
        """Return an empty KV cache. Its shape comes from prefilling one token."""
        cache = self.read(np.zeros((1, 1), np.int64))[0]
        return KVCache(cache.keys[..., :0], cache.values[:, :, :0])

    def read(self, tokens: Ints, cache: KVCache | None = None) -> list[KVCache]:
        texts, length = tokens.shape
        before = cache.length if cache else 0
        hf_cache = _cache_of([cache] * texts, before) if cache else None
        past_key_values = self.call(tokens, np.arange(before, before + length)[None], hf_cache).past_key_values
        keys, values = _arrays_of(past_key_values)
        return [KVCache(keys[:, i].transpose(0, 1, 3, 2), values[:, i]) for i in range(texts)]

    def begin(self, caches: Sequence[KVCache], sizes: Sequence[int], most: int) -> TransformersWriter:
        return TransformersWriter(self, caches, sizes, most)

    def call(self, tokens: Ints, places: Ints, cache: Any, seen: Ints | None = None) -> Any:
        asked = {
            "input_ids": torch.from_numpy(tokens),
            "position_ids": torch.from_numpy(places),
            "use_cache": True,
            "past_key_values": cache,
            "attention_mask": None if seen is None else torch.from_numpy(seen),
        }
        with torch.inference_mode():
            return torch.func.functional_call(self.module, self.weights, (), asked)


class TransformersWriter:
    """Rows that are decoded together, each with its own copy of its prompt's KV cache."""

    def __init__(self, reader: TransformersReader, caches: Sequence[KVCache], sizes: Sequence[int], most: int) -> None:
        del most  # the cache of transformers grows on demand
        self.reader = reader
        rows = [each for each, size in zip(caches, sizes, strict=True) for _ in range(size)]
        self.lengths = np.array([each.length for each in rows], np.int64)
        longest = int(self.lengths.max())
        self.seen = (np.arange(longest) < self.lengths[:, None]).astype(np.int64)
        self.cache = _cache_of(rows, longest) if longest else None

    def keep(self, rows: Ints) -> None:
        self.lengths, self.seen = self.lengths[rows], self.seen[rows]
        if self.cache is not None:
            self.cache.batch_select_indices(torch.from_numpy(rows))

    def feed(self, tokens: Ints, counts: Ints) -> Floats:
        rows, length = tokens.shape
        meant = np.arange(length) < counts[:, None]
        self.seen = np.concatenate([self.seen, meant.astype(np.int64)], axis=1)
        places = self.lengths[:, None] + np.minimum(np.arange(length), np.maximum(counts, 1)[:, None] - 1)
        outputs = self.reader.call(tokens, places, self.cache, self.seen)
        self.cache, self.lengths = outputs.past_key_values, self.lengths + counts
        logits: Floats = outputs.logits[torch.arange(rows), torch.from_numpy(counts - 1)].numpy()
        return logits


def _cache_of(caches: Sequence[KVCache], longest: int) -> Any:
    """Combine KV caches into a batch in the format of `transformers`, padded at the end."""
    from transformers import DynamicCache

    def padded(each: Floats) -> Floats:
        return np.pad(each, ((0, 0), (0, 0), (0, longest - each.shape[2]), (0, 0)))

    keys = np.stack([padded(kv.keys.transpose(0, 1, 3, 2)) for kv in caches], axis=1)
    values = np.stack([padded(kv.values) for kv in caches], axis=1)
    cache = DynamicCache()
    for number in range(len(keys)):
        cache.update(torch.from_numpy(keys[number]), torch.from_numpy(values[number]), number)
    return cache


def _arrays_of(cache: Any) -> tuple[Floats, Floats]:
    keys = np.stack([layer.keys.numpy() for layer in cache.layers])
    return keys, np.stack([layer.values.numpy() for layer in cache.layers])


class TransformersForward:
    """Forward pass for training with a model of `transformers`: a pack is one sequence with an attention mask."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.module = make_transformer(config)

    def arrange(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return dict(weights)

    def prepare(self, chunk: Chunk) -> Chunk:
        return chunk

    def logits(self, weights: Mapping[str, Tensor], chunk: Chunk) -> Tensor:
        """Return the logits of the decided tokens: (decided tokens, vocabulary)."""
        texts, samples, length = chunk.inputs.shape
        context = chunk.context.shape[1]
        tokens = np.concatenate([chunk.context, chunk.inputs.reshape(texts, -1)], axis=1)
        asked = {
            "input_ids": torch.from_numpy(tokens),
            "position_ids": torch.from_numpy(chunk.positions()),
            "attention_mask": _mask(chunk.seen()),
            "use_cache": False,
        }
        outputs = torch.func.functional_call(self.module, dict(weights), (), asked)
        written = outputs.logits[:, context:].reshape(texts * samples * length, -1)
        tensor: Tensor = written[torch.from_numpy(chunk.decided)]
        return tensor


def _mask(seen: np.ndarray) -> Tensor:
    least = torch.finfo(torch.float32).min
    return torch.zeros(seen.shape).masked_fill_(~torch.from_numpy(seen), least)[:, None]
