"""Step times: intervals that cover although steps are not independent, quantiles, warm-up."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.simulated import correlated, covered
from scipy import special

from fairtrial.stats.timing import Times, lag_one, order_limits, standard_error, warm_up


@pytest.mark.parametrize("steps", [200, 1000])
@pytest.mark.parametrize("phi", [0.0, 0.3, 0.6, 0.9])
def test_the_interval_of_the_mean_covers(phi: float, steps: int) -> None:
    hit, _ = covered(correlated(phi, steps, 3000))
    assert 0.93 <= hit.mean() <= 0.97


def test_one_series_says_what_the_batch_says() -> None:
    series = correlated(0.5, 400, 1)[0] + 10
    found = Times.of(series).mean()
    rho = lag_one(series[None])
    effective = 400 * (1 - rho) / (1 + rho)
    reach = -special.stdtrit(effective - 1, 0.025) * standard_error(series[None], effective)
    assert found.value == pytest.approx(series.mean())
    assert found.high == pytest.approx(series.mean() + reach[0]) and found.low == pytest.approx(
        series.mean() - reach[0]
    )


@pytest.mark.parametrize("share", [0.5, 0.95])
def test_quantile_intervals_cover(share: float) -> None:
    rng = np.random.default_rng(3)
    truth = float(special.ndtri(share))
    hits = 0
    for _ in range(600):
        found = Times.of(rng.standard_normal(300)).quantile(share)
        assert found.low is not None and found.high is not None
        hits += found.low <= truth <= found.high
    assert hits / 600 > 0.93


@pytest.mark.parametrize("n", [12, 20, 50])
def test_each_side_of_a_median_interval_misses_as_seldom_as_it_says(n: int) -> None:
    rng = np.random.default_rng(5)
    missed = [0, 0]
    for _ in range(3000):
        sample = np.sort(rng.standard_normal(n))
        low, high = order_limits(n, 0.5, 0.05)
        assert low is not None and high is not None
        missed[0] += float(np.quantile(sample, low)) > 0
        missed[1] += float(np.quantile(sample, high)) < 0
    assert max(missed) / 3000 <= 0.025 + 3 * (0.025 / 3000) ** 0.5


@pytest.mark.parametrize(("steps", "most"), [(20, 0.05), (50, 0.03), (200, 0.02)])
def test_steps_that_are_steady_are_seldom_called_anything_else(steps: int, most: float) -> None:
    rng = np.random.default_rng(6)
    assert np.mean([warm_up(10 + rng.standard_normal(steps)) is None for _ in range(1000)]) <= most


def test_an_upper_limit_for_p99_needs_368_effective_steps() -> None:
    assert order_limits(367, 0.99, 0.05)[1] is None
    assert order_limits(368, 0.99, 0.05)[1] == 1.0
    few = Times.of(np.random.default_rng(0).standard_normal(100)).quantile(0.99)
    assert few.high is None and few.low is not None and few.reason


def test_fewer_than_ten_effective_steps_say_nothing() -> None:
    for times in (Times.of([1.0] * 5), Times.of(np.arange(100.0)), Times.of([])):
        assert not times.sufficient and times.mean().low is None and times.quantile(0.5).high is None


def test_throughput_is_the_reciprocal_with_its_limits_turned_round() -> None:
    times = Times.of(0.01 + 0.001 * np.random.default_rng(0).random(200))
    rate, mean = times.rate(100, "examples/s"), times.mean()
    assert mean.value and mean.low and mean.high
    assert rate.value == pytest.approx(100 / mean.value) and rate.low == pytest.approx(100 / mean.high)


@pytest.mark.parametrize("phi", [0.0, 0.6])
def test_a_slow_beginning_is_left_out(phi: float) -> None:
    series = 1 + 0.05 * correlated(phi, 400, 60, seed=5)
    slow = series.copy()
    slow[:, :20] += np.linspace(3, 0.5, 20)
    cuts = [warm_up(each) for each in slow]
    assert all(cut is not None and cut >= 15 for cut in cuts) and np.median([cut or 0 for cut in cuts]) == 20
    assert np.median([warm_up(each) or 0 for each in series]) == 0


def test_times_that_keep_changing_are_never_steady() -> None:
    assert warm_up(np.linspace(1, 5, 200)) is None
    assert warm_up(np.ones(10)) is None
    assert warm_up(np.ones(100)) == 0


def test_no_lower_limit_of_a_time_is_one_that_cannot_be() -> None:
    """A few slow steps among many fast ones: a symmetric interval of the sum would begin below zero."""
    seconds = np.full(200, 1e-4) + np.linspace(0, 1e-6, 200)
    seconds[::40] = 8e-3
    times = Times.of(seconds)
    epoch = times.total(40)
    assert epoch.low == pytest.approx(40 * 1e-4, rel=0.01) and epoch.value is not None and epoch.low < epoch.value
    few = Times.of(seconds[:30])
    limits = [few.mean().low, few.total(1).low, few.total(40).low]
    assert all(low is not None and low > 0 for low in limits)
    assert few.total(40).low <= 40 * seconds[:30].min()  # type: ignore[operator]


def test_a_limit_that_can_be_stays_what_it_was() -> None:
    seconds = 1 + 0.01 * np.random.default_rng(0).standard_normal(300)
    times = Times.of(seconds)
    mean = times.mean()
    assert mean.value is not None and mean.low is not None and mean.high is not None
    assert mean.value - mean.low == pytest.approx(mean.high - mean.value, rel=1e-12)
