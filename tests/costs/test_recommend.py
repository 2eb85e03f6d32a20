"""Prices, the documented table, and recommendations that hold whatever the points are."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import fairtrial
from fairtrial import Constraints, CostModel, CostPerformanceAnalysis, CostPoint
from fairtrial.core.errors import FairtrialError, InvalidOptions, UserError
from fairtrial.costs.choice import OBJECTIVES, JointRelaxation
from fairtrial.costs.frontier import OptimizationTarget, gains_of, price_points
from fairtrial.costs.pareto import dominance
from fairtrial.costs.prices import BUILT_IN

DOCUMENTED = [
    ("r8", 6.30, 0.845),
    ("r16", 9.60, 0.862),
    ("r32", 17.40, 0.871),
    ("r64", 31.20, 0.878),
    ("full", 144.60, 0.882),
]
A100 = CostPerformanceAnalysis(CostModel.a100_80gb())


def documented() -> list[CostPoint]:
    """The five points of the documentation, as hours at $3.00."""
    return [CostPoint(name, cost / 3, accuracy, memory=12) for name, cost, accuracy in DOCUMENTED]


def test_the_documented_table_has_five_frontier_points():
    found = A100.frontier(documented())
    assert found.names == [name for name, _, _ in DOCUMENTED]
    assert [point.cost.value for point in found.points] == pytest.approx([cost for _, cost, _ in DOCUMENTED])
    assert found.beaten_by == [None] * 5
    assert found.probabilities == [None] * 5


def test_the_documented_budget_takes_the_31_dollar_point():
    found = A100.recommend(documented(), Constraints(max_cost=50, min_accuracy=0.85))
    assert found.chosen is not None
    assert found.chosen.priced.name == "r64"
    assert found.chosen.priced.cost.value == pytest.approx(31.20)
    assert [each.constraint for each in found.binding] == ["max_cost"]
    assert [each.priced.name for each in found.alternatives] == ["r16", "r32"]


def test_savings_are_against_full_fine_tuning():
    found = A100.frontier(documented())
    assert found.reference.name == "full"
    for point, (_, cost, _) in zip(found.points, DOCUMENTED, strict=True):
        assert found.savings(point) == pytest.approx(144.60 / cost)


def test_efficiency_winner_and_best_marginal_gain():
    found = A100.frontier(documented())
    assert found.efficiency_winner is not None and found.efficiency_winner.name == "r8"
    assert found.best_step is not None
    assert (found.best_step.cheaper, found.best_step.dearer) == ("r8", "r16")
    assert found.best_step.per_dollar == pytest.approx((0.862 - 0.845) / (9.60 - 6.30))


def test_a_metric_that_can_be_negative_has_no_efficiency_winner():
    analysis = CostPerformanceAnalysis(CostModel.a100_80gb(), OptimizationTarget("report_return_mean", "max"))
    assert analysis.frontier(documented()).efficiency_winner is None
    with pytest.raises(InvalidOptions, match="per dollar is meaningless"):
        analysis.recommend(documented(), Constraints(), "value")


def test_a_budget_of_exactly_the_cost_suffices():
    found = A100.recommend([CostPoint("a", 10.4, 0.878, memory=1)], Constraints(max_cost=31.20))
    assert found.chosen is not None


def test_hours_on_a_t4_are_longer_by_the_ratio_of_the_factors():
    point = CostPoint("a", 10, 0.9, memory=8)
    here, there = CostModel.a100_80gb().price(point), CostModel.t4().price(point)
    assert here.basis is None and here.hours.value == 10
    assert there.hours.value == pytest.approx(10 * 1.0 / 0.3)
    assert there.cost.value == pytest.approx(10 / 0.3 * 0.50)
    assert there.basis is not None and "rule of thumb" in there.basis


@given(st.floats(0, 100), st.sampled_from(["t4", "v100"]))
def test_nothing_that_does_not_fit_is_recommended(memory, card):
    analysis = CostPerformanceAnalysis(CostModel.of(card))
    points = [CostPoint("large", 1, 0.99, memory=memory), CostPoint("small", 1, 0.5, memory=4)]
    found = analysis.recommend(points, Constraints())
    assert found.chosen is not None
    assert found.chosen.priced.name == ("large" if memory <= 16 else "small")
    assert all(each.card.memory_gb >= (found.chosen.priced.point.memory or 0) for each in found.fits_on)


def test_unknown_memory_is_never_taken_for_granted():
    found = A100.recommend([CostPoint("a", 1, 0.9)], Constraints())
    assert found.chosen is None


points_ = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 30)), min_size=1, max_size=8).map(
    lambda rows: [
        CostPoint(f"p{n}", hours / 2, accuracy / 6, memory=float(memory))
        for n, (hours, accuracy, memory) in enumerate(rows)
    ]
)
limits_ = st.fixed_dictionaries(
    {},
    optional={
        "max_cost": st.floats(0.1, 10), "min_accuracy": st.floats(0, 1), "max_time": st.floats(0.1, 4),
        "max_memory": st.floats(1, 40),
    },
)  # fmt: skip
cards_ = st.sampled_from([("t4",), ("a100-80gb",), ("t4", "a100-80gb"), tuple(BUILT_IN.cards)])


def cards_of(names):
    return [BUILT_IN.card(name) for name in names]


@given(points_, limits_, st.sampled_from(OBJECTIVES), cards_)
def test_what_is_recommended_is_feasible_and_dominated_by_nothing_feasible(points, limits, objective, cards):
    found = A100.recommend(points, Constraints(**limits), objective, cards_of(cards))
    if found.chosen is None:
        assert found.feasible == []
        return
    feasible = [each.priced for each in found.feasible]
    gains = gains_of(feasible, OptimizationTarget(objectives=("cost", "accuracy", "hours")))
    place = next(i for i, each in enumerate(feasible) if each is found.chosen.priced)
    assert not dominance(gains)[:, place].any()
    assert {id(each.priced) for each in found.alternatives}.isdisjoint({id(found.chosen.priced)})


@given(points_, limits_)
def test_the_best_feasible_accuracy_is_the_maximum_over_the_feasible(points, limits):
    found = A100.recommend(points, Constraints(**limits))
    allowed = [
        point for point in price_points(points, CostModel.a100_80gb(), OptimizationTarget())
        if point.cost.value <= limits.get("max_cost", math.inf) * (1 + 1e-9)
        and point.quality.value >= limits.get("min_accuracy", 0) * (1 - 1e-9)
        and point.hours.value <= limits.get("max_time", math.inf) * (1 + 1e-9)
        and point.point.memory <= min(limits.get("max_memory", math.inf), 80) * (1 + 1e-9)
    ]  # fmt: skip
    assert (found.chosen is None) == (not allowed)
    if found.chosen is not None:
        assert found.chosen.priced.quality.value == max(point.quality.value for point in allowed)


def worth(found, objective):
    """The objective of a recommendation, more is better; nothing feasible is worst."""
    if found.chosen is None:
        return -math.inf
    priced = found.chosen.priced
    if objective == "value":
        return math.inf if priced.cost.value == 0 else priced.quality.value / priced.cost.value
    return {"accuracy": priced.quality.value, "cost": -priced.cost.value, "time": -priced.hours.value}[objective]


@given(points_, limits_, st.sampled_from(OBJECTIVES), cards_, st.floats(0.1, 0.99), st.data())
def test_tightening_a_constraint_never_improves_the_result(points, limits, objective, cards, share, data):
    assume(limits)
    name = data.draw(st.sampled_from(sorted(limits)))
    tighter = limits[name] + (1 - limits[name]) * (1 - share) if name == "min_accuracy" else limits[name] * share
    before = A100.recommend(points, Constraints(**limits), objective, cards_of(cards))
    after = A100.recommend(points, Constraints(**{**limits, name: tighter}), objective, cards_of(cards))
    assert worth(after, objective) <= worth(before, objective)


@given(points_, limits_)
def test_a_named_relaxation_makes_something_feasible_and_a_smaller_one_does_not(points, limits):
    constraints = Constraints(**limits)
    found = A100.recommend(points, constraints)
    if found.chosen is not None:
        assert found.relaxations == ()
        return
    for each in found.relaxations:
        if each.needed is None or each.constraint == "card_memory" or each.needed <= 0:
            continue
        relaxed = replace(constraints, **{each.constraint: each.needed})
        assert A100.recommend(points, relaxed).chosen is not None
        between = each.needed + (each.limit - each.needed) * 0.01
        assert A100.recommend(points, replace(constraints, **{each.constraint: between})).chosen is None


@given(points_, limits_, st.sampled_from(OBJECTIVES))
def test_without_a_binding_constraint_the_named_point_is_chosen(points, limits, objective):
    found = A100.recommend(points, Constraints(**limits), objective)
    for bound in found.binding:
        if bound.constraint == "card_memory":
            continue
        without = A100.recommend(
            points, Constraints(**{k: v for k, v in limits.items() if k != bound.constraint}), objective
        )
        assert without.chosen is not None and without.chosen.priced.name == bound.instead.name
        assert worth(without, objective) >= worth(found, objective)


def test_duplicates_and_ties_go_to_the_cheaper_then_to_the_name():
    same = [CostPoint(name, 1, 0.9, memory=1) for name in ("b", "a")]
    assert A100.recommend(same, Constraints()).chosen.priced.name == "a"  # type: ignore[union-attr]
    tie = [CostPoint("dear", 2, 0.9, memory=1), CostPoint("cheap", 1, 0.9, memory=1)]
    assert A100.recommend(tie, Constraints()).chosen.priced.name == "cheap"  # type: ignore[union-attr]
    assert set(A100.frontier(same).names) == {"a", "b"}


SEEDS = [str(n) for n in range(5)]


def noisy(name: str, mean: float, spread: float, hours: float = 1.0) -> CostPoint:
    offsets = np.array([-2, -1, 0, 1, 2]) * spread
    return CostPoint(name, hours, dict(zip(SEEDS, mean + offsets, strict=True)), memory=1)


def test_a_constraint_comes_with_the_probability_that_it_is_met():
    from scipy import stats

    point = noisy("a", 0.9, 0.01)
    found = A100.recommend([point], Constraints(min_accuracy=0.89))
    assert found.chosen is not None
    check = found.chosen.check("min_accuracy")
    error = np.std(0.01 * np.array([-2, -1, 0, 1, 2]), ddof=1) / math.sqrt(5)
    assert check.probability == pytest.approx(stats.t(4).cdf(0.01 / error))
    assert found.chosen.check("card_memory").probability is None


def test_confidence_makes_the_probability_binding_and_the_relaxation_honours_it():
    points, limit = [noisy("a", 0.9, 0.01)], 0.893
    assert A100.recommend(points, Constraints(min_accuracy=limit)).chosen is not None
    strict = Constraints(min_accuracy=limit, confidence=0.95)
    found = A100.recommend(points, strict)
    assert found.chosen is None
    [relaxation] = [each for each in found.relaxations if each.constraint == "min_accuracy"]
    assert relaxation.needed is not None and relaxation.needed < limit
    assert A100.recommend(points, replace(strict, min_accuracy=relaxation.needed)).chosen is not None


def test_frontier_probability_is_sure_where_the_gap_is_wide_and_even_where_there_is_none():
    wide = A100.frontier([noisy("cheap", 0.5, 0.01, 1), noisy("dear", 0.9, 0.01, 2)])
    assert wide.probabilities == [1.0, 1.0]
    beaten = A100.frontier([noisy("cheap", 0.9, 0.01, 1), noisy("dear", 0.5, 0.01, 2)])
    assert beaten.probabilities == [1.0, 0.0] and beaten.beaten_by == [None, "cheap"]
    unshared = CostPoint("dear", 2, [0.88, 0.89, 0.9, 0.91, 0.92], memory=1)
    even = A100.frontier([noisy("cheap", 0.9, 0.01, 1), unshared])
    assert even.probabilities[0] == 1.0
    assert even.probabilities[1] == pytest.approx(0.5, abs=0.03)


def test_less_is_better_for_a_loss():
    analysis = CostPerformanceAnalysis(CostModel.a100_80gb(), OptimizationTarget("report_loss", "min"))
    points = [
        CostPoint("low", 2, 0.3, memory=1),
        CostPoint("high", 1, 0.5, memory=1),
        CostPoint("bad", 3, 0.6, memory=1),
    ]
    found = analysis.frontier(points)
    assert found.names == ["high", "low"] and found.beaten_by[-1] == "low"
    assert analysis.recommend(points, Constraints(min_accuracy=0.4)).chosen.priced.name == "low"  # type: ignore[union-attr]
    assert analysis.recommend(points, Constraints(min_accuracy=0.1)).chosen is None


@pytest.mark.parametrize(
    ("limits", "problems"),
    [
        ({"max_cost": -1, "max_time": 0, "min_accuracy": 1.2}, 3),
        ({"max_cost": math.nan}, 1),
        ({"confidence": 0.2}, 1),
        ({"confidence": 1.0}, 1),
        ({"max_memory": math.inf}, 1),
    ],
)
def test_constraints_that_make_no_sense_are_refused_all_at_once(limits, problems):
    with pytest.raises(InvalidOptions) as error:
        A100.recommend(documented(), Constraints(**limits))
    assert 1 + len(error.value.problems) == problems


def test_points_that_cannot_be_used_are_refused_all_at_once():
    bad = [CostPoint("a", -1, 0.5), CostPoint("a", 1, math.nan), CostPoint("b", 1, 0.5, memory=-2)]
    with pytest.raises(UserError) as error:
        A100.frontier(bad)
    told = " ".join([error.value.message, *error.value.problems])
    for word in ("two points are named 'a'", "hours", "not a finite number", "memory"):
        assert word in told
    with pytest.raises(FairtrialError, match="no points"):
        A100.frontier([])


def test_hours_from_an_unknown_device_are_refused():
    with pytest.raises(UserError, match="abacus"):
        A100.frontier([CostPoint("a", 1, 0.5, device="abacus")])


def test_two_constraints_that_cannot_give_alone_say_so():
    points = [CostPoint("a", 10, 0.5, memory=1)]
    found = A100.recommend(points, Constraints(max_cost=1, min_accuracy=0.9))
    assert found.chosen is None and all(each.needed is None for each in found.relaxations)
    assert "at least two" in found.rationale[-2]
    assert found.joint is not None and found.joint.candidate.priced.name == "a"
    assert found.rationale[-1] == (
        "Smallest joint change: --max-cost 30 instead of 1 and --min-accuracy 0.5 instead of 0.9 would make a feasible. "
        "No limit changes by more than 2,900 %."
    )


def moved(constraints: Constraints, joint: JointRelaxation, share: float = 1.0) -> Constraints:
    """The constraints with every limit of a joint change moved by a share of the way."""
    needs = {each.constraint: each.limit + share * (each.needed - each.limit) for each in joint.changes}
    return replace(constraints, **needs)


@given(points_, limits_)
def test_the_smallest_joint_change_makes_its_point_feasible_and_no_other_point_asks_for_less(points, limits):
    constraints = Constraints(**limits)
    found = A100.recommend(points, constraints)
    if found.chosen is not None:
        return
    assert found.joint is not None
    changes = {each.constraint: each.relative for each in found.joint.changes}
    if "card_memory" not in changes:
        relaxed = A100.recommend(points, moved(constraints, found.joint))
        assert found.joint.candidate.priced.name in [each.priced.name for each in relaxed.feasible]
        assert A100.recommend(points, moved(constraints, found.joint, 0.99)).chosen is None
    for other in found.candidates:
        if other.check("card_memory").met:
            asked = [
                abs(each.needed - each.limit) / (abs(each.limit) or abs(each.needed))
                for each in other.checks if not each.met
            ]  # fmt: skip
            assert "card_memory" not in changes and max(asked) >= max(changes.values())


def test_two_small_changes_are_named_beside_one_large_one():
    points = [
        CostPoint("cheap", 1, 0.5, memory=1),
        CostPoint("near", 10.5, 0.88, memory=1),
        CostPoint("dear", 100, 0.95, memory=1),
    ]
    found = A100.recommend(points, Constraints(max_cost=30, min_accuracy=0.9))
    assert {each.constraint: each.candidate.priced.name for each in found.relaxations} == {
        "max_cost": "dear", "min_accuracy": "cheap",
    }  # fmt: skip
    assert found.joint.candidate.priced.name == "near" and found.joint.largest == pytest.approx(0.05)
    assert "--max-cost 31.5 instead of 30 and --min-accuracy 0.88 instead of 0.9 would make near" in found.rationale[-1]
    assert "more than 5 %." in found.rationale[-1]
    told = found.joint.to_dict()
    assert [(each["constraint"], each["needed"]) for each in told["changes"]] == [
        ("max_cost", 31.5),
        ("min_accuracy", 0.88),
    ]
    assert told["name"] == "near" and told["largest_relative_change"] == pytest.approx(0.05)


def test_the_smallest_of_several_single_changes_is_named():
    found = A100.recommend(documented(), Constraints(max_cost=16, min_accuracy=0.875))
    assert found.rationale[-1] == "The smallest of these changes is that of --min-accuracy, 1.5 %."


def test_constraints_that_bind_only_together_are_named():
    limits = Constraints(max_cost=50, max_time=15)
    found = A100.recommend(documented(), limits)
    assert found.chosen.priced.name == "r64" and found.binding == [], "without one of them the other still binds"
    [sentence] = [line for line in found.rationale if line.startswith("Binding together")]
    assert (
        "--max-cost 145 instead of 50 and --max-time 48.2 instead of 15 would allow full (accuracy 0.8820)" in sentence
    )
    assert A100.recommend(documented(), moved(limits, found.joint)).chosen.priced.name == "full"


def test_a_configuration_that_fits_its_card_is_preferred_to_a_smaller_change_on_another_card():
    points = [CostPoint("large", 1, 0.89, memory=81), CostPoint("poor", 1, 0.5, memory=1)]
    found = A100.recommend(points, Constraints(min_accuracy=0.9))
    assert found.joint.candidate.priced.name == "poor" and len(found.joint.changes) == 1


def test_the_names_of_the_reference_exist():
    points = documented()
    names = [name for name, _, _ in DOCUMENTED]
    assert [point.name for point in A100.compute_pareto_frontier(points)] == names
    assert [point.name for point in fairtrial.compute_pareto_frontier(points)] == names
    on_t4 = fairtrial.compute_pareto_frontier(points, CostModel.t4())
    assert {point.card.name for point in on_t4} == {"t4"} and set(fairtrial.__all__) >= {
        "compare_strategies", "temperature_sweep", "compute_pareto_frontier", "recommend",
    }  # fmt: skip
    assert fairtrial.compare_strategies is not fairtrial.compare, "that one compares what it is given"


def test_a_limit_that_floating_point_cannot_divide_by_is_shown_as_it_is():
    points = [CostPoint("small", 1.5, 5e-324, memory=8)]
    found = A100.recommend(points, Constraints(max_cost=50, min_accuracy=0.8))
    assert found.chosen is None
    assert any("--min-accuracy 5e-324 instead of 0.8" in line for line in found.rationale)
