"""What recipes that learn labels share: their options, the order of the data, one optimizer step, evaluation."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from fairtrial.core.errors import InvalidOptions
from fairtrial.core.options import Role, TorchOptions, option
from fairtrial.core.streams import Streams
from fairtrial.core.training import Setting, Split, Watch
from fairtrial.recipes.data import DataName

if TYPE_CHECKING:
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
    batch_size: int = option(100, "Examples per step.", role=Role.TRAINING, unit="examples", ge=1)
    learning_rate: float = option(1e-2, "Learning rate of AdamW.", role=Role.TRAINING, gt=0)
    weight_decay: float = option(0.0, "Decoupled weight decay.", role=Role.TRAINING, ge=0)
    schedule: Literal["constant", "cosine"] = option(
        "constant", "How the learning rate changes over the steps.", role=Role.TRAINING
    )


class Batches:
    """Which examples a step sees: a function of the run's streams and the step, so that nothing is saved."""

    def __init__(self, streams: Streams, examples: int, labels: int, batch_size: int) -> None:
        if labels > examples:
            raise InvalidOptions(f"labels: the data set has {examples} examples, not {labels}")
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

    def at(self, step: int) -> Any:
        epoch, batch = divmod(step - 1, self._chosen // self._batch_size)
        if epoch != self._epoch:
            order = self._streams.numpy("order", epoch).permutation(self._chosen)
            self._order = order if self._subset is None else self._subset[order]
            self._epoch = epoch
        return self._order[batch * self._batch_size : (batch + 1) * self._batch_size]


class Supervised:
    """Trains a module on labelled examples; subclasses change the loss."""

    def __init__(self, module: torch.nn.Module, options: SupervisedOptions, setting: Setting) -> None:
        import torch

        assert setting.data is not None
        self.options = options
        self.device = torch.device(options.device)
        self.module = module.to(self.device)
        self.splits = {
            split: (self._tensor(setting, f"{split}_x"), self._tensor(setting, f"{split}_y"))
            for split in ("train", "eval", "report")
        }
        self.batches = Batches(setting.streams, len(self.splits["train"][1]), options.labels, options.batch_size)
        self.optimizer = torch.optim.AdamW(
            self.trained_parameters(), lr=options.learning_rate, weight_decay=options.weight_decay, fused=True
        )

    def _tensor(self, setting: Setting, name: str) -> Tensor:
        import torch

        assert setting.data is not None
        return torch.from_numpy(setting.data.array(name).copy()).to(self.device)

    def trained_parameters(self) -> Iterable[torch.nn.Parameter]:
        return self.module.parameters()

    def loss(self, chosen: Tensor, step: int) -> Tensor:  # noqa: ARG002 — subclasses follow a timetable
        from torch.nn.functional import cross_entropy

        x, y = self.splits["train"]
        return cross_entropy(self.module(x[chosen]), y[chosen])

    def step(self, step: int, watch: Watch) -> Mapping[str, Tensor]:
        import torch

        with watch.phase("data"):
            chosen = torch.from_numpy(self.batches.at(step)).to(self.device)
        with watch.phase("forward"):
            loss = self.loss(chosen, step)
        with watch.phase("backward"):
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
        with watch.phase("optimizer"):
            self.optimizer.param_groups[0]["lr"] = self._learning_rate(step)
            self.optimizer.step()
        return {"loss": loss.detach()}

    def _learning_rate(self, step: int) -> float:
        rate = self.options.learning_rate
        if self.options.schedule == "cosine":
            rate *= 0.5 * (1 + math.cos(math.pi * (step - 1) / self.options.steps))
        return rate

    def evaluate(self, split: Split) -> Mapping[str, Tensor]:
        import torch
        from torch.nn.functional import cross_entropy

        x, y = self.splits[split]
        with torch.no_grad():
            logits = self.module(x)
            return {"accuracy": (logits.argmax(1) == y).float().mean(), "loss": cross_entropy(logits, y)}

    def state(self) -> dict[str, Any]:
        """A snapshot: further training does not reach into it."""
        return copy.deepcopy({"module": dict(self.module.state_dict()), "optimizer": self.optimizer.state_dict()})

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))

    def tensor_groups(self) -> dict[str, list[Tensor]]:
        """The tensors that training keeps, by kind: what `probe` adds up."""
        parameters = list(self.trained_parameters())
        kept = [value for slots in self.optimizer.state.values() for value in slots.values()]
        return {
            "parameters": list(parameters),
            "gradients": [p.grad for p in parameters if p.grad is not None],
            "optimizer": kept,
        }


def warm_up() -> None:
    """Do one tiny step, so that jobs forked from this process find torch loaded and ready.

    It is done again in each child that waits for a job: the memory that torch writes to is copied then, not
    when the job has begun.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from fairtrial.recipes.models import load_models

    torch.set_num_threads(1)
    load_models()
    with torch.random.fork_rng(devices=[]):
        model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    with FlopCounterMode(display=False):
        loss = torch.nn.functional.cross_entropy(model(torch.ones(4, 2)), torch.zeros(4, dtype=torch.long))
        loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    copy.deepcopy(optimizer.state_dict())
    torch.save(model.state_dict(), io.BytesIO())
