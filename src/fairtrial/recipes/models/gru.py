"""A bidirectional GRU with a linear layer on all of its outputs, as published with MNIST-1D."""

from __future__ import annotations

from torch import Tensor, nn

DEFAULT_WIDTH = 6


class GRU(nn.Module):
    def __init__(self, inputs: int, classes: int, width: int) -> None:
        super().__init__()
        self.recurrent = nn.GRU(1, width, batch_first=True, bidirectional=True)
        self.output = nn.Linear(2 * width * inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.trace(x)[0]

    def trace(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        outputs, _ = self.recurrent(x.unsqueeze(2))
        return self.output(outputs.flatten(1)), [outputs.transpose(1, 2)]


def build(inputs: int, classes: int, width: int) -> nn.Module:
    return GRU(inputs, classes, width)
