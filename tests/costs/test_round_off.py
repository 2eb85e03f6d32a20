"""What differs by rounding alone is equal: on the frontier, in steps along it, and in a choice."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.costs.analysis import CostPerformanceAnalysis
from fairtrial.costs.cost import CostModel
from fairtrial.costs.frontier import Frontier, OptimizationTarget
from fairtrial.costs.points import CostPoint
from tests.conftest import Answer

LOW, HIGH = [0.79, 0.80, 0.81], [0.78, 0.80, 0.82]
"""The same mean, up to the last bit of a sum."""
ZERO = [[0.1, 0.2, -0.3], [0.3, -0.1, -0.2], [0.7, 0.1, -0.8]]


def frontier(*points: CostPoint, metric: str = "accuracy") -> Frontier:
    return CostPerformanceAnalysis(CostModel.a100_80gb(), OptimizationTarget(metric)).frontier(list(points))


@pytest.mark.parametrize("seeds", list(itertools.permutations(HIGH)))
def test_equal_means_at_equal_cost_are_both_on_the_frontier(seeds: tuple[float, ...]) -> None:
    for order in itertools.permutations([CostPoint("a", 1.0, LOW), CostPoint("b", 1.0, list(seeds))]):
        found = frontier(*order)
        assert sorted(found.names) == ["a", "b"] and set(found.beaten_by) == {None}


def test_equal_costs_are_equal_however_they_were_added_up() -> None:
    """0.1 + 0.2 hours are 0.3 hours: the better of the two beats the other, and no step between them is free."""
    found = frontier(CostPoint("sum", 0.1 + 0.2, 0.9), CostPoint("plain", 0.3, 0.8), CostPoint("dear", 1.0, 0.95))
    assert found.names == ["sum", "dear"]
    assert [(step.cheaper, step.dearer) for step in found.steps] == [("sum", "dear")]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_round_off_is_relative_to_the_numbers_and_not_to_a_mean_near_zero(order: tuple[int, ...]) -> None:
    points = [CostPoint(f"p{place}", 1.0, ZERO[place], memory=1.0) for place in order]
    assert sorted(frontier(*points, metric="reward").names) == ["p0", "p1", "p2"]


def test_what_does_not_vary_is_not_beaten_by_rounding_in_the_draws() -> None:
    found = frontier(
        CostPoint("a", {"1": 0.3, "2": 0.3}, {"1": 0.5, "2": 0.7}),
        CostPoint("b", {"1": 0.1 + 0.2, "2": 0.1 + 0.2}, {"1": 0.5, "2": 0.7}),
    )
    assert found.probabilities == [1.0, 1.0]


def test_a_real_difference_however_small_still_counts() -> None:
    found = frontier(CostPoint("a", 1.0, 0.8), CostPoint("b", 1.0, 0.8 + 1e-6))
    assert found.names == ["b"]


@given(st.lists(st.sampled_from([0.3, 0.1 + 0.2, 0.8, 0.8 + 2e-16, 0.9]), min_size=2, max_size=6), st.randoms())
def test_the_frontier_depends_on_neither_order_nor_rounding(values, random) -> None:
    points = [CostPoint(f"p{at}", 1 + value, value) for at, value in enumerate(values)]
    rounded = [CostPoint(f"p{at}", 1 + round(value, 6), round(value, 6)) for at, value in enumerate(values)]
    shuffled = random.sample(points, len(points))
    assert set(frontier(*points).names) == set(frontier(*shuffled).names) == set(frontier(*rounded).names)


def test_of_equal_accuracies_the_cheaper_one_is_recommended(cli: Callable[..., Answer], tmp_path: Path) -> None:
    rows = ["name,hours,accuracy,memory,device", "dear,2,0.30000000000000004,1,a100-80gb", "cheap,1,0.3,1,a100-80gb"]
    (tmp_path / "p.csv").write_text("\n".join(rows) + "\n")
    found = cli("recommend", "--configs", "p.csv", "--max-cost", "100", "--format", "json").json
    assert found["recommended"]["name"] == "cheap"
