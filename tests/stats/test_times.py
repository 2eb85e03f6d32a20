"""Times to a threshold that some runs never reached: exact p under ties, and words that match the signs."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from fairtrial.core.findings import Comparison
from fairtrial.stats import times
from fairtrial.stats.compare import ComparisonConfig
from fairtrial.stats.families import adjust_comparisons
from fairtrial.stats.times import compare_times, rank_test

Array = NDArray[np.float64]
INF = math.inf
HORIZON = 20.0
SIDES = ("two-sided", "greater", "less")
MIRRORED = {"greater": "less", "less": "greater", "two-sided": "two-sided"}

few = settings(max_examples=60, deadline=None)
arrivals = st.one_of(st.integers(1, 20).map(float), st.integers(1, 4).map(float), st.just(INF))
samples = st.lists(arrivals, min_size=2, max_size=7)


def compared(control: list[float], candidate: list[float], side: str = "two-sided", alpha: float = 0.05) -> Comparison:
    config = ComparisonConfig(False, alpha, side)
    return compare_times(np.array(control), np.array(candidate), HORIZON, config, names=("base", "new"), threshold=0.8)


def enumerated(control: list[float], candidate: list[float]) -> tuple[float, float]:
    """The share of all deals in which the candidate's rank sum is at most, and at least, the one seen."""
    ranks = stats.rankdata([*control, *candidate])
    seen = ranks[len(control) :].sum()
    sums = np.array([sum(deal) for deal in combinations(ranks, len(candidate))])
    return float((sums <= seen + 1e-9).mean()), float((sums >= seen - 1e-9).mean())


# The test


@few
@given(control=samples, candidate=samples)
def test_p_is_that_of_all_deals_whatever_the_ties(control: list[float], candidate: list[float]) -> None:
    found, (sooner, later) = rank_test(np.array(control), np.array(candidate)), enumerated(control, candidate)
    assert found.exact
    assert (found.sooner, found.later) == (pytest.approx(sooner, abs=1e-12), pytest.approx(later, abs=1e-12))
    assert found.two_sided == pytest.approx(min(1.0, 2 * min(sooner, later)), abs=1e-12)


@pytest.mark.parametrize(("n", "m"), [(2, 2), (3, 5), (8, 8), (15, 30), (3, 1000)])
def test_without_ties_it_is_scipys_exact_test(n: int, m: int) -> None:
    rng = np.random.default_rng([n, m])
    control, candidate = rng.random(n), rng.random(m)
    found = rank_test(control, candidate)
    told = {side: stats.mannwhitneyu(candidate, control, alternative=side, method="exact").pvalue for side in SIDES}
    assert (found.sooner, found.later) == pytest.approx((told["less"], told["greater"]), rel=1e-9)
    assert found.exact and found.two_sided == pytest.approx(told["two-sided"], rel=1e-9)


def test_under_ties_at_few_runs_the_normal_limit_would_err() -> None:
    """Three against three of which two never arrive: there are 20 deals, so no p below 0.05 one way."""
    control, candidate = [INF, INF, 9.0], [1.0, 1.0, 1.0]
    found = compared(control, candidate)
    assert found.p_value == pytest.approx(0.1) and found.verdict == "inconclusive"
    late = [np.where(np.isfinite(sample), sample, 99) for sample in (np.array(control), np.array(candidate))]
    assert stats.mannwhitneyu(*late, method="asymptotic").pvalue < 0.08


@pytest.mark.parametrize("ties", [True, False])
def test_large_samples_are_drawn_from_a_stream_that_the_ranks_decide(
    monkeypatch: pytest.MonkeyPatch, ties: bool
) -> None:
    rng = np.random.default_rng(1)
    control, candidate = rng.random(25), rng.random(20) - 0.2
    if ties:
        control, candidate = np.round(control, 1), np.round(candidate, 1)
    exact = rank_test(control, candidate)
    monkeypatch.setattr(times, "MOST_WORK", 0)
    drawn, again = rank_test(control, candidate), rank_test(control[::-1], candidate)
    assert exact.exact and not drawn.exact and drawn == again
    share = exact.two_sided
    assert drawn.two_sided == pytest.approx(share, abs=4 * math.sqrt(share / times.DEALS) + 2 / times.DEALS)


@pytest.mark.slow
def test_neither_way_takes_more_than_a_second_of_processor_time() -> None:
    rng = np.random.default_rng(2)
    for n in (58, 200):
        sample = np.where(rng.random((2, n)) < 0.3, INF, rng.integers(1, 500, (2, n)).astype(float))
        began = time.process_time()
        assert rank_test(*sample).exact == (n == 58)
        assert time.process_time() - began < (1.0 if n == 58 else 4.0)


@pytest.mark.slow
def test_false_verdicts_of_equal_arms_stay_below_five_percent() -> None:
    """A third of the runs never arrive, and times are coarse."""
    rng = np.random.default_rng(3)
    for n in (3, 5, 8):
        drawn = rng.integers(1, 8, (1000, 2, n)).astype(float)
        drawn[rng.random(drawn.shape) < 0.33] = INF
        verdicts = [compared(list(control), list(candidate)).verdict for control, candidate in drawn]
        assert np.mean([verdict != "inconclusive" for verdict in verdicts]) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 1000)


# What must hold for any times


@few
@given(control=samples, candidate=samples, side=st.sampled_from(SIDES))
def test_a_against_b_is_exactly_minus_b_against_a(control: list[float], candidate: list[float], side: str) -> None:
    here, there = compared(control, candidate, side), compared(candidate, control, MIRRORED[side])
    assert here.p_value == there.p_value and here.reason == there.reason
    assert here.effect.value is not None and there.effect.value is not None
    assert here.effect.value + 0.0 == -there.effect.value + 0.0
    opposite = {"better": "worse", "worse": "better"}
    assert here.verdict == opposite.get(there.verdict, there.verdict)


@few
@given(data=st.data(), control=samples, candidate=samples)
def test_the_order_of_runs_does_not_matter(data: st.DataObject, control: list[float], candidate: list[float]) -> None:
    mixed = compared(data.draw(st.permutations(control)), data.draw(st.permutations(candidate)))
    assert mixed.to_dict() == compared(control, candidate).to_dict()


@few
@given(control=samples, candidate=samples)
def test_a_monotone_transformation_of_time_leaves_p_as_it_is(control: list[float], candidate: list[float]) -> None:
    """In seconds, in logarithms, squared: ranks stay. Infinite times stay infinite."""
    plain = rank_test(np.array(control), np.array(candidate))
    for change in (np.log, np.square, lambda x: 3 * x + 7):
        assert rank_test(change(np.array(control)), change(np.array(candidate))) == plain


@few
@given(control=samples, candidate=samples, factor=st.sampled_from([0.5, 4.0, 1024.0]))
def test_means_scale_with_the_unit_of_time(control: list[float], candidate: list[float], factor: float) -> None:
    plain = compared(control, candidate)
    scaled = compare_times(
        factor * np.array(control),
        factor * np.array(candidate),
        factor * HORIZON,
        ComparisonConfig(False),
        names=("base", "new"),
    )
    assert plain.effect.value is not None
    assert scaled.effect.value == pytest.approx(factor * plain.effect.value, abs=1e-9)
    assert (scaled.p_value, scaled.verdict) == (plain.p_value, plain.verdict)


# The words


def test_sooner_is_a_negative_difference_and_fewer_steps() -> None:
    found = compared([15.0, 16.0, 18.0, INF, INF], [1.0, 2.0, 3.0, 4.0, 5.0])
    assert found.verdict == "better" and found.effect.value == pytest.approx(3.0 - 17.8)
    assert str(found).startswith(
        "new is better than base: 5 of 5 runs of new and 3 of 5 of base reached 0.8, and new needs fewer steps: "
        "−14.8000 steps as restricted mean up to step 20 (Mann–Whitney (exact, censored runs last) over 5 and 5 runs, p"
    )
    turned = compared([1.0, 2.0, 3.0, 4.0, 5.0], [15.0, 16.0, 18.0, INF, INF])
    assert "new is worse than base: 3 of 5 runs of new and 5 of 5 of base" in str(turned)
    assert "new needs more steps: +14.8000 steps" in str(turned)


def test_no_arm_is_called_better_against_its_own_mean() -> None:
    """Eight runs are a little sooner, two never arrive: it said `new is better: +967.50 as restricted mean`."""
    control = np.arange(100.0, 110.0)
    candidate = np.array([*np.arange(90.0, 98.0), INF, INF])
    found = compare_times(control, candidate, 5000.0, ComparisonConfig(False), names=("base", "new"), threshold=0.8)
    assert found.p_value is not None and found.p_value < 0.05
    assert found.effect.value is not None and found.effect.value > 0
    assert (found.verdict, found.reason) == ("inconclusive", "ranks and restricted means disagree")
    assert "8 of 10 runs of new and 10 of 10 of base reached 0.8. By rank new is sooner" in str(found)
    assert "but the means say the opposite: new − base, +970.30 steps" in str(found)


def test_words_and_signs_always_agree() -> None:
    rng = np.random.default_rng(4)
    for _ in range(300):
        drawn = rng.integers(1, 20, (2, 9)).astype(float) + np.array([[6.0], [0.0]])
        drawn[rng.random(drawn.shape) < 0.2] = INF
        found = compared(list(drawn[0]), list(drawn[1]))
        assert found.effect.value is not None
        if found.verdict == "better":
            assert found.effect.value <= 0 and "fewer steps" in str(found)
        if found.verdict == "worse":
            assert found.effect.value >= 0 and "more steps" in str(found)


def test_an_open_question_shows_who_arrived_and_which_metric() -> None:
    found = replace(compared([5.0, INF], [4.0, 3.0]), metric="steps until accuracy reaches 0.8")
    assert str(found).startswith(
        "Inconclusive: 2 of 2 runs of new and 1 of 2 of base reached 0.8; new − base, steps until accuracy reaches 0.8 "
        "−9.0000 as restricted mean up to step 20 ("
    )
    assert "fewer than two usable runs" in str(compared([5.0], [4.0, INF]))


def test_several_arms_are_adjusted_and_say_so() -> None:
    lasts = (5.0, 11.0, INF)

    def again(index: int, alpha: float) -> Comparison:
        return compared([9.0, 10.0, 11.0, 12.0, INF], [1.0, 2.0, 3.0, 4.0, lasts[index]], alpha=alpha)

    adjusted = adjust_comparisons(again, len(lasts), "holm", 0.05)
    assert all(each.adjusted_p is not None for each in adjusted)
    assert "reached 0.8" in str(adjusted[2]) and "adjusted" in str(adjusted[2])
