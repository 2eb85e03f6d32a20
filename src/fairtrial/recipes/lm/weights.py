"""A language model as plain values, which a process can run without the libraries that created it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairtrial.recipes.lm.types import Values


@dataclass(frozen=True)
class Llama:
    """The dimensions of a plain Llama: no biases, and no scaling of its rotary embeddings."""

    vocabulary: int
    width: int
    inner: int
    layers: int
    heads: int
    key_heads: int
    head_width: int
    theta: float
    epsilon: float
    tied: bool


@dataclass(frozen=True)
class Adapter:
    """The names of a LoRA adapter's matrices and of its weight. `transposed`: the weight is stored as (in, out)."""

    weight: str
    down: str
    up: str
    transposed: bool = False


@dataclass(frozen=True)
class Blueprint:
    """A model that can be sent to another process.

    `base` never changes. `initial` has the initial values of the trained parameters: the adapters, or all weights if
    there are none. `llama` is None for models that only `transformers` can run, from `config`. `longest` is the context
    length in tokens.
    """

    llama: Llama | None
    config: Mapping[str, Any]
    vocabulary: int
    longest: int
    base: Values
    initial: Values
    adapters: tuple[Adapter, ...] = ()
    scale: float = 0.0
    adapter_config: Mapping[str, Any] | None = None

    def effective(self, values: Values) -> dict[str, np.ndarray]:
        """Return the policy's weights, with the adapters merged into them."""
        if not self.adapters:
            return {**self.base, **values}
        return {**self.base, **{each.weight: self._merged(each, values) for each in self.adapters}}

    def reference(self) -> dict[str, np.ndarray]:
        """Return the weights of the frozen model: the base without adapters, or the initial weights."""
        return {**self.base} if self.adapters else self.effective(self.initial)

    def _merged(self, adapter: Adapter, values: Values) -> np.ndarray:
        added = np.float32(self.scale) * (values[adapter.up] @ values[adapter.down])
        merged: np.ndarray = self.base[adapter.weight] + (added.T if adapter.transposed else added)
        return merged
