"""A small pre-norm transformer over patches of four points."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

DEFAULT_WIDTH = 32
PATCH = 4
HEADS = 4
LAYERS = 2


class Positions(nn.Module):
    """Learned position embeddings of the patches."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, width))

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)
        self.before_mlp = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.merge(self._attend(self.before_attention(x)))
        mixed: Tensor = x + self.narrow(gelu(self.widen(self.before_mlp(x))))
        return mixed

    def _attend(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        return scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width)


class Transformer(nn.Module):
    def __init__(self, inputs: int, classes: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Linear(PATCH, width)
        self.positions = Positions(inputs // PATCH, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width * (inputs // PATCH), classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.trace(x)[0]

    def trace(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        hidden = self.positions(self.embed(x.view(len(x), -1, PATCH)))
        layers = []
        for block in self.blocks:
            hidden = block(hidden)
            layers.append(hidden.transpose(1, 2))
        return self.output(self.norm(hidden).flatten(1)), layers


def build(inputs: int, classes: int, width: int) -> nn.Module:
    if width % HEADS:
        raise ValueError(f"the width of a transformer must be a multiple of {HEADS}, not {width}")
    return Transformer(inputs, classes, width)
