"""Small models for one-dimensional signals, each a file with `build(inputs, classes, width)`.

Every module gives logits from `forward(x)`, and from `trace(x)` also the activations of its hidden layers:
`[batch, channels]`, or `[batch, channels, positions]` where the model has positions. Those are the maps that
attention transfer needs.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from fairtrial.core.streams import Streams

if TYPE_CHECKING:
    import torch

ModelName = Literal["linear", "mlp", "cnn", "gru", "transformer"]
MODELS: tuple[str, ...] = ("linear", "mlp", "cnn", "gru", "transformer")
WITH_MAPS = ("cnn", "gru", "transformer")
WITH_LAYERS = ("mlp", "cnn", "gru", "transformer")


def build_model(name: str, width: int, *, inputs: int, classes: int, streams: Streams) -> torch.nn.Module:
    """A model whose weights depend on the run's `init` stream alone. Width 0 is the model's own default."""
    module = _load(name)
    model: torch.nn.Module = module.build(inputs, classes, width or module.DEFAULT_WIDTH)
    initialize(model, streams)
    return model


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
