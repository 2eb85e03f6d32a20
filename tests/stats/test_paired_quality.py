"""A fall is told where there is one, and chance is not taken for one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fairtrial.stats.paired_quality import compare_means, compare_shares

N = 64


def test_shares_agree_with_the_exact_test_and_the_counts() -> None:
    a = np.array([1.0] * 40 + [0.0] * 24)
    b = a.copy()
    b[:12] = 0
    b[-2:] = 1
    found = compare_shares("legal", a, b, 0.95)
    assert found.difference == pytest.approx((2 - 12) / N) and found.p == stats.binomtest(2, 14).pvalue
    assert found.low is not None and found.high is not None and found.low < found.difference < found.high < 0
    assert found.falls and not compare_shares("legal", b, a, 0.95).falls, "a rise is none"


def test_nothing_different_is_no_certainty() -> None:
    found = compare_shares("legal", np.ones(N), np.ones(N), 0.95)
    assert found.p == 1 and not found.falls and found.low is not None and -0.1 < found.low < 0
    assert not compare_means("reward", np.ones(N), np.ones(N), 0.95).falls


def test_few_positions_never_make_a_fall() -> None:
    found = compare_means("reward", np.ones(4), np.zeros(4), 0.95)
    assert not found.falls and found.low is None, "four pairs cannot be that sure"


@pytest.mark.parametrize("kind", ["shares", "means"])
def test_chance_is_called_a_fall_seldom_and_a_real_one_is_found(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairtrial.stats.paired_quality.FLIPS", 1000)
    rng = np.random.default_rng(7)

    def falls(shift: float) -> int:
        found = 0
        for _ in range(200):
            if kind == "shares":
                a, b = ((rng.random(N) < chance).astype(float) for chance in (0.6, 0.6 - shift))
                found += compare_shares("x", a, b, 0.95).falls
            else:
                a, b = rng.exponential(size=N), rng.exponential(size=N) - shift
                found += compare_means("x", a, b, 0.95).falls
        return found

    assert falls(0.0) <= 9, "at most 1.25 % of equal ones, one-sided: 9 of 200 is beyond chance"
    assert falls(0.5 if kind == "shares" else 1.0) >= 180
