"""Train several independent runs in one process with batched matrix products.

A single run is a stack of one, so that its results do not depend on the other runs in the stack. The targets from
labels and teacher are known before training and are stored as one table per run. The gradient of the logits z at a
step is

    a · softmax(z) + b · softmax(z / T) + c · z − table[examples]

where each run has its own a, b, c and T. The loss itself is computed only when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.nn.functional import log_softmax, one_hot

from fairtrial.core.training import Split
from fairtrial.plugins import LoopEvents, RunContext
from fairtrial.recipes._adamw import update_rows
from fairtrial.recipes._stacks import RunStack
from fairtrial.recipes._supervised import (
    CLASSES,
    Batches,
    SupervisedOptions,
    learning_rate,
    load_split,
    score,
    waiting_for,
)
from fairtrial.recipes.models import stack_model
from fairtrial.recipes.models.stacked import Affine, Layout, aligned, share_rows

PROJECTIONS = "projections"


@dataclass(frozen=True)
class LossTerms:
    """The loss of a run: the weights of its terms, and the teacher's outputs for each example.

    None means that the loss does not have this term. All runs of a stack have the same terms.
    """

    labels: float = 1.0
    soft: float | None = None
    temperature: float = 1.0
    regression: float | None = None
    matching: float | None = None
    teacher: Tensor | None = None
    layers: tuple[Tensor, ...] = ()
    projections: torch.nn.ModuleList = field(default_factory=torch.nn.ModuleList)

    def table(self, y: Tensor, batch: int) -> Tensor:
        """Return the part of the logits' gradient that does not depend on the student, one row per example."""
        asked = self.labels / batch * one_hot(y, CLASSES).to(torch.float32)
        if self.soft is not None:
            asked += self.soft * self.temperature / batch * torch.softmax(_of(self.teacher) / self.temperature, 1)
        if self.regression is not None:
            asked += self.regression * 2 / (batch * CLASSES) * _of(self.teacher)
        return asked

    def stage(self, step: int, steps: int) -> int:
        """Return the index of the hidden layer to match: from first to last, each for an equal share of the steps."""
        return min((step - 1) * len(self.layers) // steps, len(self.layers) - 1)


class StackedRun:
    """One run as a `Trainable`. It owns one row of the stack's parameters and of the optimizer's two averages."""

    def __init__(
        self,
        model: str,
        module: torch.nn.Module,
        options: SupervisedOptions,
        context: RunContext,
        loss_terms: LossTerms,
    ) -> None:
        assert context.data is not None
        self.model, self.options, self.loss_terms = model, options, loss_terms
        self.device = torch.device(options.device)
        self.splits = {split: load_split(context.data, split, options.device) for split in ("train", "eval", "report")}
        self.batches = Batches(context.streams, len(self.splits["train"][1]), options.labels, options.batch_size)
        parameters = {**_parameters("", module), **_parameters(f"{PROJECTIONS}.", loss_terms.projections)}
        self.layout = Layout({name: tuple(value.shape) for name, value in parameters.items()})
        self.values = self.layout.pack(parameters).to(self.device)
        self.averages, self.squares = torch.zeros_like(self.values), torch.zeros_like(self.values)
        self.stack = RunStack([self], StackEngine)

    def step(self, step: int, events: LoopEvents) -> Mapping[str, Any]:
        return self.stack.step({0: step}, events)[0]

    def evaluate(self, split: Split) -> Mapping[str, Tensor]:
        x, y = self.splits[split]
        logits, _ = stack_model(self.model, self.layout, self.values[None]).forward(x[None])
        return score(logits[0], y)

    def state(self) -> dict[str, Any]:
        """Return a copy of the state, which further training does not change."""
        values = self.layout.unpack(self.values)
        own = {name: value for name, value in values.items() if not name.startswith(PROJECTIONS)}
        averages = {
            "exp_avg": self.averages.clone(),
            "exp_avg_sq": self.squares.clone(),
        }  # whole rows are fast to write
        return {"module": own, PROJECTIONS: {n: v for n, v in values.items() if n not in own}, "optimizer": averages}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.values.copy_(self.layout.pack({**state["module"], **state[PROJECTIONS]}))
        self.averages.copy_(state["optimizer"]["exp_avg"])
        self.squares.copy_(state["optimizer"]["exp_avg_sq"])

    def batch_gradients(self, draw: numpy.random.Generator) -> tuple[Sequence[Tensor], int]:
        chosen = self.batches.drawn(draw)
        return [self.stack.engine.gradients_on(chosen)], len(chosen)

    @property
    def examples_per_step(self) -> int:
        return self.options.batch_size

    @property
    def steps_per_epoch(self) -> int:
        return self.batches.per_epoch

    @property
    def synchronize(self) -> Callable[[], object] | None:
        return waiting_for(self.device)

    def flops_per_step(self) -> int:
        """Return the FLOPs per step, counted by formula: torch's FLOP counter would take seconds to import."""
        engine, batch = self.stack.engine, self.options.batch_size
        stages = sum(
            layer.flops(batch, pulled=True) for layer in engine.projections[:1]
        )  # only one stage is active at a time
        return engine.model.flops(batch) + stages

    def tensor_groups(self) -> dict[str, list[Tensor]]:
        """Return the tensors that training keeps in memory, by kind. `probe` adds up their sizes."""
        engine = self.stack.engine
        gradients, parameters = (
            [self.layout.view(rows, name) for name in self.layout.places] for rows in (engine.gradients, engine.values)
        )
        return {
            "parameters": parameters,
            "gradients": gradients,
            "optimizer": [self.averages, self.squares],
            "activations": engine.buffers(),
        }


def _parameters(prefix: str, module: torch.nn.Module) -> dict[str, Tensor]:
    return {prefix + name: value.detach() for name, value in module.named_parameters()}


class LazyLoss:
    """The loss of a step, computed when it is converted to float. Convert it before the next step."""

    def __init__(self, engine: StackEngine, row: int) -> None:
        self._engine, self._row = engine, row

    def __float__(self) -> float:
        return self._engine.loss(self._row)


class StackEngine:
    """Holds the stacked rows of several runs and computes one training step for all of them."""

    def __init__(self, runs: Sequence[StackedRun]) -> None:
        self.runs = list(runs)
        self.values, self.averages, self.squares = share_rows(self.runs)
        first = runs[0]
        self.gradients = torch.zeros_like(self.values)
        self.model = stack_model(first.model, first.layout, self.values, self.gradients)
        self.projections = [
            Affine(first.layout, f"{PROJECTIONS}.{stage}", self.values, self.gradients)
            for stage in range(len(first.loss_terms.layers))
        ]
        self.x, self.y = first.splits["train"]
        batch = first.options.batch_size
        self.table = torch.cat([run.loss_terms.table(self.y, batch) for run in runs])
        self.offsets = torch.arange(len(runs), device=first.device)[:, None] * len(self.y)
        teachers = [run.loss_terms.teacher for run in runs]
        self.teacher_table = (
            None if first.loss_terms.teacher is None else torch.cat([_of(teacher) for teacher in teachers])
        )
        self.layer_tables = [
            torch.cat([run.loss_terms.layers[stage] for run in runs]) for stage in range(len(first.loss_terms.layers))
        ]
        self.weights = _Weights([run.loss_terms for run in runs], batch, first.device)
        self._inputs = aligned(self.x, len(runs), batch, self.x.shape[1])
        self._logits_gradient = aligned(self.x, len(runs), batch, CLASSES)
        self._gaps: dict[int, tuple[Tensor, Tensor]] = {}
        self._losses: list[float] | None = None

    def step(self, steps: Sequence[int], events: LoopEvents) -> list[Mapping[str, Any]]:
        self._losses = None
        with events.phase("data"):
            chosen = numpy.stack([run.batches.at(step) for run, step in zip(self.runs, steps, strict=True)])
            x, asked = self._fetch(chosen)
        with events.phase("forward"):
            self._forward(x, steps)
        with events.phase("backward"):
            self._backward(asked)
        with events.phase("optimizer"):
            self._update(steps)
        return [{"loss": LazyLoss(self, row)} for row in range(len(self.runs))]

    def gradients_on(self, chosen: Any) -> Tensor:
        """Return the gradient of this stack's only run on these examples, without an update."""
        x, asked = self._fetch(chosen[None])
        self._forward(x, [1])
        self._backward(asked)
        return self.gradients[0].clone()

    def _forward(self, x: Tensor, steps: Sequence[int]) -> None:
        self.logits, layers = self.model.forward(x)
        self._gaps = self._compare_layers(layers, steps)

    def _backward(self, asked: Tensor) -> None:
        torch.sub(self._pull_logits(), asked, out=self._logits_gradient)
        self.model.backward(self._logits_gradient, self._pull_layers())

    def _fetch(self, chosen: Any) -> tuple[Tensor, Tensor]:
        self.chosen = torch.from_numpy(chosen).to(self.offsets.device)
        if self._inputs.is_contiguous():
            torch.index_select(self.x, 0, self.chosen.flatten(), out=self._inputs.view(-1, self.x.shape[1]))
        else:
            self._inputs.copy_(self.x.index_select(0, self.chosen.flatten()).view_as(self._inputs))
        return self._inputs, self._look_up(self.table)

    def _look_up(self, table: Tensor) -> Tensor:
        """Return the entries of each run's part of a table for the examples of this step."""
        places = (self.chosen + self.offsets).flatten()
        return table.index_select(0, places).view(*self.chosen.shape, -1)

    def _pull_logits(self) -> Tensor:
        weights = self.weights
        pull = torch.softmax(self.logits, 2).mul_(weights.labels)
        if weights.soft is not None:
            pull.addcmul_(torch.softmax(self.logits * weights.coolness, 2), weights.soft)
        if weights.regression is not None:
            pull.addcmul_(self.logits, weights.regression)
        return pull

    def _compare_layers(self, layers: Sequence[Tensor], steps: Sequence[int]) -> dict[int, tuple[Tensor, Tensor]]:
        """Return, by stage, the difference between each run's projection and the teacher's layer, and its weight."""
        if not self.projections:
            return {}
        gaps = {}
        stages = [run.loss_terms.stage(step, run.options.steps) for run, step in zip(self.runs, steps, strict=True)]
        for stage, projection in enumerate(self.projections):
            if stage in stages:
                gap = projection.forward(layers[stage]).sub_(self._look_up(self.layer_tables[stage]))
                gaps[stage] = gap, self.weights.matching(stage, stages)
            else:
                projection.weight_gradient.zero_()
                projection.bias_gradient.zero_()
        return gaps

    def _pull_layers(self) -> dict[int, Tensor]:
        pulled = {}
        for stage, (gap, weight) in self._gaps.items():
            pull = torch.mul(gap, weight * (2 / gap[0].numel()), out=aligned(gap, *gap.shape))
            self.projections[stage].backward(pull)
            pulled[stage] = self.projections[stage].pull(pull)
        return pulled

    def _update(self, steps: Sequence[int]) -> None:
        pairs = zip(self.runs, steps, strict=True)
        terms = [(learning_rate(run.options, step), run.options.weight_decay, step) for run, step in pairs]
        update_rows(self.values, self.gradients, self.averages, self.squares, terms)

    def loss(self, row: int) -> float:
        """Return the loss of one run at the last step. The first call computes the losses of all runs."""
        if self._losses is None:
            self._losses = self._compute_losses()
        return self._losses[row]

    def _compute_losses(self) -> list[float]:
        """Compute each term for all runs at once, but sum each run separately.

        A joint sum could add in another order, and a run's loss would then depend on the other runs.
        """
        weights = self.weights
        correct = self.y[self.chosen].unsqueeze(2)
        losses = [
            -weight * total
            for weight, total in zip(
                weights.labels.flatten().tolist(), _sums(log_softmax(self.logits, 2).gather(2, correct)), strict=True
            )
        ]
        tensor = self._look_up(self.teacher_table) if self.teacher_table is not None else None
        if weights.soft is not None and tensor is not None:
            wanted = tensor * weights.coolness
            gap = torch.softmax(wanted, 2) * (log_softmax(wanted, 2) - log_softmax(self.logits * weights.coolness, 2))
            _add(losses, weights.soft / weights.coolness, gap)
        if weights.regression is not None and tensor is not None:
            _add(losses, weights.regression / 2, (self.logits - tensor).square())
        for gap, weight in self._gaps.values():
            _add(losses, weight / gap[0].numel(), gap.square())
        return losses

    def buffers(self) -> list[Tensor]:
        """Return the buffers of the forward and the backward pass."""
        layers = (buffer for layer in self.projections for buffer in layer.buffers())
        return [self._inputs, self._logits_gradient, *self.model.buffers(), *layers]


def _sums(rows: Tensor) -> list[float]:
    return [row.sum().item() for row in rows]


def _add(losses: list[float], weights: Tensor, terms: Tensor) -> None:
    for row, (weight, total) in enumerate(zip(weights.flatten().tolist(), _sums(terms), strict=True)):
        losses[row] += weight * total


def _of(value: Tensor | None) -> Tensor:
    assert value is not None
    return value


class _Weights:
    """The weights of the loss terms, one number per run; None for a term that this stack's runs do not have."""

    def __init__(self, loss_terms: Sequence[LossTerms], batch: int, device: torch.device) -> None:
        self._loss_terms, self._device = loss_terms, device
        self._matching: dict[tuple[int, ...], Tensor] = {}
        self.labels = self._each([loss_terms.labels / batch for loss_terms in loss_terms])
        self.coolness = self._each([1 / loss_terms.temperature for loss_terms in loss_terms])
        self.soft = self.regression = None
        if loss_terms[0].soft is not None:
            self.soft = self._each(
                [(loss_terms.soft or 0.0) * loss_terms.temperature / batch for loss_terms in loss_terms]
            )
        if loss_terms[0].regression is not None:
            self.regression = self._each(
                [(loss_terms.regression or 0.0) * 2 / (batch * CLASSES) for loss_terms in loss_terms]
            )

    def _each(self, numbers: Sequence[float]) -> Tensor:
        return torch.tensor(numbers, device=self._device).view(-1, 1, 1)

    def matching(self, stage: int, stages: Sequence[int]) -> Tensor:
        """Return the weight of this stage in each run: 0 in runs that are at another stage."""
        key = (stage, *stages)
        if key not in self._matching:
            pairs = zip(self._loss_terms, stages, strict=True)
            self._matching[key] = self._each(
                [(loss_terms.matching or 0.0) if own == stage else 0.0 for loss_terms, own in pairs]
            )
        return self._matching[key]
