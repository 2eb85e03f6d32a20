"""doctor --aa: on a machine with a known noise, the floor is that noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fairtrial.api.benchmarking.self_check import self_check
from fairtrial.stats.aa_noise import noise_floor
from tests.conftest import Answer
from tests.virtual import VirtualTime


def test_the_floor_is_the_noise_that_was_put_in() -> None:
    rng = np.random.default_rng(1)
    first, second = (np.exp(rng.normal(0, 0.01, 4000)) for _ in range(2))
    found = noise_floor(first, second)
    assert found.round_percent == pytest.approx(100 * np.expm1(1.96 * 0.01 * np.sqrt(2)), rel=0.05)
    smallest = [found.detectable_percent[rounds] or 0 for rounds in (4, 8, 16)]
    assert smallest == sorted(smallest, reverse=True) and smallest[1] == pytest.approx(1.63, rel=0.1)
    assert found.alarms / found.comparisons < 0.07 and found.drift_percent < 0.2


def test_a_drift_between_the_halves_is_seen() -> None:
    slower = np.repeat([1.0, 1.1], 20)
    assert noise_floor(slower, slower * np.exp(np.random.default_rng(2).normal(0, 0.001, 40))).drift_percent == (
        pytest.approx(10, rel=0.02)
    )


def test_a_quiet_machine_is_told_as_one() -> None:
    clock, rng = VirtualTime(), np.random.default_rng(3)
    found = self_check(clock=clock, work=lambda: clock.passes(0.01 * float(np.exp(rng.normal(0, 0.001)))))
    assert found.round_percent < 0.3 and (found.detectable_percent[8] or 1) < 0.2


def test_the_command_tells_both(cli: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    monkeypatch.setattr(importlib.import_module("fairtrial.api.benchmarking.self_check"), "AA_BLOCK_S", 1e-4)
    answer = cli("doctor", "--aa")
    assert answer.code == 0 and "Noise floor" in answer.out and "Smallest slowdown" in answer.out
    assert cli("doctor", "--aa", "--format", "json").json["aa"]["comparisons"] == 10
    assert cli("doctor", "--format", "json").json["aa"] is None
