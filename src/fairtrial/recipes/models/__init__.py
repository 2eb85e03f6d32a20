"""Small models for one-dimensional signals, each a file with `build(inputs, classes, width)`.

Every module gives logits from `forward(x)`, and from `trace(x)` also the activations of its hidden layers:
`[batch, channels]`, or `[batch, channels, positions]` where the model has positions. Those are the maps that
attention transfer needs.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from fairtrial.plugins import Streams

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fairtrial.recipes.models.stacked import Layout

ModelName = Literal["linear", "mlp", "cnn", "gru", "transformer"]
MODELS: tuple[str, ...] = ("linear", "mlp", "cnn", "gru", "transformer")
WITH_MAPS = ("cnn", "gru", "transformer")
WITH_LAYERS = ("mlp", "cnn", "gru", "transformer")
STACKED = ("linear", "mlp")
"""Models that are trained in stacks, also when a run is alone. The others would gain nothing from it."""


def build_model(name: str, width: int, *, inputs: int, classes: int, streams: Streams) -> torch.nn.Module:
    """A model whose weights depend on the run's `init` stream alone. Width 0 is the model's own default."""
    module = _load(name)
    model: torch.nn.Module = module.build(inputs, classes, width or module.DEFAULT_WIDTH)
    initialize(model, streams)
    return model


def stack_model(name: str, layout: Layout, rows: Tensor, gradients: Tensor | None = None) -> StackedModel:
    """Many models of one kind, over rows of parameters."""
    model: StackedModel = _load(name).stack(layout, rows, gradients)
    return model


class StackedModel(Protocol):
    """A model for many runs at once. `backward` takes gradients of the logits and of some hidden layers."""

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]: ...

    def backward(self, logits: Tensor, layers: Mapping[int, Tensor]) -> None: ...

    def flops(self, batch: int) -> int: ...

    def buffers(self) -> list[Tensor]: ...


def _load(name: str) -> ModuleType:
    return importlib.import_module(f"fairtrial.recipes.models.{name}")


def load_models() -> None:
    """Import every model, for a process that others are forked from."""
    for name in MODELS:
        _load(name)


def initialize(model: torch.nn.Module, streams: Streams) -> None:
    """Draw each layer from a stream of its own name, so that layers of one shape are shared by all variants."""
    import torch

    with torch.random.fork_rng(devices=[]):
        for name, layer in model.named_modules():
            reset: Any = getattr(layer, "reset_parameters", None)
            if reset is not None:
                torch.manual_seed(streams.seed("init", name))
                reset()
