"""Several differences judged together: the rule of the largest spread, Holm's steps, and what a family can see.

Simulations have fixed seeds; bounds are those of the specification plus three standard errors.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from fairtrial.core.errors import InvalidOptions
from fairtrial.core.findings import Comparison, Verdict
from fairtrial.core.plugin_registry import ADJUSTMENTS, load_plugin
from fairtrial.stats import adjustments, families
from fairtrial.stats.compare import ComparisonConfig, compare
from fairtrial.stats.families import adjust_comparisons, compare_family, compare_pairs
from fairtrial.stats.family_power import FamilyPlan
from fairtrial.stats.noise import SHAPES, Shape
from fairtrial.stats.spreads import (
    FamilyLimit,
    incomplete_residual,
    largest_spreads,
    pair_differences,
    residual_variance,
    student_limit,
)
from fairtrial.stats.tasks import TaskConfig, compare_tasks
from fairtrial.stats.times import compare_times

Array = NDArray[np.float64]
REPEATS = 8_000
ALL = ["auto", "tukey", "holm", "bh"]
some = settings(max_examples=6, deadline=None)
every_adjustment = pytest.mark.parametrize("adjustment", ALL)
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)


def errors(share: float, repeats: int = REPEATS) -> float:
    return 3 * math.sqrt(share * (1 - share) / repeats)


def star(arms: int) -> list[tuple[int, int]]:
    return [(0, arm) for arm in range(1, arms)]


def every_pair(arms: int) -> list[tuple[int, int]]:
    return list(combinations(range(arms), 2))


def reached(layout: Array, pairs: list[tuple[int, int]], alpha: float = 0.05) -> tuple[Array, Array]:
    """Differences and half-widths by the rule of the largest spread, for many layouts at once."""
    arms, n = layout.shape[-2:]
    means, own = pair_differences(layout, pairs)
    residual, freedom = residual_variance(layout)
    limit = FamilyLimit(arms, len(pairs), freedom, narrower=True).reach(alpha / 2)
    largest, least = largest_spreads(own, residual, pairs)
    return means, np.maximum(limit * np.sqrt(largest / n), student_limit(alpha / 2, n - 1) * np.sqrt(least / n))


def layouts(arms: int, n: int, shape: Shape = SHAPES[0], spread: dict[int, float] | None = None) -> Array:
    rng = np.random.default_rng([arms, n, len(shape.name)])
    layout = shape.draw(rng, (REPEATS, arms, n)) - shape.mean
    for arm, factor in (spread or {}).items():
        layout[:, arm] *= factor
    return layout


def wrong(layout: Array, pairs: list[tuple[int, int]]) -> float:
    means, reach = reached(layout, pairs)
    return float((np.abs(means) > reach).any(axis=1).mean())


# The promise


@every_shape
@pytest.mark.parametrize("pairs", [star, every_pair])
@pytest.mark.parametrize(("arms", "n"), [(3, 3), (6, 4), (4, 5), (6, 8)])
def test_equal_arms_are_rarely_told_apart_on_any_shape_of_noise(shape: Shape, pairs, arms: int, n: int) -> None:  # type: ignore[no-untyped-def]
    assert wrong(layouts(arms, n, shape), pairs(arms)) <= 0.06 + errors(0.06)


@pytest.mark.parametrize("noisy", [0, -1])
@pytest.mark.parametrize("pairs", [star, every_pair])
@pytest.mark.parametrize(("arms", "n"), [(3, 3), (6, 3), (6, 4), (4, 5), (6, 5), (6, 8), (6, 11)])
def test_one_arm_of_five_times_the_spread_does_not_break_the_promise(pairs, arms: int, n: int, noisy: int) -> None:  # type: ignore[no-untyped-def]
    assert wrong(layouts(arms, n, spread={noisy: 5.0}), pairs(arms)) <= 0.06 + errors(0.06)


@pytest.mark.parametrize("odd", [0, -1])
@pytest.mark.parametrize("pairs", [star, every_pair])
@pytest.mark.parametrize(("arms", "n"), [(6, 3), (4, 5), (6, 5), (6, 8)])
def test_an_arm_that_shares_no_luck_with_the_others_does_not_either(pairs, arms: int, n: int, odd: int) -> None:  # type: ignore[no-untyped-def]
    layout = layouts(arms, n)
    luck, other = 3 * np.random.default_rng(n).standard_normal((2, REPEATS, n))
    layout += luck[:, None]
    layout[:, odd] += other - luck
    assert wrong(layout, pairs(arms)) <= 0.06 + errors(0.06)


def test_plain_tukey_did_break_it() -> None:
    """The case that the rule is for: a control of five times the spread, three seeds, six arms."""
    layout = layouts(6, 3, spread={0: 5.0})
    residual, freedom = residual_variance(layout)
    limit = families.tukey_quantile(0.95, 6, freedom) * np.sqrt(residual / 3)
    means, _ = pair_differences(layout, star(6))
    assert float((np.abs(means) > limit[:, None]).any(axis=1).mean()) > 0.12


@pytest.mark.parametrize(("n", "cost"), [(5, 0.12), (8, 0.10)])
@pytest.mark.parametrize("arms", [4, 6])
@pytest.mark.parametrize("pairs", [star, every_pair])
def test_the_promise_costs_little_power_on_equal_noise(pairs, arms: int, n: int, cost: float) -> None:  # type: ignore[no-untyped-def]
    layout = layouts(arms, n)
    layout[:, 1] += 1.5 * math.sqrt(2)
    means, reach = reached(layout, pairs(arms))
    residual, freedom = residual_variance(layout)
    tukey = families.tukey_quantile(0.95, arms, freedom) * np.sqrt(residual / n)
    ours, theirs = (float((np.abs(means[:, 0]) > each).mean()) for each in (reach[:, 0], tukey))
    assert ours >= theirs - cost - errors(0.5)


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [star, every_pair])
@pytest.mark.parametrize("n", [3, 7])
def test_a_family_is_judged_by_the_rule_that_was_simulated(pairs, n: int) -> None:  # type: ignore[no-untyped-def]
    chosen = layouts(4, n, spread={3: 3.0})[:25]
    chosen[:, 1] += 6.0 / math.sqrt(n - 1)
    means, reach = reached(chosen, pairs(4))
    assert 0.05 < float((np.abs(means) > reach).mean()) < 0.95
    for place, layout in enumerate(chosen):
        arms = dict(zip("abcd", layout, strict=True))
        named = [("abcd"[first], "abcd"[second]) for first, second in pairs(4)]
        found = compare_pairs(arms, named, ComparisonConfig(True), "auto")
        assert {each.adjustment for each in found} == {"max-spread"}
        assert [each.effect.value for each in found] == pytest.approx(means[place])
        assert [each.effect.high for each in found] == pytest.approx(means[place] + reach[place])
        assert [each.significant for each in found] == (np.abs(means[place]) > reach[place]).tolist()


# Interval and verdict


@st.composite
def any_arms(draw: st.DrawFn) -> dict[str, Array]:
    count, n = draw(st.integers(3, 4)), draw(st.sampled_from([3, 5, 13]))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    spread = rng.choice([0.3, 1.0, 4.0], size=(count, 1))
    apart = rng.choice([0.0, 0.0, 1.5, 3.0], size=(count, 1))
    return dict(zip("abcd", spread * rng.normal(size=(count, n)) + apart + rng.normal(size=n), strict=False))


@pytest.mark.slow
@every_adjustment
@some
@given(arms=any_arms(), alpha=st.just(0.1))
def test_an_interval_excludes_zero_exactly_when_the_adjusted_p_is_significant(
    adjustment: str, arms: dict[str, Array], alpha: float
) -> None:
    for found in compare_pairs(arms, list(combinations(arms, 2)), ComparisonConfig(True, alpha), adjustment):
        assert found.effect.low is not None and found.effect.high is not None and found.adjusted_p is not None
        excludes = found.effect.low > 0 or found.effect.high < 0
        assert excludes == (found.adjusted_p <= alpha) == found.significant
        assert (found.verdict is Verdict.INCONCLUSIVE) == (not excludes)
        if adjustment != "tukey":  # which pools: a quiet pair may borrow noise, a noisy one lend it
            assert found.p_value is not None and found.adjusted_p >= found.p_value * (1 - 1e-9)


@pytest.mark.parametrize("method", ["t", "studentized", "permutation", "mann-whitney"])
@some
@given(seed=st.integers(0, 1000))
def test_so_it_does_for_unpaired_arms_and_other_methods(method: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arms = {name: rng.normal(size=rng.integers(6, 9)) + rng.choice([0.0, 2.0]) for name in "abc"}
    for found in compare_family(arms, "a", ComparisonConfig(False, method=method, resamples=200), "auto"):
        assert found.adjustment == "holm" and found.adjusted_p is not None
        if found.effect.low is not None and found.effect.high is not None:
            assert (found.effect.low > 0 or found.effect.high < 0) == (found.adjusted_p <= 0.05)


@pytest.mark.slow
@every_adjustment
@some
@given(arms=any_arms(), data=st.data())
def test_roles_and_the_order_of_runs_and_arms_do_not_matter(
    adjustment: str, arms: dict[str, Array], data: st.DataObject
) -> None:
    n = len(arms["a"])
    order = data.draw(st.permutations(range(n)))
    mixed = {name: arms[name][order] for name in data.draw(st.permutations(list(arms)))}
    pairs = list(combinations(arms, 2))
    turned = [pair[::-1] for pair in data.draw(st.permutations(pairs))]
    here = {
        (f.control, f.candidate): f for f in compare_pairs(arms, pairs, ComparisonConfig(True, sesoi=0.7), adjustment)
    }
    for there in compare_pairs(mixed, turned, ComparisonConfig(True, sesoi=0.7), adjustment):
        found = here[there.candidate, there.control]
        for one, two in ((there.effect, found.effect), (there.equivalence, found.equivalence)):
            turned_back = one.negated()
            assert (turned_back.value, turned_back.low, turned_back.high) == (two.value, two.low, two.high)
        assert (there.adjusted_p, there.equivalent) == (found.adjusted_p, found.equivalent)
        assert (there.detectable, there.seeds_needed) == (found.detectable, found.seeds_needed)


@pytest.mark.slow
@every_adjustment
@some
@given(arms=any_arms(), scale=st.sampled_from([0.25, 100.0]), shift=st.sampled_from([-50.0, 7.0]))
def test_families_carry_over_to_another_scale(
    adjustment: str, arms: dict[str, Array], scale: float, shift: float
) -> None:
    here = compare_family(arms, "a", ComparisonConfig(True, sesoi=0.5), adjustment)
    other = {name: scale * sample + shift for name, sample in arms.items()}
    for one, two in zip(
        here, compare_family(other, "a", ComparisonConfig(True, sesoi=0.5 * scale), adjustment), strict=True
    ):
        assert two.verdict is one.verdict
        assert two.adjusted_p == pytest.approx(one.adjusted_p, rel=1e-6)
        assert one.effect.high is not None and one.detectable is not None
        assert two.effect.high == pytest.approx(scale * one.effect.high, rel=1e-6, abs=1e-6 * scale)
        assert two.detectable == pytest.approx(scale * one.detectable, rel=1e-6)


def test_a_family_of_two_arms_is_paired_t() -> None:
    rng = np.random.default_rng(3)
    arms = {"a": rng.normal(size=6), "b": rng.normal(size=6) + 1}
    (found,) = compare_family(arms, "a", ComparisonConfig(True, sesoi=0.5), "auto")
    alone = compare(arms["a"], arms["b"], ComparisonConfig(True, sesoi=0.5), names=("a", "b"))
    for one, two in ((found.effect, alone.effect), (found.equivalence, alone.equivalence)):
        assert (one.low, one.high, one.level) == pytest.approx((two.low, two.high, two.level))
    assert found.adjusted_p == pytest.approx(alone.p_value, rel=1e-6)


@pytest.mark.parametrize(("seeds", "rule"), [(3, "max-spread"), (11, "max-spread"), (12, "holm"), (30, "holm")])
def test_the_number_of_seeds_decides_how_a_family_is_judged(seeds: int, rule: str) -> None:
    rng = np.random.default_rng(0)
    arms = {name: rng.normal(size=seeds) for name in "abc"}
    assert {each.adjustment for each in compare_family(arms, "a", ComparisonConfig(True), "auto")} == {rule}
    unpaired = compare_family(arms, "a", ComparisonConfig(False), "auto")
    assert {each.adjustment for each in unpaired} == {"holm"}


def test_lost_runs_do_not_change_how_a_family_is_judged() -> None:
    rng = np.random.default_rng(0)
    arms = {name: rng.normal(size=12) for name in "abc"}
    arms["c"][:5] = np.nan
    assert {each.adjustment for each in compare_family(arms, "a", ComparisonConfig(True), "auto")} == {"holm"}


def test_the_largest_spread_is_for_paired_t() -> None:
    arms = {name: np.arange(3.0) for name in "abc"}
    with pytest.raises(InvalidOptions, match="largest spread applies only to two-sided paired t tests"):
        compare_family(arms, "a", ComparisonConfig(False), "max-spread")


# Holm's steps, and the levels that agree with them


def test_levels_of_holm_are_those_of_its_own_steps() -> None:
    assert adjustments.holm_levels([0.001, 0.4, 0.02], 0.05) == pytest.approx([0.05 / 3, 0.05, 0.05 / 2])
    assert adjustments.holm_levels([0.001, 0.03, 0.04], 0.05) == pytest.approx([0.05 / 3, 0.05 / 2, 0.05 / 2])
    assert adjustments.holm_levels([0.02, 0.02], 0.05) == pytest.approx([0.025, 0.025])


def test_levels_of_benjamini_and_hochberg_are_the_share_that_is_significant() -> None:
    assert adjustments.benjamini_hochberg_levels([0.001, 0.03, 0.4], 0.05) == pytest.approx([0.05 * 2 / 3] * 3)
    assert adjustments.benjamini_hochberg_levels([0.3, 0.5], 0.05) == pytest.approx([0.025] * 2)


@some
@given(p=st.lists(st.sampled_from([1e-4, 0.004, 0.01, 0.0126, 0.02, 0.03, 0.049, 0.2, 0.9]), min_size=1, max_size=7))
@pytest.mark.parametrize("adjustment", ["holm", "bh"])
def test_a_level_says_what_the_adjusted_p_says(adjustment: str, p: list[float]) -> None:
    rule = load_plugin(ADJUSTMENTS, adjustment)
    adjusted, levels = rule.adjust(p), rule.levels(p, 0.05)
    for own, after, level in zip(p, adjusted, levels, strict=True):
        assert (own <= level * (1 + 1e-9)) == (after <= 0.05 * (1 + 1e-9))


# Equivalence and `not worse`


def test_equivalence_in_a_family_is_judged_at_its_share_of_alpha() -> None:
    """Equivalent by itself, not as one of three: the interval at 1 − 2α/m reaches beyond the margin."""
    differences = np.array([-0.2, 0.25, 0.1, -0.1, 0.02])
    base = np.array([0.3, 0.1, 0.7, 0.2, 0.9])
    margin = 0.2
    config = ComparisonConfig(True, sesoi=margin)
    alone = compare(base, base + differences, config, names=("a", "b"))
    assert alone.verdict is Verdict.EQUIVALENT
    arms = {"a": base, "b": base + differences, "c": base + differences[::-1], "d": base + 3 + differences}
    for adjustment in ("holm", "auto"):
        found = compare_family(arms, "a", config, adjustment)[0]
        assert found.equivalent is False and found.verdict is Verdict.INCONCLUSIVE
        assert found.equivalence.level == pytest.approx(1 - 0.1 / 3)
    error = differences.std(ddof=1) / math.sqrt(5)
    expected = differences.mean() + stats.t.ppf(1 - 0.05 / 3, 4) * error
    assert compare_family(arms, "a", config, "holm")[0].equivalence.high == pytest.approx(expected)


@pytest.mark.slow
def test_what_is_better_is_not_worse_too() -> None:
    rng = np.random.default_rng(1)
    for seed in range(40):
        arms = {name: np.random.default_rng([seed, n]).normal(size=13) for n, name in enumerate("abcd")}
        arms["b"] = arms["b"] + rng.uniform(0.8, 1.4)
        for found in compare_family(arms, "a", ComparisonConfig(True), "holm"):
            assert not (found.verdict is Verdict.BETTER and not found.not_worse)


def test_comparisons_over_tasks_are_adjusted_together_with_their_intervals() -> None:
    """p, interval, equivalence and `not worse`: before, p alone was, and an interval excluded zero beside p = 0.08."""
    rng = np.random.default_rng(4)
    tables = [rng.normal(size=(6, 3)) for _ in range(3)]
    tables[1] += 0.9
    config = ComparisonConfig(True, sesoi=2.0)

    def again(index: int, alpha: float) -> Comparison:
        own = replace(config, alpha=alpha)
        return compare_tasks(tables[0], tables[index + 1], own, TaskConfig(), names=("a", "bc"[index]))

    alone = [again(index, 0.05) for index in range(2)]
    for own, found in zip(alone, adjust_comparisons(again, 2, "holm", 0.05), strict=True):
        assert found.p_value == own.p_value and found.adjusted_p is not None
        assert None not in (own.effect.low, found.effect.low, own.equivalence.high, found.equivalence.high)
        assert (found.effect.low > 0 or found.effect.high < 0) == (found.adjusted_p <= 0.05)  # type: ignore[operator]
        assert found.equivalence.high > own.equivalence.high  # type: ignore[operator]
        assert found.equivalence.level == pytest.approx(0.95)


def test_times_are_adjusted_too() -> None:
    inf = math.inf
    times = [
        np.array(each) for each in ([9.0, 9.5, inf, 8.0, 9.9], [1.0, 2.0, 3.0, 4.0, 5.0], [8.5, 9.1, 7.0, inf, 9.2])
    ]

    def again(index: int, alpha: float) -> Comparison:
        return compare_times(times[0], times[index + 1], 10.0, ComparisonConfig(False, alpha), names=("a", "bc"[index]))

    found = adjust_comparisons(again, 2, "holm", 0.05)
    assert [each.adjustment for each in found] == ["holm", "holm"]
    assert found[0].adjusted_p == pytest.approx(2 * (found[0].p_value or 0)) and found[0].verdict is Verdict.BETTER


@pytest.mark.parametrize("family", ["tukey", "max-spread"])
def test_a_limit_on_pooled_noise_is_refused_where_there_is_none(family: str) -> None:
    with pytest.raises(InvalidOptions, match=f"--family {family} needs one number per run"):
        families.stepwise(family)
    assert [families.stepwise(each) for each in (None, "auto", "holm", "bh")] == ["holm", "holm", "holm", "bh"]


# Lost runs


def test_the_residual_of_an_incomplete_layout_is_that_of_least_squares() -> None:
    rng = np.random.default_rng(5)
    whole = rng.normal(size=(4, 5))
    variance, freedom = residual_variance(whole)
    assert incomplete_residual(whole) == (pytest.approx(float(variance)), freedom)
    gaps = whole.copy()
    gaps[3, 1] = gaps[0, 4] = np.nan
    found = incomplete_residual(gaps)
    assert found is not None and found[1] == freedom - 2
    only = np.full((3, 4), np.nan)
    only[:, 0] = 1.0
    assert incomplete_residual(only) is None


def test_what_one_arm_loses_takes_no_seed_from_the_others() -> None:
    rng = np.random.default_rng(6)
    arms = {name: rng.normal(size=8) for name in "abcd"}
    whole = compare_family(arms, "a", ComparisonConfig(True), "auto")[0]
    arms["d"] = np.where(np.arange(8) < 6, np.nan, arms["d"])
    found = compare_family(arms, "a", ComparisonConfig(True), "auto")[0]
    assert (found.effect.n, found.effect.value, found.p_value) == (8, whole.effect.value, whole.p_value)


# What a family can see


@pytest.mark.parametrize("pairs", [star, every_pair])
@pytest.mark.parametrize(("arms", "n"), [(4, 3), (6, 5), (4, 8)])
def test_the_detectable_difference_is_seen_with_the_power_that_was_stated(pairs, arms: int, n: int) -> None:  # type: ignore[no-untyped-def]
    """Each study prints its own; another study like it has that true difference. Before, it was six times as large."""
    rng = np.random.default_rng([arms, n, 9])
    plan = FamilyPlan("auto", arms, tuple(pairs(arms)), 0.05, 0.8)
    _, shown = reached(rng.standard_normal((REPEATS, arms, n)), pairs(arms))
    printed = (plan.detectable(1.0, n) or math.nan) * shown[:, 0]
    means, reach = reached(rng.standard_normal((REPEATS, arms, n)), pairs(arms))
    seen = float((np.abs(means[:, 0] + printed) > reach[:, 0]).mean())
    assert seen == pytest.approx(0.8, abs=0.05)
    true = _difference_seen_in(0.8, means[:, 0], reach[:, 0])
    assert float(np.median(printed)) < 1.3 * true


def _difference_seen_in(share: float, means: Array, reach: Array) -> float:
    low, high = 0.0, 100.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        seen = float((np.abs(means + middle) > reach).mean())
        low, high = (middle, high) if seen < share else (low, middle)
    return high


@pytest.mark.parametrize(("adjustment", "n"), [("auto", 5), ("auto", 14), ("tukey", 5), ("holm", 5)])
def test_a_comparison_states_what_its_own_test_can_see(adjustment: str, n: int) -> None:
    """The noise is that of the runs; the power is averaged over what it may be, so more than at the noise itself."""
    rng = np.random.default_rng(2)
    arms = {name: rng.normal(size=n) for name in "abcd"}
    found = compare_family(arms, "a", ComparisonConfig(True), adjustment)[0]
    assert found.detectable is not None and found.effect.high is not None and found.effect.value is not None
    half = found.effect.high - found.effect.value
    assert 1.1 * half < found.detectable < 2.5 * half * (1 if adjustment != "holm" else 1.5)
    assert found.seeds_needed is not None and found.seeds_needed.assurance is None
    assert found.seeds_needed.basis == "observed difference"


@pytest.mark.parametrize("distance", [0.8, 1.5])
def test_the_seeds_that_are_asked_for_give_the_power_that_was_stated(distance: float) -> None:
    rng = np.random.default_rng(11)
    pairs, effect = star(4), distance * math.sqrt(2)
    plan = FamilyPlan("auto", 4, tuple(pairs), 0.05, 0.8)
    _, shown = reached(rng.standard_normal((60, 4, 5)), pairs)
    asked = [plan.seeds_for(effect, float(half), 5) or 0 for half in shown[:, 0]]
    seen = {}
    for n in set(asked):
        means, own = pair_differences(rng.standard_normal((4_000, 4, n)), pairs)
        reach = student_limit(0.025 / 3, n - 1) * np.sqrt(own / n)
        if n < 12:
            means, reach = reached(rng.standard_normal((4_000, 4, n)), pairs)
        seen[n] = float((np.abs(means[:, 0] + effect) > reach[:, 0]).mean())
    assert float(np.mean([seen[n] for n in asked])) == pytest.approx(0.8, abs=0.05 + errors(0.8, 1_000))


def test_seeds_for_a_margin_serve_equivalence_too() -> None:
    rng = np.random.default_rng(2)
    arms = {name: rng.normal(size=5) for name in "abcd"}
    needed = [
        compare_family(arms, "a", ComparisonConfig(True, sesoi=margin), "auto")[0].seeds_needed for margin in (0.5, 1.0)
    ]
    assert needed[0] is not None and needed[1] is not None
    assert needed[0].per_arm is not None and needed[1].per_arm is not None
    assert needed[0].per_arm > needed[1].per_arm > 5 and needed[0].basis == "sesoi"
