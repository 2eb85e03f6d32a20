"""Train a student on labels and on the outputs of a larger teacher model (knowledge distillation).

The loss is (1 − alpha) · cross-entropy + alpha · (sum of the teacher's terms). A strategy is a set of terms. Each term
can also be switched on or off separately, so that an ablation can remove exactly one:

    soft_targets      T² · KL between softened outputs          kd, combined
    logit_regression  squared error of the logits               mse, combined
    attention_loss    squared error of normalized spatial maps  attention, combined
    layer_matching    hidden layers matched, one after another  progressive, combined

The fifth component, `temperature`, has no effect at 1. The teacher is a run of `classify` that is trained once per
store. Its outputs on the training set are computed once, not at each step.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import model_validator

from fairtrial.plugins import Cache, Dataset, Metric, Need, Role, RunContext, Trainable, cautions, option
from fairtrial.recipes._supervised import (
    Supervised,
    SupervisedOptions,
    evaluated_quantities,
    examples_of_step,
    fresh_report_set,
    is_stacked,
    shapes_of,
    stack_runs,
    warm_up,
)
from fairtrial.recipes._weights import load_weights
from fairtrial.recipes.classify import make_module
from fairtrial.recipes.data import load_data, save_arrays
from fairtrial.recipes.models import WITH_LAYERS, WITH_MAPS, ModelName

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fairtrial.recipes._stacked import LossTerms

SUMMARY = "Distill a teacher into a student: kd, mse, attention, progressive, combined, or none."
REQUIRES = ("torch", "numpy", "mnist1d", "sklearn")
EXTRA = "train"
METRIC = Metric("accuracy", "max")
EXAMPLE = {"variants": {"none": {"strategy": "none"}, "kd": {"strategy": "kd"}}}
MAIN_OPTIONS = ("strategy", "temperature", "alpha", "teacher", "student", "data", "labels", "learning_rate")

TERMS = ("soft_targets", "logit_regression", "attention_loss", "layer_matching")
STRATEGIES: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "kd": ("soft_targets",),
    "mse": ("logit_regression",),
    "attention": ("attention_loss",),
    "progressive": ("layer_matching",),
    "combined": TERMS,
}
COMPONENTS: Mapping[str, Mapping[str, Any]] = {
    "temperature": {"temperature": 1.0},
    **{term: {term: False} for term in TERMS},
}
"""Component → the option values that remove it in an ablation."""


class Options(SupervisedOptions):
    steps: int = option(
        3000, "Training steps of the student.", role=Role.TRAINING, unit="steps", ge=1, le=SupervisedOptions.most_steps
    )
    labels: int = option(
        0,
        "Train the student on a random subset of this many examples, shared by all variants; 0: all.",
        role=Role.DATA,
        ge=0,
    )
    learning_rate: float = option(5e-3, "Learning rate of AdamW.", role=Role.TRAINING, gt=0)
    strategy: Literal["none", "kd", "mse", "attention", "progressive", "combined"] = option(
        "kd", "Distillation strategy: which terms of the teacher are in the loss.", role=Role.TRAINING
    )
    temperature: float = option(
        4.0, "Softmax temperature of the soft targets; 1: no softening.", role=Role.TRAINING, gt=0
    )
    alpha: float = option(
        0.5, "Weight of the teacher's terms; the labels have weight 1 - alpha.", role=Role.TRAINING, ge=0, le=1
    )
    soft_targets: bool | None = option(None, "Override the strategy: turn this term on or off.", role=Role.TRAINING)
    logit_regression: bool | None = option(None, "Override the strategy: turn this term on or off.", role=Role.TRAINING)
    attention_loss: bool | None = option(None, "Override the strategy: turn this term on or off.", role=Role.TRAINING)
    layer_matching: bool | None = option(None, "Override the strategy: turn this term on or off.", role=Role.TRAINING)
    attention_weight: float = option(10.0, "Weight of the attention term.", role=Role.TRAINING, ge=0)
    matching_weight: float = option(1.0, "Weight of the layer-matching term.", role=Role.TRAINING, ge=0)
    student: ModelName = option("mlp", "Model of the student.", role=Role.MODEL)
    student_width: int = option(
        0, "Hidden units or channels of the student; 0: the model's default.", role=Role.MODEL, ge=0
    )
    teacher: ModelName = option("cnn", "Model of the teacher.", role=Role.TEACHER)
    teacher_width: int = option(
        50, "Hidden units or channels of the teacher; 0: the model's default.", role=Role.TEACHER, ge=0
    )
    teacher_steps: int = option(
        2500, "Training steps of the teacher.", role=Role.TEACHER, unit="steps", ge=1, le=SupervisedOptions.most_steps
    )
    teacher_learning_rate: float = option(
        1e-2, "Learning rate of the teacher, cosine-annealed.", role=Role.TEACHER, gt=0
    )
    teacher_weight_decay: float = option(
        0.3,
        "Weight decay of the teacher; a high value keeps its outputs soft, which helps distillation.",
        role=Role.TEACHER,
        ge=0,
    )
    teacher_seed: int = option(
        1, "Random seed of the teacher; all students learn from this one teacher.", role=Role.TEACHER, ge=0
    )

    @model_validator(mode="after")
    def _terms_fit_models(self) -> Options:
        terms = active_terms(self)
        for term, able, what in (
            ("attention_loss", WITH_MAPS, "spatial maps"),
            ("layer_matching", WITH_LAYERS, "hidden layers"),
        ):
            lacking = sorted({f"{self.student}", f"{self.teacher}"} - set(able))
            if term in terms and lacking:
                raise ValueError(f"{term} needs models with {what} ({', '.join(able)}); {lacking[0]} has none")
        return self


def active_terms(options: Options) -> tuple[str, ...]:
    """Return the teacher's terms in the loss: those of the strategy, adjusted by the switches of single terms."""
    chosen = STRATEGIES[options.strategy]
    switches = {term: getattr(options, term) for term in TERMS}
    return tuple(t for t in TERMS if (t in chosen if switches[t] is None else switches[t]))


def unused_components(options: Options) -> dict[str, str]:
    """Return the components that have no effect with these options, with the reason. An ablation cannot remove them."""
    terms, scales = active_terms(options), {"attention_loss": "attention_weight", "layer_matching": "matching_weight"}
    unused: dict[str, str] = {}
    for term in TERMS:
        scale = scales.get(term)
        if term not in terms:
            off = getattr(options, term) is False
            unused[term] = "it is switched off" if off else f"strategy {options.strategy} has no such term"
        elif options.alpha == 0:
            unused[term] = "alpha is 0, so the teacher's terms have no weight"
        elif scale is not None and getattr(options, scale) == 0:
            unused[term] = f"{scale} is 0"
    if options.temperature == 1:
        unused["temperature"] = "it is already 1, the value that removes it"
    elif "soft_targets" in unused:
        unused["temperature"] = "only soft_targets uses it, and soft_targets has no effect here"
    return unused


warm = warm_up


def data(options: Options, cache: Cache) -> Dataset:
    return load_data(options.data, cache, options.report_set)


def needs(options: Options) -> dict[str, Need]:
    """Return the run of `classify` that trains the teacher; none if the loss has no terms of the teacher."""
    if not active_terms(options):
        return {}
    chosen = {
        "data": options.data,
        "model": options.teacher,
        "width": options.teacher_width,
        "steps": options.teacher_steps,
        "learning_rate": options.teacher_learning_rate,
        "weight_decay": options.teacher_weight_decay,
        "schedule": "cosine",
        "device": options.device,
        "threads": options.threads,
    }
    return {"teacher": Need("classify", chosen, options.teacher_seed, label=f"{options.teacher}-teacher")}


def stack_key(options: Options) -> str | None:
    terms = active_terms(options)
    matched = (options.teacher, options.teacher_width) if "layer_matching" in terms else ()
    return shapes_of(options, options.student, options.student_width, *terms, *matched)


stack = stack_runs
fresh_report = fresh_report_set
evaluates = evaluated_quantities
step_size = examples_of_step


def build(options: Options, context: RunContext) -> Trainable:
    student = make_module(options.student, options.student_width, context)
    context.cautions.extend(_inert(options, active_terms(options)))
    teaching = _teach(student, options, context) if active_terms(options) else None
    if is_stacked(options, options.student):
        from fairtrial.recipes._stacked import LossTerms, StackedRun

        loss_terms = teaching.loss_terms(options) if teaching else LossTerms()
        return StackedRun(options.student, student, options, context, loss_terms)
    return Student(student, options, context, teaching) if teaching else Supervised(student, options, context)


def _teach(student: torch.nn.Module, options: Options, context: RunContext) -> Teaching:
    teacher = Teacher(options, context)
    context.cautions.append(cautions.ONE_TEACHER.fill(teacher=teacher.run.root.name))
    if options.labels:
        context.cautions.append(
            cautions.FEWER_LABELS.fill(teacher_labels=teacher.examples, student_labels=options.labels)
        )
    return Teaching(student, options, context, teacher)


def _inert(options: Options, terms: tuple[str, ...]) -> list[dict[str, str]]:
    """Return a caution for each option that was set but has no effect."""
    users = {
        "temperature": "soft_targets",
        "attention_weight": "attention_loss",
        "matching_weight": "layer_matching",
    }
    chosen = options.differing()
    idle = [name for name, term in users.items() if name in chosen and term not in terms]
    if "alpha" in chosen and not terms:
        idle.append("alpha")
    return [
        cautions.INERT_OPTION.fill(option=name, why=f"strategy {options.strategy} does not use it") for name in idle
    ]


class Teacher:
    """A trained teacher and its outputs on the training set, which are computed once per store."""

    def __init__(self, options: Options, context: RunContext) -> None:
        self.run = context.needs["teacher"]
        weights, self.sha256 = load_weights(self.run.last, "the teacher's")
        assert context.data is not None
        self.examples = len(context.data.array("train_y"))
        context.lineage["teacher"] = {"run": self.run.root.name, "weights_sha256": self.sha256}
        key = {"teacher": self.sha256, "data": context.data.sha256, "version": 1}
        self._entry = context.cache.entry(
            "teacher-outputs", key, lambda folder: _compute_outputs(folder, weights, options, context)
        )
        self.layers = int(self._entry.manifest["layers"])

    def output(self, name: str) -> Tensor:
        return _load_output(self._entry.folder / f"{name}.npy")


@functools.lru_cache(maxsize=32)
def _load_output(path: Path) -> Tensor:
    """Read an array of outputs. All students in the process share the tensor: do not modify it."""
    import numpy
    import torch

    return torch.from_numpy(numpy.load(path, mmap_mode="r").copy())


def _compute_outputs(
    folder: Path, weights: Mapping[str, Tensor], options: Options, context: RunContext
) -> dict[str, Any]:
    """Save the logits and, for each hidden layer, the channels (averaged over positions) and the spatial map."""
    import torch

    assert context.data is not None
    teacher = make_module(options.teacher, options.teacher_width, context)
    teacher.load_state_dict(dict(weights))
    with torch.no_grad():
        logits, layers = teacher.trace(torch.from_numpy(context.data.array("train_x").copy()))
        arrays = {"logits": logits.numpy()}
        for number, layer in enumerate(layers):
            arrays[f"channels-{number}"] = pool_positions(layer).numpy()
            if layer.dim() == 3:
                arrays[f"map-{number}"] = spatial_map(layer).numpy()
    save_arrays(folder, arrays)
    return {"layers": len(layers)}


def pool_positions(layer: Tensor) -> Tensor:
    return layer.mean(2) if layer.dim() == 3 else layer


def spatial_map(layer: Tensor) -> Tensor:
    """Return the sum of squares over the channels at each position, normalized to unit length (attention transfer)."""
    from torch.nn.functional import normalize

    return normalize(layer.square().sum(1), dim=1)


class Teaching:
    """The teacher's outputs that a student's loss terms need, and the pairs of student and teacher layers."""

    def __init__(self, module: torch.nn.Module, options: Options, context: RunContext, teacher: Teacher) -> None:
        import torch

        from fairtrial.recipes.models import initialize

        assert context.data is not None
        self.terms = active_terms(options)
        with torch.no_grad():
            sample = module.trace(torch.from_numpy(context.data.array("train_x")[:2].copy()))[1]  # type: ignore[operator]
        count = len(sample)
        self.pairs = [(k, round((k + 1) * teacher.layers / count) - 1) for k in range(count)]
        self.outputs: dict[str, Tensor] = {}
        self.projections = torch.nn.ModuleList()
        if {"soft_targets", "logit_regression"} & set(self.terms):
            self.outputs["logits"] = teacher.output("logits")
        for own, other in self.pairs:
            if "attention_loss" in self.terms:
                self.outputs[f"map-{own}"] = _resize(teacher.output(f"map-{other}"), sample[own].shape[2])
            if "layer_matching" in self.terms:
                target = teacher.output(f"channels-{other}")
                self.outputs[f"channels-{own}"] = target
                self.projections.append(torch.nn.Linear(pool_positions(sample[own]).shape[1], target.shape[1]))
        initialize(torch.nn.ModuleDict({"projections": self.projections}), context.streams)
        self.outputs = {name: value.to(options.device) for name, value in self.outputs.items()}

    def loss_terms(self, options: Options) -> LossTerms:
        """Return the loss terms of a stacked run. Stackable models have no spatial maps, so no attention term."""
        from fairtrial.recipes._stacked import LossTerms

        alpha, terms = options.alpha, self.terms
        return LossTerms(
            labels=1 - alpha,
            soft=alpha if "soft_targets" in terms else None,
            temperature=options.temperature,
            regression=alpha if "logit_regression" in terms else None,
            matching=alpha * options.matching_weight if "layer_matching" in terms else None,
            teacher=self.outputs.get("logits"),
            layers=tuple(self.outputs[f"channels-{own}"] for own, _ in self.pairs) if "layer_matching" in terms else (),
            projections=self.projections,
        )


class Student(Supervised):
    """Trains a student with terms of the teacher in its loss."""

    def __init__(self, module: torch.nn.Module, options: Options, context: RunContext, teaching: Teaching) -> None:
        self.distilling = options
        self.terms, self.pairs, self.outputs = teaching.terms, teaching.pairs, teaching.outputs
        self.projections = teaching.projections.to(options.device)
        super().__init__(module, options, context)

    def trained_parameters(self) -> Iterable[torch.nn.Parameter]:
        yield from self.module.parameters()
        yield from self.projections.parameters()

    def loss(self, chosen: Tensor, step: int) -> Tensor:
        from torch.nn.functional import cross_entropy

        x, y = self.splits["train"]
        logits, layers = self.module.trace(x[chosen])  # type: ignore[operator]
        alpha = self.distilling.alpha
        taught = sum(getattr(self, f"_{term}")(logits, layers, chosen, step) for term in self.terms)
        total: Tensor = (1 - alpha) * cross_entropy(logits, y[chosen]) + alpha * taught
        return total

    def _soft_targets(self, logits: Tensor, _layers: list[Tensor], chosen: Tensor, _step: int) -> Tensor:
        from torch.nn.functional import kl_div, log_softmax

        t = self.distilling.temperature
        wanted = log_softmax(self.outputs["logits"][chosen] / t, 1)
        return t * t * kl_div(log_softmax(logits / t, 1), wanted, reduction="batchmean", log_target=True)

    def _logit_regression(self, logits: Tensor, _layers: list[Tensor], chosen: Tensor, _step: int) -> Tensor:
        from torch.nn.functional import mse_loss

        return mse_loss(logits, self.outputs["logits"][chosen])

    def _attention_loss(self, _logits: Tensor, layers: list[Tensor], chosen: Tensor, _step: int) -> Tensor:
        import torch

        gaps = [
            (spatial_map(layers[own]) - self.outputs[f"map-{own}"][chosen]).square().sum(1).mean()
            for own, _ in self.pairs
        ]
        return self.distilling.attention_weight * torch.stack(gaps).mean()

    def _layer_matching(self, _logits: Tensor, layers: list[Tensor], chosen: Tensor, step: int) -> Tensor:
        """Match one hidden layer at a time, from the first to the last, each for an equal share of the steps."""
        from torch.nn.functional import mse_loss

        stage = min((step - 1) * len(self.pairs) // self.distilling.steps, len(self.pairs) - 1)
        own = self.pairs[stage][0]
        guess = self.projections[stage](pool_positions(layers[own]))
        return self.distilling.matching_weight * mse_loss(guess, self.outputs[f"channels-{own}"][chosen])

    def state(self) -> dict[str, Any]:
        import copy

        return {**super().state(), "projections": copy.deepcopy(dict(self.projections.state_dict()))}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.projections.load_state_dict(state["projections"])


def _resize(maps: Tensor, positions: int) -> Tensor:
    """Resize the teacher's maps to the student's resolution and normalize them to unit length again."""
    from torch.nn.functional import adaptive_avg_pool1d, normalize

    return normalize(adaptive_avg_pool1d(maps.unsqueeze(1), positions).squeeze(1), dim=1)
