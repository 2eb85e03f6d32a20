"""What must hold for any data: order and roles of runs do not matter, scales carry over, seeds repeat."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fairtrial.core.findings import Comparison, Estimate
from fairtrial.stats import aggregate, families
from fairtrial.stats.certificate import certify
from fairtrial.stats.compare import ComparisonConfig, compare_samples, methods_for
from fairtrial.stats.power import Design, detectable, sd_upper, seeds_for, seeds_for_equivalence
from fairtrial.stats.summaries import SummaryRule, summarise, tidy, windows_of
from fairtrial.stats.tasks import TaskConfig, compare_tasks, stratified_difference
from fairtrial.stats.variance import enough_runs, half_width, spread

Array = NDArray[np.float64]
WAYS = [(True, method) for method in methods_for("paired")] + [(False, method) for method in methods_for("unpaired")]
MIRRORED = {"greater": "less", "less": "greater", "two-sided": "two-sided"}

few = settings(max_examples=8, deadline=None)
every_way = pytest.mark.parametrize(("paired", "method"), WAYS)
both_ways = pytest.mark.parametrize("paired", [True, False])

numbers = st.one_of(
    st.floats(-100, 100, allow_nan=False).map(lambda x: round(x, 3) + 0.0),
    st.integers(-3, 3).map(float),
)


@st.composite
def two_arms(draw: st.DrawFn, paired: bool, least: int = 2) -> tuple[list[float], list[float]]:
    """Numbers as runs give them, often with ties; at times one is missing."""
    n = draw(st.integers(least, 7))
    m = n if paired else draw(st.integers(least, 7))
    kinds = st.one_of(numbers, numbers, numbers, numbers, numbers, numbers, numbers, st.just(math.nan))
    return draw(st.lists(kinds, min_size=n, max_size=n)), draw(st.lists(kinds, min_size=m, max_size=m))


def compared(control: Any, candidate: Any, paired: bool, method: str, **terms: Any) -> Comparison:
    return compare_samples(control, candidate, paired=paired, method=method, resamples=200, **terms)


def as_json(found: Any) -> str:
    return json.dumps(found.to_dict())


# Order and roles


@every_way
@few
@given(data=st.data())
def test_the_order_of_runs_does_not_matter(paired: bool, method: str, data: st.DataObject) -> None:
    """To the last byte of the JSON."""
    control, candidate = data.draw(two_arms(paired))
    order = data.draw(st.permutations(range(len(control))))
    other = order if paired else data.draw(st.permutations(range(len(candidate))))
    there = compared([control[i] for i in order], [candidate[i] for i in other], paired, method, sesoi=0.5)
    assert as_json(compared(control, candidate, paired, method, sesoi=0.5)) == as_json(there)


@every_way
@few
@given(data=st.data(), side=st.sampled_from(list(MIRRORED)), direction=st.sampled_from(["max", "min"]))
def test_a_against_b_is_exactly_minus_b_against_a(
    paired: bool, method: str, data: st.DataObject, side: str, direction: str
) -> None:
    control, candidate = data.draw(two_arms(paired))
    here = compared(control, candidate, paired, method, sesoi=0.5, side=side, direction=direction)
    there = compared(candidate, control, paired, method, sesoi=0.5, side=MIRRORED[side], direction=direction)
    assert _minus(here.effect) == _limits(there.effect)
    assert _minus(here.equivalence) == _limits(there.equivalence)
    assert here.p_value == there.p_value
    assert (here.significant, here.equivalent, here.exceeds_sesoi) == (
        there.significant, there.equivalent, there.exceeds_sesoi,
    )  # fmt: skip
    losses = [(each.reliability.lost_control, each.reliability.lost_candidate) for each in (here, there)]
    assert losses[0] == losses[1][::-1]
    assert here.detectable == there.detectable
    if losses[0][0] == losses[0][1]:  # else it matters which of the two is the candidate: only its losses bar a verdict
        assert (here.reason, here.seeds_needed) == (there.reason, there.seeds_needed)
        assert {"better": "worse", "worse": "better"}.get(here.verdict, here.verdict) == there.verdict
    for one, other in ((here.hedges_g, there.hedges_g), (here.d_z, there.d_z)):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert _minus(one) == _limits(other)
    if here.superiority is not None and there.superiority is not None:
        assert here.superiority.value == pytest.approx(1 - (there.superiority.value or 0))


def _limits(found: Estimate) -> tuple[float | None, ...]:
    return found.value, found.low, found.high


def _minus(found: Estimate) -> tuple[float | None, ...]:
    return _limits(found.negated())


@both_ways
@pytest.mark.parametrize("method", ["bca", "t"])
def test_the_details_of_a_test_turn_round_with_the_arms(paired: bool, method: str) -> None:
    rng = np.random.default_rng(0)
    control, candidate = rng.lognormal(size=8), rng.lognormal(size=8) + 1
    here = compared(control, candidate, paired, method).tests
    there = compared(candidate, control, paired, method).tests
    for name in {"statistic", "bias", "acceleration"} & here.keys():
        assert here[name] == -there[name]


@both_ways
def test_arms_that_mirror_each_other_give_a_symmetric_interval(paired: bool) -> None:
    control, candidate = [0.1, 0.7, 0.3, 0.9], [0.7, 0.1, 0.9, 0.3]
    for method in (method for pairing, method in WAYS if pairing is paired):
        found = compared(control, candidate, paired, method, alpha=0.4)
        assert found.effect.value == 0 and found.verdict == "inconclusive"
        for estimate in (found.effect, found.equivalence, found.hedges_g, found.d_z):
            if estimate is not None and estimate.low is not None and estimate.high is not None:
                assert estimate.low == -estimate.high


@both_ways
@pytest.mark.parametrize("tasks", [3, 24])
def test_over_tasks_neither_order_nor_roles_matter(paired: bool, tasks: int) -> None:
    rng = np.random.default_rng(tasks)
    control, candidate = rng.normal(size=(5, tasks)), rng.normal(0.2, 1, (5, tasks))
    config, how = ComparisonConfig(paired), TaskConfig(resamples=300)

    def over(first: Array, second: Array) -> Comparison:
        return compare_tasks(first, second, config, how, names=("x", "y"), seed=3)

    here, order = over(control, candidate), rng.permutation(5)
    other = order if paired else rng.permutation(5)
    assert as_json(over(control[order], candidate[other])) == as_json(here)
    there = over(candidate, control)
    assert _minus(here.effect) == _limits(there.effect)
    assert here.p_value == there.p_value


@pytest.mark.parametrize("statistic", list(aggregate.STATISTICS))
@pytest.mark.parametrize("tasks", [4, 22])
def test_aggregates_do_not_depend_on_the_order_of_runs(statistic: str, tasks: int) -> None:
    rng = np.random.default_rng(1)
    table = rng.normal(size=(5, tasks))
    mixed = table[rng.permutation(5)]
    for how in ({}, {"method": "bootstrap", "resamples": 300, "rng": 2}):
        here, there = (aggregate.aggregate(x, statistic=statistic, **how) for x in (table, mixed))
        assert as_json(here) == as_json(there)
        wins, other = (aggregate.probability_of_improvement(x, table + 0.1, **how) for x in (table, mixed))
        assert as_json(wins) == as_json(other)


@pytest.mark.parametrize("adjustment", ["auto", "max-spread", "tukey", "holm", "bh"])
def test_in_a_family_neither_the_order_of_runs_nor_of_arms_matters(adjustment: str) -> None:
    rng = np.random.default_rng(2)
    arms = {name: rng.normal(size=5) for name in "abcd"}
    order = rng.permutation(5)
    mixed = {name: arms[name][order] for name in ("d", "a", "c", "b")}
    here, there = (
        {
            each.candidate: as_json(each)
            for each in families.compare_family(which, "a", ComparisonConfig(True), adjustment)
        }
        for which in (arms, mixed)
    )
    assert here == there


@few
@given(values=st.lists(numbers, min_size=2, max_size=8), data=st.data())
def test_the_noise_of_one_arm_does_not_depend_on_the_order_of_runs(values: list[float], data: st.DataObject) -> None:
    mixed = data.draw(st.permutations(values))
    here, there = (spread(np.array(x), threshold=0.1, relative=False) for x in (values, mixed))
    assert as_json(here) == as_json(there)


# Scales


@every_way
@few
@given(data=st.data(), scale=st.sampled_from([0.25, 3.0, 100.0]), shift=st.sampled_from([-50.0, 0.0, 7.0]))
def test_results_carry_over_to_another_scale(
    paired: bool, method: str, data: st.DataObject, scale: float, shift: float
) -> None:
    """Seven degrees more in both arms, or percent instead of shares, changes the unit and nothing else."""
    control, candidate = (np.array(arm) for arm in data.draw(two_arms(paired, least=3)))
    here = compared(control, candidate, paired, method, sesoi=0.5)
    there = compared(scale * control + shift, scale * candidate + shift, paired, method, sesoi=0.5 * scale)
    assert here.n_control == there.n_control and (here.effect.value is None) == (there.effect.value is None)
    if method in ("bca", "percentile", "studentized"):  # their streams are keyed by the values themselves
        return
    near = {"rel": 1e-6, "abs": 1e-6 * scale}
    for one, other in ((here.effect, there.effect), (here.equivalence, there.equivalence)):
        for x, y in zip(_limits(one), _limits(other), strict=True):
            assert (x is None) == (y is None)
            assert x is None or y is None or y == pytest.approx(scale * x, **near)
    assert (here.p_value is None) == (there.p_value is None)
    if here.p_value is not None:
        assert there.p_value == pytest.approx(here.p_value, rel=1e-6)


@both_ways
@pytest.mark.parametrize("method", ["bca", "percentile", "studentized"])
def test_a_bootstrap_carries_over_to_another_scale_up_to_its_draws(paired: bool, method: str) -> None:
    rng = np.random.default_rng(4)
    control, candidate = rng.normal(size=10), rng.normal(1, 1, 10)
    here = compare_samples(control, candidate, paired=paired, method=method, resamples=20_000)
    there = compare_samples(10 * control + 3, 10 * candidate + 3, paired=paired, method=method, resamples=20_000)
    assert here.effect.low is not None and here.effect.high is not None
    width = here.effect.high - here.effect.low
    for x, y in zip(_limits(here.effect), _limits(there.effect), strict=True):
        assert y == pytest.approx(10 * (x or 0), abs=10 * 0.05 * width)


@every_way
@few
@given(data=st.data())
def test_wider_promises_have_wider_intervals(paired: bool, method: str, data: st.DataObject) -> None:
    """At 1 − α′ > 1 − α the interval contains the other; the value lies in both, and J in I."""
    control, candidate = data.draw(two_arms(paired))
    intervals = []
    for alpha in (0.01, 0.05, 0.2):
        found = compared(control, candidate, paired, method, alpha=alpha)
        if found.effect.low is None or found.effect.high is None:
            intervals.append((-math.inf, math.inf))
        else:
            intervals.append((found.effect.low, found.effect.high))
            assert found.equivalence.low is not None and found.equivalence.high is not None
            assert found.effect.low <= found.equivalence.low <= found.equivalence.high <= found.effect.high
    for (low, high), (inner_low, inner_high) in pairwise(intervals):
        assert low <= inner_low <= inner_high <= high


@every_way
@few
@given(data=st.data())
def test_p_values_are_probabilities(paired: bool, method: str, data: st.DataObject) -> None:
    control, candidate = data.draw(two_arms(paired))
    sides = [compared(control, candidate, paired, method, side=side).p_value for side in MIRRORED]
    assert all(p is None or 0 < p <= 1 for p in sides)


# More runs


@both_ways
@pytest.mark.parametrize("side", list(MIRRORED))
def test_more_runs_see_smaller_differences(paired: bool, side: str) -> None:
    design = Design(paired, side=side)
    seen = [detectable(n, 1.0, design) or 0.0 for n in range(2, 40)]
    assert all(x > y > 0 for x, y in pairwise(seen))


def test_more_runs_have_narrower_intervals() -> None:
    widths = [half_width(1.0, n, 0.05) for n in range(2, 60)]
    assert all(x > y > 0 for x, y in pairwise(widths))


@few
@given(sd=st.floats(0.1, 1), reach=st.floats(0.01, 10), more=st.floats(1.01, 5))
def test_tighter_thresholds_and_more_noise_need_more_runs(sd: float, reach: float, more: float) -> None:
    base, tighter, noisier = (enough_runs(*x, 0.05) for x in ((sd, reach), (sd, reach / more), (sd * more, reach)))
    assert base is not None and tighter is not None and noisier is not None
    assert 2 <= base <= tighter and base <= noisier
    assert half_width(sd, base, 0.05) <= reach and (base == 2 or half_width(sd, base - 1, 0.05) > reach)


@both_ways
@few
@given(effect=st.floats(0.15, 3), more=st.floats(1.05, 3))
def test_larger_differences_and_less_power_need_fewer_seeds(paired: bool, effect: float, more: float) -> None:
    design = Design(paired)
    needed, fewer = seeds_for(effect, design), seeds_for(effect * more, design)
    weaker, easier = seeds_for(effect, replace(design, power=0.6)), seeds_for(effect, replace(design, side="greater"))
    assert needed is not None and fewer is not None and weaker is not None and easier is not None
    assert fewer <= needed and weaker <= needed and easier <= needed
    apart, near = seeds_for_equivalence(effect * more, design), seeds_for_equivalence(effect, design)
    assert apart is not None and near is not None and apart <= near


def test_a_larger_pilot_needs_less_reserve() -> None:
    bounds = [sd_upper(1.0, freedom, 0.8) for freedom in (1, 2, 4, 7, 30, 1000)]
    assert all(x > y > 1 for x, y in pairwise(bounds))


# Randomness


@every_way
def test_the_same_seed_gives_the_same_json(paired: bool, method: str) -> None:
    rng = np.random.default_rng(5)
    control, candidate = rng.normal(size=6), rng.normal(0.5, 1, 6)
    here, again = (as_json(compared(control, candidate, paired, method, rng=7)) for _ in range(2))
    assert here == again == as_json(compared(control, candidate, paired, method, rng=7))
    drawn, redrawn = (compared(control, candidate, paired, method, rng=np.random.default_rng(7)) for _ in range(2))
    assert as_json(drawn) == as_json(redrawn)


def test_another_seed_gives_other_resamples() -> None:
    rng = np.random.default_rng(6)
    control, candidate = rng.normal(size=12), rng.normal(size=12)
    found = {compared(control, candidate, True, "percentile", rng=seed).effect.low for seed in range(4)}
    assert len(found) > 1


def test_the_global_state_of_numpy_is_left_alone() -> None:
    rng = np.random.default_rng(8)
    control, candidate, table = rng.normal(size=5), rng.normal(size=5), rng.normal(size=(4, 22))
    np.random.seed(12)
    before = np.random.get_state(legacy=False)
    for paired, method in WAYS:
        compared(control, candidate, paired, method)
    aggregate.aggregate(table, method="bootstrap", resamples=200)
    aggregate.probability_of_improvement(table, table + 0.1, method="bootstrap", resamples=200)
    aggregate.mean_curve(table, resamples=200)
    stratified_difference(table, table + rng.normal(size=(4, 22)), ComparisonConfig(True), TaskConfig(resamples=200))
    spread(np.array([1.0, 1.1, 1.3]), threshold=0.1)
    certify(control, candidate, ComparisonConfig(True), repeats=100)
    assert repr(np.random.get_state(legacy=False)) == repr(before)


@few
@given(data=st.data(), paired=st.booleans())
def test_what_is_found_can_be_written_and_said(data: st.DataObject, paired: bool) -> None:
    """No NaN in the JSON that is not a null, and a sentence for everything."""
    control, candidate = data.draw(two_arms(paired))
    found = compared(control, candidate, paired, "t", sesoi=1.0)
    json.dumps(found.to_dict(), allow_nan=False)
    orjson.dumps(found.to_dict())  # which knows no NumPy numbers: the reports would spell them as text
    assert str(found).endswith(".") and "nan" not in str(found)


# Summaries

WINDOW = (2.0, 9.0)


def auc(steps: Any, values: Any, window: tuple[float, float] | None = WINDOW) -> float:
    number = summarise(tidy(steps, values), SummaryRule("auc"), window, "max").value
    assert number is not None
    return number


def test_the_height_of_a_straight_line_over_its_upper_half() -> None:
    for count in (2, 3, 8, 100, 1001):
        x = np.linspace(0, 1, count)
        assert auc(x, x, (0.5, 1.0)) == pytest.approx(0.75, abs=1e-12)
    rule = SummaryRule("auc", percent=0.5, percent_window="last")
    curve = tidy([0.0, 0.4, 1.0], [0.0, 0.4, 1.0])
    assert summarise(curve, rule, windows_of({"a": [curve]}, rule)["a"], "max").value == pytest.approx(0.75, abs=1e-12)


curves = st.lists(
    st.tuples(st.integers(1, 9), st.floats(-100, 100, allow_nan=False)), min_size=1, max_size=12
).map(lambda points: [(0, 1.0), *points, (10, 2.0)])  # fmt: skip


@few
@given(points=curves, extra=st.lists(st.floats(0, 10, allow_nan=False), max_size=20))
def test_the_height_of_a_curve_does_not_depend_on_how_often_it_was_logged(
    points: list[tuple[int, float]], extra: list[float]
) -> None:
    steps, values = tidy(*zip(*points, strict=True))
    denser = np.unique(np.concatenate([steps, extra]))
    assert auc(denser, np.interp(denser, steps, values)) == pytest.approx(auc(steps, values), rel=1e-9, abs=1e-9)


@few
@given(points=curves, data=st.data())
def test_summaries_do_not_depend_on_the_order_of_points(points: list[tuple[int, float]], data: st.DataObject) -> None:
    unique = list(dict(points).items())
    mixed = data.draw(st.permutations(unique))
    for rule in (
        SummaryRule("auc"),
        SummaryRule("last", points=2),
        SummaryRule("best"),
        SummaryRule("slope"),
        SummaryRule("time_to", threshold=50.0),
    ):
        here, there = (summarise(tidy(*zip(*x, strict=True)), rule, WINDOW, "max") for x in (unique, mixed))
        assert here == there


@few
@given(points=curves)
def test_a_step_that_was_written_twice_counts_as_last_written(points: list[tuple[int, float]]) -> None:
    steps, values = tidy(*zip(*points, strict=True))
    assert dict(zip(steps.tolist(), values.tolist(), strict=True)) == {float(s): v for s, v in dict(points).items()}
    once = sorted(dict(points).items())
    assert auc(*zip(*points, strict=True)) == auc(*zip(*once, strict=True))


@few
@given(slope=st.floats(-5, 5), height=st.floats(-5, 5), steps=st.sets(st.integers(1, 99), min_size=1, max_size=20))
def test_the_slope_of_a_line_is_its_slope_over_any_window(slope: float, height: float, steps: set[int]) -> None:
    x = np.array(sorted({0, 100, *steps}), dtype=float)
    found = summarise((x, height + slope * x), SummaryRule("slope"), (10.0, 60.0), "max")
    assert found.value == pytest.approx(slope, abs=1e-8)


def test_direction_turns_best_and_time_to_round() -> None:
    curve = tidy([0, 1, 2, 3], [5.0, 1.0, 4.0, 2.0])
    assert summarise(curve, SummaryRule("best"), None, "max").value == 5.0
    assert summarise(curve, SummaryRule("best"), None, "min").value == 1.0
    assert summarise(curve, SummaryRule("time_to", threshold=2.0), None, "min").value == 1.0
    assert summarise(curve, SummaryRule("time_to", threshold=2.0), None, "max").value == 0.0
    late = summarise(curve, SummaryRule("time_to", threshold=9.0), None, "max")
    assert late.censored and late.value is None and late.horizon == 3.0


@pytest.mark.parametrize(
    ("method", "paired"),
    [("sign-flip", True), ("wilcoxon", True), ("studentized", True), ("permutation", False), ("mann-whitney", False)],
)
def test_no_interval_excludes_zero_where_the_test_does_not(method: str, paired: bool) -> None:
    """Rounded data are full of ties: there interval and p-value drift apart unless they are held together."""
    rng = np.random.default_rng(11)
    for _ in range(150):
        control, candidate = (np.round(rng.normal(shift, 0.5, 8), 1) for shift in (0.0, 0.45))
        found = compare_samples(control, candidate, paired=paired, method=method, resamples=400)
        if found.verdict in ("better", "worse"):
            assert found.p_value is not None and found.p_value <= 0.05 + 1e-9
