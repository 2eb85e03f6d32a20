"""Building blocks for many small models at once: parameters in rows, arithmetic in batched matrix products.

A row contains all parameters of one run. Every parameter and every row starts at a multiple of 16 elements. The
optimizer's vectorized kernel rounds the remaining elements at the end of a tensor differently from the others, and a
run's results must not depend on where its row ends. With this alignment, a run is bit-identical in every stack.

Activations need the same: a matrix product may round differently when its operands start at another offset within a
cache line, so every run's part of a buffer starts on a cache line.

The gradients are explicit. For models this small, building an autograd graph costs more than the arithmetic.
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
    """The position of a parameter within a row."""

    start: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return torch.Size(self.shape).numel()


class Layout:
    """The positions of named parameters within a row."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.places: dict[str, ParameterSlice] = {}
        end = 0
        for name, shape in shapes.items():
            place = self.places[name] = ParameterSlice(end, tuple(shape))
            end += _rounded_up(place.size)
        self.width = end

    def view(self, rows: Tensor, name: str) -> Tensor:
        """Return a view of one parameter in every row. It shares memory with the rows."""
        place = self.places[name]
        return rows[:, place.start : place.start + place.size].view(len(rows), *place.shape)

    def pack(self, parameters: Mapping[str, Tensor]) -> Tensor:
        row = torch.zeros(self.width)
        for name in self.places:
            self.view(row[None], name)[0].copy_(parameters[name])
        return row

    def unpack(self, row: Tensor) -> dict[str, Tensor]:
        """Return copies of all parameters, which further training does not change."""
        return {name: self.view(row[None], name)[0].clone() for name in self.places}


def aligned(like: Tensor, *shape: int) -> Tensor:
    """Return an empty [runs, rows, columns] buffer in which each run's part starts at a multiple of 16 elements."""
    runs, *inner = shape
    size = torch.Size(inner).numel()
    return like.new_empty(runs, _rounded_up(size))[:, :size].view(runs, *inner)


def _rounded_up(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class Affine:
    """y = x Wᵀ + b for every row, and its gradients, with buffers that are allocated once."""

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
        """Return the output times `times`. The scaling is fused into the matrix product and costs nothing."""
        self._input = x
        if self._output.size(1) != x.size(1):
            self._output = aligned(x, len(x), x.shape[1], self.weight.shape[1])
        return torch.baddbmm(self.bias, x, self._across, beta=times, alpha=times, out=self._output)

    def backward(self, above: Tensor) -> None:
        """Compute the gradients of this layer's parameters from the gradient of its output."""
        torch.bmm(above.mT, self._input, out=self.weight_gradient)
        torch.sum(above, 1, keepdim=True, out=self.bias_gradient)

    def pull(self, above: Tensor, also: Tensor | None = None) -> Tensor:
        """Return the gradient of the layer's input, plus `also`, the gradient that reaches it by other paths."""
        if self._pulled.size(1) != above.size(1):
            self._pulled = aligned(above, len(above), above.shape[1], self.weight.shape[2])
        if also is None:
            return torch.bmm(above, self.weight, out=self._pulled)
        return torch.baddbmm(also, above, self.weight, out=self._pulled)

    def flops(self, batch: int, *, pulled: bool) -> int:
        """Return the FLOPs per run of the output, the weight gradient and, with `pulled`, the input gradient."""
        return (3 if pulled else 2) * 2 * batch * self.weight.shape[1] * self.weight.shape[2]

    def buffers(self) -> list[Tensor]:
        return [self._output, self._pulled]


class NarrowAffine(Affine):
    """An affine layer with few inputs. Its weight gradient is computed transposed, which is six times as fast."""

    def backward(self, above: Tensor) -> None:
        self.weight_gradient.copy_(torch.bmm(self._input.mT, above).mT)
        torch.sum(above, 1, keepdim=True, out=self.bias_gradient)


def share_rows(members: Sequence[Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Stack the members' values and optimizer averages into shared tensors; members then hold views of their rows."""
    tensors = []
    for name in ("values", "averages", "squares"):
        rows = torch.stack([getattr(member, name) for member in members])
        tensors.append(rows)
        for member, row in zip(members, rows, strict=True):
            setattr(member, name, row)
    return tensors[0], tensors[1], tensors[2]


class Masked:
    """The gradient of ReLU: passes the gradient where the activation is positive."""

    def __init__(self) -> None:
        self._passed: Tensor | None = None

    def __call__(self, above: Tensor, activation: Tensor) -> Tensor:
        if self._passed is None:
            self._passed = aligned(activation, *activation.shape)
        return torch.ops.aten.threshold_backward.grad_input(above, activation, 0, grad_input=self._passed)  # type: ignore[no-any-return]

    def buffers(self) -> list[Tensor]:
        return [] if self._passed is None else [self._passed]


class Tanh:
    """tanh, computed as 2 σ(2x) − 1, which takes torch a third of the time, and its gradient."""

    def __init__(self, device: torch.device) -> None:
        self._pulled: Tensor | None = None
        self._minus_one = torch.tensor(-1.0, device=device)

    def of(self, layer: Affine, x: Tensor) -> Tensor:
        """Return tanh of the layer's output for x."""
        output = layer.forward(x, times=2.0).sigmoid_()
        return torch.add(self._minus_one, output, alpha=2.0, out=output)

    def pull(self, above: Tensor, activation: Tensor) -> Tensor:
        """Return the gradient of tanh's input."""
        if self._pulled is None or self._pulled.shape != activation.shape:
            self._pulled = aligned(activation, *activation.shape)
        return torch.ops.aten.tanh_backward.grad_input(above, activation, grad_input=self._pulled)  # type: ignore[no-any-return]

    def buffers(self) -> list[Tensor]:
        return [] if self._pulled is None else [self._pulled]
