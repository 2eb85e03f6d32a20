"""Estimates that resist single runs: equal to SciPy and brute force, silent on clean data, loud where one run decides."""

from __future__ import annotations

import math
from itertools import combinations_with_replacement, pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fairtrial.core.findings import Estimate, RobustEstimates
from fairtrial.stats.compare import compare_samples
from fairtrial.stats.robust import robust_estimates
from fairtrial.stats.samples import Array

few = settings(max_examples=40, deadline=None)
both_ways = pytest.mark.parametrize("paired", [True, False])
numbers = st.one_of(st.floats(-100, 100).map(lambda x: round(x, 3) + 0.0), st.integers(-3, 3).map(float))


def robust(control: Any, candidate: Any, paired: bool, side: str = "two-sided", alpha: float = 0.05) -> RobustEstimates:
    return robust_estimates(np.array(control, float), np.array(candidate, float), paired=paired, alpha=alpha, side=side)


@st.composite
def arms(draw: st.DrawFn, paired: bool) -> tuple[list[float], list[float]]:
    n = draw(st.integers(5, 8))
    m = n if paired else draw(st.integers(5, 8))
    return draw(st.lists(numbers, min_size=n, max_size=n)), draw(st.lists(numbers, min_size=m, max_size=m))


def limits(found: Estimate | None) -> tuple[Any, ...] | None:
    return None if found is None else (found.value, found.low, found.high)


# Equal to what others compute


@pytest.mark.parametrize(("n", "m"), [(5, 5), (8, 8), (10, 7), (15, 16), (30, 23)])
def test_the_unpaired_trimmed_difference_is_that_of_scipy(n: int, m: int) -> None:
    rng = np.random.default_rng(n)
    control, candidate = rng.lognormal(size=n), rng.lognormal(size=m)
    found = robust(control, candidate, paired=False).trimmed
    theirs = stats.ttest_ind(candidate, control, equal_var=False, trim=0.2)
    assert found is not None
    assert found.value == pytest.approx(stats.trim_mean(candidate, 0.2) - stats.trim_mean(control, 0.2), rel=1e-12)
    limits = theirs.confidence_interval()
    assert (found.low, found.high) == pytest.approx((limits.low, limits.high), rel=1e-10)


@pytest.mark.parametrize("n", [5, 8, 15, 30])
def test_the_paired_trimmed_difference_is_yuens_of_the_differences(n: int) -> None:
    """SciPy's two-sample form against a sample that does not vary is the one-sample form."""
    rng = np.random.default_rng(n)
    control, candidate = rng.lognormal(size=n), rng.lognormal(size=n)
    found = robust(control, candidate, paired=True).trimmed
    theirs = stats.ttest_ind(candidate - control, np.zeros(5), equal_var=False, trim=0.2).confidence_interval()
    assert found is not None and found.value == pytest.approx(stats.trim_mean(candidate - control, 0.2), rel=1e-12)
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), rel=1e-10)


def test_the_trimmed_interval_by_hand() -> None:
    """Ten differences: two cut on either side, six left, five degrees of freedom."""
    differences = np.array([-9.0, 1, 2, 3, 4, 5, 6, 7, 8, 40])
    winsorized = np.array([2.0, 2, 2, 3, 4, 5, 6, 7, 7, 7])
    error = math.sqrt(9 * winsorized.var(ddof=1) / (6 * 5))
    found = robust(np.zeros(10), differences, paired=True).trimmed
    assert found is not None
    assert limits(found) == pytest.approx((4.5, *(4.5 + sign * stats.t.isf(0.025, 5) * error for sign in (-1, 1))))


@pytest.mark.parametrize("n", [6, 7, 9])
@both_ways
def test_the_hodges_lehmann_interval_is_found_by_brute_force(n: int, paired: bool) -> None:
    """The shifts that an exact test at 5 % does not reject, with every arrangement of signs or runs gone through."""
    rng = np.random.default_rng(n)
    control, candidate = rng.normal(size=n), rng.normal(1, 2, size=n if paired else n - 1)
    found = robust(control, candidate, paired=paired).hodges_lehmann
    shifts = _pairwise(candidate - control) if paired else np.subtract.outer(candidate, control).ravel()
    assert found is not None and found.value == pytest.approx(float(np.median(shifts)))
    p = _signed_rank_p if paired else _rank_sum_p
    edges = np.sort(shifts)
    accepted = [(low, high) for low, high in pairwise(edges) if p(control, candidate, (low + high) / 2) > 0.05]
    assert (found.low, found.high) == pytest.approx((accepted[0][0], accepted[-1][1]))


def _pairwise(values: Array) -> Array:
    return np.array([(a + b) / 2 for a, b in combinations_with_replacement(values.tolist(), 2)])


def _signed_rank_p(control: Array, candidate: Array, shift: float) -> float:
    differences = candidate - control - shift
    ranks = stats.rankdata(np.abs(differences))
    observed = ranks[differences > 0].sum()
    every = np.array([ranks[np.array(signs, bool)].sum() for signs in product([0, 1], repeat=len(ranks))])
    return float(min(1.0, 2 * min((every >= observed).mean(), (every <= observed).mean())))


def _rank_sum_p(control: Array, candidate: Array, shift: float) -> float:
    return float(stats.mannwhitneyu(candidate - shift, control, method="exact").pvalue)


def test_five_pairs_are_too_few_for_an_exact_interval_at_95_percent() -> None:
    found = robust([0, 0, 0, 0, 0], [1, 2, 3, 4, 5.5], paired=True).hodges_lehmann
    assert found is not None and found.value == 3.0
    assert (found.low, found.high, found.reason) == (None, None, "method needs more runs")


@both_ways
def test_fewer_than_five_runs_have_none_and_say_why(paired: bool) -> None:
    found = compare_samples([1, 2, 3, 4.5], [2, 3, 4, 5], paired=paired).to_dict()["sensitivity"]
    assert found == {
        "hodges_lehmann": None, "trimmed": None, "disagrees": None, "reason": "fewer than 5 runs per arm",
    }  # fmt: skip


def test_very_many_runs_have_the_trimmed_difference_alone() -> None:
    rng = np.random.default_rng(0)
    found = robust(rng.normal(size=301), rng.normal(size=301), paired=True)
    assert found.trimmed is not None and found.trimmed.value is not None
    assert found.hodges_lehmann is not None and found.hodges_lehmann.value is None
    assert found.hodges_lehmann.reason == "not computed for more than 300 runs per arm"


def test_what_does_not_vary_after_trimming_has_no_interval() -> None:
    found = robust([0, 0, 0, 0, 0], [1, 1, 1, 1, 9], paired=True)
    assert found.trimmed is not None and (found.trimmed.value, found.trimmed.reason) == (None, "no variation")


# Where it speaks


def test_one_collapsed_run_that_turns_the_mean_round_is_pointed_out() -> None:
    gains = [0.020, 0.021, 0.019, 0.022, 0.018, 0.020, 0.021, 0.019, 0.020, -0.4]
    found = compare_samples([0.5] * 10, [0.5 + g for g in gains], paired=True)
    assert found.sensitivity is not None and found.sensitivity.estimates.disagrees == "sign"
    assert found.verdict == "inconclusive"


def test_a_mean_that_a_few_runs_make_significant_is_pointed_out() -> None:
    gains = [-0.02, -0.01, 0.0, 0.01, 0.02, -0.015, 0.005, 0.015, -0.005, 0.012, 0.008, 1.0, 0.9, 1.1, 1.05]
    found = robust([0.0] * 15, gains, paired=True)
    assert compare_samples([0.0] * 15, gains, paired=True).significant
    assert found.disagrees == "significance"


@pytest.mark.parametrize(("paired", "n", "shift"), [(True, 5, 0.0), (True, 5, 1.5), (False, 8, 0.0), (True, 8, 1.5)])
def test_it_does_not_cry_wolf_on_normal_noise(paired: bool, n: int, shift: float) -> None:
    repeats = 1_500
    rng = np.random.default_rng([n, int(10 * shift)])
    fired = sum(
        robust(rng.standard_normal(n), rng.standard_normal(n) + shift, paired).disagrees is not None
        for _ in range(repeats)
    )
    assert fired / repeats <= 0.10 + 3 * math.sqrt(0.1 * 0.9 / repeats)


def test_it_is_computed_only_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("fairtrial.stats.robust.infer_trimmed", lambda _arms: asked.append(1))
    found = compare_samples([1, 2, 3, 4, 5.5], [2, 3, 4, 5, 6], paired=True)
    assert not asked
    found.to_dict()
    found.to_dict()
    assert asked == [1]


# Properties


@both_ways
@few
@given(data=st.data(), side=st.sampled_from(["two-sided", "greater", "less"]))
def test_a_against_b_is_exactly_minus_b_against_a(paired: bool, data: st.DataObject, side: str) -> None:
    control, candidate = data.draw(arms(paired))
    mirrored = {"greater": "less", "less": "greater"}.get(side, side)
    here, there = robust(control, candidate, paired, side), robust(candidate, control, paired, mirrored)
    assert here.disagrees == there.disagrees
    for one, other in ((here.hodges_lehmann, there.hodges_lehmann), (here.trimmed, there.trimmed)):
        assert limits(one and one.negated()) == limits(other)


@both_ways
@few
@given(data=st.data())
def test_the_order_of_runs_does_not_matter(paired: bool, data: st.DataObject) -> None:
    control, candidate = data.draw(arms(paired))
    order = data.draw(st.permutations(range(len(control))))
    other = order if paired else data.draw(st.permutations(range(len(candidate))))
    again = robust([control[i] for i in order], [candidate[i] for i in other], paired)
    assert robust(control, candidate, paired).to_dict() == again.to_dict()


@both_ways
@few
@given(data=st.data(), scale=st.sampled_from([0.25, 4.0, 1024.0]), shift=st.integers(-20, 20))
def test_units_and_origin_carry_over(paired: bool, data: st.DataObject, scale: float, shift: int) -> None:
    control, candidate = data.draw(arms(paired))
    here = robust(control, candidate, paired)
    there = robust([scale * (x + shift) for x in control], [scale * (x + shift) for x in candidate], paired)
    for one, other in ((here.hodges_lehmann, there.hodges_lehmann), (here.trimmed, there.trimmed)):
        for mine, theirs in zip(limits(one) or (), limits(other) or (), strict=True):
            if mine is not None and theirs is not None:
                assert theirs == pytest.approx(scale * mine, rel=1e-6, abs=1e-9 * scale)
