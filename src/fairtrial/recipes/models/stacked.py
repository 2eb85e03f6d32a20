"""Many small models at once: their parameters in rows, their arithmetic in batched matrix products.

A row holds all parameters of one run. Every parameter begins at a multiple of sixteen numbers, and so does the next
row: the optimizer's kernel rounds the odd numbers at the end of a tensor differently from the rest, and a run's
numbers must not depend on where its row happens to end. With that, a run is bit for bit the same in any company.

The same holds for activations: a matrix product may round differently when its matrices begin elsewhere
within a cache line, so every run's part of a buffer begins on one.

Gradients are written out by hand. These models are so small that building a graph costs more than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ALIGNMENT = 16


@dataclass(frozen=True)
class ParameterSlice:
    """Where in a row a parameter lies."""

    start: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return torch.Size(self.shape).numel()


class Layout:
    """The places of named parameters in a row."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.places: dict[str, ParameterSlice] = {}
        end = 0
        for name, shape in shapes.items():
            place = self.places[name] = ParameterSlice(end, tuple(shape))
            end += _rounded_up(place.size)
        self.width = end

    def view(self, rows: Tensor, name: str) -> Tensor:
        """The parameter in every row; what is written to it is written to the rows."""
        place = self.places[name]
        return rows[:, place.start : place.start + place.size].view(len(rows), *place.shape)

    def pack(self, parameters: Mapping[str, Tensor]) -> Tensor:
        row = torch.zeros(self.width)
        for name in self.places:
            self.view(row[None], name)[0].copy_(parameters[name])
        return row

    def unpack(self, row: Tensor) -> dict[str, Tensor]:
        """Copies: further training does not reach into them."""
        return {name: self.view(row[None], name)[0].clone() for name in self.places}


def aligned(like: Tensor, *shape: int) -> Tensor:
    """An empty [runs, rows, columns] buffer in which every run's part begins at a multiple of sixteen numbers."""
    runs, *inner = shape
    size = torch.Size(inner).numel()
    return like.new_empty(runs, _rounded_up(size))[:, :size].view(runs, *inner)


def _rounded_up(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class Affine:
    """y = x Wᵀ + b in every row, and its gradients, in buffers that are made once."""

    def __init__(self, layout: Layout, name: str, rows: Tensor, gradients: Tensor | None = None) -> None:
        self.weight = layout.view(rows, f"{name}.weight")
        self.bias = layout.view(rows, f"{name}.bias").unsqueeze(1)
        if gradients is not None:
            self.weight_gradient = layout.view(gradients, f"{name}.weight")
            self.bias_gradient = layout.view(gradients, f"{name}.bias").unsqueeze(1)
        self._across = self.weight.mT
        self._output = rows.new_empty(0, 0)
        self._pulled = rows.new_empty(0, 0)

    def forward(self, x: Tensor, times: float = 1.0) -> Tensor:
        """The output, or a multiple of it: that costs nothing here."""
        self._input = x
        if self._output.size(1) != x.size(1):
            self._output = aligned(x, len(x), x.shape[1], self.weight.shape[1])
        return torch.baddbmm(self.bias, x, self._across, beta=times, alpha=times, out=self._output)

    def backward(self, above: Tensor) -> None:
        """Gradients of this layer's parameters, from the gradient of its output."""
        torch.bmm(above.mT, self._input, out=self.weight_gradient)
        torch.sum(above, 1, keepdim=True, out=self.bias_gradient)

    def pull(self, above: Tensor, also: Tensor | None = None) -> Tensor:
        """The gradient of its input, on top of what reaches that input by other ways."""
        if self._pulled.size(1) != above.size(1):
            self._pulled = aligned(above, len(above), above.shape[1], self.weight.shape[2])
        if also is None:
            return torch.bmm(above, self.weight, out=self._pulled)
        return torch.baddbmm(also, above, self.weight, out=self._pulled)

    def flops(self, batch: int, *, pulled: bool) -> int:
        """Of one run: its output, its weights' gradient and, if that is asked for, the gradient of its input."""
        return (3 if pulled else 2) * 2 * batch * self.weight.shape[1] * self.weight.shape[2]

    def buffers(self) -> list[Tensor]:
        return [self._output, self._pulled]


class NarrowAffine(Affine):
    """One with few inputs: the gradient of its weights is found the other way round, which is six times as fast."""

    def backward(self, above: Tensor) -> None:
        self.weight_gradient.copy_(torch.bmm(self._input.mT, above).mT)
        torch.sum(above, 1, keepdim=True, out=self.bias_gradient)


def share_rows(members: Sequence[Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Put the members' values and the optimizer's two averages under each other; from now on they look into them."""
    tensors = []
    for name in ("values", "averages", "squares"):
        rows = torch.stack([getattr(member, name) for member in members])
        tensors.append(rows)
        for member, row in zip(members, rows, strict=True):
            setattr(member, name, row)
    return tensors[0], tensors[1], tensors[2]


class Masked:
    """Passes a gradient through where a ReLU had let its input through."""

    def __init__(self) -> None:
        self._passed: Tensor | None = None

    def __call__(self, above: Tensor, activation: Tensor) -> Tensor:
        if self._passed is None:
            self._passed = aligned(activation, *activation.shape)
        return torch.ops.aten.threshold_backward.grad_input(above, activation, 0, grad_input=self._passed)  # type: ignore[no-any-return]

    def buffers(self) -> list[Tensor]:
        return [] if self._passed is None else [self._passed]


class Tanh:
    """The hyperbolic tangent as 2 σ(2x) − 1, which torch computes in a third of the time, and its gradient."""

    def __init__(self) -> None:
        self._pulled: Tensor | None = None
        self._minus_one = torch.tensor(-1.0)

    def of(self, layer: Affine, x: Tensor) -> Tensor:
        """Of what the layer makes of x."""
        output = layer.forward(x, times=2.0).sigmoid_()
        return torch.add(self._minus_one, output, alpha=2.0, out=output)

    def pull(self, above: Tensor, activation: Tensor) -> Tensor:
        """The gradient of its input."""
        if self._pulled is None or self._pulled.shape != activation.shape:
            self._pulled = aligned(activation, *activation.shape)
        return torch.ops.aten.tanh_backward.grad_input(above, activation, grad_input=self._pulled)  # type: ignore[no-any-return]

    def buffers(self) -> list[Tensor]:
        return [] if self._pulled is None else [self._pulled]
