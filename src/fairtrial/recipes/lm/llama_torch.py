"""Llama written for learning, in torch: packs of samples behind their shared context.

The same preparation of weights as in `llama_numpy`, as differentiable operations. A linear layer sees all tokens of a
chunk in one matrix. Context and samples part only in attention, where samples see the context and themselves; in the
last layer the context gives keys and values and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fairtrial.recipes.lm.llama_numpy import interleaved
from fairtrial.recipes.lm.packing import Chunk
from fairtrial.recipes.lm.weights import Llama

NEVER = -torch.inf


@dataclass(frozen=True)
class Places:
    """Where the tokens of a chunk are: turns of their heads, and what samples do not see."""

    context: tuple[int, int]
    inputs: tuple[int, int, int]
    turns: Tensor
    unseen: Tensor

    @property
    def read(self) -> int:
        return self.context[0] * self.context[1]


class LlamaForward:
    """What a learner asks of a model; weights are given with every call."""

    def __init__(self, llama: Llama) -> None:
        self.llama = llama
        steps = torch.arange(0, llama.head_width, 2, dtype=torch.float32) / llama.head_width
        self._slow = 1.0 / (llama.theta**steps)
        self._order = torch.from_numpy(interleaved(llama.head_width))

    def arrange(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Weights as the forward pass wants them."""
        head = weights["model.embed_tokens.weight"] if self.llama.tied else weights["lm_head.weight"]
        arranged = {"embedding": weights["model.embed_tokens.weight"], "head": head * weights["model.norm.weight"]}
        for number in range(self.llama.layers):
            arranged |= self._arrange_layer(weights, number)
        return arranged

    def _arrange_layer(self, weights: Mapping[str, Tensor], number: int) -> dict[str, Tensor]:
        at = f"model.layers.{number}."
        q, k, v = (weights[f"{at}self_attn.{name}_proj.weight"] for name in "qkv")
        qkv = torch.cat([self._turned(q) * self.llama.head_width**-0.5, self._turned(k), v])
        widen = torch.cat([weights[f"{at}mlp.{name}_proj.weight"] for name in ("gate", "up")])
        return {
            f"qkv.{number}": qkv * weights[f"{at}input_layernorm.weight"],
            f"merge.{number}": weights[f"{at}self_attn.o_proj.weight"],
            f"widen.{number}": widen * weights[f"{at}post_attention_layernorm.weight"],
            f"narrow.{number}": weights[f"{at}mlp.down_proj.weight"],
        }

    def _turned(self, weight: Tensor) -> Tensor:
        parted = weight.view(-1, self.llama.head_width, self.llama.width)
        return parted.index_select(1, self._order).view_as(weight)

    def logits(self, weights: Mapping[str, Tensor], chunk: Chunk) -> Tensor:
        """(decided tokens, vocabulary)"""
        places = self._places(chunk)
        tokens = np.concatenate([chunk.context.ravel(), chunk.inputs.ravel()])
        x = functional.embedding(torch.from_numpy(tokens), weights["embedding"])
        for number in range(self.llama.layers - 1):
            qkv = self._project(weights[f"qkv.{number}"], x, places.turns)
            attended = torch.cat([self._read(qkv[: places.read], places), self._write(qkv, places)])
            x = self._finish(weights, number, x, attended)
        x = self._last(weights, x, places)[torch.from_numpy(chunk.decided)]
        return functional.linear(_normed(x, self.llama.epsilon), weights["head"])

    def _last(self, weights: Mapping[str, Tensor], x: Tensor, places: Places) -> Tensor:
        """The samples after the last layer; nobody asks for the context there."""
        number = self.llama.layers - 1
        qkv = self._project(weights[f"qkv.{number}"], x, places.turns)
        return self._finish(weights, number, x[places.read :], self._write(qkv, places))

    def _places(self, chunk: Chunk) -> Places:
        packs, context = chunk.context.shape
        _, samples, length = chunk.inputs.shape
        after = np.broadcast_to((chunk.context_lengths[:, None] + np.arange(length))[:, None], chunk.inputs.shape)
        positions = np.concatenate([np.tile(np.arange(context), packs), after.ravel()])
        angles = torch.from_numpy(positions).float()[:, None, None] * self._slow
        turns = torch.polar(torch.ones_like(angles), angles)
        missing = torch.from_numpy(np.arange(context) >= chunk.context_lengths[:, None])
        unseen = torch.zeros(packs, 1, 1, length, context + length)
        unseen[..., :context].masked_fill_(missing[:, None, None, None], NEVER)
        unseen[..., context:] += torch.full((length, length), NEVER).triu_(1)
        return Places((packs, context), (packs, samples, length), turns, unseen)

    def _project(self, weight: Tensor, x: Tensor, turns: Tensor) -> Tensor:
        """(tokens, heads, width): queries and keys, turned, and values."""
        llama = self.llama
        qkv = functional.linear(_normed(x, llama.epsilon), weight).view(len(x), -1, llama.head_width)
        both = llama.heads + llama.key_heads
        pairs = torch.view_as_complex(qkv[:, :both].reshape(len(x), both, -1, 2))
        return torch.cat([torch.view_as_real(pairs * turns).flatten(2), qkv[:, both:]], dim=1)

    def _parts(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        llama = self.llama
        q, k, v = qkv.split_with_sizes([llama.heads, llama.key_heads, llama.key_heads], dim=-2)
        return q.view(*q.shape[:-2], llama.key_heads, llama.heads // llama.key_heads, llama.head_width), k, v

    def _read(self, qkv: Tensor, places: Places) -> Tensor:
        """Attention within the contexts."""
        packs, context = places.context
        if context == 0:
            return qkv.new_zeros(0, self.llama.heads * self.llama.head_width)
        q, k, v = (each.movedim(1, -2) for each in self._parts(qkv.view(packs, context, *qkv.shape[1:])))
        scores = q @ k.unsqueeze(2).transpose(-1, -2)
        scores = scores + torch.full((context, context), NEVER).triu_(1)
        attended = scores.softmax(dim=-1) @ v.unsqueeze(2)
        return attended.movedim(-2, 1).reshape(packs * context, -1)

    def _write(self, qkv: Tensor, places: Places) -> Tensor:
        """Attention of the samples: to their context and to themselves."""
        packs, samples, length = places.inputs
        context = places.context[1]
        q, k, v = self._parts(qkv[places.read :].view(packs, samples, length, *qkv.shape[1:]))
        before = qkv[: places.read].view(packs, context, *qkv.shape[1:])
        _, early_k, early_v = self._parts(before)
        heads, repeats, wide = q.shape[3:]
        q = q.permute(0, 3, 1, 4, 2, 5)  # packs, key heads, samples, repeats, tokens, width
        early = q.reshape(packs, heads, samples * repeats * length, wide) @ early_k.permute(0, 2, 3, 1)
        late = q.flatten(3, 4) @ k.permute(0, 3, 1, 4, 2)
        shape = (packs, heads, samples * repeats, length)
        scores = torch.cat([early.view(*shape, context), late.view(*shape, length)], dim=-1) + places.unseen
        shares = scores.softmax(dim=-1)
        attended = shares[..., :context].reshape(packs, heads, samples * repeats * length, context) @ early_v.transpose(
            1, 2
        )
        own = shares[..., context:].reshape(packs, heads, samples, repeats * length, length)
        own = own @ v.permute(0, 3, 1, 2, 4)
        attended = attended.view(packs, heads, samples, repeats, length, wide) + own.view_as(q)
        return attended.permute(0, 2, 4, 1, 3, 5).reshape(packs * samples * length, -1)

    def _finish(self, weights: Mapping[str, Tensor], number: int, x: Tensor, attended: Tensor) -> Tensor:
        x = x + functional.linear(attended, weights[f"merge.{number}"])
        both = functional.linear(_normed(x, self.llama.epsilon), weights[f"widen.{number}"])
        gate, up = both.chunk(2, dim=-1)
        return x + functional.linear(functional.silu(gate) * up, weights[f"narrow.{number}"])


def _normed(x: Tensor, epsilon: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + epsilon)
