"""The sequential sign-flip test: exact over all sign vectors, whatever the sizes of the differences."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from fairtrial.core.errors import UserError
from fairtrial.stats.samples import Array
from fairtrial.stats.sequential import (
    GREATER,
    LESS,
    TWO_SIDED,
    earliest_rejection,
    rational,
    sign_flip_looks,
    sign_flip_paths,
)

ALPHA = Fraction(1, 20)
PATTERNS = {
    "equal sizes": np.ones(9),
    "ties": np.array([1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 0.0, 0.0, 1.0]),
    "one outlier": np.array([0.1, 0.2, 0.1, 50.0, 0.3, 0.2, 0.1, 0.4, 0.2]),
    "growing": np.arange(1.0, 10.0),
    "random": np.random.default_rng(3).gamma(0.7, size=9),
    "sums that rounding tells apart": np.array([0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.1, 0.2, 0.3]),
}


def is_rejected(values: Array, planned: int, side: str = TWO_SIDED, alpha: Fraction = ALPHA, every: int = 1) -> bool:
    done = list(
        sign_flip_looks(values, planned=planned, alpha=alpha, looks=range(every, planned + 1, every), side=side)
    )
    return done[-1].rejected


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("side", [TWO_SIDED, GREATER, LESS])
def test_of_all_sign_vectors_at_most_alpha_are_ever_rejected(name: str, side: str) -> None:
    """Test all vectors as rows of one table, and each one alone: both must give the same answer."""
    sizes = PATTERNS[name]
    vectors = sizes * np.array([*itertools.product((1, -1), repeat=9)])
    for alpha in (ALPHA, Fraction(1, 10)):
        looks = sign_flip_paths(vectors, planned=9, alpha=alpha, looks=range(1, 10), side=side)
        rejected = np.any([look.rejected for look in looks], axis=0)
        assert 0 < rejected.sum() <= alpha * 2**9
        assert [is_rejected(vector, 9, side, alpha) for vector in vectors] == [*rejected]


def test_the_earliest_stops_are_those_of_the_arithmetic() -> None:
    two_sided = {planned: earliest_rejection(planned, ALPHA, two_sided=True) for planned in range(5, 52)}
    assert two_sided[5] is None
    assert {two_sided[n] for n in range(6, 10)} == {6}
    assert {two_sided[n] for n in range(10, 23)} == {7}
    assert {two_sided[n] for n in range(23, 52)} == {8}
    assert earliest_rejection(7, Fraction(1, 100), two_sided=True) is None
    assert earliest_rejection(15, ALPHA, two_sided=False) == 6


def test_the_earliest_stop_is_reached_by_differences_of_one_sign() -> None:
    done = list(sign_flip_looks([1.0, 1.3, 0.8, 1.1, 0.9, 1.2, 1.05, 1.0], planned=15, alpha=ALPHA, looks=range(1, 16)))
    assert [look.n for look in done] == [1, 2, 3, 4, 5, 6, 7]
    assert [look.rejected for look in done] == [False] * 6 + [True]
    assert all(math.isinf(look.boundary) for look in done[:6]) and done[6].sum > done[6].boundary > 0


def test_a_change_of_sign_or_unit_changes_nothing_else() -> None:
    values = np.random.default_rng(5).normal(0.8, 1, 15)
    plain, mirrored, scaled = (
        list(sign_flip_looks(sample, planned=15, alpha=ALPHA, looks=range(1, 16)))
        for sample in (values, -values, values * 1024)
    )
    assert (
        [look.rejected for look in plain] == [look.rejected for look in mirrored] == [look.rejected for look in scaled]
    )
    assert [look.sum for look in mirrored] == [-look.sum for look in plain]
    assert [look.boundary for look in mirrored] == [look.boundary for look in plain]


def test_later_pairs_do_not_change_earlier_looks() -> None:
    values = np.random.default_rng(6).normal(0.3, 1, 20)
    whole = list(sign_flip_looks(values, planned=20, alpha=ALPHA, looks=range(1, 21)))
    part = list(sign_flip_looks(values[:12], planned=20, alpha=ALPHA, looks=range(1, 21)))
    assert part == whole[: len(part)]


@pytest.mark.slow
def test_more_pairs_than_are_enumerated_keep_the_level() -> None:
    """20 pairs: all beginnings, each with random signs afterward. 3 standard errors above 5 % of 500 are 7.9 %."""
    sizes = np.random.default_rng(7).gamma(0.7, size=20)
    signs = np.random.default_rng(8).choice([-1.0, 1.0], size=(500, 20))
    rejected = sum(is_rejected(sizes * row, 20, every=2) for row in signs)
    assert 0.02 < rejected / 500 < 0.079


def test_fewer_looks_are_allowed_and_other_ones_refused() -> None:
    values = np.full(15, 1.0) + np.random.default_rng(9).normal(0, 0.2, 15)
    looked = [look.n for look in sign_flip_looks(values, planned=15, alpha=ALPHA, looks=(9, 15))]
    assert looked == [9]
    with pytest.raises(UserError, match="there are 16 pairs, but only 15 were planned"):
        list(sign_flip_looks(np.ones(16), planned=15, alpha=ALPHA, looks=(15,)))


def test_the_level_is_taken_as_it_is_written() -> None:
    assert rational(0.95) == Fraction(1, 20) and rational(0.99) == Fraction(1, 100)
