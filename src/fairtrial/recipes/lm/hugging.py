"""Run any other causal language model with `transformers`, with weights that the caller passes.

The classes here implement the same protocols as those of the built-in Llama, but are slower: each row has its own copy
of its prompt's keys and values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fairtrial.recipes.lm.llama_numpy import Ints
from fairtrial.recipes.lm.model import make_transformer
from fairtrial.recipes.lm.types import Floats, Values

if TYPE_CHECKING:
    from torch import Tensor

    from fairtrial.recipes.lm.packing import Chunk


@dataclass(frozen=True)
class TensorKVCache:
    """Keys and values (layers, heads, tokens, width) of a prefilled text, on the run's device."""

    keys: Tensor
    values: Tensor

    @property
    def length(self) -> int:
        return int(self.values.shape[2])


class TransformersReader:
    """One policy version. All versions share the module, which is on `device`, and pass their own weights to it."""

    def __init__(self, module: torch.nn.Module, weights: Values, device: torch.device) -> None:
        self.module, self.device = module, device
        self.weights = {name: self.tensor(np.ascontiguousarray(value)) for name, value in weights.items()}

    def tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def nothing(self) -> TensorKVCache:
        """Return an empty KV cache. Its shape comes from prefilling one token."""
        cache = self.read(np.zeros((1, 1), np.int64))[0]
        return TensorKVCache(cache.keys[:, :, :0], cache.values[:, :, :0])

    def read(self, tokens: Ints, cache: TensorKVCache | None = None) -> list[TensorKVCache]:
        texts, length = tokens.shape
        before = cache.length if cache else 0
        hf_cache = _cache_of([cache] * texts, before) if cache else None
        past_key_values = self.call(tokens, np.arange(before, before + length)[None], hf_cache).past_key_values
        keys = torch.stack([layer.keys for layer in past_key_values.layers])
        values = torch.stack([layer.values for layer in past_key_values.layers])
        return [TensorKVCache(keys[:, i], values[:, i]) for i in range(texts)]

    def begin(self, caches: Sequence[TensorKVCache], sizes: Sequence[int], most: int) -> TransformersWriter:
        return TransformersWriter(self, caches, sizes, most)

    def call(self, tokens: Ints, places: Ints, cache: Any, seen: Ints | None = None) -> Any:
        asked = {
            "input_ids": self.tensor(tokens),
            "position_ids": self.tensor(places),
            "use_cache": True,
            "past_key_values": cache,
            "attention_mask": None if seen is None else self.tensor(seen),
        }
        with torch.inference_mode():
            return torch.func.functional_call(self.module, self.weights, (), asked)


class TransformersWriter:
    """Rows that are decoded together, each with its own copy of its prompt's KV cache."""

    def __init__(
        self, reader: TransformersReader, caches: Sequence[TensorKVCache], sizes: Sequence[int], most: int
    ) -> None:
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
            self.cache.batch_select_indices(self.reader.tensor(rows))

    def feed(self, tokens: Ints, counts: Ints) -> Floats:
        rows, length = tokens.shape
        meant = np.arange(length) < counts[:, None]
        self.seen = np.concatenate([self.seen, meant.astype(np.int64)], axis=1)
        places = self.lengths[:, None] + np.minimum(np.arange(length), np.maximum(counts, 1)[:, None] - 1)
        outputs = self.reader.call(tokens, places, self.cache, self.seen)
        self.cache, self.lengths = outputs.past_key_values, self.lengths + counts
        last = self.reader.tensor(np.stack([np.arange(rows), counts - 1]))
        logits: Floats = outputs.logits[last[0], last[1]].cpu().numpy()
        return logits


def _cache_of(caches: Sequence[TensorKVCache], longest: int) -> Any:
    """Combine KV caches into a batch in the format of `transformers`, padded at the end."""
    from transformers import DynamicCache

    def padded(each: Tensor) -> Tensor:
        return torch.nn.functional.pad(each, (0, 0, 0, longest - each.shape[2]))

    with torch.inference_mode():
        keys = torch.stack([padded(each.keys) for each in caches], dim=1)
        values = torch.stack([padded(each.values) for each in caches], dim=1)
        cache = DynamicCache()
        for number in range(len(keys)):
            cache.update(keys[number], values[number], number)
    return cache


class TransformersForward:
    """Forward pass for training with a model of `transformers`: a pack is one sequence with an attention mask."""

    def __init__(self, config: Mapping[str, Any], device: torch.device) -> None:
        self.module, self._device = make_transformer(config, device), device

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
            "input_ids": torch.from_numpy(tokens).to(self._device),
            "position_ids": torch.from_numpy(chunk.positions()).to(self._device),
            "attention_mask": _mask(chunk.seen()).to(self._device),
            "use_cache": False,
        }
        outputs = torch.func.functional_call(self.module, dict(weights), (), asked)
        written = outputs.logits[:, context:].reshape(texts * samples * length, -1)
        tensor: Tensor = written[torch.from_numpy(chunk.decided).to(self._device)]
        return tensor


def _mask(seen: np.ndarray) -> Tensor:
    least = torch.finfo(torch.float32).min
    return torch.zeros(seen.shape).masked_fill_(~torch.from_numpy(seen), least)[:, None]
