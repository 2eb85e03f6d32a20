"""Faster, slower, equivalent or inconclusive: never by chance more often than α says."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.simulated import false_alarms

from fairtrial.stats.speed import Speed, compare_rounds, compare_sessions
from fairtrial.stats.timing import Times

NAMES = ("before", "after")


@pytest.mark.parametrize("phi", [0.0, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("n", [200, 1000])
def test_equal_sessions_are_seldom_called_different(phi: float, n: int) -> None:
    assert false_alarms(phi, n, 200, (7, 8)) <= 18


def test_equal_rounds_are_seldom_called_different() -> None:
    rng = np.random.default_rng(8)
    alarms = 0
    for _ in range(200):
        shared = rng.normal(0, 0.3, 10)  # a neighbour that slows both sides of a round
        blocks = [np.exp(shared + rng.normal(0, 0.02, 10)) for _ in range(2)]
        alarms += compare_rounds(*blocks, NAMES, 1e-9, 0.05).verdict is not Speed.INCONCLUSIVE
    assert alarms <= 18, alarms


@pytest.mark.parametrize(
    ("ratio", "noise", "verdict"),
    [
        (1.1, 0.005, Speed.SLOWER),
        (0.9, 0.005, Speed.FASTER),
        (1.01, 0.005, Speed.EQUIVALENT),
        (1.0, 0.5, Speed.INCONCLUSIVE),
    ],
)
def test_the_word_fits_what_was_simulated(ratio: float, noise: float, verdict: Speed) -> None:
    rng = np.random.default_rng(9)
    before = np.exp(rng.normal(0, noise, 12))
    after = ratio * np.exp(rng.normal(0, noise, 12))
    found = compare_rounds(before, after, NAMES, 0.05, 0.05)
    assert found.verdict is verdict and verdict in str(found)
    assert found.gain.value == pytest.approx(1 / (found.ratio.value or 0))
    assert found.to_dict()["verdict"] == verdict.value


def test_too_few_rounds_or_steps_are_inconclusive() -> None:
    one = compare_rounds(np.array([1.0]), np.array([9.0]), NAMES, 0.05, 0.05)
    assert one.verdict is Speed.INCONCLUSIVE and "fewer than 2 rounds" in str(one)
    few = compare_sessions(Times.of([1.0, 2.0]), Times.of([1.0] * 50), NAMES, 0.05, 0.05)
    assert few.verdict is Speed.INCONCLUSIVE and few.ratio.limits is None


def test_times_without_any_noise_are_compared_exactly() -> None:
    found = compare_sessions(Times.of([0.01] * 40), Times.of([0.02] * 40), NAMES, 0.05, 0.05)
    assert found.verdict is Speed.SLOWER and found.ratio.limits == [2.0, 2.0]
