"""The models compute what their layers say, however they get there."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import cross_entropy, relu

from fairtrial.core.streams import Streams
from fairtrial.core.training import LoopEvents
from fairtrial.recipes.models import build_model
from fairtrial.recipes.models.cnn import CNN
from fairtrial.record.store import Store
from tests.recipes.test_pairing import build


@pytest.mark.parametrize(("inputs", "width", "batch"), [(40, 25, 100), (40, 4, 1), (64, 7, 33), (41, 16, 5)])
def test_the_convolutions_are_those_of_torch(inputs: int, width: int, batch: int) -> None:
    model = CNN(inputs, 10, width)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        x = torch.randn(batch, inputs, requires_grad=True)
    logits, layers = model.trace(x)
    hidden = x.unsqueeze(1)
    for convolution, layer in zip(model.convolutions, layers, strict=True):
        hidden = relu(convolution(hidden))
        assert torch.allclose(layer, hidden, atol=1e-5)
    expected = model.output(hidden.flatten(1))
    assert torch.allclose(logits, expected, atol=1e-5)
    asked = [x, *model.parameters()]
    found, wanted = (torch.autograd.grad(total.square().sum(), asked) for total in (logits, expected))
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("model", ["linear", "mlp", "cnn", "gru", "transformer"])
def test_training_is_what_the_optimizer_of_torch_would_do(with_data: Store, model: str) -> None:
    """The loop's own update, and the stacks' own gradients, against torch's optimizer on the plain module."""
    run = build(with_data, "classify", model=model, learning_rate=3e-3, weight_decay=0.05, schedule="cosine", steps=40)
    module = build_model(model, 0, inputs=40, classes=10, streams=Streams(1))
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3, weight_decay=0.05)
    x, y = run.splits["train"]
    for step in range(1, 21):
        run.step(step, LoopEvents())
        chosen = torch.from_numpy(run.batches.at(step))
        optimizer.param_groups[0]["lr"] = 3e-3 * 0.5 * (1 + math.cos(math.pi * (step - 1) / 40))
        optimizer.zero_grad()
        cross_entropy(module(x[chosen]), y[chosen]).backward()
        optimizer.step()
    trained = run.state()["module"]
    for name, value in module.named_parameters():
        if not name.endswith("qkv.bias"):  # a key's bias has no gradient but rounding, which Adam blows up
            assert torch.allclose(trained[name], value, rtol=1e-3, atol=2e-4), name
