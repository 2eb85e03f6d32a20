"""Dominance, frontiers, membership probabilities and hypervolume."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.costs.pareto import dominance, dominator, draw_means, hypervolume, membership, on_frontier
from fairtrial.costs.points import Reading

few = st.integers(0, 4).map(float)


def tables(objectives: int):
    return st.lists(st.lists(few, min_size=objectives, max_size=objectives), min_size=1, max_size=9).map(np.array)


any_table = st.integers(2, 4).flatmap(tables)


@given(any_table)
def test_dominance_is_a_partial_order(gains):
    beats = dominance(gains)
    n = len(gains)
    assert not beats.diagonal().any()
    for i, j in itertools.product(range(n), repeat=2):
        assert not (beats[i, j] and beats[j, i])
        for k in range(n):
            assert not (beats[i, j] and beats[j, k]) or beats[i, k]


@given(any_table)
def test_the_frontier_is_what_nobody_dominates_and_never_empty(gains):
    members = on_frontier(gains)
    assert members.any()
    assert (members == ~dominance(gains).any(0)).all()


@given(any_table)
def test_every_dominated_point_names_a_dominator_on_the_frontier(gains):
    members, beats = on_frontier(gains), dominance(gains)
    for point in range(len(gains)):
        found = dominator(gains, point)
        assert (found is None) == bool(members[point])
        if found is not None:
            assert beats[found, point] and members[found]


@given(any_table)
def test_equal_points_stand_or_fall_together(gains):
    twice = np.concatenate([gains, gains])
    members = on_frontier(twice)
    assert (members[: len(gains)] == members[len(gains) :]).all()
    assert (members[: len(gains)] == on_frontier(gains)).all()


@given(tables(2))
def test_sorting_two_objectives_gives_what_comparing_all_pairs_gives(gains):
    drawn = np.stack([gains, gains[::-1]])
    shares = membership(drawn)
    by_pairs = np.mean([~dominance(each).any(0) for each in drawn], axis=0)
    assert np.allclose(shares, by_pairs)


@given(tables(3))
def test_three_objectives_go_through_chunks(gains):
    drawn = np.repeat(gains[None], 5, axis=0)
    assert np.allclose(membership(drawn), on_frontier(gains))


def test_a_mean_moves_by_students_t():
    from scipy import stats

    values = {"1": 0.80, "2": 0.86, "3": 0.83}
    reading = Reading(0.83, values)
    drawn = draw_means([[reading]], 200_000)[:, 0, 0]
    scaled = (drawn - 0.83) / (np.std(list(values.values()), ddof=1) / np.sqrt(3))
    assert stats.kstest(scaled, stats.t(2).cdf).pvalue > 1e-3


def test_shared_seeds_move_together_and_other_seeds_do_not():
    rising = {"1": 0.1, "2": 0.2, "3": 0.3}
    same = Reading(1.2, {seed: value + 1 for seed, value in rising.items()})
    apart = Reading(1.2, {f"other {seed}": value + 1 for seed, value in rising.items()})
    drawn = draw_means([[Reading(0.2, rising)], [same], [apart]], 20_000)[:, :, 0]
    assert np.allclose(drawn[:, 1] - drawn[:, 0], 1)
    ranks = np.argsort(np.argsort(drawn, axis=0), axis=0)
    assert abs(np.corrcoef(ranks[:, 0], ranks[:, 2])[0, 1]) < 0.03


def test_readings_that_share_no_seed_are_independent_also_in_their_spread():
    """Two points of two seeds each: by hand, each mean moves by a Cauchy variable of its own."""
    from scipy import stats

    first, second = (Reading(0.0, {f"{name}1": -1.0, f"{name}2": 1.0}) for name in "ab")
    drawn = draw_means([[first], [second]], 100_000)[:, :, 0]
    sizes = np.abs(drawn) > 1
    assert (
        stats.chi2_contingency(
            [
                [np.sum(sizes[:, 0] & sizes[:, 1]), np.sum(sizes[:, 0] & ~sizes[:, 1])],
                [np.sum(~sizes[:, 0] & sizes[:, 1]), np.sum(~sizes[:, 0] & ~sizes[:, 1])],
            ]
        ).pvalue
        > 1e-3
    )


def test_one_more_seed_does_not_part_what_moves_together():
    base = {str(n): value for n, value in enumerate([0.70, 0.74, 0.72])}
    first = Reading(0.72, base)
    more = {**{seed: value + 0.01 for seed, value in base.items()}, "3": 0.73}
    second = Reading(sum(more.values()) / 4, more)
    drawn = draw_means([[first], [second]], 20_000)[:, :, 0]
    assert (drawn[:, 1] > drawn[:, 0]).mean() > 0.85


def test_what_has_one_seed_or_no_noise_stays_where_it_is():
    drawn = draw_means([[Reading(3.0)], [Reading(2.0, {"1": 2.0})], [Reading(1.0, {"1": 1.0, "2": 1.0})]], 50)
    assert (drawn == np.array([3.0, 2.0, 1.0])[:, None]).all()


def test_the_order_of_points_does_not_change_a_draw():
    a, b = Reading(0.2, {"1": 0.1, "2": 0.3}), Reading(0.5, {"1": 0.4, "2": 0.6})
    assert (draw_means([[a], [b]], 100) == draw_means([[b], [a]], 100)[:, ::-1]).all()


@pytest.mark.parametrize(
    ("points", "corner", "volume"),
    [
        ([[1, 1]], [0, 0], 1),
        ([[2, 1], [1, 2]], [0, 0], 3),
        ([[2, 1], [1, 2], [1, 1]], [0, 0], 3),
        ([[2, 1], [1, 2]], [1.5, 0], 0.5),
        ([[1, 1]], [1, 0], 0),
        ([[1, 1, 1]], [0, 0, 0], 1),
        ([[2, 1, 1], [1, 2, 1], [1, 1, 2]], [0, 0, 0], 4),
    ],
)
def test_hypervolume_of_boxes(points, corner, volume):
    assert hypervolume(np.array(points, float), np.array(corner, float)) == pytest.approx(volume)


@given(tables(3))
def test_hypervolume_counts_the_cells_that_some_point_dominates(gains):
    cells = np.array(list(itertools.product(range(4), repeat=3)))
    covered = sum((gains >= cell + 1).all(1).any() for cell in cells)
    assert hypervolume(gains, np.zeros(3)) == pytest.approx(covered)
