"""Action distributions: convert network outputs to discrete or continuous actions.

Actions are sampled in NumPy, from noise that is drawn in advance. Likelihoods are computed in torch, for autograd.
`pull` computes the gradients of Σ weight · log-likelihood − entropy_weight · entropy explicitly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy
import torch
from torch import Tensor

from fairtrial.recipes.rl.physics import Array, Space

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
LEAST = 1e-30

Weigh = Callable[[Tensor], Tensor]
"""Maps the log-likelihoods of the examples to their weights in the loss, both [runs, examples]."""


class Actions(Protocol):
    """An action distribution. `scale` is the log standard deviation, broadcast to the outputs."""

    parameters: Mapping[str, tuple[int, ...]]
    """Names and shapes of the distribution's own parameters, which are trained in addition to the network's."""
    dtype: torch.dtype
    shape: tuple[int, ...]

    def noise(self, draw: numpy.random.Generator, shape: tuple[int, ...]) -> Array: ...

    def sample(self, outputs: Array, noise: Array, scale: Array | None) -> Array: ...

    def best(self, outputs: Array) -> Array: ...

    def playable(self, actions: Array) -> Array:
        """Return the actions in the form that the environment accepts."""
        ...

    def likelihood(self, outputs: Tensor, actions: Tensor, scale: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the log-likelihoods of the actions and the entropies, without the last dimension."""
        ...

    def pull(
        self, outputs: Tensor, actions: Tensor, scale: Tensor | None, weigh: Weigh, entropy_weight: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the gradients of the outputs, [runs, examples, …], and of the scale.

        `entropy_weight` is [runs, 1, 1].
        """
        ...


class CategoricalActions:
    """A softmax over discrete actions, sampled as the argmax of outputs plus Gumbel noise."""

    parameters: Mapping[str, tuple[int, ...]] = {}
    dtype = torch.int64
    shape: tuple[int, ...] = ()

    def __init__(self, space: Space) -> None:
        self._count = space.actions

    def noise(self, draw: numpy.random.Generator, shape: tuple[int, ...]) -> Array:
        waits = draw.standard_exponential((*shape, self._count), dtype=numpy.float32)
        noise: Array = -numpy.log(numpy.maximum(waits, LEAST))
        return noise

    def sample(self, outputs: Array, noise: Array, scale: Array | None) -> Array:  # noqa: ARG002
        chosen: Array = (outputs + noise).argmax(-1)
        return chosen

    def best(self, outputs: Array) -> Array:
        best: Array = outputs.argmax(-1)
        return best

    def playable(self, actions: Array) -> Array:
        return actions

    def likelihood(self, outputs: Tensor, actions: Tensor, scale: Tensor | None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        logs = torch.log_softmax(outputs, -1)
        return logs.gather(-1, actions[..., None])[..., 0], -(logs.exp() * logs).sum(-1)

    def pull(
        self, outputs: Tensor, actions: Tensor, scale: Tensor | None, weigh: Weigh, entropy_weight: Tensor | None  # noqa: ARG002
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        logs = torch.log_softmax(outputs, -1)
        chosen = actions[..., None]
        weight = weigh(logs.gather(-1, chosen)[..., 0])[..., None]
        chances = logs.exp()
        pulled = chances * -weight
        if entropy_weight is not None:
            lack = (chances * logs).sum(-1, keepdim=True)
            pulled.addcmul_(chances * entropy_weight, logs - lack)
        return pulled.scatter_add_(-1, chosen, weight), None


class GaussianActions:
    """A Gaussian with the outputs as means and a state-independent standard deviation; actions are clipped."""

    dtype = torch.float32

    def __init__(self, space: Space) -> None:
        self.parameters: Mapping[str, tuple[int, ...]] = {"log_deviation": (space.actions,)}
        self.shape: tuple[int, ...] = (space.actions,)
        self._low, self._high = space.low, space.high

    def noise(self, draw: numpy.random.Generator, shape: tuple[int, ...]) -> Array:
        return draw.standard_normal((*shape, *self.shape), dtype=numpy.float32)

    def sample(self, outputs: Array, noise: Array, scale: Array | None) -> Array:
        assert scale is not None
        sampled: Array = outputs + numpy.exp(scale) * noise
        return sampled

    def best(self, outputs: Array) -> Array:
        return outputs.copy()

    def playable(self, actions: Array) -> Array:
        return numpy.clip(actions, self._low, self._high)

    def likelihood(self, outputs: Tensor, actions: Tensor, scale: Tensor | None) -> tuple[Tensor, Tensor]:
        assert scale is not None
        distance = (actions - outputs) * torch.exp(-scale)
        log = -(0.5 * distance**2 + scale + HALF_LOG_TWO_PI).sum(-1)
        return log, (scale + 0.5 + HALF_LOG_TWO_PI).expand(outputs.shape).sum(-1)

    def pull(
        self, outputs: Tensor, actions: Tensor, scale: Tensor | None, weigh: Weigh, entropy_weight: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        assert scale is not None
        coolness = torch.exp(-scale)
        distance = (actions - outputs) * coolness
        weight = weigh(self.likelihood(outputs, actions, scale)[0])[..., None]
        of_scale = (weight * (distance**2 - 1)).sum(1)
        if entropy_weight is not None:
            of_scale -= entropy_weight[:, 0] * outputs.shape[1]
        return weight * distance * coolness, of_scale


def actions_of(space: Space) -> Actions:
    return CategoricalActions(space) if space.is_discrete else GaussianActions(space)
