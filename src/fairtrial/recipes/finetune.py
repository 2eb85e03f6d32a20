"""Fine-tune a pre-trained model on shifted data: all of its weights, or low-rank adapters (LoRA).

The base model is a transformer that a run of `classify` pre-trains on MNIST-1D, once per store. It is fine-tuned on a
version of MNIST-1D with a shifted distribution. `--model DIR` uses the transformer in a Hugging Face model directory
instead: a new linear layer embeds patches of the signal, and another one maps the output to classes; both are trained.

`peft` adds the LoRA adapters to every linear layer of the blocks. Only the adapters and the output layer (with
`--model DIR` also the embedding) are trained. All other weights are frozen: they have no gradient and no optimizer
state, and checkpoints do not contain them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import field_validator

from fairtrial.plugins import Cache, Dataset, Metric, Need, Role, RunContext, Trainable, UserError, cautions, option
from fairtrial.recipes._hugging import hash_files, load_directory, model_folder_or
from fairtrial.recipes._seeding import cpu_seeded
from fairtrial.recipes._supervised import (
    CLASSES,
    Supervised,
    SupervisedOptions,
    evaluated_quantities,
    examples_of_step,
    fresh_report_set,
    warm_up,
)
from fairtrial.recipes._weights import load_weights
from fairtrial.recipes.classify import make_module
from fairtrial.recipes.data import DataName, load_data
from fairtrial.recipes.models import initialize

if TYPE_CHECKING:
    import torch

SUMMARY = "Fine-tune a pre-trained transformer on shifted data: all weights, or LoRA adapters of a given rank."
REQUIRES = ("torch", "numpy", "mnist1d", "sklearn", "peft", "transformers")
EXTRA = "finetune"
METRIC = Metric("accuracy", "max")
EXAMPLE = {"variants": {"full": {"method": "full"}, "lora": {"method": "lora", "rank": 8}}}
MAIN_OPTIONS = ("method", "rank", "lora_alpha", "model", "data", "labels", "batch_size", "learning_rate")

BUILT_IN = "transformer"
FAMILY: Mapping[str, Mapping[str, Any]] = {
    **{f"lora-r{rank}": {"method": "lora", "rank": rank} for rank in (8, 16, 32, 64)},
    "full": {"method": "full"},
}
"""The variants that `cost-performance` trains if the store has no study that it can price."""

ADAPTED = ["qkv", "merge", "widen", "narrow"]
PATCH = 4


class Options(SupervisedOptions):
    data: DataName = option("mnist1d_shifted", "Data set to fine-tune on.", role=Role.DATA)
    labels: int = option(
        1000,
        "Train on a random subset of this many examples, shared by all variants; 0: all.",
        role=Role.DATA,
        ge=0,
    )
    steps: int = option(
        400, "Fine-tuning steps.", role=Role.TRAINING, unit="steps", ge=1, le=SupervisedOptions.most_steps
    )
    eval_every: int = option(
        100, "Evaluate every N steps and at the end; 0: at the end only.", role=Role.EVALUATION, unit="steps", ge=0
    )
    learning_rate: float = option(2e-3, "Learning rate of AdamW.", role=Role.TRAINING, gt=0)
    batch_size: int = option(50, "Examples per batch.", role=Role.TRAINING, unit="examples", ge=1)
    schedule: Literal["constant", "cosine"] = option("cosine", "Learning-rate schedule.", role=Role.TRAINING)
    method: Literal["full", "lora"] = option(
        "lora", "Train low-rank adapters (lora) or all weights (full).", role=Role.MODEL
    )
    rank: int = option(8, "Rank of the LoRA adapters.", role=Role.MODEL, ge=1)
    lora_alpha: int = option(
        0, "LoRA alpha: adapters are scaled by alpha / rank; 0: twice the rank.", role=Role.MODEL, ge=0
    )
    model: str = option(
        BUILT_IN, "Model to fine-tune: the built-in transformer, or a Hugging Face model directory.", role=Role.MODEL
    )
    width: int = option(96, "Width of the built-in transformer.", role=Role.MODEL, ge=4, multiple_of=4)
    pretrain_data: DataName = option("mnist1d", "Data set for pre-training.", role=Role.PRETRAINING)
    pretrain_steps: int = option(
        2000, "Pre-training steps.", role=Role.PRETRAINING, unit="steps", ge=1, le=SupervisedOptions.most_steps
    )
    pretrain_learning_rate: float = option(
        2e-3, "Learning rate of pre-training, cosine-annealed.", role=Role.PRETRAINING, gt=0
    )
    pretrain_seed: int = option(
        1, "Random seed of pre-training; all runs start from this one model.", role=Role.PRETRAINING, ge=0
    )

    _model_exists = field_validator("model")(model_folder_or(BUILT_IN))


def warm() -> None:
    import importlib

    warm_up()
    importlib.import_module("peft")


def data(options: Options, cache: Cache) -> Dataset:
    """Return the data set of a run. Its hash includes the weights of a model directory: they are part of the run."""
    dataset = load_data(options.data, cache, options.report_set)
    if options.model == BUILT_IN:
        return dataset
    both = hashlib.sha256(f"{dataset.sha256} {hash_files(Path(options.model))}".encode())
    return Dataset(f"{dataset.name} and {Path(options.model).name}", both.hexdigest(), dataset.folder)


fresh_report = fresh_report_set
evaluates = evaluated_quantities
step_size = examples_of_step


def needs(options: Options) -> dict[str, Need]:
    """Return the run of `classify` that pre-trains the base model; none for a model from a directory."""
    if options.model != BUILT_IN:
        return {}
    chosen = {
        "data": options.pretrain_data, "model": BUILT_IN, "width": options.width, "steps": options.pretrain_steps,
        "learning_rate": options.pretrain_learning_rate, "schedule": "cosine", "device": options.device,
        "threads": options.threads,
    }  # fmt: skip
    return {"base": Need("classify", chosen, options.pretrain_seed, label="base")}


def build(options: Options, context: RunContext) -> Trainable:
    context.cautions.extend(_inert(options))
    module, adapted = _built_in(options, context) if options.model == BUILT_IN else _from_directory(options, context)
    if options.method == "lora":
        _add_adapters(module, adapted, options, context)
    if module is not adapted:
        _freeze_what_cannot_learn(module, context)
    return FineTuned(module, options, context)


def _freeze_what_cannot_learn(module: torch.nn.Module, context: RunContext) -> None:
    """Freeze parameters that get no gradient from signals, such as the token embedding of a Hugging Face model."""
    import torch

    assert context.data is not None
    parameters = [each for each in module.parameters() if each.requires_grad]
    try:
        loss = module(torch.from_numpy(context.data.array("train_x")[:2].copy())).square().mean()
        gradients: Sequence[torch.Tensor | None] = torch.autograd.grad(loss, parameters, allow_unused=True)
    except (AttributeError, RuntimeError, TypeError, ValueError, IndexError) as error:
        raise UserError(f"the model cannot read signals: {error}".splitlines()[0], hint=READS) from None
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            parameter.requires_grad_(False)


def _inert(options: Options) -> list[dict[str, str]]:
    """Return a caution for each option that was set but has no effect."""
    chosen = options.differing()
    unused = {"rank", "lora_alpha"} if options.method == "full" else set()
    why = dict.fromkeys(unused, f"method {options.method} does not use it")
    if options.model != BUILT_IN:
        names = [name for name in Options.model_fields if name.startswith("pretrain_") or name == "width"]
        why |= dict.fromkeys(names, "the model comes from a directory")
    return [cautions.INERT_OPTION.fill(option=name, why=reason) for name, reason in why.items() if name in chosen]


def _built_in(options: Options, context: RunContext) -> tuple[torch.nn.Module, torch.nn.Module]:
    base = context.needs["base"]
    weights, sha256 = load_weights(base.last, "the base model's")
    context.lineage["base"] = {"run": base.root.name, "weights_sha256": sha256}
    context.cautions.append(cautions.ONE_BASE.fill(base=base.root.name))
    module: torch.nn.Module = make_module(BUILT_IN, options.width, context)
    module.load_state_dict(weights)
    return module, module


def _from_directory(options: Options, context: RunContext) -> tuple[torch.nn.Module, torch.nn.Module]:
    """Load a transformer from a directory and put it between a new embedding and a new output layer."""
    from fairtrial.recipes.models.patched import Patched

    folder = Path(options.model)
    context.lineage["base"] = {"directory": folder.name, "weights_sha256": hash_files(folder)}
    backbone = _load_backbone(folder, context)
    try:
        module = Patched(backbone, PATCH, CLASSES)
    except (AttributeError, TypeError) as error:
        raise UserError(f"the model in {folder} cannot read signals: {error}", hint=READS) from None
    initialize(module.ends, context.streams)
    return module, backbone


READS = "Use a transformer that accepts embeddings and returns hidden states, such as Llama, GPT-2 or BERT."
UNUSED = "pooler"
"""A layer that this recipe does not use, and that may therefore be missing from a model directory."""


def _load_backbone(folder: Path, context: RunContext) -> torch.nn.Module:
    from transformers import AutoModel

    backbone: torch.nn.Module = load_directory(folder, AutoModel, context.streams.seed("init", UNUSED), unused=UNUSED)
    return backbone


def _add_adapters(module: torch.nn.Module, adapted: torch.nn.Module, options: Options, context: RunContext) -> None:
    """Freeze the model, add LoRA adapters, and make them and the new or output layers trainable."""
    from peft import LoraConfig, inject_adapter_in_model

    for parameter in module.parameters():
        parameter.requires_grad_(False)
    config = LoraConfig(
        r=options.rank,
        lora_alpha=options.lora_alpha or 2 * options.rank,
        lora_dropout=0.0,
        target_modules=ADAPTED if adapted is module else "all-linear",
    )
    with cpu_seeded(context.streams.seed("init", "lora")):
        inject_adapter_in_model(config, adapted)
    ends = module.output if adapted is module else module.ends
    for parameter in ends.parameters():  # type: ignore[union-attr]
        parameter.requires_grad_(True)


class FineTuned(Supervised):
    """Trains the parameters that require gradients; checkpoints contain only those."""

    def trained_parameters(self) -> Iterable[torch.nn.Parameter]:
        return (parameter for parameter in self.module.parameters() if parameter.requires_grad)

    def _trained(self) -> dict[str, torch.nn.Parameter]:
        return {name: each for name, each in self.module.named_parameters() if each.requires_grad}

    def state(self) -> dict[str, Any]:
        state = {name: value for name, value in super().state().items() if name != "module"}
        return {**state, "trained": {name: each.detach().clone() for name, each in self._trained().items()}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        import torch

        with torch.no_grad():
            for name, parameter in self._trained().items():
                parameter.copy_(state["trained"][name])
        self.load_optimizer(state["optimizer"])

    def tensor_groups(self) -> dict[str, list[torch.Tensor]]:
        frozen: list[torch.Tensor] = [each for each in self.module.parameters() if not each.requires_grad]
        return {**super().tensor_groups(), "frozen": frozen}
