"""The policy that can be stacked: per run, a policy and a value network with two hidden layers each.

Both have the same shape, so that the networks of n runs form one stack of 2n. The value network needs only one output;
its other outputs are never used, stay 0, and do not count as parameters.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy
import torch
from torch import Tensor

from fairtrial.plugins import Streams
from fairtrial.recipes._adamw import update_rows
from fairtrial.recipes.models.stacked import Affine, Layout, NarrowAffine, Tanh, aligned, share_rows
from fairtrial.recipes.rl.actions import Actions, Weigh
from fairtrial.recipes.rl.physics import Array, Space
from fairtrial.recipes.rl.run import PpoRun, RolloutBatch

NETWORKS = ("policy", "value")
LAYERS = ("first", "second", "output")
EPSILON = 1e-5


def make_layout(space: Space, width: int, actions: Actions) -> Layout:
    """Return the layout of one network's parameters in a row."""
    inputs = int(numpy.prod(space.observation))
    sizes = dict(zip(LAYERS, ((width, inputs), (width, width), (space.actions, width)), strict=True))
    shapes = {
        f"{name}.{part}": size[:ends] for name, size in sizes.items() for part, ends in (("weight", 2), ("bias", 1))
    }
    return Layout({**shapes, **actions.parameters})


def initial_rows(layout: Layout, streams: Streams) -> Tensor:
    """Return orthogonal initial weights, with gain √2 in hidden layers and 1 in the value output.

    The action output has gain 0.01, so that all actions start almost equally likely.
    """
    rows = torch.zeros(len(NETWORKS), layout.width)
    for network, row in zip(NETWORKS, rows, strict=True):
        for layer in LAYERS:
            weight = layout.view(row[None], f"{layer}.weight")[0]
            if layer == "output":
                gain, weight = (0.01, weight) if network == "policy" else (1.0, weight[:1])
            else:
                gain = 2**0.5
            torch.nn.init.orthogonal_(weight, gain, generator=streams.torch("init", f"{network}.{layer}"))
    return rows


class Tower:
    """Two-layer tanh networks over rows of parameters, with explicit gradients."""

    def __init__(self, layout: Layout, rows: Tensor, gradients: Tensor | None = None) -> None:
        self.first = NarrowAffine(layout, "first", rows, gradients)
        self.second, self.output = (Affine(layout, name, rows, gradients) for name in ("second", "output"))
        self._bends = Tanh(rows.device), Tanh(rows.device)

    def forward(self, x: Tensor) -> Tensor:
        self._low = self._bends[0].of(self.first, x)
        self._high = self._bends[1].of(self.second, self._low)
        return self.output.forward(self._high)

    def backward(self, outputs: Tensor) -> None:
        self.output.backward(outputs)
        high = self._bends[1].pull(self.output.pull(outputs), self._high)
        self.second.backward(high)
        self.first.backward(self._bends[0].pull(self.second.pull(high), self._low))

    def flops(self, batch: int, *, learning: bool) -> int:
        layers = (self.first, self.second, self.output)
        if not learning:
            return sum(layer.flops(batch, pulled=False) // 2 for layer in layers)
        return sum(layer.flops(batch, pulled=layer is not self.first) for layer in layers)

    def buffers(self) -> list[Tensor]:
        layers = (self.first, self.second, self.output, *self._bends)
        return [tensor for layer in layers for tensor in layer.buffers()]


class PerceptronActor:
    """Acts for any number of environments. It has no memory."""

    def __init__(self, layout: Layout, rows: Tensor) -> None:
        """Take rows of shape [runs, networks, width]."""
        self._tower = Tower(layout, rows[:, 0])
        self._device = rows.device
        self._scale = layout.view(rows[:, 0], "log_deviation")[:, None] if "log_deviation" in layout.places else None

    def outputs(self, obs: Tensor) -> Array:
        return self._tower.forward(obs.to(self._device)).cpu().numpy()

    @property
    def scale(self) -> Array | None:
        return None if self._scale is None else self._scale.cpu().numpy()

    def forget(self, ended: Array) -> None: ...


class Perceptron:
    """The networks of several runs: evaluates them on a rollout and updates them."""

    def __init__(self, runs: Sequence[PpoRun]) -> None:
        self.runs = runs
        first, brains = runs[0], [run.agent_state for run in runs if isinstance(run.agent_state, PerceptronAgentState)]
        self.layout = brains[0].layout
        self.values, self.averages, self.squares = share_rows(brains)
        self.gradients = torch.zeros_like(self.values)
        count, flat = len(runs), (2 * len(runs), self.layout.width)
        self.tower = Tower(self.layout, self.values.view(flat), self.gradients.view(flat))
        self.player = PerceptronActor(self.layout, self.values)
        self.actions: Actions = first.actions
        self._scale, self._scale_gradient = (
            self.layout.view(rows[:, 0], "log_deviation")[:, None] if self.actions.parameters else None
            for rows in (self.values, self.gradients)
        )
        options = [run.options for run in runs]
        self._batch = first.options.batch_size
        self._clip = self._column([each.clip for each in options])
        self._value_weight = self._column([each.value_weight * 2 / self._batch for each in options])
        self._most_norm = torch.tensor([each.max_grad_norm for each in options], device=self.values.device)
        entropy = [each.entropy_weight / self._batch for each in options]
        self._entropy_weight = self._column(entropy)[..., None] if any(entropy) else None
        self._x = aligned(self.values, 2 * count, self._batch, *first.rows.space.observation)
        self._pulled = aligned(self.values, 2 * count, self._batch, first.rows.space.actions).zero_()

    def _column(self, values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=self.values.device)[:, None]

    def _two(self, tensor: Tensor) -> tuple[Tensor, Tensor]:
        """Split a tensor of all networks into the policies' outputs and the values."""
        both = torch.unflatten(tensor, 0, (len(self.runs), 2))
        return both[:, 0], both[:, 1, :, 0]

    def begin(self, lost: Array | None) -> None: ...

    def value_after(self, step: int, final: Tensor) -> Tensor:  # noqa: ARG002 — a perceptron has no memory
        return self._critic(final)[1]

    def critic(self, obs: Tensor, not_done: Array) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        return self._critic(obs)

    def _critic(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return copies of the policies' outputs and the values for observations [runs, examples, …]."""
        doubled = aligned(obs, 2 * len(obs), *obs.shape[1:])
        torch.unflatten(doubled, 0, (len(obs), 2)).copy_(obs[:, None])
        outputs, values = self._two(Tower(self.layout, self.values.view(doubled.shape[0], -1)).forward(doubled))
        return outputs.clone(), values.clone()

    def likelihood(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        return self.actions.likelihood(outputs, actions, self._scale)

    def learn(self, batch: RolloutBatch, steps: Sequence[int]) -> None:
        done = [(step - 1) * self.runs[0].options.passes for step in steps]
        for number, (actions, value_targets, weigh) in enumerate(self._batches(batch, steps), 1):
            outputs, values = self._two(self.tower.forward(self._x))
            self._pull(outputs, values, actions, value_targets, weigh)
            self.tower.backward(self._pulled)
            self._limit_norms()
            self._update(steps, [each + number for each in done])

    def _batches(self, batch: RolloutBatch, steps: Sequence[int]) -> Iterator[tuple[Tensor, Tensor, Weigh]]:
        """Yield the actions, value targets and weight function of each minibatch. Its observations are in `_x`."""
        options = self.runs[0].options
        if options.minibatches == 1:  # the order within a single batch does not matter
            self._show(batch.obs)
            whole = batch.actions, batch.value_targets, self._weigher(batch.old, batch.advantages)
            yield from itertools.repeat(whole, options.epochs)
            return
        run_of = torch.arange(len(self.runs), device=batch.obs.device)[:, None]
        for chosen in self._orders(batch.obs.shape[1], steps):
            self._show(batch.obs[run_of, chosen])
            old, gains, value_targets = (
                each.gather(1, chosen) for each in (batch.old, batch.advantages, batch.value_targets)
            )
            yield batch.actions[run_of, chosen], value_targets, self._weigher(old, gains)

    def _show(self, obs: Tensor) -> None:
        """Copy the observations to the input buffer, for both networks of each run."""
        torch.unflatten(self._x, 0, (len(self.runs), 2)).copy_(obs[:, None])

    def _orders(self, examples: int, steps: Sequence[int]) -> Iterator[Tensor]:
        """Yield the examples of each minibatch, [runs, batch], shuffled for each epoch by each run's own stream."""
        draws = [run.streams.numpy("order", step) for run, step in zip(self.runs, steps, strict=True)]
        for _ in range(self.runs[0].options.epochs):
            orders = torch.from_numpy(numpy.stack([draw.permutation(examples) for draw in draws]))
            yield from torch.split(orders.to(self.values.device), self._batch, 1)

    def _weigher(self, old: Tensor, advantages: Tensor) -> Weigh:
        """Return the function for the gradient of the clipped loss with respect to each action's log-likelihood."""
        deviation, mean = torch.std_mean(advantages, 1, keepdim=True)
        gain = (advantages - mean) / (deviation + 1e-8) * (-1.0 / advantages.shape[1])
        low, high = 1 - self._clip, 1 + self._clip

        def weigh(log: Tensor) -> Tensor:
            ratio = torch.exp(log - old)
            plain = ratio * gain
            return plain.mul_(plain >= ratio.clamp_(low, high).mul_(gain))

        return weigh

    def _pull(self, outputs: Tensor, values: Tensor, actions: Tensor, value_targets: Tensor, weigh: Weigh) -> None:
        of_outputs, of_values = self._two(self._pulled)
        pulled, of_scale = self.actions.pull(outputs, actions, self._scale, weigh, self._entropy_weight)
        of_outputs.copy_(pulled)
        torch.sub(values, value_targets, out=of_values).mul_(self._value_weight)
        if of_scale is not None and self._scale_gradient is not None:
            self._scale_gradient.copy_(of_scale[:, None])

    def _limit_norms(self) -> None:
        norms = torch.linalg.vector_norm(self.gradients.flatten(1), dim=1)
        self.gradients.mul_((self._most_norm / (norms + 1e-6)).clamp_(max=1.0)[:, None, None])

    def _update(self, steps: Sequence[int], numbers: Sequence[int]) -> None:
        rates = [run.options.rate_at(step) for run, step in zip(self.runs, steps, strict=True)]
        terms = [(rate, 0.0, number) for rate, number in zip(rates, numbers, strict=True)]
        update_rows(self.values, self.gradients, self.averages, self.squares, terms, epsilon=EPSILON)

    def flops(self, environments: int) -> int:
        """Return the FLOPs of one training step of one run: acting, evaluating the rollout, and updates."""
        options = self.runs[0].options
        actor = Tower(self.layout, self.values[0])
        acting = options.rollout * actor.flops(environments, learning=False)
        judging = 2 * actor.flops(environments * (options.rollout + 1), learning=False)
        return acting + judging + 2 * options.passes * actor.flops(self._batch, learning=True)


class PerceptronAgentState:
    """The trained state of one run: its two rows of parameters and the optimizer's averages of them."""

    def __init__(self, layout: Layout, rows: Tensor) -> None:
        self.layout = layout
        self.values = rows
        self.averages, self.squares = torch.zeros_like(rows), torch.zeros_like(rows)

    def player(self, count: int) -> PerceptronActor:  # noqa: ARG002
        return PerceptronActor(self.layout, self.values[None])

    def join(self, runs: Sequence[PpoRun]) -> Perceptron:
        return Perceptron(runs)

    def state(self) -> dict[str, Any]:
        """Return a copy of the state, which further training does not change."""
        module = {
            f"{network}.{name}": value
            for network, row in zip(NETWORKS, self.values, strict=True)
            for name, value in self.layout.unpack(row).items()
        }
        return {"module": module, "optimizer": {"exp_avg": self.averages.clone(), "exp_avg_sq": self.squares.clone()}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        for network, row in zip(NETWORKS, self.values, strict=True):
            own = {name: state["module"][f"{network}.{name}"] for name in self.layout.places}
            row.copy_(self.layout.pack(own))
        self.averages.copy_(state["optimizer"]["exp_avg"])
        self.squares.copy_(state["optimizer"]["exp_avg_sq"])

    def tensor_groups(self, policy: Perceptron) -> dict[str, list[Tensor]]:
        return {
            "parameters": self._parts(policy.values[0]),
            "gradients": self._parts(policy.gradients[0]),
            "optimizer": [self.averages, self.squares],
            "activations": policy.tower.buffers(),
        }

    def _parts(self, rows: Tensor) -> list[Tensor]:
        """Return the parameters that are used: all of the policy network, and those behind the one value output."""
        tensors = []
        for network, row in zip(NETWORKS, rows, strict=True):
            for name in self.layout.places:
                value = self.layout.view(row[None], name)[0]
                if network == "policy":
                    tensors.append(value)
                elif not name.startswith("log_"):
                    tensors.append(value[:1] if name.startswith("output") else value)
        return tensors


class StackedPpoRun(PpoRun):
    """A run that can be stepped together with others. Its FLOPs are counted by formula."""

    def flops_per_step(self) -> int:
        policy = self.stack.engine.policy
        assert isinstance(policy, Perceptron)
        return policy.flops(self.options.envs)
