"""Each term of the loss does something, can be switched by itself, and needs models that can give it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fairtrial.core.errors import FairtrialError
from fairtrial.core.options import parse_options
from fairtrial.recipes.distill import COMPONENTS, STRATEGIES, TERMS, Options, active_terms
from fairtrial.record.store import Store
from tests.harness import make, series_of
from tests.recipes.test_pairing import build

SMALL = {"student": "cnn", "student_width": 4, "teacher_width": 6, "teacher_steps": 10, "steps": 30, "labels": 200}


@pytest.mark.parametrize("term", TERMS)
def test_each_term_has_a_gradient_of_its_own(with_data: Store, term: str) -> None:
    student = build(with_data, "distill", strategy="none", alpha=1.0, **{term: True}, **SMALL)
    gradients = torch.autograd.grad(student.loss(torch.arange(20), 1), list(student.module.parameters()))
    assert sum(float(gradient.abs().sum()) for gradient in gradients) > 0


@pytest.mark.parametrize("component", COMPONENTS)
def test_switching_a_component_off_changes_the_training(with_data: Store, component: str) -> None:
    options = {**SMALL, "strategy": "combined", "log_every": 1}
    make(with_data, "distill", variant="full", **options)
    make(with_data, "distill", variant="without", **{**options, **COMPONENTS[component]})
    full, without = (series_of(with_data, run=f"{name}.seed1")["train_loss"] for name in ("full", "without"))
    assert full != without


def test_strategies_are_sets_of_terms() -> None:
    for strategy, terms in STRATEGIES.items():
        options = parse_options(Options, {"strategy": strategy, "student": "cnn"}, where="test")
        assert active_terms(options) == terms
    options = parse_options(Options, {"strategy": "kd", "soft_targets": False, "logit_regression": True}, where="test")
    assert active_terms(options) == ("logit_regression",)


def test_soft_targets_are_the_known_formula(with_data: Store) -> None:
    """T² · KL(teacher ‖ student) of softened outputs, written down independently."""
    student = build(with_data, "distill", strategy="kd", alpha=1.0, temperature=3.0, **SMALL)
    student.module.double()
    student.outputs = {name: value.double() for name, value in student.outputs.items()}
    student.splits["train"] = (student.splits["train"][0].double(), student.splits["train"][1])
    chosen = torch.arange(20)
    logits = student.module(student.splits["train"][0][chosen])
    teacher = torch.softmax(student.outputs["logits"][chosen] / 3, 1)
    expected = 9 * (teacher * (teacher.log() - torch.log_softmax(logits / 3, 1))).sum(1).mean()
    assert torch.allclose(student.loss(chosen, 1), expected, rtol=1e-10)


def test_progressive_matches_one_layer_after_another(with_data: Store) -> None:
    student = build(with_data, "distill", strategy="progressive", **SMALL)
    moving = []
    weights = [projection.weight for projection in student.projections]
    for step in (1, 15, 30):
        gradients = torch.autograd.grad(student.loss(torch.arange(20), step), weights, materialize_grads=True)
        moving.append([bool(gradient.any()) for gradient in gradients])
    assert moving == [[True, False, False], [False, True, False], [False, False, True]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"strategy": "attention"},
            "attention_loss needs models with spatial maps (cnn, gru, transformer); mlp has none",
        ),
        ({"strategy": "progressive", "student": "linear"}, "layer_matching needs models with hidden layers"),
        ({"strategy": "kdd"}, "strategy: must be one of none, kd, mse, attention, progressive or combined"),
        ({"temperature": 0}, "temperature: must be greater than 0"),
        ({"alpha": 1.5}, "alpha: must be less than or equal to 1"),
        ({"temprature": 2}, "did you mean 'temperature'?"),
        ({"learning_rate": float("nan")}, "learning_rate: must be a finite number"),
    ],
)
def test_what_cannot_be_distilled_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(FairtrialError) as caught:
        parse_options(Options, options, where="test")
    assert message in caught.value.message


def test_the_teacher_is_trained_once_and_known_by_its_weights(with_data: Store) -> None:
    for seed in (1, 2):
        make(with_data, "distill", seed=seed, strategy="kd", **SMALL)
    teachers = [entry.name for _, entry in with_data.directories("teachers")]
    assert len(teachers) == 1
    runs = [with_data.run("s", f"v.seed{seed}") for seed in (1, 2)]
    known = {run.metadata["lineage"]["teacher"]["weights_sha256"] for run in runs if run}
    assert len(known) == 1
    codes = [caution["code"] for caution in runs[0].metadata["cautions"]]  # type: ignore[union-attr]
    assert codes == ["one teacher", "fewer labels"]


def test_an_option_without_effect_is_said_aloud(with_data: Store) -> None:
    make(with_data, "distill", strategy="none", temperature=8, **SMALL)
    run = with_data.run("s", "v.seed1")
    assert run is not None
    assert [c["text"] for c in run.metadata["cautions"]] == [
        "temperature has no effect here: strategy none does not use it."
    ]
