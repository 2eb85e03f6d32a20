"""Two hidden layers with a residual connection, as published with MNIST-1D."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from fairtrial.recipes.models.stacked import Affine, Layout, Masked, aligned

DEFAULT_WIDTH = 100


class MLP(nn.Module):
    def __init__(self, inputs: int, classes: int, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.second = nn.Linear(width, width)
        self.output = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.trace(x)[0]

    def trace(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        first = relu(self.first(x))
        second = first + relu(self.second(first))
        return self.output(second), [first, second]


class StackedMLP:
    """The MLP for many runs at once, with explicit gradients."""

    def __init__(self, layout: Layout, rows: Tensor, gradients: Tensor | None = None) -> None:
        self.first, self.second, self.output = (
            Affine(layout, name, rows, gradients) for name in ("first", "second", "output")
        )
        self._masks = (Masked(), Masked())
        self._sum = rows.new_empty(0)

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        self._first = self.first.forward(x).relu_()
        self._added = self.second.forward(self._first).relu_()
        if self._sum.shape != self._added.shape:
            self._sum = aligned(self._added, *self._added.shape)
        hidden = torch.add(self._first, self._added, out=self._sum)
        return self.output.forward(hidden), [self._first, hidden]

    def backward(self, logits: Tensor, layers: Mapping[int, Tensor]) -> None:
        """Compute parameter gradients from the gradients of the logits and of the hidden layers in `layers`."""
        self.output.backward(logits)
        hidden = self.output.pull(logits, layers.get(1))
        added = self._masks[1](hidden, self._added)
        self.second.backward(added)
        first = self.second.pull(added, hidden)
        if 0 in layers:
            first.add_(layers[0])
        self.first.backward(self._masks[0](first, self._first))

    def flops(self, batch: int) -> int:
        pulled = self.second.flops(batch, pulled=True) + self.output.flops(batch, pulled=True)
        return self.first.flops(batch, pulled=False) + pulled

    def buffers(self) -> list[Tensor]:
        layers = (self.first, self.second, self.output, *self._masks)
        return [self._sum, *(tensor for layer in layers for tensor in layer.buffers())]


def build(inputs: int, classes: int, width: int) -> nn.Module:
    return MLP(inputs, classes, width)


def stack(layout: Layout, rows: Tensor, gradients: Tensor | None = None) -> StackedMLP:
    return StackedMLP(layout, rows, gradients)
