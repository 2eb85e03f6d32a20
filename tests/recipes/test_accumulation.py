"""Accumulated gradients are those of the larger batch, and gradients for the noise scale are those of training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fairtrial.core.options import parse_options, result_options
from fairtrial.core.registry import load_recipe
from fairtrial.core.training import LoopEvents
from fairtrial.jobs.run_session import SteppableRun
from fairtrial.record.store import Store
from tests.harness import request_for

SMALL = {"labels": 240, "steps": 20}


@pytest.fixture
def at_hand(with_data: Store) -> Any:
    import contextlib

    with contextlib.ExitStack() as leaving:
        count = iter(range(100))

        def opened(recipe: str, **options: Any) -> SteppableRun:
            job = request_for(with_data, recipe, variant=f"v{next(count)}", **{**SMALL, **options})
            return SteppableRun(job, leaving)

        yield opened


def weights(run: SteppableRun) -> torch.Tensor:
    return torch.cat([each.detach().flatten() for each in run.trainable.tensor_groups()["parameters"]])


@pytest.mark.parametrize("model", ["cnn", "mlp"])
def test_four_batches_of_30_make_the_update_of_one_of_120(at_hand: Any, model: str) -> None:
    whole, parts = (
        at_hand("classify", model=model, batch_size=120),
        at_hand("classify", model=model, batch_size=30, accumulate=4),
    )
    before = weights(whole)
    assert torch.equal(before, weights(parts))
    losses = [float(run.trainable.step(1, LoopEvents())["loss"]) for run in (whole, parts)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    moved = [weights(run) - before for run in (whole, parts)]
    assert torch.allclose(moved[0], moved[1], atol=2e-4 * float(moved[0].abs().max()) + 1e-7, rtol=1e-2)


def test_a_step_that_accumulates_counts_all_its_examples(at_hand: Any) -> None:
    run = at_hand("classify", model="cnn", batch_size=30, accumulate=4)
    assert run.resources["examples_per_step"] == 120 and run.resources["steps_per_epoch"] == 2
    plain = at_hand("classify", model="cnn", batch_size=30)
    assert run.resources["tensor_bytes"]["activations"] == pytest.approx(
        plain.resources["tensor_bytes"]["activations"], rel=0.05
    ), "batches follow each other: only one is kept at a time"
    assert run.resources["flops_per_step"] == 4 * plain.resources["flops_per_step"]


@pytest.mark.parametrize("recipe", ["classify", "distill"])
def test_stacked_and_plain_models_have_the_same_batch_gradients(at_hand: Any, recipe: str) -> None:
    options = {"teacher_steps": 8, "teacher_width": 4} if recipe == "distill" else {}
    stacked, plain = at_hand(recipe, batch_size=30, **options), at_hand(recipe, batch_size=30, accumulate=2, **options)
    found = [run.trainable.batch_gradients(np.random.default_rng(3)) for run in (stacked, plain)]
    assert found[0][1] == found[1][1] == 30
    lengths = [sum(float(part.double().square().sum()) for part in parts) for parts, _ in found]
    assert lengths[0] == pytest.approx(lengths[1], rel=1e-4)
    again = stacked.trainable.batch_gradients(np.random.default_rng(3))
    assert torch.equal(again[0][0], found[0][0][0]), "looking at gradients teaches nothing"


def test_an_option_that_came_later_keeps_old_fingerprints() -> None:
    recipe = load_recipe("classify")
    default, chosen = (parse_options(recipe.options, given, where="t") for given in ({}, {"accumulate": 3}))
    assert "accumulate" not in result_options(recipe.options, default)
    assert result_options(recipe.options, chosen)["accumulate"] == 3


def test_the_noise_scale_of_a_linear_model_is_the_true_one(at_hand: Any, with_data: Store) -> None:
    """Of 240 examples everything can be computed: the mean gradient and the scatter of single ones about it."""
    from fairtrial.probe.noise_scale import PIECES, squared_lengths
    from fairtrial.stats.noise_scale import noise_scale

    run = at_hand("classify", model="linear", batch_size=30, accumulate=2)
    run.advance(10)
    trainable = run.trainable
    x, y = trainable.splits["train"]
    rows = torch.from_numpy(trainable.batches._subset)
    single = torch.stack([
        torch.cat([part.flatten() for part in torch.autograd.grad(
            torch.nn.functional.cross_entropy(trainable.module(x[row][None]), y[row][None]), trainable.parameters
        )]) for row in rows
    ]).double()  # fmt: skip
    mean = single.mean(0)
    truth = float((single - mean).square().sum(1).mean() / mean.square().sum())
    small, large, batch = squared_lengths(trainable.batch_gradients, np.random.default_rng(5), measurements=400)
    found = noise_scale(np.array(small), np.array(large), batch, PIECES, 0.01)
    assert found.low is not None and found.high is not None and found.low < truth < found.high
    assert found.value == pytest.approx(truth, rel=0.15)
