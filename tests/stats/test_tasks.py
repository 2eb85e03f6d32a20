"""Comparisons over tasks: judged by run, and all that is said about them is about one estimand."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from fairtrial.core.findings import Comparison, Verdict
from fairtrial.stats import jackknife
from fairtrial.stats.aggregate import (
    STATISTICS,
    aggregate,
    aggregate_tables,
    optimality_gap,
    probability_of_improvement,
    statistic_named,
)
from fairtrial.stats.compare import ComparisonConfig
from fairtrial.stats.tasks import TaskConfig, compare_tasks, judge_tasks, stratified_difference
from tests.stats.task_studies import draw_arms, many_run_values

Array = NDArray[np.float64]
JACKKNIFED = [name for name in STATISTICS if name != "optimality_gap"]
both_ways = pytest.mark.parametrize("paired", [True, False])
every_statistic = pytest.mark.parametrize("statistic", JACKKNIFED)


def over(control: Any, candidate: Any, *, paired: bool, statistic: str | None = None, **more: Any) -> Comparison:
    return compare_tasks(control, candidate, ComparisonConfig(paired, **more), TaskConfig(statistic), names=("a", "b"))


def own_runs(table: Array) -> list[Array]:
    """The same scores, where every task has runs of its own."""
    return [column[:, None] for column in table.T]


# The jackknife


@every_statistic
@pytest.mark.parametrize(("runs", "tasks"), [(4, 1), (4, 3), (5, 6), (7, 26)])
def test_the_numbers_of_runs_are_those_of_leaving_each_out(statistic: str, runs: int, tasks: int) -> None:
    table = np.round(np.random.default_rng(runs).normal(size=(runs, tasks)), 1)  # with ties
    assert jackknife.run_values(table, statistic) == pytest.approx(
        many_run_values(table[None], statistic)[0], abs=1e-12
    )


@every_statistic
@pytest.mark.parametrize("tasks", [3, 26])
def test_the_standard_error_is_the_jackknife_s_with_t(statistic: str, tasks: int) -> None:
    rng = np.random.default_rng(tasks)
    control, candidate = rng.normal(size=(6, tasks)), rng.normal(0.3, 1, (6, tasks))
    of = statistic_named(statistic)
    left = [of(np.delete(candidate, i, 0)) - of(np.delete(control, i, 0)) for i in range(6)]
    error = math.sqrt(5 / 6 * np.sum((np.array(left) - np.mean(left)) ** 2))
    value = float(of(candidate) - of(control))
    found = over(control, candidate, paired=True, statistic=statistic)
    reach = stats.t.ppf(0.975, 5) * error
    assert (found.effect.value, found.effect.low, found.effect.high) == pytest.approx(
        (value, value - reach, value + reach)
    )
    assert found.tests["df"] == 5 and found.method == "jackknife by run, paired t"


@every_statistic
def test_independent_arms_are_judged_by_welch_on_the_two_jackknife_variances(statistic: str) -> None:
    rng = np.random.default_rng(3)
    control, candidate = rng.normal(size=(5, 24)), rng.normal(0.2, 2, (6, 24))
    values = [many_run_values(table[None], statistic)[0] for table in (control, candidate)]
    theirs = stats.ttest_ind(values[1], values[0], equal_var=False)
    found = over(control, candidate, paired=False, statistic=statistic)
    assert found.p_value == pytest.approx(theirs.pvalue)
    assert (found.effect.low, found.effect.high) == pytest.approx(tuple(theirs.confidence_interval(0.95)))


def test_a_hundred_runs_on_26_tasks_take_less_than_50_ms() -> None:
    table = np.random.default_rng(0).normal(size=(100, 26))
    took = []
    for _ in range(5):
        begun = time.process_time()
        jackknife.run_values(table, "iqm")
        took.append(time.process_time() - begun)
    assert min(took) < 0.05


def test_trimmed_and_olympic_means_drop_what_the_docs_say() -> None:
    table = np.random.default_rng(1).normal(size=(5, 7))
    assert float(STATISTICS["trimmed"](table)) == pytest.approx(stats.trim_mean(table, 0.1, axis=None))
    by_hand = [np.sort(column)[1:-1].mean() for column in table.T]
    assert float(STATISTICS["olympic"](table)) == pytest.approx(np.mean(by_hand))
    assert aggregate(table[:3], statistic="olympic").reason == "too few runs", (
        "without one of three, one is left to drop"
    )


# Luck that a run shares across tasks


@both_ways
def test_luck_shared_by_tasks_is_not_taken_for_a_difference(paired: bool) -> None:
    """26 tasks, 5 runs, r = 0.6: the stratified bootstrap called half of such studies better or worse."""
    control, candidate = draw_arms(np.random.default_rng(1), 120, 5, 26, shared=0.6)
    wrong = sum(bool(over(a, b, paired=paired).significant) for a, b in zip(control, candidate, strict=True))
    assert wrong / 120 <= 0.06 + 3 * math.sqrt(0.06 * 0.94 / 120)


def test_the_stratified_bootstrap_is_there_for_comparison_and_is_never_the_verdict() -> None:
    [control], [candidate] = draw_arms(np.random.default_rng(4), 1, 5, 26, shared=0.6)
    verdict = over(control, candidate, paired=False)
    found = stratified_difference(control, candidate, ComparisonConfig(False), TaskConfig(resamples=2000))
    assert found.method == "stratified bootstrap of the iqm over 26 tasks"
    assert found.value == pytest.approx(verdict.effect.value)
    assert found.low is not None and found.high is not None
    assert verdict.effect.low is not None and verdict.effect.high is not None
    assert found.high - found.low < 0.6 * (verdict.effect.high - verdict.effect.low)


# One estimand


@both_ways
def test_the_detectable_difference_is_that_of_the_aggregate_which_the_verdict_is_about(paired: bool) -> None:
    """One wild task of 26 moves the mean of every run, and not the interquartile mean."""
    rng = np.random.default_rng(2)
    control, candidate = rng.normal(size=(2, 8, 26))
    control[:, 0], candidate[:, 0] = rng.normal(0, 60, (2, 8))
    found = over(control, candidate, paired=paired)
    assert found.effect.low is not None and found.effect.high is not None and found.detectable is not None
    half = (found.effect.high - found.effect.low) / 2
    assert half < found.detectable < 2 * half
    assert found.sd_control is not None and found.sd_control < 1
    assert found.hedges_g is not None and found.hedges_g.value is not None and found.effect.value is not None
    assert math.copysign(1, found.hedges_g.value) == math.copysign(1, found.effect.value)


@pytest.mark.slow
@both_ways
@pytest.mark.parametrize("own", [True, False])
def test_the_printed_detectable_difference_is_seen_in_four_of_five_studies(paired: bool, own: bool) -> None:
    rng = np.random.default_rng(5)
    control, candidate = draw_arms(rng, 200, 10, 22, shared=0.0 if own else 0.3)
    arms = [(own_runs(a), own_runs(b)) if own else (a, b) for a, b in zip(control, candidate, strict=True)]
    shown = [over(a, b, paired=paired).detectable or math.nan for a, b in arms[:60]]
    seen = 0.0
    for number, (a, b) in enumerate(arms[60:]):  # fresh studies, whose true difference is the one that another printed
        shift = shown[number % 60]
        moved = [table + shift for table in b] if own else b + shift
        seen += (over(a, moved, paired=paired).verdict is Verdict.BETTER) / 140
    assert abs(seen - 0.8) <= 0.05 + 3 * math.sqrt(0.16 / 140)


def test_an_optimality_gap_is_judged_by_the_gaps_of_the_runs() -> None:
    """Scores far above γ count for nothing: the candidate is better where it matters, and has the lower mean score."""
    draw = np.random.default_rng(1)
    control = np.column_stack([draw.normal(20, 1, 8), draw.normal(900, 1, 8)])
    candidate = np.column_stack([draw.normal(60, 1, 8), draw.normal(400, 1, 8)])
    how = TaskConfig("optimality_gap", gamma=100.0)
    found = compare_tasks(control, candidate, ComparisonConfig(True), how, names=("a", "b"))
    assert found.effect.value == pytest.approx(float(optimality_gap(candidate, 100) - optimality_gap(control, 100)))
    assert found.verdict is Verdict.BETTER and found.direction == "min"
    assert found.mean_control == pytest.approx(float(optimality_gap(control, 100)))
    assert found.sd_candidate is not None and found.sd_candidate < 2
    assert found.effect.samples is not None and max(found.effect.samples) < 0, "every pair is won"


def test_the_default_is_the_iqm_from_20_tasks_on_and_only_the_iqm_below_carries_a_caution() -> None:
    rng = np.random.default_rng(6)
    control, candidate = rng.normal(size=(2, 5, 20))
    assert TaskConfig().named(20) == "iqm" and TaskConfig().named(19) == "mean"

    def codes(tasks: int, statistic: str | None) -> list[str]:
        found = over(control[:, :tasks], candidate[:, :tasks], paired=True, statistic=statistic)
        return [caution["code"] for caution in found.cautions if caution["code"] == "few tasks"]

    assert codes(19, "iqm") == ["few tasks"] and codes(20, None) == []
    assert codes(19, None) == codes(19, "median") == codes(19, "trimmed") == []


def test_a_median_over_tasks_carries_a_caution_below_ten_runs() -> None:
    rng = np.random.default_rng(13)
    control, candidate = rng.normal(size=(2, 10, 6))

    def cautioned(runs: int) -> bool:
        found = over(control[:runs], candidate[:runs], paired=True, statistic="median")
        return "median over tasks" in [caution["code"] for caution in found.cautions]

    assert cautioned(9) and not cautioned(10)


def test_a_probability_of_improvement_near_its_limit_carries_a_caution_and_others_none() -> None:
    """Limits hold at three runs; it is above 0.9, with luck that many tasks share, that they covered too little."""
    rng = np.random.default_rng(14)
    control = rng.normal(size=(8, 26))

    def codes(effect: float) -> list[str]:
        found = probability_of_improvement(control, rng.normal(effect, 1, (8, 26)))
        assert found.low is not None
        return [caution["code"] for caution in found.cautions]

    assert codes(2.5) == codes(-2.5) == ["probability near its limit"] and codes(0.5) == []


# Tasks with runs of their own


@both_ways
def test_variances_add_where_tasks_have_runs_of_their_own(paired: bool) -> None:
    rng = np.random.default_rng(7)
    tables = [[rng.normal(size=(n, 1)) for n in (3, 5, 4)] for _ in range(2)]
    found = over(*tables, paired=paired, statistic="mean")
    if paired:
        shares = [(b - a).var(ddof=1) / len(a) / 9 for a, b in zip(*tables, strict=True)]
        counts = [3, 5, 4]
    else:
        shares, counts = [t.var(ddof=1) / len(t) / 9 for side in tables for t in side], [3, 5, 4, 3, 5, 4]
    freedom = sum(shares) ** 2 / sum(s**2 / (n - 1) for s, n in zip(shares, counts, strict=True))
    value = float(np.mean([t.mean() for t in tables[1]]) - np.mean([t.mean() for t in tables[0]]))
    reach = stats.t.ppf(0.975, freedom) * math.sqrt(sum(shares))
    assert (found.effect.low, found.effect.high) == pytest.approx((value - reach, value + reach))
    assert found.tests["df"] == pytest.approx(freedom)


@every_statistic
def test_a_layout_does_not_change_the_value(statistic: str) -> None:
    table = np.random.default_rng(8).normal(size=(5, 24))
    own, shared = aggregate_tables(own_runs(table), statistic), aggregate_tables([table], statistic)
    assert own.value == shared.value == pytest.approx(float(statistic_named(statistic)(table)))
    assert own.low is not None and shared.low is not None and own.low != shared.low


@pytest.mark.parametrize("statistic", ["iqm", "trimmed", "mean", "median"])
def test_a_task_counts_the_same_however_many_runs_it_has(statistic: str) -> None:
    rng = np.random.default_rng(9)
    few, many = [rng.normal(j, 0.1, (4, 1)) for j in range(12)], []
    for number, table in enumerate(few):
        many.append(np.repeat(table, 5, axis=0) if number < 3 else table)
    assert jackknife.aggregate_value(many, statistic) == pytest.approx(
        jackknife.aggregate_value(few, statistic), abs=0.02
    )


def test_55_tasks_with_runs_of_their_own_are_judged_in_a_moment() -> None:
    rng = np.random.default_rng(10)
    tables = [[rng.normal(size=(10, 1)) for _ in range(55)] for _ in range(2)]
    begun = time.process_time()
    found = over(*tables, paired=False)
    assert time.process_time() - begun < 1 and found.detectable is not None


def test_one_run_on_a_task_is_too_few() -> None:
    rng = np.random.default_rng(11)
    tables = [[rng.normal(size=(n, 1)) for n in (3, 1, 3)] for _ in range(2)]
    found = over(*tables, paired=False)
    assert found.verdict is Verdict.INCONCLUSIVE and found.reason == "too few runs" and found.effect.low is None


# Lost runs


def test_a_run_with_a_lost_task_is_one_lost_run_and_a_lost_cell_counts_where_seeds_differ_by_task() -> None:
    rng = np.random.default_rng(12)
    control, candidate = rng.normal(size=(2, 5, 4))
    candidate[1, :3] = math.nan
    shared = judge_tasks(control, candidate, ComparisonConfig(True), TaskConfig(), names=("a", "b"))
    assert (shared.losses.lost_candidate, shared.losses.candidate, shared.unit) == (1, 5, "runs")
    own = judge_tasks(own_runs(control), own_runs(candidate), ComparisonConfig(False), TaskConfig(), names=("a", "b"))
    assert (own.losses.lost_candidate, own.losses.candidate, own.unit) == (3, 20, "cells")
    assert own.comparison.reliability is not None and (own.losses.lost_control, own.losses.control) == (0, 20)
    assert shared.inference is not None and shared.comparison.n_candidate == 4, "quality is judged on whole pairs"


# Properties

TABLES = st.tuples(st.integers(4, 7), st.integers(2, 24), st.integers(0, 10_000))


def _limits(found: Comparison) -> tuple[float | None, ...]:
    return found.effect.value, found.effect.low, found.effect.high


def _draw(case: tuple[int, int, int]) -> tuple[Array, Array]:
    runs, tasks, seed = case
    rng = np.random.default_rng(seed)
    first, second = np.round(rng.normal(size=(2, runs, tasks)), 2)
    return first, second + 0.3


@settings(max_examples=25, deadline=None)
@given(TABLES, st.sampled_from(JACKKNIFED), st.booleans(), st.booleans())
def test_neither_the_order_of_runs_nor_the_roles_of_arms_matter(
    case: tuple[int, int, int], statistic: str, paired: bool, own: bool
) -> None:
    first, second = _draw(case)
    mix = np.random.default_rng(case[2] + 1)
    order = mix.permutation(case[0])
    other = order if paired else mix.permutation(case[0])

    def judged(a: Array, b: Array) -> Comparison:
        return over(own_runs(a), own_runs(b), paired=paired, statistic=statistic) if own else over(
            a, b, paired=paired, statistic=statistic
        )  # fmt: skip

    here = judged(first, second)
    assert _limits(judged(first[order], second[other])) == _limits(here)
    there = judged(second, first)
    assert _limits(there) == tuple(
        None if x is None else -x for x in (here.effect.value, here.effect.high, here.effect.low)
    )
    assert there.p_value == here.p_value


@settings(max_examples=25, deadline=None)
@given(TABLES, st.sampled_from(JACKKNIFED), st.booleans(), st.booleans(), st.sampled_from([0.25, 3.0, 1000.0]))
def test_differences_scale_with_the_scores_and_do_not_move_when_all_are_shifted(
    case: tuple[int, int, int], statistic: str, paired: bool, own: bool, scale: float
) -> None:
    first, second = _draw(case)
    both = [own_runs(first), own_runs(second)] if own else [[first], [second]]
    here = over(*both, paired=paired, statistic=statistic)
    moved = over(*([scale * (table + 7) for table in tables] for tables in both), paired=paired, statistic=statistic)
    if here.effect.low is not None and here.effect.high is not None and here.effect.value is not None:
        expected = [scale * x for x in (here.effect.value, here.effect.low, here.effect.high)]
        assert _limits(moved) == pytest.approx(expected, rel=1e-6, abs=1e-9 * scale)
        assert moved.p_value == pytest.approx(here.p_value, rel=1e-5)
    else:
        assert moved.reason == here.reason
