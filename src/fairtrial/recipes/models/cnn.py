"""Three strided convolutions (kernels 5, 3, 3), as published with MNIST-1D."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu

DEFAULT_WIDTH = 25


class CNN(nn.Module):
    def __init__(self, inputs: int, classes: int, width: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            [
                nn.Conv1d(1, width, 5, stride=2, padding=1),
                nn.Conv1d(width, width, 3, stride=2, padding=1),
                nn.Conv1d(width, width, 3, stride=2, padding=1),
            ]
        )
        self.output = nn.Linear(width * _positions(inputs), classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.trace(x)[0]

    def trace(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        hidden, layers = x.unsqueeze(1), []
        for convolution in self.convolutions:
            hidden = relu(convolution(hidden))
            layers.append(hidden)
        return self.output(hidden.flatten(1)), layers


def _positions(inputs: int) -> int:
    """How many positions are left after the three strides."""
    for kernel in (5, 3, 3):
        inputs = (inputs + 2 - kernel) // 2 + 1
    return inputs


def build(inputs: int, classes: int, width: int) -> nn.Module:
    return CNN(inputs, classes, width)
