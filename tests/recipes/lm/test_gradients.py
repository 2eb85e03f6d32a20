"""Gradients that are written by hand are those of the functions that they belong to."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fairtrial.recipes.lm.gradients import attend_to_both, chosen_logprobs, gated, normed, rotated  # noqa: E402


def numbers(*shape: int, seed: int = 1) -> Any:
    made = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return made.requires_grad_()


def test_the_norm() -> None:
    x = numbers(3, 8)
    torch.testing.assert_close(normed(x, 1e-2), torch.nn.functional.rms_norm(x, (8,), eps=1e-2))
    assert torch.autograd.gradcheck(lambda x: normed(x, 1e-2), (x,))


def test_the_gate() -> None:
    both = numbers(3, 8)
    torch.testing.assert_close(gated(both), torch.nn.functional.silu(both[:, :4]) * both[:, 4:])
    assert torch.autograd.gradcheck(gated, (both,))


def test_turning() -> None:
    x = numbers(3, 2, 4)
    turns = torch.polar(torch.ones(3, 2, 2, dtype=torch.float64), numbers(3, 2, 2, seed=2).detach())
    torch.testing.assert_close(rotated(x, turns).norm(), x.norm())
    assert torch.autograd.gradcheck(lambda x: rotated(x, turns), (x,))


@pytest.mark.parametrize("context", [0, 3])
def test_attention_to_a_context_and_to_oneself(context: int) -> None:
    q = numbers(2, 2, 3, 2, 4, 5)
    early_k, early_v = numbers(2, 2, context, 5, seed=2), numbers(2, 2, context, 5, seed=3)
    k, v = numbers(2, 2, 3, 4, 5, seed=4), numbers(2, 2, 3, 4, 5, seed=5)
    missing = torch.zeros(2, 1, 1, context, dtype=torch.float64)
    missing[1, ..., 2:] = -torch.inf
    found = attend_to_both(q, early_k, early_v, k, v, missing)
    keys = torch.cat([early_k[:, :, None].expand(-1, -1, 3, -1, -1), k], dim=3)[:, :, :, None]
    values = torch.cat([early_v[:, :, None].expand(-1, -1, 3, -1, -1), v], dim=3)[:, :, :, None]
    unseen = torch.cat([torch.zeros(4, context), torch.full((4, 4), -torch.inf).triu(1)], dim=1).to(torch.float64)
    unseen = unseen + torch.cat([missing, torch.zeros(2, 1, 1, 4)], dim=3)[:, :, None, None]
    torch.testing.assert_close(found, (q @ keys.transpose(-1, -2) + unseen).softmax(-1) @ values)
    assert torch.autograd.gradcheck(lambda *each: attend_to_both(*each, missing), (q, early_k, early_v, k, v))


def test_log_probabilities_and_entropy() -> None:
    logits, targets = numbers(4, 6), torch.tensor([0, 5, 2, 2])
    taken, entropy = chosen_logprobs(logits, targets)
    every = logits.log_softmax(1)
    torch.testing.assert_close(taken, every[range(4), targets])
    torch.testing.assert_close(entropy, -(every.exp() * every).sum())
    assert not entropy.requires_grad
    assert torch.autograd.gradcheck(lambda logits: chosen_logprobs(logits, targets)[0], (logits,))


def test_what_is_impossible_counts_nothing_and_what_is_unlikely_keeps_its_digits() -> None:
    logits = torch.tensor([[0.0, -200.0, -1e30]], requires_grad=True)
    taken, entropy = chosen_logprobs(logits, torch.tensor([1]))
    assert taken.item() == -200
    assert entropy.item() == 0
    taken.sum().backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == [[-1, 1, 0]]
