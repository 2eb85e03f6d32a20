"""Ranking: more seeds are no advantage, and what is incomplete is shown."""

from __future__ import annotations

import numpy as np
import pytest

from fairtrial.stats.ranking import rank_arms


@pytest.mark.parametrize("statistic", ["mean", "iqm", "median"])
def test_three_seeds_and_ten_of_equal_skill_come_first_equally_often(statistic: str) -> None:
    rng = np.random.default_rng(1)
    first = sum(
        rank_arms({"few": rng.normal(size=(3, 4)), "many": rng.normal(size=(10, 4))}, statistic, "max")[0].arm == "few"
        for _ in range(4000)
    )
    assert 0.47 <= first / 4000 <= 0.53


def test_ranking_by_the_best_seed_would_favour_the_many() -> None:
    rng = np.random.default_rng(2)
    few = sum(rng.normal(size=3).max() > rng.normal(size=10).max() for _ in range(4000))
    assert few / 4000 < 0.3


def test_incomplete_seeds_are_counted_and_not_scored() -> None:
    table = np.array([[1.0, 1.0], [9.0, np.nan]])
    found = rank_arms({"a": table, "b": np.array([[2.0, 2.0]]), "c": np.array([[np.nan, 1.0]])}, "mean", "max")
    assert [(rank.arm, rank.place, rank.seeds, rank.incomplete) for rank in found] == [
        ("b", 1, 1, 0),
        ("a", 2, 1, 1),
        ("c", None, 0, 1),
    ]
    assert [rank.arm for rank in rank_arms({"a": table, "b": np.array([[2.0, 2.0]])}, "mean", "min")] == ["a", "b"]


def test_equals_share_a_place() -> None:
    same = np.ones((3, 2))
    assert [rank.place for rank in rank_arms({"a": same, "b": same, "c": 0 * same}, "mean", "max")] == [1, 1, 3]
    gap = rank_arms({"far": 0 * same, "near": 0.9 * same}, "optimality_gap", "max")
    assert gap[0].arm == "near"
