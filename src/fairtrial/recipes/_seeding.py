"""Random initial weights of models that are built on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cpu_seeded(seed: int) -> Iterator[None]:
    """Seed torch's global CPU generator within the block, and restore it afterward.

    `torch.manual_seed` would also seed accelerators, which stay seeded after the block. Where an accelerator is not
    initialized, each call formats three stack traces and keeps them until it is: half of the time of building a model.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
