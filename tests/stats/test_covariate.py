"""Adjusting paired differences for a covariate: the right regression, calibrated, and turned round with the arms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from fairtrial.stats.covariate import (
    CannotAdjust,
    Covariate,
    adjust_differences,
    differs_between_arms,
    from_baseline,
    from_both_arms,
    regression_parts,
)
from fairtrial.stats.samples import Array

few = settings(max_examples=40, deadline=None)
numbers = st.floats(-100, 100).map(lambda x: round(x, 3) + 0.0)
REPEATS = 20_000
SLACK = 3 * math.sqrt(0.05 * 0.95 / REPEATS)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Array, Array]:
    n = draw(st.integers(8, 12))
    drawn = draw(st.lists(st.tuples(numbers, numbers), min_size=n, max_size=n, unique=True))
    differences, covariate = (np.array(column) for column in zip(*drawn, strict=True))
    return differences, covariate


def adjusted(differences: Array, covariate: Covariate) -> tuple[float, ...] | str:
    try:
        found = adjust_differences(differences, covariate)
    except CannotAdjust as error:
        return error.message
    low, high = found.inference.interval(0.05)
    return found.inference.value, low, high, found.slope, found.correlation


# The regression


@pytest.mark.parametrize("n", [8, 15, 30])
def test_it_is_the_intercept_of_the_regression_with_n_minus_two_degrees_of_freedom(n: int) -> None:
    rng = np.random.default_rng(n)
    first, second = rng.normal(10, 1, n), rng.normal(10, 1, n)
    differences = 0.3 + 0.8 * (second - first) + rng.normal(0, 0.5, n)
    found = adjust_differences(differences, from_both_arms("x", first, second))
    theirs = stats.linregress(second - first, differences)
    assert found.inference.value == pytest.approx(theirs.intercept, rel=1e-10)
    assert found.inference.detail["standard_error"] == pytest.approx(theirs.intercept_stderr, rel=1e-10)
    assert found.inference.p_two_sided == pytest.approx(
        2 * stats.t.sf(abs(theirs.intercept / theirs.intercept_stderr), n - 2), rel=1e-9
    )
    assert (found.slope, found.correlation) == pytest.approx((theirs.slope, theirs.rvalue), rel=1e-10)


def test_a_baseline_is_read_off_at_its_mean_over_all_seeds() -> None:
    rng = np.random.default_rng(1)
    every = rng.normal(5, 2, 40)
    differences = 1 + 0.5 * (every[:10] - 5) + rng.normal(0, 0.1, 10)
    found = adjust_differences(differences, from_baseline("b", every[:10], every))
    line = stats.linregress(every[:10], differences)
    assert found.inference.value == pytest.approx(line.intercept + line.slope * every.mean(), rel=1e-10)
    residual = differences - line.intercept - line.slope * every[:10]
    away = every[:10].mean() - every.mean()
    spread = ((every[:10] - every[:10].mean()) ** 2).sum()
    variance = (residual**2).sum() / 8 * (1 / 10 + away**2 / spread) + line.slope**2 * every.var(ddof=1) / 40
    assert found.inference.detail["standard_error"] == pytest.approx(math.sqrt(variance), rel=1e-9)


@pytest.mark.parametrize(
    ("covariate", "why"),
    [
        (
            lambda: from_both_arms("x", np.arange(7.0), np.arange(7.0)[::-1]),
            "needs at least 8 complete pairs; there are 7",
        ),
        (lambda: from_both_arms("x", np.full(9, 3.1), np.full(9, 3.1)), "by the same amount in all pairs"),
        (
            lambda: from_baseline("x", np.arange(8.0), np.arange(12.0)),
            "12 seeds for 8 pairs; it needs at least 16 to be useful",
        ),
    ],
)
def test_what_cannot_be_adjusted_for_is_refused_with_the_reason(covariate: Any, why: str) -> None:
    with pytest.raises(CannotAdjust, match=why):
        made = covariate()
        adjust_differences(np.random.default_rng(0).normal(size=len(made.values)), made)


def test_a_covariate_that_explains_everything_leaves_nothing_to_judge_by() -> None:
    x = np.arange(8.0)
    with pytest.raises(CannotAdjust, match="explains the differences entirely"):
        adjust_differences(1 + 2 * x, Covariate("x", x, turns=True))


def test_a_covariate_that_the_change_has_reached_is_noticed() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(size=10)
    assert (differs_between_arms(from_both_arms("x", first, first + 3 + rng.normal(0, 0.1, 10))) or 1) < 1e-6
    assert (differs_between_arms(from_both_arms("x", first, rng.normal(size=10))) or 0) > 0.01
    assert differs_between_arms(from_baseline("x", first[:5], first)) is None


# Properties


@few
@given(data=pairs(), turns=st.booleans())
def test_a_against_b_is_exactly_minus_b_against_a(data: tuple[Array, Array], turns: bool) -> None:
    differences, values = data
    here = adjusted(differences, Covariate("x", values, turns, 0.0 if turns else 1.5, 0.1))
    there = adjusted(-differences, Covariate("x", -values if turns else values, turns, 0.0 if turns else 1.5, 0.1))
    if isinstance(here, str) or isinstance(there, str):
        assert here == there
        return
    sign = 1.0 if turns else -1.0
    value, low, high, slope, correlation = there
    assert here == (-value + 0.0, -high + 0.0, -low + 0.0, sign * slope, sign * correlation)


@few
@given(data=pairs(), order=st.randoms(use_true_random=False))
def test_the_order_of_pairs_does_not_matter(data: tuple[Array, Array], order: Any) -> None:
    places = list(range(len(data[0])))
    order.shuffle(places)
    there = adjusted(data[0][places], Covariate("x", data[1][places], turns=True))
    assert adjusted(data[0], Covariate("x", data[1], turns=True)) == there


@few
@given(data=pairs(), scale=st.sampled_from([0.25, 64.0]), of_covariate=st.sampled_from([0.125, 1024.0]))
def test_units_of_the_metric_and_of_the_covariate_carry_over(
    data: tuple[Array, Array], scale: float, of_covariate: float
) -> None:
    here = adjusted(data[0], Covariate("x", data[1], turns=True))
    there = adjusted(scale * data[0], Covariate("x", of_covariate * data[1], turns=True))
    if isinstance(here, str) or isinstance(there, str):
        assert here == there
        return
    assert there[:3] == pytest.approx([scale * x for x in here[:3]], rel=1e-9, abs=1e-9 * scale)
    assert there[4] == pytest.approx(here[4], rel=1e-9, abs=1e-12)


# Calibration


def false_positives(value: Array, error: Array, freedom: int) -> float:
    return float((2 * special.stdtr(freedom, -np.abs(value / error)) <= 0.05).mean())


@pytest.mark.parametrize("n", [8, 15])
@pytest.mark.parametrize("correlation", [0.0, 0.7])
def test_false_positives_stay_at_five_percent(n: int, correlation: float) -> None:
    rng = np.random.default_rng([n, int(10 * correlation)])
    covariate = rng.standard_normal((REPEATS, n))
    differences = correlation * covariate + math.sqrt(1 - correlation**2) * rng.standard_normal((REPEATS, n))
    value, error, *_ = regression_parts(differences, covariate)
    assert false_positives(value, error, n - 2) <= 0.05 + SLACK
    every = np.concatenate([covariate, rng.standard_normal((REPEATS, n))], axis=1)
    known = every.mean(axis=1), every.var(axis=1, ddof=1) / every.shape[1]
    value, error, *_ = regression_parts(differences, covariate, *known)
    assert false_positives(value, error, n - 2) <= 0.05 + SLACK


def test_reading_off_at_the_mean_of_the_pairs_themselves_would_be_wrong() -> None:
    """Why the difference is not read off there: the estimate stays, and its error seems smaller than it is."""
    rng = np.random.default_rng(7)
    covariate = rng.standard_normal((REPEATS, 8))
    differences = 0.7 * covariate + math.sqrt(0.51) * rng.standard_normal((REPEATS, 8))
    value, error, *_ = regression_parts(differences, covariate, covariate.mean(axis=1))
    assert np.allclose(value, differences.mean(axis=1))
    assert false_positives(value, error, 6) > 0.11


def test_a_related_covariate_gains_power() -> None:
    rng = np.random.default_rng(8)
    covariate = rng.standard_normal((REPEATS, 15))
    differences = 0.6 + 0.7 * covariate + math.sqrt(0.51) * rng.standard_normal((REPEATS, 15))
    value, error, *_ = regression_parts(differences, covariate)
    plain = differences.mean(axis=1), differences.std(axis=1, ddof=1) / math.sqrt(15)
    assert false_positives(value, error, 13) > false_positives(*plain, 14) + 0.15
