"""Three strided convolutions (kernels 5, 3, 3), as published with MNIST-1D.

For signals this short, the overhead of a general convolution exceeds its arithmetic. With channels last, the inputs of
one output are contiguous in memory, so that a convolution is one copy and one matrix product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

DEFAULT_WIDTH = 25
STRIDE = 2
PADDING = 1
KERNELS = (5, 3, 3)


class CNN(nn.Module):
    def __init__(self, inputs: int, classes: int, width: int) -> None:
        super().__init__()
        channels = (1, width, width)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(before, width, kernel, stride=STRIDE, padding=PADDING)
            for before, kernel in zip(channels, KERNELS, strict=True)
        )
        self.output = nn.Linear(width * _positions(inputs), classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.trace(x)[0]

    def trace(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        hidden, layers = x.unsqueeze(2), []
        for convolution in self.convolutions:
            hidden = _Rectified.apply(hidden, convolution.weight, convolution.bias)  # type: ignore[no-untyped-call]
            layers.append(hidden.transpose(1, 2))
        return self.output(layers[-1].flatten(1)), layers


class _Rectified(torch.autograd.Function):
    """relu(conv1d(x)) with stride 2 and padding 1, for x of [batch, positions, channels]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        batch, positions, channels = x.shape
        outputs, _, kernel = weight.shape
        left = (positions + 2 * PADDING - kernel) // STRIDE + 1
        padded = x.new_zeros(batch, positions + 2 * PADDING, channels)
        padded[:, PADDING:-PADDING] = x
        windows = padded.as_strided((batch, left, kernel * channels), (padded.stride(0), STRIDE * channels, 1)).reshape(
            batch * left, kernel * channels
        )
        matrix = weight.transpose(1, 2).reshape(outputs, kernel * channels)
        y = torch.addmm(bias, windows, matrix.T).relu_()
        ctx.save_for_backward(windows, matrix, y)
        ctx.shapes = x.shape, weight.shape
        return y.view(batch, left, outputs)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        windows, matrix, y = ctx.saved_tensors
        (batch, positions, channels), (outputs, _, kernel) = ctx.shapes
        passed = torch.ops.aten.threshold_backward(above[0].reshape(y.shape), y, 0)
        weight = (passed.T @ windows).view(outputs, kernel, channels).transpose(1, 2)
        below = None
        if ctx.needs_input_grad[0]:
            pulled = (passed @ matrix).view(batch, -1, kernel, channels)
            below = _overlap(pulled, positions)
        return below, weight, passed.sum(0)


def _overlap(windows: Tensor, positions: int) -> Tensor:
    """Sum the windows' gradients at each position: the adjoint of extracting the windows."""
    batch, count, kernel, channels = windows.shape
    covered = STRIDE * count
    padded = windows.new_empty(batch, covered + kernel, channels)
    padded[:, :covered].view(batch, count, STRIDE, channels).copy_(windows[:, :, :STRIDE])
    padded[:, covered:] = 0
    for offset in range(STRIDE, kernel):
        padded[:, offset : offset + covered : STRIDE] += windows[:, :, offset]
    return padded[:, PADDING : PADDING + positions]


def _positions(inputs: int) -> int:
    """Return the number of positions after the three strided convolutions."""
    for kernel in KERNELS:
        inputs = (inputs + 2 * PADDING - kernel) // STRIDE + 1
    return inputs


def build(inputs: int, classes: int, width: int) -> nn.Module:
    return CNN(inputs, classes, width)
