"""Llama for training, in torch, on packs of samples that share a context.

Weights are prepared as in `llama_numpy`, with differentiable operations. A linear layer processes all tokens of a chunk
as one matrix. Contexts and samples are separate only in attention, where samples attend to their context and to
themselves. The last layer computes only keys and values of the context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fairtrial.recipes.lm.gradients import attend_to_both, gated, normed, rotated
from fairtrial.recipes.lm.llama_numpy import interleaved
from fairtrial.recipes.lm.packing import Chunk
from fairtrial.recipes.lm.weights import Llama


@dataclass(frozen=True)
class Ready:
    """A chunk as tensors: its tokens, their rotary embeddings, and the mask of padding in contexts."""

    context: tuple[int, int]
    inputs: tuple[int, int, int]
    tokens: Tensor
    rope: Tensor
    missing: Tensor | None
    decided: Tensor

    @property
    def parts(self) -> list[int]:
        """The number of tokens in contexts and in samples."""
        read = self.context[0] * self.context[1]
        return [read, len(self.tokens) - read]


class LlamaForward:
    """The forward pass for training. The caller passes the weights, which are on `device`, with every call."""

    def __init__(self, llama: Llama, device: torch.device) -> None:
        self.llama, self._device = llama, device
        steps = torch.arange(0, llama.head_width, 2, dtype=torch.float32) / llama.head_width
        self._slow = 1.0 / (llama.theta**steps)
        self._order = torch.from_numpy(interleaved(llama.head_width)).to(device)
        self._rope = self._make_rope(512)

    def arrange(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the weights in the form that the forward pass uses."""
        head = weights["model.embed_tokens.weight"] if self.llama.tied else weights["lm_head.weight"]
        arranged = {"embedding": weights["model.embed_tokens.weight"], "head": head * weights["model.norm.weight"]}
        for number in range(self.llama.layers):
            arranged |= self._arrange_layer(weights, number)
        return arranged

    def _arrange_layer(self, weights: Mapping[str, Tensor], number: int) -> dict[str, Tensor]:
        at = f"model.layers.{number}."
        q, k, v = (weights[f"{at}self_attn.{name}_proj.weight"] for name in "qkv")
        qkv = torch.cat([self._reordered(q) * self.llama.head_width**-0.5, self._reordered(k), v])
        gate_up_proj = torch.cat([weights[f"{at}mlp.{name}_proj.weight"] for name in ("gate", "up")])
        return {
            f"qkv.{number}": qkv * weights[f"{at}input_layernorm.weight"],
            f"merge.{number}": weights[f"{at}self_attn.o_proj.weight"],
            f"widen.{number}": gate_up_proj * weights[f"{at}post_attention_layernorm.weight"],
            f"narrow.{number}": weights[f"{at}mlp.down_proj.weight"],
        }

    def _reordered(self, weight: Tensor) -> Tensor:
        parted = weight.view(-1, self.llama.head_width, self.llama.width)
        return parted.index_select(1, self._order).view_as(weight)

    def prepare(self, chunk: Chunk) -> Ready:
        packs, context = chunk.context.shape
        positions = chunk.positions()
        if positions.size and positions.max() >= len(self._rope):
            self._rope = self._make_rope(2 * int(positions.max()))
        read, written = positions[:, :context].ravel(), positions[:, context:].ravel()
        missing = None
        tokens = np.concatenate([chunk.context.ravel(), chunk.inputs.ravel()])
        if (chunk.context_lengths < context).any():
            empty = torch.from_numpy(np.arange(context) >= chunk.context_lengths[:, None])
            missing = torch.zeros(packs, 1, 1, context).masked_fill_(empty[:, None, None], -torch.inf).to(self._device)
        return Ready(
            context=(packs, context),
            inputs=chunk.inputs.shape,
            tokens=torch.from_numpy(tokens).to(self._device),
            rope=self._rope[torch.from_numpy(np.concatenate([read, written])).to(self._device)],
            missing=missing,
            decided=torch.from_numpy(chunk.decided).to(self._device),
        )

    def _make_rope(self, most: int) -> Tensor:
        """Return rotary factors (positions, heads, pairs) for queries and keys; those of values are 1.

        They are computed on the CPU and then moved, so that they are equal on every device.
        """
        llama = self.llama
        angles = torch.arange(most, dtype=torch.float32)[:, None, None] * self._slow
        values = torch.zeros(most, llama.key_heads, len(self._slow))
        both = torch.cat([angles.expand(-1, llama.heads + llama.key_heads, -1), values], dim=1)
        return torch.polar(torch.ones_like(both), both).to(self._device)

    def logits(self, weights: Mapping[str, Tensor], ready: Ready) -> Tensor:
        """Return the logits of the decided tokens: (decided tokens, vocabulary)."""
        x = functional.embedding(ready.tokens, weights["embedding"])
        for number in range(self.llama.layers - 1):
            qkv = self._project(weights[f"qkv.{number}"], x, ready.rope)
            early, late = qkv.split_with_sizes(ready.parts)
            q, k, v = self._heads_of_context(early, ready)
            attended = torch.cat([self._read(q, k, v, ready), self._write(k, v, late, ready)])
            x = self._finish(weights, number, x, attended)
        x = self._last(weights, x, ready)[ready.decided]
        return functional.linear(normed(x, self.llama.epsilon), weights["head"])

    def _last(self, weights: Mapping[str, Tensor], x: Tensor, ready: Ready) -> Tensor:
        """Compute the last layer, for the samples only: the context's output is not used."""
        number = self.llama.layers - 1
        weight, asking = weights[f"qkv.{number}"], self.llama.heads
        before, after = x.split_with_sizes(ready.parts)
        early_rope, late_rope = ready.rope.split_with_sizes(ready.parts)
        early = self._project(weight[asking * self.llama.head_width :], before, early_rope[:, asking:])
        late = self._project(weight, after, late_rope)
        k, v = early.view(*ready.context, *early.shape[1:]).transpose(1, 2).chunk(2, dim=1)
        return self._finish(weights, number, after, self._write(k, v, late, ready))

    def _project(self, weight: Tensor, x: Tensor, rope: Tensor) -> Tensor:
        """Return the projections (tokens, heads, width), with rotary embeddings on queries and keys."""
        heads = len(weight) // self.llama.head_width
        projected = functional.linear(normed(x, self.llama.epsilon), weight)
        return rotated(projected.view(len(x), heads, self.llama.head_width), rope)

    def _heads_of_context(self, early: Tensor, ready: Ready) -> list[Tensor]:
        """Return the contexts' queries, keys and values: (packs, heads, tokens, width)."""
        llama = self.llama
        parted = early.view(*ready.context, *early.shape[1:]).transpose(1, 2)
        return list(parted.split_with_sizes([llama.heads, llama.key_heads, llama.key_heads], dim=1))

    def _read(self, q: Tensor, k: Tensor, v: Tensor, ready: Ready) -> Tensor:
        """Compute causal attention within the contexts."""
        if not ready.parts[0]:
            return q.new_zeros(0, self.llama.heads * self.llama.head_width)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0, enable_gqa=True)
        return attended.transpose(1, 2).reshape(ready.parts[0], -1)

    def _write(self, early_k: Tensor, early_v: Tensor, late: Tensor, ready: Ready) -> Tensor:
        """Compute the attention of the samples to their context and to themselves."""
        llama = self.llama
        packs, samples, length = ready.inputs
        q, k, v = late.view(packs, samples, length, -1, llama.head_width).split_with_sizes(
            [llama.heads, llama.key_heads, llama.key_heads], dim=3
        )
        repeats = llama.heads // llama.key_heads
        q = q.view(packs, samples, length, llama.key_heads, repeats, llama.head_width).permute(0, 3, 1, 4, 2, 5)
        k, v = (each.permute(0, 3, 1, 2, 4) for each in (k, v))
        attended = attend_to_both(q, early_k, early_v, k, v, ready.missing)
        return attended.permute(0, 2, 4, 1, 3, 5).reshape(packs * samples * length, -1)

    def _finish(self, weights: Mapping[str, Tensor], number: int, x: Tensor, attended: Tensor) -> Tensor:
        x = x + functional.linear(attended, weights[f"merge.{number}"])
        both = functional.linear(normed(x, self.llama.epsilon), weights[f"widen.{number}"])
        return x + functional.linear(gated(both), weights[f"narrow.{number}"])
