"""What a run uses, checked against what can be counted by hand."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fairtrial.core.training import LoopEvents
from fairtrial.probe.resources import step_expense
from fairtrial.record.store import Store
from tests.harness import make
from tests.recipes.test_pairing import build

BATCH, FLOAT = 100, 4


def test_a_linear_model_costs_what_it_must(with_data: Store) -> None:
    trainable = build(with_data, "classify", model="linear")
    expense = step_expense(trainable, 1)
    assert expense["parameters"] == 40 * 10 + 10
    # Forward: one product of 100×40 and 40×10. Backward: the weights' gradient, the same again.
    assert expense["flops_per_step"] == 2 * (2 * BATCH * 40 * 10)
    sizes = expense["tensor_bytes"]
    assert sizes["parameters"] == sizes["gradients"] == 410 * FLOAT
    padded = 400 + 16  # every parameter begins at a multiple of sixteen numbers
    assert sizes["optimizer"] == 2 * padded * FLOAT
    assert sizes["activations"] >= BATCH * 40 * FLOAT, "the input is kept for the backward pass"
    assert expense["peak_tensor_bytes"] == sum(sizes.values())


@pytest.mark.parametrize("model", ["linear", "mlp", "cnn", "gru", "transformer"])
def test_measuring_leaves_no_trace(with_data: Store, model: str) -> None:
    measured, plain = (build(with_data, "classify", model=model) for _ in range(2))
    step_expense(measured, 1)
    for step in range(1, 6):
        one, two = measured.step(step, LoopEvents())["loss"], plain.step(step, LoopEvents())["loss"]
        assert float(one) == float(two)
    for name, value in measured.state()["module"].items():
        assert torch.equal(value, plain.state()["module"][name])


def test_what_has_no_tensors_is_unknown_not_zero(store: Store) -> None:
    make(store, "fake", steps=5)
    run = store.run("s", "v.seed1")
    assert run is not None
    assert run.metadata["resources"]["parameters"] is None
    assert run.metadata["resources"]["peak_process_bytes"] > 1e6
    assert run.metadata["timings"]["cpu_s"] > 0 and run.metadata["timings"]["wall_s"] > 0


@pytest.mark.parametrize(
    ("recipe", "options"),
    [
        ("classify", {"model": "mlp", "width": 33}),
        ("classify", {"model": "linear", "batch_size": 7}),
        ("distill", {"strategy": "kd", "teacher_steps": 2, "teacher_width": 4}),
        ("distill", {"strategy": "progressive", "teacher_steps": 2, "teacher_width": 4}),
    ],
)
def test_operations_that_are_counted_by_hand_are_those_that_torch_counts(
    with_data: Store, recipe: str, options: dict[str, Any]
) -> None:
    trainable = build(with_data, recipe, **options)
    counter = FlopCounterMode(display=False)
    with counter:
        trainable.step(1, LoopEvents())
    assert trainable.flops_per_step() == counter.get_total_flops()


@pytest.mark.slow
def test_counting_does_not_load_the_compiler() -> None:
    code = """
import sys
import torch
from fairtrial.probe.resources import step_expense


class One:
    def __init__(self):
        self.layer = torch.nn.Linear(4, 4)

    def step(self, step, watch):
        self.layer(torch.ones(2, 4)).sum().backward()

    def tensor_groups(self):
        return {"parameters": [*self.layer.parameters()]}

    def state(self):
        return {}

    def load_state(self, state):
        pass


print(step_expense(One(), 1)["flops_per_step"], "torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "128 False\n", done.stderr
