"""Numbers that others computed too: SciPy, statsmodels, rliable, enumeration, and closed forms.

Where the code calls SciPy itself, the oracle is a second way: every rearrangement gone through, or the definition.
"""

from __future__ import annotations

import json
import math
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, special, stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestIndPower, TTestPower

from fairtrial.stats import adjustments, aggregate, effects, families, power, variance
from fairtrial.stats.bootstrap import infer_bca, infer_percentile
from fairtrial.stats.certificate import t_intervals
from fairtrial.stats.compare import ComparisonConfig, compare_samples
from fairtrial.stats.diagnostics import bimodality, levene, shapiro_wilk
from fairtrial.stats.inference import SIDES, Inference
from fairtrial.stats.power import Design
from fairtrial.stats.samples import canonical
from fairtrial.stats.student import noncentral_cdf
from fairtrial.stats.times import compare_times

Array = NDArray[np.float64]
ALPHAS = (0.01, 0.05, 0.2, 0.4)
SIZES = (*range(2, 13), 16, 23, 30)
UNEQUAL = [(2, 2), (2, 3), (5, 4), (3, 15), (10, 11), (15, 3), (30, 30), (29, 30)]
RLIABLE = json.loads((Path(__file__).parent / "golden/rliable.json").read_text())["cases"]


def close(expected: Any) -> Any:
    return pytest.approx(expected, rel=1e-8, abs=1e-10)


def arms(n: int, m: int, shift: float = 0.4) -> tuple[Array, Array]:
    rng = np.random.default_rng([n, m])
    return rng.normal(1.0, 1.0, n), rng.normal(1.0 + shift, 2.0, m)


def infer(control: Array, candidate: Array, method: str, *, paired: bool) -> Inference:
    return ComparisonConfig(paired, method=method).infer(canonical(control, candidate, paired=paired), 0)


# Student


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("side", SIDES)
def test_the_paired_t_is_scipys(n: int, side: str) -> None:
    control, candidate = arms(n, n)
    ours, theirs = infer(control, candidate, "t", paired=True), stats.ttest_rel(candidate, control, alternative=side)
    assert ours.p_value(side) == close(theirs.pvalue)
    assert ours.detail["statistic"] == close(theirs.statistic) and ours.detail["df"] == theirs.df
    for alpha in ALPHAS:
        assert ours.interval(alpha, side) == close(tuple(theirs.confidence_interval(1 - alpha)))


@pytest.mark.parametrize(("n", "m"), UNEQUAL)
@pytest.mark.parametrize("side", SIDES)
def test_welchs_t_is_scipys(n: int, m: int, side: str) -> None:
    control, candidate = arms(n, m)
    ours = infer(control, candidate, "t", paired=False)
    theirs = stats.ttest_ind(candidate, control, equal_var=False, alternative=side)
    assert ours.p_value(side) == close(theirs.pvalue)
    assert ours.detail["statistic"] == close(theirs.statistic) and ours.detail["df"] == close(theirs.df)
    for alpha in ALPHAS:
        assert ours.interval(alpha, side) == close(tuple(theirs.confidence_interval(1 - alpha)))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("direction", ["max", "min"])
def test_a_comparison_carries_the_interval_and_p_of_its_side(side: str, direction: str) -> None:
    """Where less is better, asking for a better candidate means asking for a smaller one."""
    control, candidate = arms(7, 7)
    found = compare_samples(control, candidate, paired=True, side=side, direction=direction, alpha=0.1)
    mirrored = {"greater": "less", "less": "greater"}.get(side, side)
    alternative = side if direction == "max" else mirrored
    theirs = stats.ttest_rel(candidate, control, alternative=alternative)
    assert found.p_value == close(theirs.pvalue)
    assert (found.effect.low, found.effect.high) == close(tuple(theirs.confidence_interval(0.9)))
    both = stats.ttest_rel(candidate, control).confidence_interval(0.8)
    assert (found.equivalence.low, found.equivalence.high) == close(tuple(both))


@pytest.mark.parametrize("paired", [True, False])
def test_intervals_of_many_studies_at_once_are_those_of_each(paired: bool) -> None:
    rng = np.random.default_rng(3)
    control, candidate = rng.normal(size=(20, 6)), rng.normal(size=(20, 6 if paired else 7))
    low, high = t_intervals(control, candidate, paired=paired, alpha=0.05)
    for row in range(20):
        alone = infer(control[row], candidate[row], "t", paired=paired).interval(0.05)
        assert alone == close((low[row], high[row]))


# Bootstrap


def mean_difference(first: Array, second: Array, axis: int = -1) -> Array:
    return np.asarray(second.mean(axis=axis) - first.mean(axis=axis))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("function", "name"), [(infer_bca, "BCa"), (infer_percentile, "percentile")])
def test_the_bootstrap_of_pairs_is_scipys_on_the_same_resamples(n: int, function: Any, name: str) -> None:
    ordered = canonical(*arms(n, n), paired=True)
    ours = function(ordered, 999, np.random.default_rng(n))
    for side, alpha in [("two-sided", 0.05), ("two-sided", 0.3), ("greater", 0.1), ("less", 0.05)]:
        theirs = stats.bootstrap(
            (ordered.differences,), np.mean, n_resamples=999, confidence_level=1 - alpha, method=name,
            alternative=side, rng=np.random.default_rng(n),
        ).confidence_interval  # fmt: skip
        assert ours.interval(alpha, side) == close(tuple(theirs))


@pytest.mark.parametrize(("n", "m"), UNEQUAL)
@pytest.mark.parametrize(("function", "name"), [(infer_bca, "BCa"), (infer_percentile, "percentile")])
def test_the_bootstrap_of_two_arms_is_scipys_on_the_same_resamples(n: int, m: int, function: Any, name: str) -> None:
    ordered = canonical(*arms(n, m), paired=False)
    ours = function(ordered, 999, np.random.default_rng(n))
    for side, alpha in [("two-sided", 0.05), ("two-sided", 0.3), ("greater", 0.1), ("less", 0.05)]:
        theirs = stats.bootstrap(
            (ordered.first, ordered.second), mean_difference, n_resamples=999, confidence_level=1 - alpha,
            method=name, alternative=side, rng=np.random.default_rng(n),
        ).confidence_interval  # fmt: skip
        assert ours.interval(alpha, side) == close(tuple(theirs))


def test_blocks_of_resamples_are_the_same_draws_as_one_large_block(monkeypatch: pytest.MonkeyPatch) -> None:
    ordered = canonical(*arms(6, 6), paired=True)
    whole = infer_bca(ordered, 1000, np.random.default_rng(1)).interval(0.05)
    monkeypatch.setattr("fairtrial.stats.bootstrap.BLOCK", 60)
    assert infer_bca(ordered, 1000, np.random.default_rng(1)).interval(0.05) == whole


@pytest.mark.parametrize("method", ["bca", "percentile", "studentized"])
@pytest.mark.parametrize("paired", [True, False])
def test_a_bootstrap_p_is_the_error_rate_at_which_its_limit_meets_zero(method: str, paired: bool) -> None:
    """SciPy has no bootstrap p to compare with; it must agree with the limits."""
    control, candidate = arms(12, 12, shift=1.0)
    found = infer(control, candidate, method, paired=paired)
    assert found.lower(found.p_greater * 0.8) < 0 < found.lower(min(0.49, found.p_greater * 1.25))


# Rearrangements


@pytest.mark.parametrize("n", range(2, 13))
def test_the_sign_flip_test_is_scipys(n: int) -> None:
    control, candidate = arms(n, n)
    ours = infer(control, candidate, "sign-flip", paired=True)
    for side in SIDES:
        theirs = stats.permutation_test(
            (candidate - control,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative=side,
            vectorized=True,
        )  # fmt: skip
        assert ours.p_value(side) == close(theirs.pvalue)


@pytest.mark.parametrize(("n", "m"), [(2, 2), (2, 3), (3, 3), (4, 3), (5, 5), (5, 6), (7, 3), (3, 15)])
def test_the_permutation_test_is_scipys(n: int, m: int) -> None:
    control, candidate = arms(n, m)
    ours = infer(control, candidate, "permutation", paired=False)
    for side in SIDES:
        theirs = stats.permutation_test(
            (control, candidate), mean_difference, n_resamples=np.inf, alternative=side, vectorized=True
        )
        assert ours.p_value(side) == close(theirs.pvalue)


@pytest.mark.parametrize("method", ["sign-flip", "permutation"])
def test_tied_rearrangements_count_as_at_least_as_extreme(method: str) -> None:
    """In tenths, sums of the same numbers in another order differ in their last bit; they are ties all the same."""
    control, candidate = np.array([0.1, 0.2, 0.3, 0.4, 0.7]), np.array([0.2, 0.4, 0.3, 0.7, 0.8])
    ours = infer(control, candidate, method, paired=method == "sign-flip")
    whole = np.rint(control * 10), np.rint(candidate * 10)
    assert ours.p_greater == infer(*whole, method, paired=method == "sign-flip").p_greater
    pooled = np.concatenate(whole)
    if method == "sign-flip":
        flips = [
            sum(s * d for s, d in zip(signs, whole[1] - whole[0], strict=True)) for signs in product((-1, 1), repeat=5)
        ]
        expected = np.mean([flip >= (whole[1] - whole[0]).sum() for flip in flips])
    else:
        deals = [pooled[list(deal)].sum() for deal in combinations(range(10), 5)]
        expected = np.mean([deal >= whole[1].sum() for deal in deals])
    assert ours.p_greater == close(float(expected))


def test_sampled_rearrangements_estimate_the_exact_p() -> None:
    """At n = 20 flips are sampled; all 2²⁰ of them give the exact answer."""
    control, candidate = arms(20, 20, shift=1.0)
    differences = candidate - control
    sums = np.zeros(1)
    for difference in differences:
        sums = np.concatenate([sums - difference, sums + difference])
    exact = float((sums >= differences.sum() - 1e-12).mean())
    sampled = ComparisonConfig(True, method="sign-flip", resamples=50_000).infer(
        canonical(control, candidate, paired=True), 1
    )
    assert sampled.method == "sampled sign-flip"
    assert sampled.p_greater == pytest.approx(exact, abs=4 * math.sqrt(exact / 50_000))


@pytest.mark.parametrize("n", [*range(2, 13), 16, 23, 30])
def test_the_wilcoxon_test_is_scipys(n: int) -> None:
    control, candidate = arms(n, n)
    ours = infer(control, candidate, "wilcoxon", paired=True)
    for side in SIDES:
        assert ours.p_value(side) == close(stats.wilcoxon(candidate, control, alternative=side).pvalue)
    if n <= 12:
        ranks = stats.rankdata(np.abs(candidate - control))
        sums = np.array([sum(r for r, up in zip(ranks, ups, strict=True) if up) for ups in product((0, 1), repeat=n)])
        assert ours.p_greater == close(float((sums >= ranks[candidate > control].sum()).mean()))


@pytest.mark.parametrize("n", [4, 7, 9])
def test_with_ties_and_zeros_the_wilcoxon_test_is_scipys_too(n: int) -> None:
    control = np.zeros(n)
    candidate = np.round(np.random.default_rng(n).normal(0.4, 1, n), 0)
    ours = infer(control, candidate, "wilcoxon", paired=True)
    for side in ("two-sided", "greater", "less"):
        assert ours.p_value(side) == close(stats.wilcoxon(candidate, control, alternative=side).pvalue)


@pytest.mark.parametrize(("n", "m"), [(2, 2), (2, 3), (5, 4), (5, 6), (8, 8), (10, 11), (30, 30)])
def test_the_mann_whitney_test_is_scipys(n: int, m: int) -> None:
    control, candidate = arms(n, m)
    ours = infer(control, candidate, "mann-whitney", paired=False)
    for side in SIDES:
        theirs = [
            stats.mannwhitneyu(candidate, control, alternative=side, method=how).pvalue for how in ("auto", "exact")
        ]
        assert any(ours.p_value(side) == close(p) for p in theirs)
    if n * m <= 30:
        ranks = stats.rankdata(np.concatenate([control, candidate]))
        sums = np.array([ranks[list(deal)].sum() for deal in combinations(range(n + m), m)])
        assert ours.p_greater == close(float((sums >= ranks[n:].sum()).mean()))


INVERTED = [
    ("sign-flip", 6, 6), ("sign-flip", 8, 8), ("sign-flip", 12, 12),
    ("wilcoxon", 6, 6), ("wilcoxon", 9, 9), ("wilcoxon", 20, 20), ("wilcoxon", 30, 30),
    ("permutation", 4, 4), ("permutation", 5, 6), ("permutation", 7, 7),
    ("mann-whitney", 4, 4), ("mann-whitney", 5, 6), ("mann-whitney", 8, 8), ("mann-whitney", 3, 15),
    ("mann-whitney", 10, 10), ("mann-whitney", 15, 14), ("mann-whitney", 30, 30),
]  # fmt: skip


@pytest.mark.parametrize(("method", "n", "m"), INVERTED)
@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
def test_the_interval_of_a_rank_or_rearrangement_test_inverts_it(method: str, n: int, m: int, alpha: float) -> None:
    """A difference just inside the interval is not rejected, one just outside is."""
    control, candidate = arms(n, m)
    paired = method in ("sign-flip", "wilcoxon")
    low, high = infer(control, candidate, method, paired=paired).interval(alpha)
    step = 1e-7

    def p_of(shift: float) -> float:
        return infer(control + shift, candidate, method, paired=paired).p_two_sided

    for limit, inwards in ((low, step), (high, -step)):
        if math.isfinite(limit):
            assert p_of(limit + inwards) > alpha
            assert p_of(limit - inwards) <= alpha * (1 + 1e-12)


@pytest.mark.parametrize("n", range(2, 8))
def test_an_exact_interval_is_infinite_where_no_rearrangement_is_rare_enough(n: int) -> None:
    control, candidate = arms(n, n)
    assert math.isfinite(infer(control, candidate, "sign-flip", paired=True).lower(0.025)) == (2.0**-n <= 0.025)
    assert math.isfinite(infer(control, candidate, "wilcoxon", paired=True).lower(0.025)) == (2.0**-n <= 0.025)
    rarest = 1 / math.comb(2 * n, n)
    assert math.isfinite(infer(control, candidate, "permutation", paired=False).lower(0.025)) == (rarest <= 0.025)
    assert math.isfinite(infer(control, candidate, "mann-whitney", paired=False).lower(0.025)) == (rarest <= 0.025)


@pytest.mark.parametrize("n", [5, 8])
def test_the_values_of_rank_methods_are_the_hodges_lehmann_shifts(n: int) -> None:
    control, candidate = arms(n, n)
    d = candidate - control
    walsh = [(d[i] + d[j]) / 2 for i in range(n) for j in range(i, n)]
    assert infer(control, candidate, "wilcoxon", paired=True).value == close(float(np.median(walsh)))
    shifts = [x - y for x in candidate for y in control]
    assert infer(control, candidate, "mann-whitney", paired=False).value == close(float(np.median(shifts)))


def test_times_are_compared_by_rank_with_censored_runs_tied_last() -> None:
    control, candidate = np.array([40.0, 70, np.inf, np.inf, 90]), np.array([10.0, 30, 20, 80, np.inf])
    found = compare_times(control, candidate, 100.0, ComparisonConfig(False), names=("a", "b"))
    late = [np.where(np.isfinite(x), x, 1e9) for x in (control, candidate)]
    exact = stats.permutation_test(
        late, lambda x, y: stats.rankdata(np.concatenate([x, y]))[: len(x)].sum(), n_resamples=np.inf
    )  # fmt: skip
    assert found.p_value == close(exact.pvalue) and found.tests["exact"]
    assert (found.tests["reached_control"], found.tests["reached_candidate"]) == (0.6, 0.8)
    assert (found.mean_control, found.mean_candidate) == (80.0, 48.0)


# Checks of assumptions


@pytest.mark.parametrize(("n", "m"), [(3, 3), (5, 4), (10, 11), (30, 29)])
def test_diagnostics_are_scipys(n: int, m: int) -> None:
    first, second = arms(n, m)
    assert levene(first, second) == close(stats.levene(first, second, center="median").pvalue)
    assert shapiro_wilk(first) == close(stats.shapiro(first).pvalue)
    if n >= 5:
        skew, kurtosis = stats.skew(first, bias=False), stats.kurtosis(first, bias=False)
        sarle = (skew**2 + 1) / (kurtosis + 3 * (n - 1) ** 2 / ((n - 2) * (n - 3)))
        assert bimodality(first) == close(sarle)


def test_a_paired_comparison_checks_the_differences_and_an_unpaired_one_the_arms() -> None:
    control, candidate = arms(9, 9)
    paired = compare_samples(control, candidate, paired=True).diagnostics["shapiro_wilk_p"]
    assert paired == {"differences": close(stats.shapiro(candidate - control).pvalue)}
    unpaired = compare_samples(control, candidate, paired=False).diagnostics["shapiro_wilk_p"]
    assert unpaired["candidate"] == close(stats.shapiro(candidate).pvalue)
    assert unpaired["control"] == close(stats.shapiro(control).pvalue)


@pytest.mark.parametrize("n", [4, 5, 10, 30])
def test_the_correlation_of_pairs_is_scipys(n: int) -> None:
    first, second = arms(n, n)
    second = second + 0.5 * first
    ours, theirs = effects.correlation(first, second, 0.05), stats.pearsonr(first, second)
    assert ours.value == close(theirs.statistic)
    assert (ours.low, ours.high) == close(tuple(theirs.confidence_interval(0.95)))


# Families


@pytest.mark.parametrize(("arms_", "seeds"), [(3, 3), (4, 3), (6, 5), (15, 3)])
def test_tukeys_limit_and_p_are_those_of_the_studentized_range(arms_: int, seeds: int) -> None:
    layout = np.random.default_rng(arms_).normal(size=(arms_, seeds))
    freedom = (arms_ - 1) * (seeds - 1)
    assert families.tukey_quantile(0.95, arms_, freedom) == close(stats.studentized_range.ppf(0.95, arms_, freedom))
    left = layout - layout.mean(1, keepdims=True) - layout.mean(0, keepdims=True) + layout.mean()
    error = math.sqrt((left**2).sum() / freedom / seeds)
    ours = families.infer_tukey(layout, 0, 2)
    gap = layout[2].mean() - layout[0].mean()
    assert ours.value == close(gap)
    assert ours.p_two_sided == close(stats.studentized_range.sf(abs(gap) / error, arms_, freedom))
    reach = stats.studentized_range.ppf(0.95, arms_, freedom) * error
    assert ours.interval(0.05) == close((gap - reach, gap + reach))


@pytest.mark.parametrize(("arms_", "freedom", "tabled"), [(3, 10, 3.877), (4, 20, 3.958), (6, 5, 6.033), (2, 4, 3.927)])
def test_tukeys_limit_is_the_one_in_printed_tables(arms_: int, freedom: int, tabled: float) -> None:
    assert families.tukey_quantile(0.95, arms_, freedom) == pytest.approx(tabled, abs=6e-4)


def test_a_family_of_two_arms_is_a_paired_t() -> None:
    control, candidate = arms(6, 6)
    ours = families.infer_tukey(np.stack([control, candidate]), 0, 1)
    theirs = stats.ttest_rel(candidate, control)
    assert ours.interval(0.05) == pytest.approx(tuple(theirs.confidence_interval(0.95)), rel=1e-6)
    assert ours.p_two_sided == pytest.approx(theirs.pvalue, rel=1e-6)
    assert ours.detail["standard_error"] == close(theirs._standard_error)


def test_what_arms_and_seeds_do_not_explain_is_the_residual_of_a_two_way_fit() -> None:
    layout = np.random.default_rng(0).normal(size=(4, 5))
    design = np.array([[*np.eye(4)[a], *np.eye(5)[s]] for a in range(4) for s in range(5)])
    left = layout.ravel() - design @ np.linalg.lstsq(design, layout.ravel(), rcond=None)[0]
    found, freedom = families.residual_variance(layout)
    assert freedom == 12
    assert float(found) == close(float(left @ left) / 12)


@pytest.mark.slow
@pytest.mark.parametrize(("ours", "theirs"), [(adjustments.holm, "holm"), (adjustments.benjamini_hochberg, "fdr_bh")])
@pytest.mark.parametrize("count", [1, 2, 6, 15])
def test_adjusted_p_values_are_those_of_statsmodels(ours: Any, theirs: str, count: int) -> None:
    rng = np.random.default_rng(count)
    for p in (rng.random(count), rng.random(count) ** 4, np.round(rng.random(count), 1), np.ones(count)):
        assert ours(p.tolist()) == close(multipletests(p, method=theirs)[1].tolist())


# Sizes of effects


@pytest.mark.parametrize("n", [1, 2, 5, 14])
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_the_chance_to_win_has_scipys_clopper_pearson_limits(n: int, alpha: float) -> None:
    for wins in range(n + 1):
        gains = np.array([1.0] * wins + [-1.0] * (n - wins))
        ours = effects.paired_superiority(gains, alpha)
        theirs = stats.binomtest(wins, n).proportion_ci(1 - alpha, method="exact")
        assert (ours.low, ours.high) == close((theirs.low, theirs.high))


def test_five_wins_of_five_and_ties() -> None:
    all_won = effects.paired_superiority(np.ones(5), 0.05)
    assert (all_won.value, round(all_won.low or 0, 2), all_won.high) == (1.0, 0.48, 1.0)
    tied = effects.paired_superiority(np.array([1.0, 0.0, 0.0, -1.0]), 0.05)
    won = effects.paired_superiority(np.array([1.0, 1.0, -1.0, -1.0]), 0.05)
    assert tied == won and tied.value == 0.5


@pytest.mark.parametrize(("n", "m"), [(3, 3), (5, 4), (10, 11)])
def test_newcombes_limits_solve_his_equation(n: int, m: int) -> None:
    """(observed − θ)² = z² · var(θ), the variance under exponential shapes (Newcombe 2006, method 5)."""
    for shift in (-1.0, 0.0, 0.8):
        worse, better = arms(n, m, shift)
        found = effects.unpaired_superiority(worse, better, 0.05)
        u = stats.mannwhitneyu(better, worse).statistic
        assert found.value == close(u / (n * m))
        for limit in (found.low, found.high):
            assert limit is not None
            common = (n + m) / 2 - 1
            spread = limit * (1 - limit) / (n * m) * (1 + common * ((1 - limit) / (2 - limit) + limit / (1 + limit)))
            assert limit in (0.0, 1.0) or (u / (n * m) - limit) ** 2 == close(stats.norm.ppf(0.975) ** 2 * spread)


@pytest.mark.parametrize("n", [2, 3, 5, 10, 30])
@pytest.mark.parametrize("paired", [True, False])
def test_hedges_g_is_the_difference_over_the_mean_spread_freed_of_its_bias(n: int, paired: bool) -> None:
    control, candidate = arms(n, n)
    freedom = 2 * n - 2
    unbiased = math.gamma(freedom / 2) / (math.sqrt(freedom / 2) * math.gamma((freedom - 1) / 2))
    spread = (control.std(ddof=1) + candidate.std(ddof=1)) / 2
    found = effects.hedges_g(control, candidate, paired=paired, alpha=0.05)
    assert found.value == close((candidate.mean() - control.mean()) / spread * unbiased)
    assert found.value is not None and found.low is not None and found.high is not None
    assert found.low < found.value < found.high


@pytest.mark.parametrize(("statistic", "freedom"), [(-3.0, 2), (0.0, 4), (0.3, 1), (2.5, 9), (8.0, 14), (25.0, 4)])
def test_noncentrality_limits_make_the_statistic_just_not_too_extreme(statistic: float, freedom: int) -> None:
    low, high = effects.noncentrality_limits(statistic, freedom, 0.05)
    assert stats.nct.cdf(statistic, freedom, low) == pytest.approx(0.975, abs=1e-8)
    assert stats.nct.cdf(statistic, freedom, high) == pytest.approx(0.025, abs=1e-8)


def test_d_z_is_t_over_the_root_of_n() -> None:
    control, candidate = arms(8, 8)
    found = compare_samples(control, candidate, paired=True).d_z
    assert found is not None
    assert found.value == close(stats.ttest_rel(candidate, control).statistic / math.sqrt(8))


# How many seeds


@pytest.mark.parametrize("n", [2, 3, 5, 10, 30, 100])
@pytest.mark.parametrize("effect", [0.1, 0.5, 1.0, 2.0])
def test_power_is_that_of_statsmodels(n: int, effect: float) -> None:
    for alpha in (0.01, 0.05):
        for side, word in (("two-sided", "two-sided"), ("greater", "larger")):
            for paired, oracle in ((True, TTestPower()), (False, TTestIndPower())):
                theirs = oracle.power(effect, n, alpha, alternative=word)
                if not math.isnan(theirs):  # it gives up where the power is 1
                    assert power.power_of(effect, n, Design(paired, alpha, 0.8, side)) == close(theirs)


@pytest.mark.parametrize("freedom", [1, 2, 4, 14, 58])
def test_the_noncentral_t_holds_far_out(freedom: int) -> None:
    """SciPy's series gives up out there. P(Z + shift ≤ t √(χ²/df)), integrated over χ."""

    def integrated(shift: float, t: float) -> float:
        def density(chi: float) -> float:
            return float(stats.chi.pdf(chi, freedom) * special.ndtr(t * chi / math.sqrt(freedom) - shift))

        return float(integrate.quad(density, 0, 40, limit=400, points=[math.sqrt(freedom)], epsabs=1e-12)[0])

    for shift in (0.5, 5.0, 8.0, 16.0, 30.0):
        for tail in (0.005, 0.025, 0.1):
            for t in (special.stdtrit(freedom, tail), -special.stdtrit(freedom, tail)):
                expected = pytest.approx(integrated(shift, float(t)), abs=1e-7)
                assert noncentral_cdf(freedom, shift, float(t)) == expected, (shift, t)


@pytest.mark.parametrize(
    ("effect", "paired", "expected"),
    [(0.2, False, 394), (0.5, False, 64), (0.8, False, 26), (1.0, False, 17), (0.5, True, 34), (1.0, True, 10)],
)
def test_the_textbook_numbers_of_seeds(effect: float, paired: bool, expected: int) -> None:
    design = Design(paired)
    assert power.seeds_for(effect, design) == power.seeds_for(-effect, design) == expected
    assert power.power_of(effect, expected - 1, design) < 0.8 <= power.power_of(effect, expected, design)


def test_twenty_nine_seeds_see_three_wins_of_four() -> None:
    assert power.seeds_for_superiority(0.75, Design(False, 0.05, 0.95, "greater")) == 29


@pytest.mark.parametrize("paired", [True, False])
def test_what_can_be_detected_is_what_has_the_wanted_power(paired: bool) -> None:
    for n in (2, 3, 5, 30):
        for side in SIDES:
            design = Design(paired, 0.05, 0.8, side)
            found = power.detectable(n, 2.0, design)
            assert found is not None and power.power_of(found / 2.0, n, design) == pytest.approx(0.8, abs=1e-8)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("margin", [0.5, 1.0, 2.0])
def test_seeds_for_equivalence_are_the_fewest_that_a_simulation_needs(paired: bool, margin: float) -> None:
    n = power.seeds_for_equivalence(margin, Design(paired))
    assert n is not None

    def simulated(runs: int) -> float:
        rng = np.random.default_rng(runs)
        control, candidate = rng.standard_normal((2, 20_000, runs))
        low, high = t_intervals(control * (not paired), candidate, paired=paired, alpha=0.1)
        return float(((-margin < low) & (high < margin)).mean())

    assert simulated(n - 1) < 0.81 and simulated(n) > 0.79


def test_limits_of_a_standard_deviation_are_those_of_chi_square() -> None:
    for freedom in (1, 4, 29):
        expected = tuple(2.0 * math.sqrt(freedom / stats.chi2.ppf(q, freedom)) for q in (0.975, 0.025))
        assert power.sd_interval(2.0, freedom, 0.05) == close(expected)
        assert power.sd_upper(2.0, freedom, 0.8) == close(2.0 * math.sqrt(freedom / stats.chi2.ppf(0.2, freedom)))


@pytest.mark.parametrize(("cv", "expected"), [(0.05, 7), (0.10, 18), (0.20, 64)])
def test_the_golden_numbers_of_runs_at_five_percent(cv: float, expected: int) -> None:
    assert variance.enough_runs(cv, 0.05, 0.05) == expected
    z = np.random.default_rng(0).normal(size=40)
    sample = 1 + cv * (z - z.mean()) / z.std(ddof=1)
    found = variance.spread(sample, threshold=0.05)
    assert (found.n_min, found.enough, found.missing) == (expected, expected <= 40, max(0, expected - 40))
    assert found.cv == close(cv)
    low, high = found.n_range
    assert low is not None and high is not None and low <= expected <= high


def test_a_half_width_is_scipys() -> None:
    sample = arms(9, 9)[0]
    theirs = stats.ttest_1samp(sample, 0.0).confidence_interval(0.95)
    assert variance.half_width(float(sample.std(ddof=1)), 9, 0.05) == close((theirs.high - theirs.low) / 2)


# Many tasks


@pytest.mark.parametrize("case", RLIABLE, ids=[case["name"] for case in RLIABLE])
def test_point_values_over_tasks_are_rliables(case: dict[str, Any]) -> None:
    scores, other, expected = np.array(case["scores"]), np.array(case["other"]), case["expected"]

    def same(value: Any) -> Any:
        return pytest.approx(value, rel=1e-12, abs=1e-12)

    for name in ("mean", "median", "iqm", "optimality_gap"):
        found = aggregate.aggregate(scores, statistic=name, gamma=case["gamma"])
        assert found.value == same(expected[name])
    wins = aggregate.probability_of_improvement(other, scores)
    assert wins.value == same(expected["probability_of_improvement"])
    profile = aggregate.performance_profile(scores, np.array(case["taus"]))
    assert profile[0].tolist() == same(expected["profile"])


@pytest.mark.parametrize("runs", [2, 3, 5, 10])
@pytest.mark.parametrize("tasks", [1, 6, 26])
def test_the_mean_over_tasks_has_the_t_interval_of_per_run_means(runs: int, tasks: int) -> None:
    table = np.random.default_rng(runs).normal(size=(runs, tasks))
    found = aggregate.aggregate(table, statistic="mean")
    theirs = stats.ttest_1samp(table.mean(axis=1), 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == close(tuple(theirs))


@pytest.mark.parametrize("runs", [3, 5, 10])
def test_over_many_tasks_deviations_of_the_bootstrap_are_scaled_up(runs: int) -> None:
    table = np.random.default_rng(runs).normal(size=(runs, 26))
    found = aggregate.aggregate(table, statistic="mean", method="bootstrap", resamples=20_000)
    assert found.low is not None and found.high is not None
    unscaled = math.sqrt((table.var(axis=0) / runs).sum()) / 26
    expected = 2 * stats.norm.ppf(0.975) * unscaled * math.sqrt(runs / (runs - 1))
    assert found.high - found.low == pytest.approx(expected, rel=0.05)
