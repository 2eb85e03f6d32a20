"""Policies that are trained with autograd and cannot be stacked: with a memory (GRU, transformer), or for images.

Each has a policy network and a value network of the same architecture. A module defines its state within an episode
(`memory`), computes one step (`act`, `expect`), and processes a whole rollout at once (`unroll`), in which episodes may
end. A minibatch consists of whole environments, so that sequences stay intact.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from fairtrial.plugins import Streams
from fairtrial.recipes._adamw import update
from fairtrial.recipes.models import initialize
from fairtrial.recipes.models.transformer import Block, Positions
from fairtrial.recipes.rl.actions import Actions
from fairtrial.recipes.rl.perceptron import EPSILON
from fairtrial.recipes.rl.physics import Array, Space
from fairtrial.recipes.rl.run import PpoRun, RolloutBatch, losses

CONTEXT = 16
"""Context length of the transformer, in observations."""


class Net(nn.Module):
    """A policy network and a value network. Subclasses implement `make`, which builds one of them."""

    def __init__(self, space: Space, width: int, actions: Actions) -> None:
        super().__init__()
        self.policy, self.value = self.make(space, width, space.actions), self.make(space, width, 1)
        self.extra = nn.ParameterDict({name: torch.zeros(shape) for name, shape in actions.parameters.items()})

    def make(self, space: Space, width: int, outputs: int) -> nn.Module:
        raise NotImplementedError

    def memory(self, count: int) -> Tensor:
        """Return the empty memory for `count` environments: [environments, …]."""
        raise NotImplementedError

    def act(self, obs: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Return the policy's outputs for [environments, …], and the new memory."""
        raise NotImplementedError

    def expect(self, obs: Tensor, memory: Tensor) -> Tensor:
        """Return the values for [environments, …]."""
        raise NotImplementedError

    def unroll(self, obs: Tensor, new: Array, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs and values for [steps, environments, …]. `new` marks the first steps of episodes."""
        raise NotImplementedError

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def scale(self) -> Tensor | None:
        scale: Tensor | None = dict(self.extra.items()).get("log_deviation")
        return scale


class Recurrent(nn.Module):
    """A GRU and a linear layer on top."""

    def __init__(self, inputs: int, width: int, outputs: int) -> None:
        super().__init__()
        self.recurrent = nn.GRU(inputs, width)
        self.output = nn.Linear(width, outputs)

    def forward(self, obs: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs for [steps, sequences, inputs] and the memory after the last step."""
        hidden, after = self.recurrent(obs, memory[None].contiguous())
        return self.output(hidden), after[0]


class GRUNet(Net):
    """Two GRUs, with a memory of shape [environments, networks, width]."""

    def make(self, space: Space, width: int, outputs: int) -> nn.Module:
        self._width = width
        return Recurrent(int(numpy.prod(space.observation)), width, outputs)

    def memory(self, count: int) -> Tensor:
        return torch.zeros(count, 2, self._width, device=self.device)

    def act(self, obs: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        outputs, acting = self.policy(obs[None], memory[:, 0])
        _, judging = self.value(obs[None], memory[:, 1])
        return outputs[0], torch.stack((acting, judging), 1)

    def expect(self, obs: Tensor, memory: Tensor) -> Tensor:
        values: Tensor = self.value(obs[None], memory[:, 1])[0]
        return values[0, :, 0]

    def unroll(self, obs: Tensor, new: Array, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Process each episode as a separate sequence, because `nn.GRU` cannot reset its state within a sequence."""
        numbers, places = _sequences(new)
        steps, count = int(places.max()) + 1, int(numbers.max()) + 1
        number, place = (torch.from_numpy(each).to(obs.device) for each in (numbers, places))
        laid_out = obs.new_zeros(steps, count, *obs.shape[2:])
        laid_out[place, number] = obs
        before = memory.new_zeros(count, *memory.shape[1:])
        not_done = numpy.flatnonzero(~new[0])
        before[number[0, not_done]] = memory[not_done]
        outputs, values = (net(laid_out, before[:, which])[0] for which, net in enumerate((self.policy, self.value)))
        return outputs[place, number], values[place, number][..., 0]


def _sequences(new: Array) -> tuple[Array, Array]:
    """Return, for every step and environment, the index of its episode and the step's position in that episode."""
    begins = new.copy()
    begins[0] = True
    counts = begins.sum(0)
    number = begins.cumsum(0) - 1 + (counts.cumsum() - counts)
    times = numpy.arange(len(begins))[:, None]
    place = times - numpy.maximum.accumulate(numpy.where(begins, times, 0))
    return number, place


class Attentive(nn.Module):
    """A transformer block over the last observations; the outputs come from the newest one."""

    def __init__(self, inputs: int, width: int, outputs: int) -> None:
        super().__init__()
        self.embed = nn.Linear(inputs + 1, width)
        self.positions = Positions(CONTEXT, width)
        self.block = Block(width)
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, outputs)

    def forward(self, windows: Tensor) -> Tensor:
        """Return the outputs for [examples, CONTEXT, inputs + 1]."""
        hidden = self.block(self.positions(self.embed(windows)))
        outputs: Tensor = self.output(self.norm(hidden[:, -1]))
        return outputs


class TransformerNet(Net):
    """Two transformers. Their memory is the last observations, each with a 1 that distinguishes it from padding."""

    def make(self, space: Space, width: int, outputs: int) -> nn.Module:
        self._inputs = int(numpy.prod(space.observation))
        return Attentive(self._inputs, width, outputs)

    def memory(self, count: int) -> Tensor:
        return torch.zeros(count, CONTEXT, self._inputs + 1, device=self.device)

    def act(self, obs: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        window = _window(obs, memory)
        return self.policy(window), window

    def expect(self, obs: Tensor, memory: Tensor) -> Tensor:
        values: Tensor = self.value(_window(obs, memory))
        return values[:, 0]

    def unroll(self, obs: Tensor, new: Array, memory: Tensor) -> tuple[Tensor, Tensor]:
        tokens = torch.cat((memory.transpose(0, 1), _token(obs)))
        numbers = numpy.concatenate((numpy.zeros((CONTEXT, new.shape[1]), int), new.cumsum(0)))
        episode = torch.from_numpy(numbers).to(obs.device)
        windows, episodes = (each.unfold(0, CONTEXT, 1)[1:] for each in (tokens, episode))
        own = episodes == episodes[..., -1:]
        flat = (windows * own[:, :, None]).transpose(2, 3).flatten(0, 1)
        shape = obs.shape[:2]
        return self.policy(flat).unflatten(0, shape), self.value(flat)[:, 0].unflatten(0, shape)


def _window(obs: Tensor, memory: Tensor) -> Tensor:
    return torch.cat((memory[:, 1:], _token(obs)[:, None]), 1)


def _token(obs: Tensor) -> Tensor:
    return torch.cat((obs, torch.ones_like(obs[..., :1])), -1)


class Seeing(nn.Module):
    """A small convolutional network over stacked frames."""

    def __init__(self, frames: int, width: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(frames, 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.Flatten(),
            nn.Linear(32 * 9 * 9, width), nn.ReLU(),
        )  # fmt: skip
        self.output = nn.Linear(width, outputs)

    def forward(self, obs: Tensor) -> Tensor:
        outputs: Tensor = self.output(self.layers(obs))
        return outputs


class CNNNet(Net):
    """Two convolutional networks without memory: an observation contains the frames of the last steps."""

    def make(self, space: Space, width: int, outputs: int) -> nn.Module:
        return Seeing(space.observation[0], width, outputs)

    def memory(self, count: int) -> Tensor:
        return torch.zeros(count, 0, device=self.device)

    def act(self, obs: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        return self.policy(obs), memory

    def expect(self, obs: Tensor, memory: Tensor) -> Tensor:  # noqa: ARG002
        values: Tensor = self.value(obs)
        return values[:, 0]

    def unroll(self, obs: Tensor, new: Array, memory: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        shape, flat = obs.shape[:2], obs.flatten(0, 1)
        return self.policy(flat).unflatten(0, shape), self.value(flat)[:, 0].unflatten(0, shape)


NETS = {"gru": GRUNet, "transformer": TransformerNet, "cnn": CNNNet}


def make_net(kind: str, space: Space, width: int, actions: Actions, streams: Streams) -> Net:
    """Build a net whose weights depend only on the run's `init` stream. Its actions start almost equally likely."""
    with torch.random.fork_rng(devices=[]):
        net: Net = NETS[kind](space, width, actions)
    initialize(net, streams)
    output: Any = net.policy.output
    with torch.no_grad():
        output.weight.mul_(0.01)
        output.bias.zero_()
    return net


class NetPlayer:
    """Acts with a net and keeps the net's memory of each environment."""

    def __init__(self, net: Net, memory: Tensor) -> None:
        self._net, self.memory = net, memory
        self.trail: list[Tensor] | None = None
        """The memory after each step, before ended episodes are erased; None in evaluation, which does not need it."""

    @property
    def scale(self) -> Array | None:
        return None if self._net.scale is None else self._net.scale.detach().cpu().numpy()

    def outputs(self, obs: Tensor) -> Array:
        with torch.no_grad():
            outputs, self.memory = self._net.act(obs[0].to(self.memory.device), self.memory)
        if self.trail is not None:
            self.trail.append(self.memory)
        return outputs[None].cpu().numpy()

    def forget(self, ended: Array) -> None:
        self.memory = self.memory.clone()
        self.memory[torch.from_numpy(ended[0]).to(self.memory.device)] = 0


class NetPolicy:
    """The policy of one run: evaluates its net on a rollout and updates it."""

    def __init__(self, run: PpoRun, agent_state: NetAgentState) -> None:
        self.run, self.agent_state, self.net = run, agent_state, agent_state.net
        self.player = NetPlayer(self.net, agent_state.memory)

    def begin(self, lost: Array | None) -> None:
        self.player.memory, self.player.trail = self.agent_state.memory, []
        if lost is not None:
            self.player.forget(lost)
        self._before = self.player.memory

    def critic(self, obs: Tensor, not_done: Array) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            outputs, values = self._unroll(obs[0], not_done[0], slice(None))
        return outputs.flatten(0, 1)[None], values.flatten()[None]

    def _unroll(self, obs: Tensor, not_done: Array, environments: Any) -> tuple[Tensor, Tensor]:
        """Unroll the net over some environments of observations [steps · environments, …]."""
        count = not_done.shape[1]
        by_time = torch.unflatten(obs, 0, (len(obs) // count, count))[:, environments]
        new = numpy.zeros(by_time.shape[:2], bool)
        new[1:] = not_done[: len(new) - 1, environments] == 0
        return self.net.unroll(by_time, new, self._before[environments])

    def value_after(self, step: int, final: Tensor) -> Tensor:
        assert self.player.trail is not None
        with torch.no_grad():
            return self.net.expect(final[0], self.player.trail[step])[None]

    def likelihood(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            return self.run.actions.likelihood(outputs, actions, self.net.scale)

    def learn(self, batch: RolloutBatch, steps: Sequence[int]) -> None:
        self.agent_state.memory = self.player.memory  # the next rollout starts from it
        options, [step] = self.run.options, steps
        draw, number = self.run.streams.numpy("order", step), (step - 1) * options.passes
        for _ in range(options.epochs):
            for chosen in numpy.split(draw.permutation(options.envs), options.minibatches):
                number += 1
                self._learn_from(batch, chosen, number, options.rate_at(step))

    def _learn_from(self, batch: RolloutBatch, chosen: Array, number: int, rate: float) -> None:
        options = self.run.options
        outputs, values = self._unroll(batch.obs[0], batch.not_done[0], chosen)
        actions, old, gains, value_targets = (
            torch.unflatten(each[0], 0, (options.rollout, options.envs))[:, chosen]
            for each in (batch.actions, batch.old, batch.advantages, batch.value_targets)
        )
        log, entropies = self.run.actions.likelihood(outputs, actions, self.net.scale)
        loss = losses(options, log, entropies, values, old, gains, value_targets)["loss"]
        parameters = self.agent_state.parameters
        gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(each) for each in gradients]))
        shorter = (options.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        update(
            parameters, [each * shorter for each in gradients], self.agent_state.averages, self.agent_state.squares,
            step=number, rate=rate, decay=0.0, epsilon=EPSILON,
        )  # fmt: skip


class NetAgentState:
    """The trained state of one run: its net, the optimizer's averages, and the net's memory of unfinished episodes."""

    def __init__(self, net: Net, environments: int) -> None:
        self.net, self.memory = net, net.memory(environments)
        self.parameters = list(net.parameters())
        self.averages, self.squares = ([torch.zeros_like(each) for each in self.parameters] for _ in range(2))

    def player(self, count: int) -> NetPlayer:
        return NetPlayer(self.net, self.net.memory(count))

    def join(self, runs: Sequence[PpoRun]) -> NetPolicy:
        [run] = runs
        return NetPolicy(run, self)

    def state(self) -> dict[str, Any]:
        """Return a deep copy of the state, which further training does not change."""
        optimizer = {"exp_avg": self.averages, "exp_avg_sq": self.squares}
        return copy.deepcopy({"module": dict(self.net.state_dict()), "optimizer": optimizer, "memory": self.memory})

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.net.load_state_dict(state["module"])
        self.memory = state["memory"].to(self.net.device, copy=True)
        for kept, values in ((self.averages, "exp_avg"), (self.squares, "exp_avg_sq")):
            for own, value in zip(kept, state["optimizer"][values], strict=True):
                own.copy_(value)

    def tensor_groups(self, policy: NetPolicy) -> dict[str, list[Tensor]]:  # noqa: ARG002
        return {
            "parameters": list(self.parameters),
            "gradients": list(self.parameters),  # they exist only during an update, with the parameters' sizes
            "optimizer": [*self.averages, *self.squares],
        }
