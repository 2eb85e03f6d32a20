"""Train one of five small classifiers on MNIST-1D or scikit-learn's digits."""

from __future__ import annotations

from pydantic import model_validator

from fairtrial.plugins import Cache, Dataset, Metric, Role, RunContext, Trainable, option
from fairtrial.recipes._supervised import (
    CLASSES,
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
from fairtrial.recipes.data import load_data
from fairtrial.recipes.models import ModelName, build_model

SUMMARY = "Classify small signals with a linear model, MLP, CNN, GRU or transformer."
REQUIRES = ("torch", "numpy", "mnist1d", "sklearn")
EXTRA = "train"
METRIC = Metric("accuracy", "max")
EXAMPLE = {"variants": {"mlp": {"model": "mlp"}, "cnn": {"model": "cnn"}}}
MAIN_OPTIONS = ("model", "width", "data", "labels", "batch_size", "learning_rate", "weight_decay", "schedule")


class Options(SupervisedOptions):
    steps: int = option(
        3000, "Training steps.", role=Role.TRAINING, unit="steps", ge=1, le=SupervisedOptions.most_steps
    )
    model: ModelName = option("mlp", "Model to train.", role=Role.MODEL)
    width: int = option(
        0,
        "Hidden units or channels; 0: the model's default (mlp 100, cnn 25, gru 6, transformer 32).",
        role=Role.MODEL,
        ge=0,
    )

    @model_validator(mode="after")
    def _width_fits(self) -> Options:
        if self.model == "linear" and self.width:
            raise ValueError("width: a linear model has no width")
        if self.model == "transformer" and self.width % 4:
            raise ValueError(f"width: must be a multiple of 4 for a transformer, not {self.width}")
        return self


warm = warm_up


def data(options: Options, cache: Cache) -> Dataset:
    return load_data(options.data, cache, options.report_set)


def stack_key(options: Options) -> str | None:
    return shapes_of(options, options.model, options.width)


def build(options: Options, context: RunContext) -> Trainable:
    module = make_module(options.model, options.width, context)
    if is_stacked(options, options.model):
        from fairtrial.recipes._stacked import LossTerms, StackedRun

        return StackedRun(options.model, module, options, context, LossTerms())
    return Supervised(module, options, context)


stack = stack_runs
fresh_report = fresh_report_set
evaluates = evaluated_quantities
step_size = examples_of_step


def make_module(model: str, width: int, context: RunContext):  # type: ignore[no-untyped-def]
    """Build a model whose input size matches the run's data set."""
    assert context.data is not None
    inputs = context.data.array("train_x").shape[1]
    return build_model(model, width, inputs=inputs, classes=CLASSES, streams=context.streams)
