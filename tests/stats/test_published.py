"""Verdicts from printed means: what the runs themselves would give unpaired, and nothing that only runs could tell."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import special, stats

from fairtrial.core.errors import InvalidOptions
from fairtrial.core.findings import Comparison, Estimate, Verdict
from fairtrial.core.printed import PrintedArm, printed_in
from fairtrial.stats import effects
from fairtrial.stats.compare import ComparisonConfig, compare_samples
from fairtrial.stats.families import compare_family
from fairtrial.stats.power import power_of
from fairtrial.stats.published import (
    FALSE_VERDICTS,
    ArmSummary,
    Pair,
    compare_summaries,
    infer_summaries,
    noise_of,
    normal_factor,
    runs_needed,
    sd_from,
    verdicts_within_rounding,
)

TERMS = ComparisonConfig(paired=False)
SIDES = {"greater": "less", "less": "greater", "two-sided": "two-sided"}
samples = st.lists(st.integers(-1000, 1000).map(lambda x: x / 64), min_size=2, max_size=9)
arms = st.builds(
    lambda n, mean, sd: ArmSummary("a", n, mean / 64, sd / 64),
    st.integers(2, 40),
    st.integers(-500, 500),
    st.integers(0, 300),
)
MARGINS = (None, 0.5, 3.0)


def summary(values: list[float] | NDArray[np.float64], name: str = "a") -> ArmSummary:
    return ArmSummary(name, len(values), float(np.mean(values)), float(np.std(values, ddof=1)))


def one(control: ArmSummary, candidate: ArmSummary, **terms: Any) -> Comparison:
    [found] = compare_summaries([(control, candidate)], replace(TERMS, **terms).check())
    return found


def limits(found: Estimate | None) -> tuple[float | None, ...]:
    return (None,) if found is None else (found.value, found.low, found.high)


# The same as the runs themselves


@pytest.mark.slow
@given(
    control=samples,
    candidate=samples,
    side=st.sampled_from(list(SIDES)),
    direction=st.sampled_from(["max", "min"]),
    sesoi=st.sampled_from(MARGINS),
)
def test_a_table_gives_the_verdict_of_its_runs_unpaired(
    control: list[float], candidate: list[float], side: str, direction: str, sesoi: float | None
) -> None:
    runs = compare_samples(control, candidate, paired=False, side=side, direction=direction, sesoi=sesoi)
    table = one(summary(control), summary(candidate), side=side, direction=direction, sesoi=sesoi)
    assert table.reason == runs.reason or "variation" not in f"{table.reason} {runs.reason}"
    close = {"rel": 1e-9, "abs": 1e-9}
    for name in ("effect", "equivalence", "hedges_g"):
        for ours, theirs in zip(limits(getattr(table, name)), limits(getattr(runs, name)), strict=True):
            assert ours == theirs if ours is None or theirs is None else ours == pytest.approx(theirs, **close)
    for name in ("p_value", "mean_control", "mean_candidate", "sd_control", "sd_candidate", "detectable"):
        ours, theirs = getattr(table, name), getattr(runs, name)
        assert (ours is None) == (theirs is None) and (ours is None or ours == pytest.approx(theirs, **close)), name
    edge = [abs(x) for x in (runs.effect.low, runs.effect.high) if x is not None and math.isfinite(x)]
    if all(abs(each - limit) > 1e-9 for each in edge for limit in (0.0, sesoi or 0.0)):
        for name in ("verdict", "significant", "equivalent", "exceeds_sesoi", "not_worse", "reason"):
            assert getattr(table, name) == getattr(runs, name), name


def test_what_only_runs_could_tell_is_unknown() -> None:
    found = one(ArmSummary("base", 5, 0.85, 0.01), ArmSummary("new", 5, 0.88, 0.01))
    assert found.verdict is Verdict.BETTER and found.pairing == "unpaired"
    unknown = ("superiority", "correlation", "d_z", "reliability", "seeds_needed")
    assert [getattr(found, name) for name in unknown] == [None] * 5
    assert found.effect.samples is None and found.diagnostics == {} and found.streams == "unknown"


def test_welch_is_that_of_scipy() -> None:
    for first, second in (((0.85, 0.01, 5), (0.88, 0.03, 8)), ((10, 2, 3), (9, 4, 3)), ((1, 0, 4), (2, 0.5, 4))):
        known = stats.ttest_ind_from_stats(*second, *first, equal_var=False)
        found = one(ArmSummary("a", first[2], *first[:2]), ArmSummary("b", second[2], *second[:2]))
        assert found.p_value == pytest.approx(known.pvalue, rel=1e-12)
        assert found.tests["statistic"] == pytest.approx(known.statistic, rel=1e-12)


def test_arms_that_do_not_vary_give_no_verdict() -> None:
    found = one(ArmSummary("a", 5, 0.85, 0.0), ArmSummary("b", 5, 0.9, 0.0), sesoi=0.1)
    assert (found.verdict, found.reason) == (Verdict.INCONCLUSIVE, "no variation")
    assert (found.p_value, found.effect.low, found.equivalence.high, found.significant) == (None,) * 4
    assert found.effect.value == pytest.approx(0.05)


@pytest.mark.parametrize("unit", [1e-90, 1e90])
def test_units_near_the_ends_of_floating_point_change_nothing(unit: float) -> None:
    usual = one(ArmSummary("a", 5, 1.0, 0.5), ArmSummary("b", 6, 2.0, 0.25))
    found = one(ArmSummary("a", 5, unit, 0.5 * unit), ArmSummary("b", 6, 2 * unit, 0.25 * unit))
    assert found.p_value == pytest.approx(usual.p_value, rel=1e-12) and found.verdict is usual.verdict
    assert one(ArmSummary("a", 5, 1.0, 0.5), ArmSummary("b", 6, 2.0, 1e90)).verdict is Verdict.INCONCLUSIVE


def test_limits_of_a_huge_effect_are_those_of_the_exact_distribution() -> None:
    """From a t of 10,000 on they are computed from the noise of the scale alone, which is quick."""
    near, far = (effects.noncentrality_limits(t, 8, 0.05) for t in (0.999 * effects.FAR, 1.001 * effects.FAR))
    for exact, quick in zip(near, far, strict=True):
        assert quick / 1.001 == pytest.approx(exact / 0.999, rel=5e-7)
    assert effects.noncentrality_limits(-1e7, 8, 0.05) == tuple(
        -x for x in effects.noncentrality_limits(1e7, 8, 0.05)[::-1]
    )


# Order, roles, scales


@given(control=arms, candidate=arms, side=st.sampled_from(list(SIDES)), direction=st.sampled_from(["max", "min"]))
def test_a_against_b_is_exactly_minus_b_against_a(
    control: ArmSummary, candidate: ArmSummary, side: str, direction: str
) -> None:
    here = one(control, candidate, side=side, direction=direction, sesoi=0.5)
    there = one(candidate, control, side=SIDES[side], direction=direction, sesoi=0.5)
    for name in ("effect", "equivalence", "hedges_g"):
        mine, other = getattr(here, name), getattr(there, name)
        assert (mine is None) == (other is None)
        assert mine is None or limits(mine.negated()) == limits(other)
    assert here.p_value == there.p_value and here.detectable == there.detectable
    assert {"better": "worse", "worse": "better"}.get(here.verdict, here.verdict) == there.verdict
    assert (here.significant, here.equivalent, here.reason) == (there.significant, there.equivalent, there.reason)


@given(control=arms, candidate=arms, scale=st.sampled_from([0.125, 4.0, 1024.0]), shift=st.integers(-50, 50))
def test_scale_and_shift_carry_over(control: ArmSummary, candidate: ArmSummary, scale: float, shift: int) -> None:
    def moved(arm: ArmSummary) -> ArmSummary:
        return replace(arm, mean=scale * (arm.mean + shift), sd=scale * arm.sd)

    here = one(control, candidate, sesoi=0.5)
    there = one(moved(control), moved(candidate), sesoi=0.5 * scale)
    assert here.verdict == there.verdict and here.p_value == there.p_value
    for mine, other in zip(limits(here.effect), limits(there.effect), strict=True):
        assert mine == other if mine is None or other is None else scale * mine == pytest.approx(other, rel=1e-9)


@given(
    table=st.lists(arms, min_size=2, max_size=6), order=st.randoms(), adjustment=st.sampled_from(["holm", "bh"]),
    sesoi=st.sampled_from(MARGINS),
)  # fmt: skip
@settings(max_examples=40)
def test_the_order_of_rows_does_not_matter(
    table: list[ArmSummary], order: Any, adjustment: str, sesoi: float | None
) -> None:
    named = [replace(arm, name=str(number)) for number, arm in enumerate(table)]
    pairs = [(named[0], arm) for arm in named[1:]]
    shuffled = list(pairs)
    order.shuffle(shuffled)
    config = replace(TERMS, sesoi=sesoi)
    here = {each.candidate: each.to_dict() for each in compare_summaries(pairs, config, adjustment)}
    there = {each.candidate: each.to_dict() for each in compare_summaries(shuffled, config, adjustment)}
    assert here == there


# Families


@pytest.mark.slow
@given(layout=st.lists(samples, min_size=3, max_size=5), adjustment=st.sampled_from(["holm", "bh"]))
@settings(max_examples=25)
def test_adjusted_p_is_that_of_the_same_family_of_runs(layout: list[list[float]], adjustment: str) -> None:
    named = {str(number): np.array(values) for number, values in enumerate(layout)}
    runs = compare_family(named, "0", TERMS, adjustment)
    table = {name: summary(values, name) for name, values in named.items()}
    found = compare_summaries([(table["0"], table[each.candidate]) for each in runs], TERMS, adjustment)
    for ours, theirs in zip(found, runs, strict=True):
        assert (ours.adjusted_p is None) == (theirs.adjusted_p is None)
        if ours.adjusted_p is not None and theirs.adjusted_p is not None:
            assert ours.adjusted_p == pytest.approx(theirs.adjusted_p, rel=1e-9, abs=1e-12)
            assume(abs(ours.adjusted_p - 0.05) > 1e-9)
        assert ours.verdict == theirs.verdict


@given(
    table=st.lists(arms, min_size=3, max_size=8), adjustment=st.sampled_from(["holm", "bh"]),
    side=st.sampled_from(list(SIDES)),
)  # fmt: skip
def test_intervals_of_a_family_agree_with_its_verdicts(table: list[ArmSummary], adjustment: str, side: str) -> None:
    found = compare_summaries([(table[0], arm) for arm in table[1:]], replace(TERMS, side=side), adjustment)
    for each in found:
        if each.adjusted_p is None or each.effect.low is None or each.effect.high is None:
            continue
        assume(abs(each.adjusted_p - each.alpha) > 1e-9)
        excludes = each.effect.low > 0 or each.effect.high < 0
        assert excludes == (each.adjusted_p <= each.alpha) == each.significant
        assert each.verdict in ((Verdict.BETTER, Verdict.WORSE) if excludes else (Verdict.INCONCLUSIVE,))


def test_equivalence_in_a_family_is_judged_at_its_share_of_the_error_rate() -> None:
    control, same = ArmSummary("base", 20, 0.0, 1.0), ArmSummary("new", 20, 0.0, 1.0)
    config = replace(TERMS, sesoi=0.65)
    [alone] = compare_summaries([(control, same)], config)
    family = compare_summaries([(control, replace(same, name=str(n))) for n in range(8)], config, "holm")
    assert alone.verdict is Verdict.EQUIVALENT and alone.equivalence.level == pytest.approx(0.9)
    assert {each.verdict for each in family} == {Verdict.INCONCLUSIVE}
    assert family[0].equivalence.level == pytest.approx(1 - 0.1 / 8)
    assert not any(each.not_worse for each in family) and alone.not_worse


def test_tukey_needs_the_runs() -> None:
    from fairtrial.stats.published import check_adjustment

    with pytest.raises(InvalidOptions, match="shared seeds"):
        check_adjustment("tukey")


def simulated(n: int, arms: int, repetitions: int, far: bool, spread: float = 1.0) -> float:
    """Percent of tables of equal arms in which Holm's smallest p is significant, on many tables at once."""
    rng = np.random.default_rng(11)
    values = rng.normal(size=(repetitions, arms, n))
    if far:
        values += rng.choice([-10.0, 10.0], values.shape)
    values[:, -1] *= spread
    means, shares = values.mean(-1), values.var(-1, ddof=1) / n
    total = shares[:, 1:] + shares[:, :1]
    freedom = total**2 / ((shares[:, 1:] ** 2 + shares[:, :1] ** 2) / (n - 1))
    p = 2 * special.stdtr(freedom, -np.abs(means[:, 1:] - means[:, :1]) / np.sqrt(total))
    return float(100 * (p.min(axis=1) * (arms - 1) <= 0.05).mean())


@pytest.mark.parametrize(("n", "stated"), FALSE_VERDICTS.items())
def test_the_stated_rate_of_false_verdicts_at_few_runs_is_the_simulated_one(n: int, stated: int) -> None:
    error = 3 * 100 * math.sqrt(stated / 100 * (1 - stated / 100) / 20_000)
    assert simulated(n, 6, 20_000, far=True) == pytest.approx(stated, abs=error + 0.6)


@pytest.mark.parametrize("n", [4, 5, 8])
@pytest.mark.parametrize("spread", [1.0, 5.0])
@pytest.mark.parametrize("far", [True, False])
def test_a_family_of_printed_means_errs_in_at_most_6_percent_from_4_runs_on(n: int, spread: float, far: bool) -> None:
    assert simulated(n, 4, 20_000, far=far and spread == 1.0, spread=spread) <= 6 + 3 * 0.168


def test_few_runs_say_what_that_means() -> None:
    [caution] = one(ArmSummary("a", 3, 0.0, 1.0), ArmSummary("b", 3, 1.0, 1.0)).cautions
    assert caution["code"] == "few runs in a table"
    assert "between 0.52 and 6.3 times" in caution["text"] and "12 %" in caution["text"]
    assert one(ArmSummary("a", 5, 0.0, 1.0), ArmSummary("b", 5, 1.0, 1.0)).cautions == ()


@pytest.mark.parametrize(("n", "m", "cautioned"), [(3, 15, True), (15, 17, False), (5, 6, False)])
def test_very_unequal_arms_are_cautioned(n: int, m: int, cautioned: bool) -> None:
    codes = [each["code"] for each in one(ArmSummary("a", n, 0.0, 1.0), ArmSummary("b", m, 1.0, 1.0)).cautions]
    assert ("unequal n" in codes) == cautioned


# Where the standard deviation comes from


def arm(n: int = 5, **cells: str) -> PrintedArm:
    known = {name: printed_in(cell) for name, cell in cells.items()}
    low, high, mean = known.get("low"), known.get("high"), known["mean"]
    assert mean is not None
    return PrintedArm(
        "a", n, mean, known.get("sd"), known.get("se"), known.get("ci"), (low, high) if low and high else None
    )


@given(values=samples, level=st.sampled_from([0.9, 0.95, 0.99]))
def test_every_measure_of_spread_gives_the_same_standard_deviation(values: list[float], level: float) -> None:
    n, mean, sd = len(values), float(np.mean(values)), float(np.std(values, ddof=1))
    assume(sd > 0)
    half = float(stats.t.ppf(1 - (1 - level) / 2, n - 1)) * sd / math.sqrt(n)
    ways = [
        {"sd": repr(sd)}, {"se": repr(sd / math.sqrt(n))}, {"ci": repr(half)},
        {"low": repr(mean - half), "high": repr(mean + half)},
    ]  # fmt: skip
    for cells in ways:
        assert sd_from(arm(n, mean=repr(mean), **cells), level) == pytest.approx(sd, rel=1e-9)


def test_an_interval_made_with_the_normal_quantile_hides_noise() -> None:
    assert normal_factor(3, 0.95) == pytest.approx(4.302653 / 1.959964, rel=1e-5)
    assert normal_factor(1000, 0.95) == pytest.approx(1, abs=0.002)


# Planning and rounding

PAIR: Pair = (ArmSummary("base", 5, 0.85, 0.01), ArmSummary("new", 5, 0.87, 0.02))


def test_runs_needed_do_not_depend_on_the_printed_difference() -> None:
    needed = runs_needed(PAIR, 0.01, TERMS, 3)
    other = runs_needed((PAIR[0], replace(PAIR[1], mean=0.99)), 0.01, TERMS, 3)
    assert needed == other and needed is not None and needed.to_detect is not None
    sd, freedom = noise_of(*PAIR)
    design = replace(TERMS.design, alpha=0.05 / 3)
    powers = [power_of(0.01 / sd, n, design, freedom) for n in (needed.to_detect - 1, needed.to_detect)]
    assert powers[0] < 0.8 <= powers[1]
    assert runs_needed((replace(PAIR[0], sd=0.0), replace(PAIR[1], sd=0.0)), 0.01, TERMS, 1) is None


def test_runs_planned_from_a_table_have_the_power_that_was_asked_for() -> None:
    """On average over the tables of 5 runs per arm that a truth with unequal noise may print."""
    rng = np.random.default_rng(3)
    true = math.sqrt((0.01**2 + 0.02**2) / 2)
    powers = []
    for first, second in zip(rng.chisquare(4, 150), rng.chisquare(4, 150), strict=True):
        pair = (replace(PAIR[0], sd=0.01 * math.sqrt(first / 4)), replace(PAIR[1], sd=0.02 * math.sqrt(second / 4)))
        needed = runs_needed(pair, 0.015, TERMS, 1)
        assert needed is not None and needed.to_detect is not None
        powers.append(power_of(0.015 / true, needed.to_detect, TERMS.design))
    error = 3 * float(np.std(powers)) / math.sqrt(len(powers))
    assert abs(float(np.mean(powers)) - 0.8) <= 0.04 + error


def test_a_verdict_that_rests_on_digits_behind_the_last_one_is_found() -> None:
    close = (ArmSummary("base", 5, 0.85, 0.01), ArmSummary("new", 5, 0.87, 0.01))
    assert verdicts_within_rounding(close, 0.01, (0.01, 0.01), TERMS, 0.05) == [Verdict.BETTER, Verdict.INCONCLUSIVE]
    assert verdicts_within_rounding(close, 1e-6, (1e-6, 1e-6), TERMS, 0.05) == [Verdict.BETTER]
    assert verdicts_within_rounding(close, 0.0, (0.02, 0.02), TERMS, 0.05)


@given(control=arms, candidate=arms)
def test_numbers_with_all_their_digits_have_one_verdict(control: ArmSummary, candidate: ArmSummary) -> None:
    known = infer_summaries(control, candidate)
    assume(known is not None and abs(known.p_two_sided - 0.05) > 1e-6)
    assert len(verdicts_within_rounding((control, candidate), 1e-17, (1e-17, 1e-17), TERMS, 0.05)) == 1
