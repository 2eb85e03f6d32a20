"""A language model as plain values: what a process needs to run it, without the libraries that made it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairtrial.recipes.lm.types import Values


@dataclass(frozen=True)
class Llama:
    """The measures of a plain Llama: no biases, no scaling of its rotary positions."""

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
    """A pair of thin matrices beside a weight, by their names. `transposed`: the weight is kept as (in, out)."""

    weight: str
    down: str
    up: str
    transposed: bool = False


@dataclass(frozen=True)
class Blueprint:
    """A model that can be sent to another process.

    `base` never changes. `initial` is what learns, as it was at the beginning: the adapters, or all weights where there
    are none. `llama` is None for models that only `transformers` can run, by `config`. `longest` is the number of
    tokens that the model was made for.
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
        """The weights that a policy acts by: adapters are added to what they stand beside."""
        if not self.adapters:
            return {**self.base, **values}
        return {**self.base, **{each.weight: self._merged(each, values) for each in self.adapters}}

    def reference(self) -> dict[str, np.ndarray]:
        """The weights of the frozen model: without adapters, or before the first step."""
        return {**self.base} if self.adapters else self.effective(self.initial)

    def _merged(self, adapter: Adapter, values: Values) -> np.ndarray:
        added = np.float32(self.scale) * (values[adapter.up] @ values[adapter.down])
        merged: np.ndarray = self.base[adapter.weight] + (added.T if adapter.transposed else added)
        return merged
