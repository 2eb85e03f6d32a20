"""The models compute what their layers say, however they get there."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import relu

from fairtrial.recipes.models.cnn import CNN


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
