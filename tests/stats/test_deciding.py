"""The rule that `decide` stops by: verdicts, families, and the interval that knows about the stopping."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from fairtrial.core.errors import UserError
from fairtrial.core.findings import Verdict
from fairtrial.stats.deciding import SequentialPlan, assess, assess_family
from fairtrial.stats.group_sequential_t import t_boundaries
from fairtrial.stats.open_ended import one_sided_e_values, sign_e_values
from fairtrial.stats.samples import Array
from fairtrial.stats.sequential import sign_flip_looks
from fairtrial.stats.sequential_interval import stopped_interval

SMALL = np.random.default_rng(2).normal(0, 0.05, 15)


def test_a_clear_gain_is_better_and_a_clear_loss_worse_with_the_fewest_pairs_that_can_decide() -> None:
    plan = SequentialPlan()
    assert (assess(2 + SMALL, plan).verdict, assess(2 + SMALL, plan).n) == (Verdict.BETTER, 7)
    assert (assess(-2 + SMALL, plan).verdict, assess(-2 + SMALL, plan).n) == (Verdict.WORSE, 7)


def test_the_question_stays_open_until_all_planned_pairs_are_there() -> None:
    noise = np.array([1.0, -1.1, 0.9, -0.8, 1.2, -1.3, 0.7, -0.9, 1.1, -1.0, 0.8, -1.2, 1.0, -0.7, 0.9])
    plan = SequentialPlan()
    assert all(assess(noise[:n], plan).verdict is None for n in range(15))
    assert assess(noise, plan).verdict is Verdict.INCONCLUSIVE


def test_two_equal_variants_end_as_equivalent_within_the_smallest_effect_of_interest() -> None:
    plan = SequentialPlan(sesoi=0.5)
    assert plan.first_look == 6
    assessed = assess(SMALL, plan)
    assert (assessed.verdict, assessed.n) == (Verdict.EQUIVALENT, 6)
    assert assess(SMALL, SequentialPlan()).verdict is not Verdict.EQUIVALENT


def test_a_real_difference_that_is_too_small_to_matter_is_equivalent() -> None:
    assert assess(0.1 + SMALL / 10, SequentialPlan(sesoi=0.5)).verdict is Verdict.EQUIVALENT


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pairs": 5}, "5 pairs are too few to reach a verdict at --level 0.95"),
        ({"pairs": 7, "level": 0.99}, "7 pairs are too few to reach a verdict at --level 0.99"),
        ({"pairs": 6, "arms": 5}, "6 pairs are too few to reach a verdict at --level 0.95 with 5 candidates"),
        ({"level": 95}, "--level 95 must lie between 0 and 1"),
        ({"sesoi": 0.0}, "a smallest effect of interest of 0 must be positive"),
    ],
)
def test_a_plan_that_can_never_decide_is_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        SequentialPlan(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(("level", "arms"), [(0.95, 1), (0.99, 1), (0.95, 5), (0.9, 3)])
def test_the_hint_names_the_smallest_plan_that_works(level: float, arms: int) -> None:
    with pytest.raises(UserError) as refused:
        SequentialPlan(pairs=2, level=level, arms=arms)
    smallest = int(str(refused.value.hint).split()[1])
    SequentialPlan(pairs=smallest, level=level, arms=arms)
    with pytest.raises(UserError):
        SequentialPlan(pairs=smallest - 1, level=level, arms=arms)


def test_lost_runs_do_not_come_in_as_numbers() -> None:
    with pytest.raises(UserError, match="gains must be finite"):
        assess([1.0, math.nan], SequentialPlan())


def test_in_a_family_a_shown_difference_hands_its_share_on_and_an_equivalent_arm_keeps_it() -> None:
    plan = SequentialPlan(pairs=20, arms=2, sesoi=5.0)
    clear, weak = 6 + SMALL[:9], np.array([5.9, 6.0, 5.8, 6.1, 5.95, 6.05, 5.85, 5.9, 6.02])
    both = assess_family({"clear": clear, "weak": weak}, plan)
    assert both["clear"].alpha == Fraction(1, 40)
    assert both["weak"].alpha in (Fraction(1, 40), Fraction(1, 20))
    beside_equal = assess_family({"equal": SMALL[:9], "open": SMALL[:9] * 100 + 1}, plan)
    assert beside_equal["equal"].verdict is Verdict.EQUIVALENT and beside_equal["open"].alpha == Fraction(1, 40)


def test_holm_in_a_family_finds_what_bonferroni_alone_would_miss() -> None:
    """The weak arm needs α = 1/20, which it has only after the clear one was shown."""
    plan = SequentialPlan(pairs=8, arms=2)
    clear, weak = np.full(8, 3.0) + SMALL[:8], np.array([3.0, 2.5, 1.6, 0.0, 1.2, 1.9, -0.1, 1.6])
    assert assess(weak, plan, alpha=plan.alpha).verdict is Verdict.BETTER
    alone = assess_family({"weak": weak, "open": SMALL[:8]}, plan)
    together = assess_family({"weak": weak, "clear": clear}, plan)
    assert together["weak"].verdict is Verdict.BETTER and together["weak"].alpha == Fraction(1, 20)
    assert alone["weak"].verdict is Verdict.INCONCLUSIVE and alone["weak"].alpha == Fraction(1, 40)


def brute_force_interval(values: Array, planned: int, looks: range) -> tuple[float, float]:
    """Try a shift between every two places where the order of two sign vectors' sums changes."""
    n = len(values)
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=n)))
    crossings = set()
    for size in range(1, n + 1):  # sums of beginnings matter too
        sums, counts = signs[:, :size] @ values[:size], signs[:, :size].sum(axis=1)
        lines = np.unique(np.column_stack([sums, counts]), axis=0)
        for factor in (1, -1):
            slopes = lines[:, None, 1] - factor * lines[None, :, 1]
            heights = lines[:, None, 0] - factor * lines[None, :, 0]
            crossings |= set(np.round(heights[slopes != 0] / slopes[slopes != 0], 12))
    places = np.array(sorted(crossings))
    middles = (places[1:] + places[:-1]) / 2

    def is_inside(shift: float) -> bool:
        done = list(sign_flip_looks(values - shift, planned=planned, alpha=Fraction(1, 20), looks=looks))
        return not done[-1].rejected

    inside = [is_inside(float(middle)) for middle in middles]
    first, last = inside.index(True), len(inside) - 1 - inside[::-1].index(True)
    return float(places[first]), float(places[last + 1])


@pytest.mark.parametrize("seed", range(3))
def test_the_interval_is_that_of_brute_force_inversion(seed: int) -> None:
    values = np.round(np.random.default_rng(seed).normal(0.7, 1, 7), 2)
    looks = range(6, 8)
    low, high = stopped_interval(values, planned=7, alpha=Fraction(1, 20), looks=looks)
    assert (low, high) == pytest.approx(brute_force_interval(values, 7, looks), abs=1e-7)


def test_an_interval_before_anything_can_be_rejected_has_no_limits() -> None:
    limits = stopped_interval([1.0, 1.1, 0.9], planned=15, alpha=Fraction(1, 20), looks=range(6, 16))
    assert limits == (-math.inf, math.inf)


@pytest.mark.slow
def test_the_boundaries_of_the_t_test_are_the_published_ones() -> None:
    boundaries = t_boundaries(15, 0.05, tuple(range(4, 16)))
    expected = [5.27, 4.97, 4.40, 3.97, 3.67, 3.44, 3.28, 3.14, 3.03, 2.94, 2.86, 2.79]
    assert list(boundaries) == list(range(4, 16))
    assert list(boundaries.values()) == pytest.approx(expected, abs=0.011)


@pytest.mark.slow
def test_one_look_at_the_end_is_the_t_test() -> None:
    from scipy import stats

    assert t_boundaries(10, 0.05, (10,))[10] == pytest.approx(stats.t.ppf(0.975, 9), abs=2e-3)


def test_the_open_ended_evidence_is_a_fair_bet_on_signs() -> None:
    """Over all sign vectors of any sizes the mean wealth is 1, after every pair."""
    sizes = np.array([0.3, 2.0, 0.0, 1.0, 1.0, 7.0, 0.2])
    wealth = np.array([sign_e_values(sizes * signs) for signs in itertools.product((1, -1), repeat=7)])
    assert wealth.mean(axis=0) == pytest.approx(np.ones(7), rel=1e-12)
    greater, less = one_sided_e_values(np.full(30, 2.5))
    assert greater[-1] > 1e4 and less[-1] < 1e-4
