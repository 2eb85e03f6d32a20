"""doctor --aa: time identical work against itself, to find this machine's noise and the differences it can detect."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from fairtrial.core.training import Clock
from fairtrial.probe.interleaving import abba
from fairtrial.stats.aa_noise import NoiseFloor, noise_floor

AA_ROUNDS = 40
AA_BLOCK_S = 0.05
NUMBERS = 2000


def self_check(
    *,
    clock: Clock = time.perf_counter,
    work: Callable[[], object] | None = None,
    rounds: int = AA_ROUNDS,
    on_round: Callable[[int], None] = lambda _: None,
) -> NoiseFloor:
    """Time the same work as both sides of an interleaved comparison, and return how much the two differ."""
    work = work or _arithmetic()
    start = clock()
    work()
    work()
    count = max(1, round(AA_BLOCK_S / max(1e-9, (clock() - start) / 2)))

    def block() -> float:
        begun = clock()
        for _ in range(count):
            work()
        return clock() - begun

    block()
    first, second = (np.array(times) for times in abba([block, block], rounds, on_round))
    return noise_floor(first, second)


def _arithmetic() -> Callable[[], object]:
    """Return single-threaded work that fits into a core's cache, so that any difference comes from the machine."""
    values = np.random.default_rng(0).standard_normal(NUMBERS)
    return lambda: [np.tanh(values).sum() for _ in range(20)]
