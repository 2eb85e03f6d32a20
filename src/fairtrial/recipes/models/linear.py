"""A linear classifier: the baseline that every other model should beat."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from fairtrial.recipes.models.stacked import Affine, Layout

DEFAULT_WIDTH = 0


class Linear(nn.Module):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.output = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.output(x)
        return logits

    def trace(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        return self(x), []


class StackedLinear:
    """The linear classifier for many runs at once, with explicit gradients."""

    def __init__(self, layout: Layout, rows: Tensor, gradients: Tensor | None = None) -> None:
        self.output = Affine(layout, "output", rows, gradients)

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        return self.output.forward(x), []

    def backward(self, logits: Tensor, layers: Mapping[int, Tensor]) -> None:  # noqa: ARG002 — a linear model has no hidden layers
        self.output.backward(logits)

    def flops(self, batch: int) -> int:
        return self.output.flops(batch, pulled=False)

    def buffers(self) -> list[Tensor]:
        return self.output.buffers()


def build(inputs: int, classes: int, width: int) -> nn.Module:
    if width:
        raise ValueError("a linear model has no width")
    return Linear(inputs, classes)


def stack(layout: Layout, rows: Tensor, gradients: Tensor | None = None) -> StackedLinear:
    return StackedLinear(layout, rows, gradients)
