"""Fieller's interval, the noise scale and the knee: cover as often as they say, and never pretend."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.simulated import BATCH, PIECES, TRUE, noise_scales_covered, squared_lengths
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.stats.knee import find_knee
from fairtrial.stats.noise_scale import noise_scale, two_batches
from fairtrial.stats.ratios import fieller


def test_the_noise_scale_covers_as_often_as_it_says() -> None:
    assert 465 <= noise_scales_covered(500, seed=1) <= 485


def test_both_parts_of_the_noise_scale_are_without_bias() -> None:
    rng = np.random.default_rng(2)
    noise, signal = two_batches(*squared_lengths(rng, 200_000), BATCH, PIECES)
    for values, truth in ((noise, TRUE), (signal, 1.0)):
        assert abs(values.mean() - truth) < 4 * values.std() / np.sqrt(len(values))


def test_without_any_signal_there_is_no_upper_limit() -> None:
    rng = np.random.default_rng(3)
    small, large = squared_lengths(rng, 50, noise=4e7)
    found = noise_scale(small, large, BATCH, PIECES)
    assert found.high is None and found.low is not None and found.low >= 0 and "no upper limit" in str(found.reason)


@given(
    st.lists(st.tuples(st.floats(-10, 10), st.floats(-10, 10)), min_size=0, max_size=12),
    st.sampled_from([0.01, 0.05, 0.2]),
)
def test_limits_are_never_negative_and_hold_the_value(pairs: list[tuple[float, float]], alpha: float) -> None:
    above, below = (np.array([pair[side] for pair in pairs]) for side in (0, 1))
    found = fieller(above, below, alpha)
    assert found.low is None or found.low >= 0
    assert found.high is None or (found.low is not None and found.high >= found.low)
    if found.value is not None and found.high is not None and found.low is not None:
        assert found.low - 1e-9 <= found.value <= found.high + 1e-9 * max(1.0, found.high)


def test_fieller_covers_when_the_denominator_is_uncertain() -> None:
    rng = np.random.default_rng(4)
    hits = 0
    for _ in range(2000):
        found = fieller(6 + rng.standard_normal(8), 2 + 2.5 * rng.standard_normal(8), 0.05)
        hits += found.low is not None and found.low <= 3 and (found.high is None or found.high >= 3)
    assert 1860 <= hits <= 1950, hits


def test_the_knee_of_a_line_is_where_half_of_a_step_is_fixed_cost() -> None:
    sizes = [16, 64, 256, 1024]
    times = np.tile(0.002 + 1e-5 * np.array(sizes), (5, 1))
    found = find_knee(sizes, times)
    assert found is not None and found.knee.value == pytest.approx(200) and found.misfit < 1e-9
    assert found.fixed == pytest.approx(0.002) and found.per_example == pytest.approx(1e-5)
    rng = np.random.default_rng(5)
    noisy = find_knee(sizes, times * np.exp(0.05 * rng.standard_normal(times.shape)))
    assert noisy is not None and noisy.knee.low is not None and noisy.knee.high is not None
    assert noisy.knee.low < 200 < noisy.knee.high


def test_one_size_has_no_knee_and_a_constant_time_none_that_is_bounded() -> None:
    assert find_knee([64], np.ones((5, 1))) is None
    rng = np.random.default_rng(6)
    flat = find_knee([1, 2, 4], 1 + 0.01 * rng.standard_normal((5, 3)))
    assert flat is not None and flat.knee.high is None
