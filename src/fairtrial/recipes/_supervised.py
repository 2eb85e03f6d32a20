"""Code shared by the supervised recipes: options, data order, one training step, evaluation."""

from __future__ import annotations

import copy
import functools
import importlib
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import model_validator

from fairtrial.core.errors import InvalidOptions
from fairtrial.core.training import Split
from fairtrial.plugins import (
    Dataset,
    LoopEvents,
    Role,
    RunContext,
    Stack,
    StepSize,
    Streams,
    TorchOptions,
    Trainable,
    option,
)
from fairtrial.recipes._adamw import update
from fairtrial.recipes._stacks import RunStack, members_of
from fairtrial.recipes.data import GENERATED, MOST_SETS, DataName
from fairtrial.recipes.models import STACKED

if TYPE_CHECKING:
    import numpy
    import torch
    from torch import Tensor

CLASSES = 10


class SupervisedOptions(TorchOptions):
    data: DataName = option("mnist1d", "Data set.", role=Role.DATA)
    labels: int = option(
        0,
        "Train on a random subset of this many examples, shared by all variants; 0: all.",
        role=Role.DATA,
        ge=0,
    )
    report_set: int = option(
        0,
        "Number of the report set; 0: the published one; any other number: a freshly generated one.",
        role=Role.DATA,
        ge=0,
        le=MOST_SETS,
    )
    batch_size: int = option(100, "Examples per batch.", role=Role.TRAINING, unit="examples", ge=1)
    accumulate: int = option(
        1, "Batches per step; their gradients are averaged.", role=Role.TRAINING, unit="batches", ge=1, newer=True
    )
    learning_rate: float = option(1e-2, "Learning rate of AdamW.", role=Role.TRAINING, gt=0)
    weight_decay: float = option(0.0, "Decoupled weight decay.", role=Role.TRAINING, ge=0)
    schedule: Literal["constant", "cosine"] = option("constant", "Learning-rate schedule.", role=Role.TRAINING)

    @model_validator(mode="after")
    def _report_set_exists(self) -> Self:
        if self.report_set and self.data not in GENERATED:
            raise ValueError(f"report_set: {self.data} cannot be generated; only {', '.join(GENERATED)} can")
        return self


def evaluated_quantities(_options: SupervisedOptions) -> tuple[str, ...]:
    """Return the names of the values that `score` returns."""
    return ("accuracy", "loss")


def examples_of_step(options: SupervisedOptions) -> StepSize:
    batches = f"{options.accumulate} batches of {options.batch_size}" if options.accumulate > 1 else ""
    return StepSize(options.batch_size * options.accumulate, "examples", batches)


def fresh_report_set(options: SupervisedOptions, number: int) -> dict[str, Any] | None:
    return {"report_set": 1 + number % MOST_SETS} if options.data in GENERATED else None


class Batches:
    """Selects the examples of each batch.

    The selection is a function of the run's random streams and the batch number, so that checkpoints need no data
    state.
    """

    def __init__(self, streams: Streams, examples: int, labels: int, batch_size: int) -> None:
        if labels > examples:
            raise InvalidOptions(f"labels: the data set has {examples} examples, fewer than the requested {labels}")
        chosen = labels or examples
        if batch_size > chosen:
            raise InvalidOptions(
                f"batch_size: {batch_size} is more than the {chosen} training examples",
                hint="Use a smaller --batch-size or more --labels.",
            )
        self._streams = streams
        self._subset = streams.numpy("subset").permutation(examples)[:labels] if labels else None
        self._chosen = chosen
        self._batch_size = batch_size
        self._epoch = -1

    @property
    def per_epoch(self) -> int:
        return self._chosen // self._batch_size

    def drawn(self, draw: numpy.random.Generator) -> Any:
        """Return the indices of a batch drawn with replacement."""
        places = draw.integers(0, self._chosen, self._batch_size)
        return places if self._subset is None else self._subset[places]

    def at(self, number: int) -> Any:
        """Return the indices of batch `number`, which counts from 1 across all epochs."""
        epoch, batch = divmod(number - 1, self.per_epoch)
        if epoch != self._epoch:
            order = self._streams.numpy("order", epoch).permutation(self._chosen)
            self._order = order if self._subset is None else self._subset[order]
            self._epoch = epoch
        return self._order[batch * self._batch_size : (batch + 1) * self._batch_size]


def learning_rate(options: SupervisedOptions, step: int) -> float:
    """Return the learning rate at a step under the run's schedule."""
    if options.schedule == "cosine":
        return options.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - 1) / options.steps))
    return options.learning_rate


def score(logits: Tensor, y: Tensor) -> dict[str, Tensor]:
    from torch.nn.functional import cross_entropy

    return {"accuracy": (logits.argmax(1) == y).float().mean(), "loss": cross_entropy(logits, y)}


def load_split(data: Dataset, split: str, device: str) -> tuple[Tensor, Tensor]:
    """Return the examples and labels of a split. All runs of the process share these tensors: do not modify them."""
    return _load_array(data, f"{split}_x", device), _load_array(data, f"{split}_y", device)


@functools.lru_cache(maxsize=16)
def _load_array(data: Dataset, name: str, device: str) -> Tensor:
    import torch

    return torch.from_numpy(data.array(name).copy()).to(device)


class Supervised:
    """Trains a module on labeled examples; subclasses override the loss."""

    def __init__(self, module: torch.nn.Module, options: SupervisedOptions, context: RunContext) -> None:
        import torch

        assert context.data is not None
        self.options = options
        self.device = torch.device(options.device)
        self.module = module.to(self.device)
        self.splits = {split: load_split(context.data, split, options.device) for split in ("train", "eval", "report")}
        self.batches = Batches(context.streams, len(self.splits["train"][1]), options.labels, options.batch_size)
        self.parameters = list(self.trained_parameters())
        self.averages, self.squares = ([torch.zeros_like(p) for p in self.parameters] for _ in range(2))

    def trained_parameters(self) -> Iterable[torch.nn.Parameter]:
        return self.module.parameters()

    def loss(self, chosen: Tensor, step: int) -> Tensor:  # noqa: ARG002 — subclasses change their loss over the steps
        from torch.nn.functional import cross_entropy

        x, y = self.splits["train"]
        return cross_entropy(self.module(x[chosen]), y[chosen])

    def step(self, step: int, events: LoopEvents) -> Mapping[str, Tensor]:
        import torch

        count = self.options.accumulate
        losses: list[Tensor] = []
        total: Sequence[Tensor] = ()
        for number in range((step - 1) * count + 1, step * count + 1):
            chosen = self._fetch(number, events)
            with events.phase("forward"):
                loss = self.loss(chosen, step)
            with events.phase("backward"):
                tensors = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
                total = [a + b for a, b in zip(total, tensors, strict=True)] if total else tensors
            losses.append(loss.detach())
        with events.phase("optimizer"):
            rate, decay = learning_rate(self.options, step), self.options.weight_decay
            mean = total if count == 1 else [each / count for each in total]
            update(self.parameters, mean, self.averages, self.squares, step=step, rate=rate, decay=decay)
        return {"loss": losses[0] if count == 1 else torch.stack(losses).mean()}

    def _fetch(self, number: int, events: LoopEvents) -> Tensor:
        import torch

        with events.phase("data"):
            chosen = torch.from_numpy(self.batches.at(number))
        if self.device.type == "cpu":
            return chosen
        with events.phase("transfer"):
            return chosen.to(self.device)

    def batch_gradients(self, draw: numpy.random.Generator) -> tuple[Sequence[Tensor], int]:
        import torch

        chosen = torch.from_numpy(self.batches.drawn(draw)).to(self.device)
        return torch.autograd.grad(self.loss(chosen, 1), self.parameters, materialize_grads=True), len(chosen)

    @property
    def examples_per_step(self) -> int:
        return self.options.batch_size * self.options.accumulate

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.batches.per_epoch // self.options.accumulate)

    @property
    def synchronize(self) -> Callable[[], object] | None:
        return waiting_for(self.device)

    def evaluate(self, split: Split) -> Mapping[str, Tensor]:
        import torch

        x, y = self.splits[split]
        with torch.no_grad():
            return score(self.module(x), y)

    def state(self) -> dict[str, Any]:
        """Return a deep copy of the state, which further training does not change."""
        averages = {"exp_avg": self.averages, "exp_avg_sq": self.squares}
        return copy.deepcopy({"module": dict(self.module.state_dict()), "optimizer": averages})

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.module.load_state_dict(state["module"])
        self.load_optimizer(state["optimizer"])

    def load_optimizer(self, saved: Mapping[str, Sequence[Tensor]]) -> None:
        for kept, values in ((self.averages, saved["exp_avg"]), (self.squares, saved["exp_avg_sq"])):
            for own, value in zip(kept, values, strict=True):
                own.copy_(value)

    def tensor_groups(self) -> dict[str, list[Tensor]]:
        """Return the tensors that training keeps in memory, by kind. `probe` adds up their sizes."""
        return {
            "parameters": list(self.parameters),
            "gradients": list(self.parameters),  # gradients exist only within a step and are as large as the parameters
            "optimizer": [*self.averages, *self.squares],
        }


def waiting_for(device: torch.device) -> Callable[[], object] | None:
    """Return a function that waits until the device has finished its queued work, or None for the CPU."""
    import torch

    if device.type == "cpu":
        return None
    wait: Callable[..., object] = torch.get_device_module(device).synchronize
    return wait if device.type == "mps" else functools.partial(wait, device)  # there is only one MPS device


def is_stacked(options: SupervisedOptions, model: str) -> bool:
    """Return whether a run uses the stacked implementation, which supports one batch per step only."""
    return model in STACKED and options.accumulate == 1


def shapes_of(options: SupervisedOptions, model: str, *others: object) -> str | None:
    """Return a key that is equal for runs that can share a stack, or None for a run that cannot be stacked."""
    if not is_stacked(options, model) or options.threads > 1:
        return None
    return " ".join(map(str, (model, options.data, options.batch_size, options.device, *others)))


def stack_runs(runs: Sequence[Trainable]) -> Stack:
    """Return a stack that steps these separately built runs together."""
    from fairtrial.recipes._stacked import StackedRun, StackEngine

    return RunStack(members_of(runs, StackedRun), StackEngine)


def warm_up() -> None:
    """Run one tiny training step, so that jobs forked from this process find torch imported and initialized.

    Each child that waits for a job repeats it. The pages that torch writes to are then copied (copy-on-write) before
    the job starts instead of during it.
    """
    import torch

    from fairtrial.recipes.models import load_models

    torch.set_num_threads(1)
    load_models()
    importlib.import_module("fairtrial.recipes._stacked")
    with torch.random.fork_rng(devices=[]):
        model = torch.nn.Linear(2, 2)
    loss = torch.nn.functional.cross_entropy(model(torch.ones(4, 2)), torch.zeros(4, dtype=torch.long))
    loss.backward()  # type: ignore[no-untyped-call]
    rows = [torch.zeros(16) for _ in range(4)]
    update(*([row] for row in rows), step=1, rate=0.1, decay=0.0)
    torch.save(model.state_dict(), io.BytesIO())
