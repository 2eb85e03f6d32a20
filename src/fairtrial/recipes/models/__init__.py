"""Small models for one-dimensional signals, one module each, with a function `build(inputs, classes, width)`.

`forward(x)` of a model returns logits. `trace(x)` returns logits and the activations of the hidden layers, of shape
`[batch, channels]`, or `[batch, channels, positions]` if the model has positions. Attention transfer needs the latter.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from fairtrial.plugins import Streams
from fairtrial.recipes._seeding import cpu_seeded

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fairtrial.recipes.models.stacked import Layout

ModelName = Literal["linear", "mlp", "cnn", "gru", "transformer"]
MODELS: tuple[str, ...] = ("linear", "mlp", "cnn", "gru", "transformer")
WITH_MAPS = ("cnn", "gru", "transformer")
WITH_LAYERS = ("mlp", "cnn", "gru", "transformer")
STACKED = ("linear", "mlp")
"""Models that are always trained as stacks, even a single run. Stacking would not make the others faster."""


def build_model(name: str, width: int, *, inputs: int, classes: int, streams: Streams) -> torch.nn.Module:
    """Build a model whose weights depend only on the run's `init` stream. Width 0 means the model's default."""
    module = _load(name)
    model: torch.nn.Module = module.build(inputs, classes, width or module.DEFAULT_WIDTH)
    initialize(model, streams)
    return model


def stack_model(name: str, layout: Layout, rows: Tensor, gradients: Tensor | None = None) -> StackedModel:
    """Return a stacked model of this kind whose parameters are in `rows`, one row per run."""
    model: StackedModel = _load(name).stack(layout, rows, gradients)
    return model


class StackedModel(Protocol):
    """A model that computes many runs at once. `backward` takes the gradients of the logits and of hidden layers."""

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]: ...

    def backward(self, logits: Tensor, layers: Mapping[int, Tensor]) -> None: ...

    def flops(self, batch: int) -> int: ...

    def buffers(self) -> list[Tensor]: ...


def _load(name: str) -> ModuleType:
    return importlib.import_module(f"fairtrial.recipes.models.{name}")


def load_models() -> None:
    """Import every model, in a process from which jobs are forked."""
    for name in MODELS:
        _load(name)


def initialize(model: torch.nn.Module, streams: Streams) -> None:
    """Initialize each layer from a random stream with the layer's name.

    Variants therefore start with equal weights in layers of equal name and shape.
    """
    for name, layer in model.named_modules():
        reset: Any = getattr(layer, "reset_parameters", None)
        if reset is not None:
            with cpu_seeded(streams.seed("init", name)):
                reset()
