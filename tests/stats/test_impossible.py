"""Values that no runs can have are pointed out; values that runs had, rounded correctly, never are."""

from __future__ import annotations

import functools
import itertools
import math
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairtrial.core.printed import PrintedArm, SummaryOptions, printed_in
from fairtrial.stats.impossible import find_impossible, largest_sd, means_checked
from fairtrial.stats.student import t_quantile


def arm(n: int, mean: str, **cells: str) -> PrintedArm:
    known = {name: printed_in(cell) for name, cell in {"mean": mean, **cells}.items()}
    shown, low, high = known["mean"], known.get("low"), known.get("high")
    assert shown is not None and None not in known.values()
    limits = (low, high) if low is not None and high is not None else None
    return PrintedArm("new", n, shown, known.get("sd"), known.get("se"), known.get("ci"), limits)


def kinds(row: PrintedArm, **options: Any) -> dict[str, str]:
    found = find_impossible([row], SummaryOptions(**options))
    assert all(each.sentence.startswith("new: ") and each.sentence.endswith(".") for each in found)
    return {each.kind: each.severity for each in found}


def rounded(value: float, decimals: int, way: str) -> str:
    return str(Decimal(value).quantize(Decimal(1).scaleb(-decimals), rounding=way))


# Real runs are never flagged


@st.composite
def counts(draw: st.DrawFn) -> tuple[int, list[int]]:
    """Right answers of n runs on a test set of some items: anything, or runs that resemble each other."""
    items = draw(st.one_of(st.integers(1, 30), st.integers(31, 20_000)))
    n = draw(st.integers(2, 12))
    first = draw(st.integers(0, items))
    near = st.integers(max(0, first - 5), min(items, first + 5))
    return items, draw(st.lists(st.one_of(near, near, st.integers(0, items)), min_size=n, max_size=n))


@pytest.mark.slow
@given(
    data=counts(), mean_decimals=st.integers(0, 8), sd_decimals=st.integers(0, 8), percent=st.booleans(),
    way=st.sampled_from([ROUND_HALF_UP, ROUND_HALF_EVEN]), divisor=st.sampled_from([1, 1, 1, 0]),
)  # fmt: skip
@settings(max_examples=200)
def test_rounded_shares_of_whole_items_are_never_impossible(
    data: tuple[int, list[int]], mean_decimals: int, sd_decimals: int, percent: bool, way: str, divisor: int
) -> None:
    items, right = data
    scale = 100.0 if percent else 1.0
    scores = np.array(right) / items * scale
    row = arm(
        len(right), rounded(float(scores.mean()), mean_decimals, way),
        sd=rounded(float(scores.std(ddof=divisor)), sd_decimals, way),
    )  # fmt: skip
    found = find_impossible([row], SummaryOptions(items=items, bounds=(0.0, scale)))
    assert [each for each in found if each.severity == "impossible"] == []
    if divisor == 1:
        assert {each.kind for each in found} <= {"no spread"}


@given(data=counts(), percent=st.booleans())
def test_numbers_with_all_their_digits_are_never_impossible(data: tuple[int, list[int]], percent: bool) -> None:
    """As JSON has them: with the round-off of a program, and without zeros at the end."""
    items, right = data
    scale = 100.0 if percent else 1.0
    scores = [count / items * scale for count in right]
    mean = sum(scores) / len(scores)
    sd = math.sqrt(sum((score - mean) ** 2 for score in scores) / (len(scores) - 1))
    row = arm(len(right), repr(mean), sd=repr(sd), se=repr(sd / math.sqrt(len(right))))
    assert set(kinds(row, items=items, bounds=(0.0, scale))) <= {"no spread"}


@given(
    values=st.lists(st.integers(0, 1000).map(lambda x: x / 1000), min_size=2, max_size=9), decimals=st.integers(1, 6),
    level=st.sampled_from([0.9, 0.95, 0.99]),
)  # fmt: skip
@settings(max_examples=80)
def test_rounded_spreads_and_intervals_of_real_runs_are_never_flagged(
    values: list[float], decimals: int, level: float
) -> None:
    n, mean, sd = len(values), float(np.mean(values)), float(np.std(values, ddof=1))
    half = t_quantile(1 - (1 - level) / 2, n - 1) * sd / math.sqrt(n)
    shown = {name: rounded(value, decimals, ROUND_HALF_EVEN) for name, value in {
        "mean": mean, "sd": sd, "se": sd / math.sqrt(n), "ci": half, "low": mean - half, "high": mean + half,
    }.items()}  # fmt: skip
    mean_text = shown.pop("mean")
    options: dict[str, Any] = {"bounds": (0.0, 1.0), "interval_level": level}
    for names in (["sd"], ["se"], ["ci"], ["low", "high"], list(shown)):
        row = arm(n, mean_text, **{name: shown[name] for name in names})
        assert set(kinds(row, **options)) <= {"no spread"}, names


# Planted ones are


@given(
    items=st.integers(5, 200), n=st.integers(2, 9), share=st.floats(0.01, 0.99),
    step=st.floats(0.2, 0.8),
)  # fmt: skip
def test_a_mean_between_two_possible_ones_is_impossible(items: int, n: int, share: float, step: float) -> None:
    """Planted a fifth to four fifths of the way between neighbours, with digits that tell them apart."""
    right = int(share * items * n)
    planted = rounded((right + step) / (items * n), 6, ROUND_HALF_EVEN)
    assert kinds(arm(n, planted, sd="0.05"), items=items)["mean of whole items"] == "impossible"


@pytest.mark.parametrize(("n", "items", "mean", "sd", "allowed"), [
    (5, 100, "0.871", "0.012", False),  # steps of 0.002
    (5, 100, "0.872", "0.012", False),  # 436 right in all: no five whole numbers have this spread
    (5, 100, "0.872", "0.013", True),  # 86, 86, 87, 88, 89
    (3, 10, "0.333", "0.058", True),  # 3, 3, 4
    (3, 10, "0.333", "0.010", False),  # they cannot be so alike
    (3, 10, "0.33", "0.60", False),  # nor so different
    (2, 2, "0.50", "0.71", True),  # 0, 2
    (2, 2, "0.50", "0.70", False),
    (4, 1, "0.25", "0.50", True),  # one of four
])  # fmt: skip
def test_whole_items_allow_some_means_and_spreads(n: int, items: int, mean: str, sd: str, allowed: bool) -> None:
    assert (kinds(arm(n, mean, sd=sd), items=items) == {}) == allowed


@functools.cache
def outcomes(n: int, items: int) -> tuple[Any, Any]:
    """Mean and standard deviation of everything that n runs of so many items can give."""
    right = np.array(list(itertools.combinations_with_replacement(range(items + 1), n))) / items
    return right.mean(axis=1), right.std(axis=1, ddof=1)


def is_possible(n: int, items: int, mean: int, sd: int) -> bool:
    """By trying every outcome; both numbers are in hundredths."""
    means, spreads = outcomes(n, items)
    near = 0.005 + 1e-12
    return bool(((np.abs(means - mean / 100) <= near) & (np.abs(spreads - sd / 100) <= near)).any())


def flagged(n: int, items: int, mean: int, sd: int) -> set[str]:
    found = kinds(arm(n, f"{mean / 100:.2f}", sd=f"{sd / 100:.2f}"), items=items)
    return {severity for kind, severity in found.items() if kind != "no spread"}


@given(n=st.integers(2, 4), items=st.integers(1, 9), mean=st.integers(0, 100), sd=st.integers(0, 71))
@settings(max_examples=300)
def test_nothing_that_some_outcome_gives_is_called_impossible(n: int, items: int, mean: int, sd: int) -> None:
    assert not (is_possible(n, items, mean, sd) and flagged(n, items, mean, sd))


def test_nearly_all_that_no_outcome_gives_is_found() -> None:
    """The checks are necessary conditions, not sufficient ones: on a grid of means and spreads they miss 1.3 %."""
    grid = list(itertools.product(range(0, 101, 3), range(0, 60, 3)))
    wrong = [each for each in grid if not is_possible(3, 6, *each)]
    missed = [each for each in wrong if not flagged(3, 6, *each)]
    assert len(wrong) > 500 and len(missed) <= 0.02 * len(wrong)


def test_a_standard_deviation_that_was_divided_by_n_is_doubted() -> None:
    scores = np.array([86, 86, 87, 88, 89]) / 100
    shown = f"{scores.std():.3f}"  # 0.012, not 0.013
    assert kinds(arm(5, "0.872", sd=shown), items=100) == {"standard deviation divided by n": "doubtful"}
    [found] = find_impossible([arm(5, "0.872", sd=shown)], SummaryOptions(items=100))
    assert "numpy.std" in found.sentence and "0.01342" in found.sentence


@pytest.mark.parametrize(("mean", "sd", "bounds", "kind"), [
    ("1.2", "0.1", (0, 1), "mean outside its range"),
    ("-0.1", "0.1", (0, 1), "mean outside its range"),
    ("0.9", "0.4", (0, 1), "spread too large for its range"),
    ("50", "60", (0, 100), "spread too large for its range"),
    ("1.0", "0.3", (0, 1), "spread too large for its range"),
])  # fmt: skip
def test_values_that_their_range_excludes(mean: str, sd: str, bounds: tuple[float, float], kind: str) -> None:
    assert kinds(arm(5, mean, sd=sd), bounds=bounds) == {kind: "impossible"}


@given(values=st.lists(st.integers(0, 20), min_size=2, max_size=8), decimals=st.integers(0, 4))
def test_the_largest_spread_is_at_least_that_of_any_values(values: list[int], decimals: int) -> None:
    scores = np.array(values) / 20
    mean = printed_in(rounded(float(scores.mean()), decimals, ROUND_HALF_EVEN))
    assert mean is not None
    most = largest_sd(mean, len(values), (Fraction(0), Fraction(1)))
    assert most is not None and most * (1 + 1e-9) >= scores.std(ddof=1)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_the_largest_spread_is_reached_by_values_at_the_ends(n: int) -> None:
    for ones in range(n + 1):
        scores = np.array([1.0] * ones + [0.0] * (n - ones))
        mean = printed_in(f"{scores.mean():.9f}")
        assert mean is not None
        assert largest_sd(mean, n, (Fraction(0), Fraction(1))) == pytest.approx(scores.std(ddof=1), abs=1e-5)


@pytest.mark.parametrize(("cells", "expected"), [
    ({"low": "0.800", "high": "0.860"}, {"mean outside its interval": "impossible"}),
    ({"low": "0.860", "high": "0.900"}, {"interval not around its mean": "doubtful"}),
    ({"low": "0.860", "high": "0.880", "ci": "0.020"}, {"two half-widths": "impossible"}),
    ({"sd": "0.020", "se": "0.009"}, {}),
    ({"sd": "0.020", "se": "0.020"}, {"standard error does not fit": "doubtful"}),
    ({"sd": "0.020", "low": "0.845", "high": "0.895"}, {}),  # 2.776 · 0.02 / √5 = 0.0248
    ({"sd": "0.020", "low": "0.852", "high": "0.888"}, {}),  # 1.960 · 0.02 / √5 = 0.0175
    ({"sd": "0.020", "low": "0.850", "high": "0.890"}, {"interval does not fit": "doubtful"}),
    ({"sd": "0.020", "ci": "0.1"}, {"interval does not fit": "doubtful"}),
    ({"sd": "0"}, {"no spread": "doubtful"}),
    ({"se": "0.45"}, {"standard error that looks like a standard deviation": "doubtful"}),
    ({"ci": "0.9"}, {"interval too wide for its range": "doubtful"}),
])  # fmt: skip
def test_spreads_and_intervals_that_contradict_each_other(cells: dict[str, str], expected: dict[str, str]) -> None:
    assert kinds(arm(5, "0.870", **cells), bounds=(0.0, 1.0)) == expected


def test_an_interval_that_is_a_spread_is_named() -> None:
    [found] = find_impossible([arm(5, "0.870", sd="0.020", low="0.850", high="0.890")], SummaryOptions())
    assert "it is mean ± sd" in found.sentence


def test_it_is_said_how_many_means_could_be_checked() -> None:
    fine, coarse = arm(5, "0.871", sd="0.01"), arm(5, "0.87", sd="0.01")
    assert means_checked([fine, coarse], SummaryOptions(items=100)) == 1
    assert means_checked([fine, coarse], SummaryOptions(items=10_000)) == 0
    assert means_checked([fine, coarse], SummaryOptions()) == 0


def test_shares_in_percent_without_their_range_get_a_hint() -> None:
    [found] = find_impossible([arm(5, "87.1", sd="0.5")], SummaryOptions(items=100))
    assert found.kind == "mean outside its range" and "--range 0:100" in found.sentence


def test_the_arithmetic_is_in_the_sentence() -> None:
    [found] = find_impossible([arm(5, "0.871", sd="0.013")], SummaryOptions(items=100))
    assert found.sentence == (
        "new: the mean 0.871 cannot be a mean of 5 runs of 100 items: such means are multiples of 0.002, and the nearest are "
        "0.87000 and 0.87200."
    )
