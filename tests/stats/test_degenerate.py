"""Data that carry no conclusion: there is a reason and no number that looks sure, or an error that says what is wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairtrial.core.errors import FairtrialError, InvalidOptions, UserError
from fairtrial.core.findings import Comparison, Estimate
from fairtrial.stats import adjustments, aggregate, diagnostics, effects, families, power, variance
from fairtrial.stats.certificate import certify
from fairtrial.stats.compare import ComparisonConfig, compare_samples, methods_for
from fairtrial.stats.power import Design
from fairtrial.stats.summaries import SummaryRule, summarise, tidy, windows_of
from fairtrial.stats.tasks import TaskConfig, compare_tasks
from fairtrial.stats.times import compare_times

NAN, INF = math.nan, math.inf
DUST = 0.1 + 0.2 - 0.3
WAYS = [(True, method) for method in methods_for("paired")] + [(False, method) for method in methods_for("unpaired")]
every_way = pytest.mark.parametrize(("paired", "method"), WAYS)
both_ways = pytest.mark.parametrize("paired", [True, False])

EMPTY = {
    "nothing": ([], [], "too few runs"),
    "one run": ([1.0], [2.0], "too few runs"),
    "one run after losses": ([1.0, NAN, NAN], [2.0, 3.0, NAN], "too few runs"),
    "all lost": ([NAN, NAN, NAN], [NAN, INF, -INF], "too few runs"),
    "one arm lost": ([NAN, NAN, NAN], [1.0, 2.0, 3.0], "too few runs"),
    "all equal": ([1.0] * 4, [1.0] * 4, "no variation"),
    "two constants": ([1.0] * 4, [2.0] * 4, "no variation"),
    "constants with dust": ([0.3, 0.1 + 0.2, 0.3], [0.1 + 0.2, 0.3, 0.3], "no variation"),
    "zeros": ([0.0, -0.0, 0.0], [-0.0, 0.0, 0.0], "no variation"),
    "large constants with dust": ([1e9 + 0.1 + 0.2, 1e9 + 0.3, 1e9 + 0.3], [1e9] * 3, "no variation"),
}
CONSTANT_DIFFERENCES = {
    "the same runs": ([0.1, 0.2, 0.7], [0.1, 0.2, 0.7]),
    "one tenth more": ([0.1, 0.2, 0.3, 0.7], [0.1 + 0.1, 0.2 + 0.1, 0.3 + 0.1, 0.7 + 0.1]),
    "thirds": ([1 / 3, 2 / 3, 10 / 3], [1 / 3 + 0.1, 2 / 3 + 0.1, 10 / 3 + 0.1]),
    "dust itself": ([0.3, 0.6, 0.9], [0.3 + DUST, 0.6 - DUST, 0.9 + DUST]),
    "large": ([1e6 + 0.1, 1e6 + 0.2, 1e6 + 0.4], [1e6 + 0.2, 1e6 + 0.3, 1e6 + 0.5]),
}


def has_no_conclusion(found: Comparison, reason: str) -> None:
    assert (found.verdict, found.reason) == ("inconclusive", reason)
    assert (found.p_value, found.significant, found.equivalent, found.exceeds_sesoi) == (None, None, None, None)
    for estimate in (found.effect, found.equivalence):
        assert (estimate.low, estimate.high, estimate.reason) == (None, None, reason)
    for estimate in (found.hedges_g, found.d_z, found.superiority):
        assert estimate is None or estimate.low is None
    assert found.detectable is None and found.seeds_needed is None
    json.dumps(found.to_dict(), allow_nan=False)
    assert str(found).startswith("Inconclusive") and "p =" not in str(found) and "nan" not in str(found)


@every_way
@pytest.mark.parametrize("case", EMPTY)
@pytest.mark.parametrize("sesoi", [None, 0.5])
def test_data_without_evidence_have_a_reason_and_no_interval(
    paired: bool, method: str, case: str, sesoi: float | None
) -> None:
    control, candidate, reason = EMPTY[case]
    has_no_conclusion(compare_samples(control, candidate, paired=paired, method=method, sesoi=sesoi), reason)


@pytest.mark.parametrize("method", methods_for("paired"))
@pytest.mark.parametrize("case", CONSTANT_DIFFERENCES)
def test_pairs_that_differ_by_one_constant_are_no_evidence(method: str, case: str) -> None:
    """Up to the last digits of floating point, whose noise is none of the training's."""
    control, candidate = CONSTANT_DIFFERENCES[case]
    has_no_conclusion(compare_samples(control, candidate, paired=True, method=method), "no variation")


@settings(max_examples=60, deadline=None)
@given(
    control=st.lists(st.floats(-1e6, 1e6, allow_nan=False), min_size=2, max_size=8),
    shift=st.floats(-1e3, 1e3, allow_nan=False),
)
def test_any_constant_shift_is_no_evidence(control: list[float], shift: float) -> None:
    found = compare_samples(control, [x + shift for x in control], paired=True)
    has_no_conclusion(found, "no variation")


@both_ways
def test_lost_runs_are_told_even_where_nothing_is_left(paired: bool) -> None:
    found = compare_samples([NAN, NAN], [NAN, NAN], paired=paired)
    assert found.reliability is not None
    assert (found.reliability.lost_control, found.reliability.lost_candidate) == (2, 2)
    assert found.reliability.p_value is None and found.mean_control is None and found.effect.value is None


def test_one_arm_that_does_not_vary_is_compared_and_cautioned() -> None:
    found = compare_samples([1.0] * 5, [2.0, 2.1, 1.9, 2.2, 1.8], paired=False)
    assert found.verdict == "better"
    assert found.effect.low is not None and found.effect.high is not None and found.effect.low < found.effect.high
    assert "arms differ in shape" in [caution["code"] for caution in found.cautions]


@every_way
@pytest.mark.parametrize(
    ("control", "candidate"),
    [
        ([1, 1, 2, 2, 2], [1, 2, 2, 2, 3]),
        ([0, 0, 0, 0, 1], [0, 0, 0, 0, 0]),
        ([1, 2, 3, 4, 5], [1, 2, 3, 4, 9]),
        ([1, 2, 3, 4, 5], [5, 4, 3, 2, 1]),
        ([0, 1], [1, 1]),
        ([0, 1, 0, 1], [1, 0, 1, 0]),
    ],
)
def test_ties_are_judged_without_a_word_of_warning(
    paired: bool, method: str, control: list[float], candidate: list[float]
) -> None:
    found = compare_samples(control, candidate, paired=paired, method=method, resamples=500)
    assert found.p_value is not None and 0 < found.p_value <= 1
    low, high = found.effect.low, found.effect.high
    assert (low is None) == (high is None) == (found.reason == "method needs more runs")
    assert low is None or high is None or low < high


@pytest.mark.parametrize("method", ["bca", "percentile"])
@both_ways
def test_a_bootstrap_of_few_runs_stands_next_to_the_default_and_is_not_the_verdict(method: str, paired: bool) -> None:
    """Two pairs gave "better, p < 1e-4"; equal arms of 2, 3 and 5 runs were told apart in 48, 32 and 16 % of studies."""
    control, candidate = [0.0, 0.1, 0.3], [1.0, 1.1, 1.2]
    found = compare_samples(control, candidate, paired=paired, method=method)
    default = compare_samples(control, candidate, paired=paired)
    assert (found.effect, found.p_value, found.verdict) == (default.effect, default.p_value, default.verdict)
    assert found.bootstrap is not None and found.bootstrap.low is not None
    assert "bootstrap at few seeds" in [caution["code"] for caution in found.cautions]


@pytest.mark.parametrize("method", ["bca", "percentile", "studentized"])
@both_ways
def test_a_bootstrap_of_enough_runs_is_the_verdict(method: str, paired: bool) -> None:
    rng = np.random.default_rng(0)
    found = compare_samples(rng.normal(size=10), rng.normal(size=10), paired=paired, method=method)
    assert found.bootstrap is None and method.lower()[:3] in found.method.lower()
    assert "bootstrap at few seeds" not in [caution["code"] for caution in found.cautions]


def test_two_pairs_of_a_bootstrap_prove_nothing() -> None:
    found = compare_samples([0.5, 0.51], [0.6, 0.62], paired=True, method="bca")
    assert found.method == "paired t" and (found.p_value or 0) > 1e-4


@both_ways
@pytest.mark.parametrize("scale", [1e-30, 1e30, 1e-200, 1e200])
def test_numbers_of_any_size_are_judged_or_refused(paired: bool, scale: float) -> None:
    """A loss may come close to overflow before it gets there; that must not end in a trace."""
    control, candidate = np.array([1.0, 2.0, 3.0, 4.0, 6.0]), np.array([2.0, 5.0, 3.5, 4.5, 7.0])
    plain = compare_samples(control, candidate, paired=paired)
    try:
        found = compare_samples(scale * control, scale * candidate, paired=paired)
    except FairtrialError:
        return
    assert found.verdict == plain.verdict
    assert found.p_value is None or found.p_value == pytest.approx(plain.p_value)


# Wrong questions


@both_ways
def test_everything_that_is_wrong_with_a_question_is_said_at_once(paired: bool) -> None:
    with pytest.raises(InvalidOptions) as caught:
        compare_samples(
            [1, 2],
            [2, 3],
            paired=paired,
            alpha=0.7,
            side="bigger",
            sesoi=-1,
            method="ttest",
            direction="up",
            resamples=5,
        )
    said = [caught.value.message, *caught.value.problems]
    assert len(said) == 6
    for word, sentence in zip(("alpha", "side", "sesoi", "method", "direction", "resamples"), said, strict=True):
        assert word in sentence


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"alpha": 0.0}, "alpha must lie between"),
        ({"alpha": 0.5}, "alpha must lie between"),
        ({"alpha": 1.0}, "alpha must lie between"),
        ({"alpha": -0.05}, "alpha must lie between"),
        ({"alpha": NAN}, "alpha must lie between"),
        ({"alpha": 95}, "alpha must lie between"),
        ({"sesoi": 0.0}, "sesoi must be a positive number"),
        ({"sesoi": NAN}, "sesoi must be a positive number"),
        ({"sesoi": INF}, "sesoi must be a positive number"),
        ({"side": "two_sided"}, "did you mean 'two-sided'"),
        ({"side": ""}, "unknown side"),
        ({"method": "wilcoxn"}, "did you mean 'wilcoxon'"),
        ({"method": "T"}, "unknown method"),
        ({"direction": "maximum"}, "unknown direction"),
        ({"resamples": 99}, "resamples must be at least 100"),
        ({"resamples": -1}, "resamples must be at least 100"),
    ],
)
def test_a_wrong_question_is_named(terms: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOptions, match=message):
        compare_samples([1, 2, 3], [2, 3, 5], paired=True, **terms)


@pytest.mark.parametrize(
    ("paired", "method"), [(False, "sign-flip"), (False, "wilcoxon"), (True, "permutation"), (True, "mann-whitney")]
)
def test_a_method_for_the_other_pairing_is_refused(paired: bool, method: str) -> None:
    with pytest.raises(InvalidOptions, match=f"is for {'unpaired' if paired else 'paired'} runs"):
        compare_samples([1, 2, 3], [2, 3, 5], paired=paired, method=method)


@pytest.mark.parametrize(
    ("control", "candidate", "message"),
    [
        ([1, 2, 3], [1, 2], "cannot be paired one to one"),
        ([], [1.0], "cannot be paired one to one"),
        (["high", 2], [1, 2], "control contains a value that is not a number"),
        ([1, 2], [[1, 2], [3, 4]], "candidate must be a list of numbers"),
        (3.0, [1, 2], "control must be a list of numbers"),
        ([1, 2], [[1, 2], [3]], "candidate contains a value that is not a number"),
    ],
)
def test_samples_that_are_none_are_refused(control: Any, candidate: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        compare_samples(control, candidate, paired=True)


@pytest.mark.parametrize("n", [0, 1])
@both_ways
def test_no_design_without_runs_is_certified(n: int, paired: bool) -> None:
    with pytest.raises(FairtrialError):
        certify(np.zeros(n), np.zeros(n), ComparisonConfig(paired), repeats=100)


# Families


@pytest.mark.parametrize("adjustment", ["auto", "max-spread", "tukey", "holm", "bh"])
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda _: np.full(5, NAN), "too few runs"),
        (lambda base: base + 1.0, "no variation"),
        (lambda base: base.copy(), "no variation"),
        (lambda base: np.where(np.arange(5) == 2, base + 1, NAN), "too few runs"),
    ],
)
def test_an_arm_without_evidence_has_no_verdict_in_a_family(
    adjustment: str, make: Callable[[Any], Any], reason: str
) -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(size=5)
    arms = {"a": base, "b": make(base), "c": rng.normal(size=5)}
    found = {each.candidate: each for each in families.compare_family(arms, "a", ComparisonConfig(True), adjustment)}
    if (
        found["b"].reliability is not None and found["b"].reliability.lost_candidate > 3
    ):  # that is evidence of another kind
        assert (found["b"].verdict, found["b"].reason) == ("worse", "reliability")
    else:
        assert (found["b"].verdict, found["b"].reason) == ("inconclusive", reason)
    assert found["b"].adjusted_p is None and found["b"].effect.low is None


@pytest.mark.parametrize("adjustment", ["auto", "max-spread", "tukey", "holm", "bh"])
@pytest.mark.parametrize("seeds", [0, 1])
def test_a_family_without_seeds_has_no_verdicts(adjustment: str, seeds: int) -> None:
    arms = {name: np.ones(seeds) for name in "abc"}
    for each in families.compare_family(arms, "a", ComparisonConfig(True), adjustment):
        has_no_conclusion(each, "too few runs")


def test_families_that_are_none() -> None:
    assert adjustments.holm([]) == adjustments.benjamini_hochberg([]) == []
    assert families.compare_family({"a": np.ones(3)}, "a", ComparisonConfig(True), "tukey") == []
    arms = {name: np.arange(3.0) for name in "abc"}
    with pytest.raises(InvalidOptions, match="unknown family adjustment 'tuckey'; did you mean 'tukey'"):
        families.compare_family(arms, "a", ComparisonConfig(True), "tuckey")
    for config in (
        ComparisonConfig(False),
        ComparisonConfig(True, side="greater"),
        ComparisonConfig(True, method="wilcoxon"),
    ):
        with pytest.raises(InvalidOptions, match="Tukey's limit applies only to two-sided paired t tests"):
            families.compare_family(arms, "a", config, "tukey")


# Many tasks

TABLE = np.array([[0.1, 0.5, 0.9], [0.2, 0.4, 0.7], [0.4, 0.3, 0.8]])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (np.zeros((0, 3)), "must be a table of runs × tasks"),
        (np.zeros((3, 0)), "must be a table of runs × tasks"),
        (np.zeros(3), "must be a table of runs × tasks"),
        (np.zeros((2, 2, 2)), "must be a table of runs × tasks"),
        ([], "must be a table of runs × tasks"),
        ([[1, 2], [3]], "without missing values"),
        ([["a", "b"]], "must be a table of numbers"),
        ([[1, NAN], [INF, 2]], r"contains values that are not finite \(2 of them\)"),
    ],
)
def test_tables_that_are_none_are_refused(table: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        aggregate.aggregate(table)
    with pytest.raises(UserError, match=message):
        aggregate.probability_of_improvement(table, TABLE)
    with pytest.raises(UserError, match=message):
        aggregate.performance_profile(table, np.array([0.5]))


@pytest.mark.parametrize("statistic", list(aggregate.STATISTICS))
@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (TABLE[:1], "too few runs"),
        (TABLE[:1, :1], "too few runs"),
        (np.full((4, 3), 0.5), "no variation"),
        (np.full((4, 24), 0.5), "no variation"),
        (np.tile(TABLE[0], (4, 1)), "no variation"),
        (np.array([[0.3, 0.5], [0.1 + 0.2, 0.5]] * 2), "no variation"),
    ],
)
def test_a_table_without_evidence_has_no_interval(statistic: str, table: Any, reason: str) -> None:
    _has_no_interval(aggregate.aggregate(table, statistic=statistic), reason)


def _has_no_interval(found: Estimate, reason: str) -> None:
    assert found.value is not None
    assert (found.low, found.high, found.reason) == (None, None, reason)


@pytest.mark.parametrize(
    ("table", "statistic"),
    [
        (np.array([[0.0, 1.0], [1.0, 0.0]]), "mean"),
        (np.array([[0.1 + 0.2, 0.3], [0.3, 0.1 + 0.2], [0.1, 0.5]]), "mean"),
        (np.array([[0.0, 1.0, 5.0], [0.0, 1.0, 6.0], [0.0, 1.0, 7.0]]), "median"),
        (np.array([[0.0, 1.0, 5.0], [0.0, 1.0, 6.0], [0.0, 1.0, 7.0]]), "optimality_gap"),
        (np.array([[1.0] * 22 + [5.0 + run] for run in range(3)]), "iqm"),
    ],
)
def test_an_aggregate_that_no_run_can_move_has_no_interval(table: Any, statistic: str) -> None:
    """Runs differ, but what is asked of them does not: a width of zero would look like certainty."""
    _has_no_interval(aggregate.aggregate(table, statistic=statistic), "no variation")


def test_one_task_is_a_table_too() -> None:
    found = aggregate.aggregate(TABLE[:, :1], statistic="mean")
    assert found.low is not None and found.high is not None and found.low < found.high
    codes = [caution["code"] for caution in aggregate.aggregate(TABLE[:, :1]).cautions]
    assert codes == ["few tasks", "one-arm interval"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"statistic": "iqr"}, "unknown statistic 'iqr'; did you mean 'iqm'"),
        ({"level": 1.0}, "level must lie between"),
        ({"level": 95}, "level must lie between"),
        ({"level": NAN}, "level must lie between"),
        ({"method": "bootstrap", "resamples": 10}, "resamples must be at least 100"),
        ({"method": "jacknife"}, "unknown method 'jacknife'; did you mean 'jackknife'"),
        ({"resamples": 1000}, "the jackknife does not resample"),
    ],
)
def test_wrong_questions_on_tables_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOptions, match=message):
        aggregate.aggregate(TABLE, **options)


def test_improvement_without_evidence_has_no_interval() -> None:
    _has_no_interval(aggregate.probability_of_improvement(TABLE[:1], TABLE), "too few runs")
    _has_no_interval(aggregate.probability_of_improvement(TABLE, TABLE + 5), "no variation")
    _has_no_interval(aggregate.probability_of_improvement(np.ones((3, 2)), np.ones((4, 2))), "no variation")
    with pytest.raises(UserError, match="have 2 and 3 tasks"):
        aggregate.probability_of_improvement(TABLE[:, :2], TABLE)


def test_bands_of_one_run_are_unknown() -> None:
    for middle, low, high in (
        aggregate.performance_profile(TABLE[:1], np.array([0.2, 0.6])), aggregate.mean_curve(TABLE[:1]),
    ):  # fmt: skip
        assert np.isfinite(middle).all() and np.isnan(low).all() and np.isnan(high).all()


def over_tasks(control: Any, candidate: Any, *, paired: bool = False, statistic: str | None = None) -> Comparison:
    how = TaskConfig(statistic, resamples=300)
    return compare_tasks(control, candidate, ComparisonConfig(paired), how, names=("a", "b"))


def wide_table(runs: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(runs, 24))


@both_ways
@pytest.mark.parametrize(
    ("control", "candidate", "reason"),
    [
        (wide_table(1), wide_table(1, 1), "too few runs"),
        (np.full((3, 24), NAN), np.full((3, 24), NAN), "too few runs"),
        (np.ones((3, 24)), np.ones((3, 24)), "no variation"),
        (np.ones((3, 4)), np.ones((3, 4)) + 1, "no variation"),
    ],
)
def test_tasks_without_evidence_have_a_reason_and_no_interval(
    paired: bool, control: Any, candidate: Any, reason: str
) -> None:
    has_no_conclusion(over_tasks(control, candidate, paired=paired), reason)


@both_ways
@pytest.mark.parametrize("lost", [NAN, INF, -INF])
@pytest.mark.parametrize("tasks", [4, 24])
def test_a_run_that_lost_a_task_is_counted(paired: bool, lost: float, tasks: int) -> None:
    control, candidate = wide_table(5)[:, :tasks], wide_table(5, 1)[:, :tasks]
    candidate[2, 1] = lost
    found = over_tasks(control, candidate, paired=paired)
    assert found.reliability is not None
    assert (found.reliability.lost_control, found.reliability.lost_candidate) == (0, 1)
    assert found.n_candidate == 4
    assert "lost runs" in [caution["code"] for caution in found.cautions]


def test_tables_that_do_not_fit_each_other_are_refused() -> None:
    with pytest.raises(UserError, match="have 3 and 2 tasks"):
        over_tasks(TABLE, TABLE[:, :2])
    with pytest.raises(UserError):
        over_tasks(TABLE, TABLE[:2], paired=True)
    with pytest.raises(InvalidOptions, match="unknown statistic"):
        over_tasks(TABLE, TABLE + wide_table(3)[:, :3], statistic="iqr")


def test_a_difference_that_no_run_can_move_is_no_evidence() -> None:
    """One wild task of 24 moves the mean of each run, but never the interquartile mean."""
    control = np.tile(np.linspace(0, 1, 24), (3, 1))
    candidate = control + 0.1
    control[:, 23], candidate[:, 23] = [50, 60, 80], [90, 70, 55]
    found = over_tasks(control, candidate)
    assert found.verdict == "inconclusive" and found.effect.low is None


# One arm


@pytest.mark.parametrize(
    ("sample", "reason"),
    [
        ([], "too few runs"),
        ([1.0], "too few runs"),
        ([1.0, 1.0, 1.0], "no variation"),
        ([0.3, 0.1 + 0.2, 0.3], "no variation"),
        ([-1.0, 0.0, 1.0], "the mean's interval contains zero"),
        ([0.1, 5.0], "the mean's interval contains zero"),
    ],
)
def test_an_arm_without_evidence_has_no_number_of_runs(sample: list[float], reason: str) -> None:
    found = variance.spread(np.array(sample), threshold=0.05)
    assert found.reason is not None and found.reason.startswith(reason)
    assert (found.n_min, found.n_range, found.enough, found.missing, found.curve) == (
        None,
        (None, None),
        None,
        None,
        (),
    )
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("lost", [NAN, INF])
def test_an_arm_with_lost_runs_is_refused_or_without_a_number(lost: float) -> None:
    try:
        found = variance.spread(np.array([1.0, 1.1, lost, 1.2]), threshold=0.05)
    except FairtrialError:
        return
    assert found.reason is not None and found.n_min is None
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    "options", [{"threshold": 0.0}, {"threshold": -1.0}, {"threshold": NAN}, {"threshold": 0.1, "level": 95}]
)
def test_wrong_thresholds_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidOptions):
        variance.spread(np.array([1.0, 2.0, 3.0]), **options)


def test_questions_on_power_that_have_no_answer() -> None:
    for design in (Design(True), Design(False)):
        assert power.seeds_for(0.0, design) is None
        assert power.seeds_for(1e-6, design) is None
        assert power.seeds_for_superiority(0.5, design) is None
        assert power.detectable(1, 1.0, design) is None
        assert power.detectable(0, 1.0, design) is None
        assert power.detectable(5, 0.0, design) is None
        assert power.detectable(5, NAN, design) is None


def test_checks_of_too_little_are_unknown() -> None:
    two, three, constant = np.array([1.0, 2.0]), np.array([1.0, 2.0, 4.0]), np.ones(6)
    assert diagnostics.shapiro_wilk(two) is diagnostics.shapiro_wilk(constant) is None
    assert diagnostics.levene(two, three) is diagnostics.levene(constant, constant) is None
    assert diagnostics.bimodality(three) is diagnostics.bimodality(constant) is None
    for first, second, reason in ((two, two, "too few runs"), (constant, np.arange(6.0), "no variation")):
        found = effects.correlation(first, second, 0.05)
        assert (found.value, found.low, found.reason) == (None, None, reason)
    without = effects.hedges_g(constant, constant, paired=False, alpha=0.05)
    assert (without.value, without.low, without.reason) == (None, None, "no variation")
    assert effects.correlation(three, 2 * three, 0.05).low is None


# Times


@pytest.mark.parametrize(
    ("control", "candidate", "reason"),
    [
        ([], [], "too few runs"),
        ([5.0], [INF, 3.0], "too few runs"),
        ([INF] * 4, [INF] * 4, "no variation"),
        ([7.0] * 4, [7.0] * 4, "no variation"),
    ],
)
def test_times_without_evidence_have_a_reason(control: list[float], candidate: list[float], reason: str) -> None:
    found = compare_times(np.array(control), np.array(candidate), 10.0, ComparisonConfig(False), names=("a", "b"))
    assert (found.verdict, found.p_value, found.effect.low) == ("inconclusive", None, None)
    assert found.reason == reason


@pytest.mark.parametrize("method", ["bca", "percentile", "studentized", "permutation", "sign-flip"])
def test_means_of_censored_times_are_refused(method: str) -> None:
    config = ComparisonConfig(method in methods_for("paired"), method=method)
    with pytest.raises(UserError, match="needs every run to reach the threshold"):
        compare_times(np.array([1.0, INF]), np.array([2.0, 3.0]), 10.0, config, names=("a", "b"))


def test_censored_times_have_no_interval_of_means() -> None:
    found = compare_times(
        np.array([1.0, 2, 3, INF]), np.array([5.0, 6, INF, INF]), 10.0, ComparisonConfig(False), names=("a", "b")
    )
    assert (found.effect.low, found.effect.high, found.effect.reason) == (None, None, "censored")
    assert found.detectable is None and found.seeds_needed is None and found.hedges_g is None


# Series


@pytest.mark.parametrize(
    ("steps", "values", "rule", "window", "reason"),
    [
        ([], [], SummaryRule("last"), None, "never logged"),
        ([0, 1, 2], [1, 2, 3], SummaryRule("auc"), (0.0, 5.0), "too short: ends at step 2"),
        ([3, 4, 5], [1, 2, 3], SummaryRule("auc"), (0.0, 5.0), "too short: begins at step 3"),
        ([3, 4, 5], [1, 2, 3], SummaryRule("slope"), (0.0, 5.0), "too short: begins at step 3"),
        ([0, 1, 2], [1, NAN, 3], SummaryRule("auc"), None, "auc is not finite"),
        ([0, 1, 2], [1, INF, 3], SummaryRule("slope"), None, "slope is not finite"),
        ([0, 1, 2], [1, 2, NAN], SummaryRule("last"), None, "last is not finite"),
        ([0, 1, 2], [NAN, NAN, NAN], SummaryRule("best"), None, "best is not finite"),
        ([1], [5], SummaryRule("auc"), None, "too few points in the window"),
        ([1], [5], SummaryRule("slope"), None, "too few points in the window"),
        ([0, 10], [1, 2], SummaryRule("last"), (2.0, 8.0), "too few points in the window"),
        ([0, 1, 2], [1, 2, 3], SummaryRule("time_to", threshold=9.0), (0.0, 5.0), "too short: ends at step 2"),
        ([0, 1, 2], [NAN, NAN, NAN], SummaryRule("time_to", threshold=9.0), None, "did not reach the threshold"),
    ],
)
def test_a_series_without_its_number_says_why(
    steps: list[float], values: list[float], rule: SummaryRule, window: tuple[float, float] | None, reason: str
) -> None:
    found = summarise(tidy(steps, values), rule, window, "max")
    assert found.value is None and found.reason is not None and found.reason.startswith(reason)
    assert math.isnan(found.number)


def test_runs_of_nothing_have_no_common_window() -> None:
    assert windows_of({"a": []}, SummaryRule("auc")) == {"a": None}
    assert windows_of({"a": [tidy([], [])]}, SummaryRule("auc")) == {"a": None}


def test_everything_that_is_wrong_with_a_rule_is_said_at_once() -> None:
    with pytest.raises(InvalidOptions) as caught:
        SummaryRule("area", (5.0, 2.0), 1.5, "end", 0, 3.0).check()
    assert len([caught.value.message, *caught.value.problems]) == 7


@pytest.mark.parametrize(
    "rule",
    [
        SummaryRule("auc", window=(1.0, 1.0)), SummaryRule("auc", window=(NAN, 1.0)), SummaryRule("auc", percent=0.0),
        SummaryRule("auc", percent=NAN), SummaryRule("auc", percent=-0.5), SummaryRule("time_to"), SummaryRule("last", points=0),
        SummaryRule("auc", window=(0.0, 1.0), percent=0.5),
    ],
)  # fmt: skip
def test_wrong_rules_are_refused(rule: SummaryRule) -> None:
    with pytest.raises(InvalidOptions):
        rule.check()
