"""Group relative policy optimization: training steps on samples with advantages.

The loss of a decided token is minus the clipped probability ratio of the current policy to the policy that played,
times the advantage, plus `beta` times an estimate of the KL divergence from the frozen model. The loss of a step is the
mean over its decided tokens, so that it does not depend on how the step is divided into chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fairtrial.plugins import LoopEvents
from fairtrial.recipes import _adamw
from fairtrial.recipes.lm.gradients import chosen_logprobs
from fairtrial.recipes.lm.packing import Chunk, Pack, at_decisions, decisions, make_chunk, make_packs
from fairtrial.recipes.lm.types import Floats, Sample, Values
from fairtrial.recipes.lm.weights import Blueprint

IMPOSSIBLE = -1e30
"""The logit of a token that is not allowed: finite, so that its contribution to the entropy is 0 and not NaN."""


class Forward(Protocol):
    """The forward pass of a trainable model.

    `arrange` prepares the weights once per step, and `prepare` prepares a chunk once for all passes over it. `logits`
    returns the logits of the chunk's decided tokens.
    """

    def arrange(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]: ...

    def prepare(self, chunk: Chunk) -> Any: ...

    def logits(self, weights: Mapping[str, Tensor], ready: Any) -> Tensor: ...


@dataclass(frozen=True)
class GrpoConfig:
    """Settings of a training step.

    `most_weight` limits the importance weight of a token, which is its probability under the policy divided by that
    under the distribution it was sampled from; None: all tokens have equal weight. `chunk` is the number of packs per
    forward pass.
    """

    learning_rate: float = 1e-3
    beta: float = 0.04
    clip_low: float = 0.2
    clip_high: float = 0.2
    most_weight: float | None = None
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    chunk: int = 8


@dataclass
class LearningCounters:
    """Cumulative counts of the learner's work.

    `forwarded_tokens` counts the tokens in the forward passes of training steps, and `reference_tokens` those in all
    forward passes of the frozen model. Both include padding.
    """

    steps: int = 0
    policy_forwards: int = 0
    reference_forwards: int = 0
    trained_tokens: int = 0
    forwarded_tokens: int = 0
    reference_tokens: int = 0


class Learner:
    """A policy, its optimizer, and the frozen reference model, all of them on `device`."""

    def __init__(self, blueprint: Blueprint, config: GrpoConfig, device: str = "cpu") -> None:
        self.blueprint, self.config, self.counters = blueprint, config, LearningCounters()
        self.device = torch.device(device)
        self._forward = _forward(blueprint, self.device)
        self._sizes = [value.size for value in blueprint.initial.values()]
        self.load_values(blueprint.initial)
        self._average, self._square = torch.zeros_like(self._flat), torch.zeros_like(self._flat)
        self._base = {name: self._tensor(value) for name, value in blueprint.base.items()}
        reference = {name: self._tensor(value) for name, value in blueprint.reference().items()}
        with torch.no_grad():
            self._reference = self._forward.arrange(reference)

    def step(self, samples: Sequence[Sample], events: LoopEvents, *, rate: float | None = None) -> dict[str, float]:
        """Update the policy once and return the step's metrics. `rate` overrides the learning rate."""
        with events.phase("loss_forward"):
            flat = self._flat.detach().requires_grad_()
            arranged = self._forward.arrange(self._effective(flat))
            leaves = {name: each.detach().requires_grad_(each.requires_grad) for name, each in arranged.items()}
        total = sum(len(decisions(sample)) for sample in samples)
        sums = torch.zeros(len(ChunkMeasures.__annotations__), device=self.device)
        for packs in self._chunks(samples):
            with events.phase("loss_forward"):
                measured = self._measure(leaves, packs, max(1, total))
            with events.phase("backward"):
                measured.loss.backward()  # type: ignore[no-untyped-call]
            sums += measured.detached()
        with events.phase("backward"):
            gradient = _through(arranged, leaves, flat)
        with events.phase("optimizer"):
            norm = self._update(gradient, self.config.learning_rate if rate is None else rate)
        self.counters.steps += 1
        self.counters.trained_tokens += total
        return {**dict(zip(ChunkMeasures.__annotations__, sums.tolist(), strict=True)), "grad_norm": float(norm)}

    def reference_logprobs(self, samples: Sequence[Sample]) -> list[Floats]:
        """Return the log-probabilities under the frozen model for each sample's tokens; 0 at forced tokens."""
        return self._logprobs(samples, self._ask_reference)

    def policy_logprobs(self, samples: Sequence[Sample]) -> list[Floats]:
        """Return the log-probabilities under the current policy for each sample's tokens; 0 at forced tokens."""
        with torch.no_grad():
            arranged = self._forward.arrange(self._effective(self._flat))

        def ask(chunk: Chunk, ready: Any) -> Tensor:
            self.counters.policy_forwards += 1
            return self._among_open(self._forward.logits(arranged, ready), chunk)[0]

        return self._logprobs(samples, ask)

    def values(self) -> dict[str, np.ndarray]:
        """Return a copy of the trained parameters by name, which later steps do not change."""
        parts = self._flat.cpu().split_with_sizes(self._sizes)
        shapes = self.blueprint.initial.items()
        return {name: part.numpy().reshape(like.shape).copy() for (name, like), part in zip(shapes, parts, strict=True)}

    def load_values(self, values: Values) -> None:
        self._flat = self._tensor(np.concatenate([values[name].ravel() for name in self.blueprint.initial]))

    def state(self) -> dict[str, Any]:
        tensors = {"flat": self._flat, "average": self._average, "square": self._square}
        return {**{name: each.clone() for name, each in tensors.items()}, "counters": asdict(self.counters)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._flat, self._average, self._square = (
            state[name].to(self.device, copy=True) for name in ("flat", "average", "square")
        )
        self.counters = LearningCounters(**state["counters"])

    def tensor_groups(self) -> dict[str, list[Tensor]]:
        """Return the tensors that training keeps in memory, by kind."""
        return {
            "parameters": [self._flat],
            "optimizer": [self._average, self._square],
            "frozen": list(self._base.values()),
            "reference": list(self._reference.values()),
        }

    def _tensor(self, array: np.ndarray) -> Tensor:
        """Return an array as a tensor on the run's device; on the CPU, they share memory."""
        return torch.from_numpy(array).to(self.device)

    def _chunks(self, samples: Sequence[Sample]) -> list[list[Pack]]:
        packs = make_packs(samples)
        return [packs[start : start + self.config.chunk] for start in range(0, len(packs), self.config.chunk)]

    def _effective(self, flat: Tensor) -> dict[str, Tensor]:
        """Return the same weights as `Blueprint.effective`, with gradients."""
        shapes = self.blueprint.initial.items()
        parts = flat.split_with_sizes(self._sizes)
        learned = {name: part.view(like.shape) for (name, like), part in zip(shapes, parts, strict=True)}
        if not self.blueprint.adapters:
            return {**self._base, **learned}
        weights = dict(self._base)
        for each in self.blueprint.adapters:
            added = learned[each.up] @ learned[each.down] * self.blueprint.scale
            weights[each.weight] = weights[each.weight] + (added.T if each.transposed else added)
        return weights

    def _measure(self, leaves: Mapping[str, Tensor], packs: Sequence[Pack], total: int) -> ChunkMeasures:
        chunk = make_chunk(packs, self.blueprint.vocabulary)
        ready = self._forward.prepare(chunk)
        known = Known(*map(self._tensor, _known(packs)))
        if self.config.beta and any(sample.reference is None for pack in packs for sample in pack):
            self.counters.forwarded_tokens += chunk.tokens
            with torch.inference_mode():
                asked = self._ask_reference(chunk, ready)
            known = replace(known, reference=torch.where(known.reference.isnan(), asked, known.reference))
        self.counters.policy_forwards += 1
        self.counters.forwarded_tokens += chunk.tokens
        taken, entropy = self._among_open(self._forward.logits(leaves, ready), chunk)
        return _measure(taken, entropy, known, self.config, total)

    def _ask_reference(self, chunk: Chunk, ready: Any) -> Tensor:
        self.counters.reference_forwards += 1
        self.counters.reference_tokens += chunk.tokens
        return self._among_open(self._forward.logits(self._reference, ready), chunk)[0]

    def _among_open(self, logits: Tensor, chunk: Chunk) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities of the chosen tokens among the allowed ones, and the sum of the entropies."""
        if chunk.ids is not None and chunk.closed is not None:
            logits = logits.gather(1, self._tensor(chunk.ids)).masked_fill(self._tensor(chunk.closed), IMPOSSIBLE)
        return chosen_logprobs(logits, self._tensor(chunk.targets))

    def _logprobs(self, samples: Sequence[Sample], ask: Callable[[Chunk, Any], Tensor]) -> list[Floats]:
        values: list[Floats] = []
        for packs in self._chunks(samples):
            chunk = make_chunk(packs, self.blueprint.vocabulary)
            with torch.inference_mode():
                taken = ask(chunk, self._forward.prepare(chunk)).cpu().numpy()
            values += _by_sample([each for pack in packs for each in pack], taken)
        return values

    def _update(self, gradient: Tensor, rate: float) -> Tensor:
        norm: Tensor = torch.linalg.vector_norm(gradient)
        gradient *= (self.config.max_grad_norm / (norm + 1e-6)).clamp_(max=1.0)
        _adamw.update(
            [self._flat], [gradient], [self._average], [self._square],
            step=self.counters.steps + 1, rate=rate, decay=self.config.weight_decay,
        )  # fmt: skip
        return norm


@dataclass(frozen=True)
class Known:
    """Values that samples carry for their decided tokens. A missing reference is NaN."""

    behaviour: Tensor
    policy: Tensor
    reference: Tensor
    advantage: Tensor


@dataclass(frozen=True)
class ChunkMeasures:
    """A chunk's contributions to the step's means over all decided tokens. `loss` has a gradient."""

    loss: Tensor
    kl: Tensor
    clip_fraction: Tensor
    entropy: Tensor
    ratio: Tensor

    def detached(self) -> Tensor:
        return torch.stack(
            [each.detach() for each in (self.loss, self.kl, self.clip_fraction, self.entropy, self.ratio)]
        )


def _forward(blueprint: Blueprint, device: torch.device) -> Forward:
    if blueprint.llama is not None:
        from fairtrial.recipes.lm.llama_torch import LlamaForward

        return LlamaForward(blueprint.llama, device)
    from fairtrial.recipes.lm.hugging import TransformersForward

    return TransformersForward(blueprint.config, device)


def _through(arranged: Mapping[str, Tensor], leaves: Mapping[str, Tensor], flat: Tensor) -> Tensor:
    """Backpropagate the gradients that the chunks accumulated on the arranged weights to the flat parameters, once."""
    used = [name for name in arranged if leaves[name].grad is not None]
    if not used:
        return torch.zeros_like(flat)
    tensor: Tensor = torch.autograd.grad(
        [arranged[name] for name in used], [flat], [leaves[name].grad for name in used]
    )[0]
    return tensor


def _known(packs: Sequence[Pack]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the fields of `Known` as arrays."""
    samples = [sample for pack in packs for sample in pack]
    behaviour = at_decisions(samples, [sample.completion.behaviour for sample in samples])
    policy = at_decisions(samples, [sample.completion.policy for sample in samples])
    unknown = [np.full(len(each.completion.tokens), np.nan, np.float32) for each in samples]
    given = [each.reference if each.reference is not None else unknown[n] for n, each in enumerate(samples)]
    advantage = np.repeat([np.float32(each.advantage) for each in samples], [len(decisions(each)) for each in samples])
    return behaviour, policy, at_decisions(samples, given), advantage.astype(np.float32)


def _measure(taken: Tensor, entropy: Tensor, known: Known, config: GrpoConfig, total: int) -> ChunkMeasures:
    ratio = (taken - known.policy).exp()
    clipped = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    gain, limited = ratio * known.advantage, clipped * known.advantage
    worth = torch.minimum(gain, limited)
    kl = divergence(taken, known.reference) if config.beta else torch.zeros_like(taken)
    if config.most_weight is not None:
        weight = (known.policy - known.behaviour).exp().clamp(max=config.most_weight)
        worth, kl = worth * weight, kl * weight
    loss = (config.beta * kl - worth).sum() / total
    with torch.no_grad():
        hit = (limited < gain).sum() / total
        return ChunkMeasures(loss, kl.sum() / total, hit, entropy / total, ratio.sum() / total)


def divergence(policy: Tensor, reference: Tensor) -> Tensor:
    """Return an unbiased, nonnegative estimate of KL(policy ‖ reference) from tokens that the policy sampled."""
    apart = reference - policy
    return apart.exp() - apart - 1


def _by_sample(samples: Sequence[Sample], taken: Floats) -> list[Floats]:
    split, start = [], 0
    for sample in samples:
        places = decisions(sample)
        values = np.zeros(len(sample.completion.tokens), np.float32)
        values[places] = taken[start : start + len(places)]
        start += len(places)
        split.append(values)
    return split
