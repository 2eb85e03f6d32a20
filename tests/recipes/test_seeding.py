"""Initial weights: those of the seed, with every other generator left as it was."""

from __future__ import annotations

import torch

from fairtrial.recipes._seeding import cpu_seeded


def test_weights_are_those_of_the_seed_and_the_generator_is_restored() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        expected = torch.rand(3)
        torch.manual_seed(1)
        before = torch.get_rng_state()
        with cpu_seeded(7):
            assert torch.equal(torch.rand(3), expected)
        assert torch.equal(torch.get_rng_state(), before)


def test_nothing_is_kept_for_accelerators_that_nobody_uses() -> None:
    """Otherwise a process that builds many models collects a stack trace of each."""
    kept = len(torch.cuda._queued_calls)
    with cpu_seeded(7):
        torch.rand(1)
    assert len(torch.cuda._queued_calls) == kept
