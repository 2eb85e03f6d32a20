"""One arm against a fixed value: equal to SciPy, calibrated, capped by lost runs, and indifferent to order and units."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from fairtrial.core.errors import InvalidOptions
from fairtrial.core.findings import Comparison, Verdict
from fairtrial.stats.compare import ComparisonConfig
from fairtrial.stats.holm import judge_by_holm
from fairtrial.stats.student import from_t, paired_parts
from fairtrial.stats.target import compare_arms_to_target, compare_to_target

LOSSES = [3.271, 3.268, 3.279, 3.266, 3.275, 3.27]
few = settings(max_examples=40, deadline=None)
values = st.floats(-100, 100).map(lambda x: round(x, 3) + 0.0)
samples = st.lists(values, min_size=2, max_size=9)


def codes(found: Comparison) -> set[str]:
    return {caution["code"] for caution in found.cautions}


# Equal to SciPy


@pytest.mark.parametrize("n", [2, 3, 5, 8, 15, 30])
@pytest.mark.parametrize("side", ["two-sided", "greater", "less"])
def test_p_value_and_interval_are_those_of_scipy(n: int, side: str) -> None:
    sample = np.random.default_rng(n).lognormal(size=n)
    found = compare_to_target(sample, 1.3, side=side)
    theirs = stats.ttest_1samp(sample, 1.3, alternative=side)
    limits = theirs.confidence_interval(0.95)
    assert found.p_value == pytest.approx(theirs.pvalue, rel=1e-10)
    for ours, other in ((found.effect.low, limits.low), (found.effect.high, limits.high)):
        assert ours == pytest.approx(other - 1.3, rel=1e-10, abs=1e-10)
    assert found.tests["df"] == n - 1


def test_a_known_sd_gives_the_z_interval() -> None:
    found = compare_to_target(LOSSES, 3.28, known_sd=0.005, direction="min")
    mean, error = float(np.mean(LOSSES)) - 3.28, 0.005 / math.sqrt(6)
    assert found.method == "one-sample z"
    assert found.p_value == pytest.approx(2 * stats.norm.sf(abs(mean) / error), rel=1e-10)
    assert found.effect.low == pytest.approx(mean - stats.norm.isf(0.025) * error, rel=1e-10)
    assert found.detectable == pytest.approx((stats.norm.isf(0.025) + stats.norm.isf(0.2)) * error, rel=1e-10)


@pytest.mark.parametrize(("sesoi", "equivalent"), [(0.0121, False), (0.0125, True)])
def test_equivalence_is_two_one_sided_tests(sesoi: float, equivalent: bool) -> None:
    """By hand: both tests at 5 %, against target ± SESOI."""
    found = compare_to_target(LOSSES, 3.28, sesoi=sesoi, direction="min")
    lower = stats.ttest_1samp(LOSSES, 3.28 - sesoi, alternative="greater").pvalue
    upper = stats.ttest_1samp(LOSSES, 3.28 + sesoi, alternative="less").pvalue
    assert bool(max(lower, upper) < 0.05) is equivalent
    assert found.equivalent is equivalent
    assert (found.verdict is Verdict.EQUIVALENT) is equivalent


# The verdict


def test_direction_and_side_decide_what_is_better() -> None:
    assert compare_to_target(LOSSES, 3.28, direction="min").verdict is Verdict.BETTER
    assert compare_to_target(LOSSES, 3.28, direction="max").verdict is Verdict.WORSE
    assert compare_to_target(LOSSES, 3.28, direction="min", side="greater").verdict is Verdict.BETTER
    assert compare_to_target(LOSSES, 3.28, direction="max", side="greater").verdict is Verdict.INCONCLUSIVE


def test_the_sentence_reads_like_any_other() -> None:
    told = str(compare_to_target(LOSSES, 3.28, direction="min", name="new"))
    assert told.startswith("new is better than target 3.28: −0.00850 [")
    assert "95 % interval, one-sample t over 6 runs, p = 0.00" in told


def test_a_target_has_no_runs_and_its_own_value_as_mean() -> None:
    found = compare_to_target(LOSSES, 3.28).to_dict()
    assert (found["n_control"], found["mean_control"], found["sd_control"]) == (0, 3.28, None)
    assert found["target"]["value"] == 3.28 and found["pairing"] == "one-sample"


def test_fewer_than_two_runs_and_runs_that_do_not_vary_give_no_verdict() -> None:
    for sample, reason in (([3.2], "too few runs"), ([3.2, 3.2, 3.2], "no variation"), ([], "too few runs")):
        for known_sd in (None, 0.1):
            found = compare_to_target(sample, 3.28, known_sd=known_sd)
            assert (found.verdict, found.reason, found.effect.low, found.p_value) == (
                Verdict.INCONCLUSIVE, reason, None, None,
            )  # fmt: skip


@pytest.mark.parametrize("lost", [1, 3])
def test_any_lost_run_keeps_the_arm_from_being_better_equivalent_or_not_worse(lost: int) -> None:
    sample = [*LOSSES, *[math.nan] * lost]
    better = compare_to_target(sample, 3.28, direction="min", name="new")
    assert (better.verdict, better.reason, better.not_worse) == (Verdict.INCONCLUSIVE, "attrition", False)
    assert str(better).startswith(f"{lost} of {6 + lost} runs of new were lost. Inconclusive (attrition)")
    alike = compare_to_target(sample, 3.271, direction="min", sesoi=0.05)
    assert (alike.verdict, alike.equivalent, alike.not_worse) == (Verdict.INCONCLUSIVE, False, False)
    assert compare_to_target(sample, 3.26, direction="min").verdict is Verdict.WORSE


def test_a_failure_value_is_a_number_like_any_other() -> None:
    scored = compare_to_target([*LOSSES, math.nan], 3.28, direction="min", failure_value=10.0, name="new")
    plain = compare_to_target([*LOSSES, 10.0], 3.28, direction="min")
    assert (scored.effect.low, scored.effect.high) == (plain.effect.low, plain.effect.high)
    assert scored.verdict is Verdict.INCONCLUSIVE and scored.reason != "attrition"
    assert str(scored).startswith("1 of 7 runs of new were lost, each scored as 10. ")


def test_no_loss_in_five_runs_still_allows_45_percent() -> None:
    found = compare_to_target(LOSSES[:5], 3.28)
    assert found.target is not None
    assert found.target.upper_loss_rate == pytest.approx(1 - 0.05 ** (1 / 5))


def test_one_arm_is_cautioned_about_only_where_skewed_noise_reaches_its_interval() -> None:
    rng = np.random.default_rng(0)
    assert "one-arm interval" in codes(compare_to_target(rng.normal(size=91), 0.0))
    assert "one-arm interval" not in codes(compare_to_target(rng.normal(size=92), 0.0))


def test_a_known_sd_that_the_runs_contradict_is_pointed_out() -> None:
    assert "known sd too small" in codes(compare_to_target(LOSSES, 3.28, known_sd=0.001))
    assert "known sd too small" not in codes(compare_to_target(LOSSES, 3.28, known_sd=0.005))


@pytest.mark.parametrize("wrong", [{"target": math.nan}, {"known_sd": 0.0}, {"known_sd": -1.0}, {"alpha": 0.7}])
def test_impossible_values_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptions):
        compare_to_target(LOSSES, **{"target": 3.28, **wrong})


# Several arms


def test_several_arms_are_a_family_whose_intervals_agree_with_its_verdicts() -> None:
    rng = np.random.default_rng(3)
    arms = {f"a{i}": rng.normal(shift, 1, 8) for i, shift in enumerate((0.0, 0.7, 0.9, 2.0, -2.0))}
    found = compare_arms_to_target(arms, 0.0, ComparisonConfig(True))
    raw = [each.p_value for each in found]
    for each in found:
        assert each.adjusted_p is not None and each.effect.low is not None and each.effect.high is not None
        excludes = each.effect.low > 0 or each.effect.high < 0
        assert excludes is (each.adjusted_p <= 0.05) is (each.verdict is not Verdict.INCONCLUSIVE)
        assert each.equivalence.level == pytest.approx(1 - 2 * 0.05 / 5)
    assert [each.adjusted_p for each in found] == pytest.approx(_holm(raw))


def _holm(p_values: list[Any]) -> list[float]:
    """Straight from the definition."""
    ordered = sorted(p_values)
    steps = [max((len(ordered) - i) * ordered[i] for i in range(k + 1)) for k in range(len(ordered))]
    return [min(1.0, steps[ordered.index(p)]) for p in p_values]


def test_an_arm_without_a_number_does_not_count_in_the_family() -> None:
    found = compare_arms_to_target(
        {"a": np.array(LOSSES), "b": np.array([math.nan, 3.2])}, 3.28, ComparisonConfig(True)
    )
    assert [each.adjusted_p is None for each in found] == [False, True]
    assert found[0].adjusted_p == found[0].p_value


# Properties


@few
@given(sample=samples, target=values, order=st.randoms(use_true_random=False))
def test_the_order_of_runs_does_not_matter(sample: list[float], target: float, order: Any) -> None:
    other = list(sample)
    order.shuffle(other)
    assert (
        compare_to_target(sample, target, sesoi=0.5).to_dict() == compare_to_target(other, target, sesoi=0.5).to_dict()
    )


@few
@given(sample=samples, target=values, shift=st.integers(-50, 50), scale=st.sampled_from([0.25, 2.0, 64.0]))
def test_units_and_origin_carry_over(sample: list[float], target: float, shift: int, scale: float) -> None:
    here = compare_to_target(sample, target, sesoi=0.5)
    there = compare_to_target([scale * (x + shift) for x in sample], scale * (target + shift), sesoi=0.5 * scale)
    assert (here.reason, here.verdict) == (there.reason, there.verdict)
    if here.effect.low is not None:
        width = here.effect.high - here.effect.low  # type: ignore[operator]
        assert there.effect.low == pytest.approx(scale * here.effect.low, abs=1e-9 * scale * (1 + width))
        assert there.effect.high == pytest.approx(scale * here.effect.high, abs=1e-9 * scale * (1 + width))  # type: ignore[operator]


@few
@given(sample=samples, target=values)
def test_mirrored_runs_against_a_mirrored_target_are_the_mirrored_finding(sample: list[float], target: float) -> None:
    here = compare_to_target(sample, target, direction="max")
    there = compare_to_target([-x for x in sample], -target, direction="min")
    assert (here.verdict, here.reason) == (there.verdict, there.reason)
    if here.effect.low is not None:
        assert here.effect.low == pytest.approx(-there.effect.high, rel=1e-9, abs=1e-9)  # type: ignore[operator]


# Calibration


@pytest.mark.parametrize("n", [3, 5, 15])
def test_false_verdicts_on_normal_noise_stay_at_five_percent(n: int) -> None:
    repeats = 20_000
    sample = np.random.default_rng(n).standard_normal((repeats, n))
    slack = 3 * math.sqrt(0.05 * 0.95 / repeats)
    mean, error, freedom = paired_parts(sample)
    by_t = np.abs(mean) > -special.stdtrit(freedom, 0.025) * error
    by_z = np.abs(mean) > -special.ndtri(0.025) / math.sqrt(n)
    reach = -special.stdtrit(freedom, 0.05) * error
    shifted = mean + 0.5  # the truth lies on the margin: every `equivalent` is an error
    equivalent = (np.abs(shifted) + reach) < 0.5
    for share in (by_t.mean(), by_z.mean(), equivalent.mean()):
        assert share <= 0.05 + slack


def test_the_vectorized_rule_is_the_one_that_is_used() -> None:
    rng = np.random.default_rng(8)
    for n in (3, 5, 15):
        sample = rng.standard_normal(n)
        mean, error, freedom = paired_parts(sample)
        significant = bool(np.abs(mean) > -special.stdtrit(freedom, 0.025) * error)
        assert compare_to_target(sample, 0.0).significant is significant


@pytest.mark.slow
def test_the_family_wise_error_of_holm_stays_at_five_percent() -> None:
    repeats, arms, n = 3_000, 4, 5
    sample = np.random.default_rng(4).standard_normal((repeats, arms, n))
    means, errors, freedom = paired_parts(sample)
    config, wrong = ComparisonConfig(True), 0
    for mean, error in zip(means, errors, strict=True):
        family = [from_t("t", float(m), float(e), freedom) for m, e in zip(mean, error, strict=True)]
        wrong += any(each.decision.verdict is not Verdict.INCONCLUSIVE for each in judge_by_holm(family, config))
    assert wrong / repeats <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / repeats)
