"""Interactions of an ablation: double differences by hand, Student's t by SciPy, Holm over all of them."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from fairtrial.stats.compare import ComparisonConfig
from fairtrial.stats.contrasts import Interaction, Layout, interactions

Array = NDArray[np.float64]
Sets = Sequence[tuple[str, ...]]
PAIRED = ComparisonConfig(paired=True)


def subsets(names: str, most: int | None = None) -> list[tuple[str, ...]]:
    return [c for size in range((len(names) if most is None else most) + 1) for c in combinations(names, size)]


def layout_of(sets: Sets, seeds: int = 5, key: int = 0) -> dict[tuple[str, ...], Array]:
    rng = np.random.default_rng([key, seeds, len(sets)])
    return {removed: rng.normal(0.7, 0.05, seeds) for removed in sets}


def by_name(layout: Layout, config: ComparisonConfig = PAIRED) -> dict[str, Interaction]:
    return {"".join(each.components): each for each in interactions(layout, config)}


def assert_is_paired_t(found: Interaction, per_seed: Array) -> None:
    """The interval is at the level of the interaction's own step of Holm's, which it states."""
    expected = stats.ttest_1samp(per_seed, 0)
    limits = expected.confidence_interval(found.effect.level)
    assert found.effect.value == pytest.approx(per_seed.mean(), rel=1e-10, abs=1e-12)
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-10)
    assert found.effect.low == pytest.approx(limits.low, rel=1e-10, abs=1e-12)
    assert found.effect.high == pytest.approx(limits.high, rel=1e-10, abs=1e-12)
    assert found.effect.n == len(per_seed)


@pytest.mark.parametrize("seeds", [2, 3, 5, 12])
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_two_components_interact_by_their_double_difference_seed_by_seed(seeds: int, alpha: float) -> None:
    layout = layout_of([(), ("a",), ("b",), ("a", "b")], seeds)
    [found] = interactions(layout, ComparisonConfig(paired=True, alpha=alpha))
    beside_b = layout[()] - layout["a",]
    without_b = layout["b",] - layout["a", "b"]
    assert found.components == ("a", "b")
    assert found.effect.level == 1 - alpha  # one alone is not adjusted
    assert_is_paired_t(found, beside_b - without_b)
    assert found.basis == "beside all other components"
    assert found.adjusted_p == found.p_value, "one alone needs no adjustment"


def test_a_known_interaction_is_found_with_its_sign() -> None:
    """Each alone adds 1, both together 5 more: they help each other."""
    rng = np.random.default_rng(1)
    worth = {(): 1 + 1 + 5, ("a",): 1, ("b",): 1, ("a", "b"): 0}
    layout = {removed: value + 0.01 * rng.standard_normal(5) for removed, value in worth.items()}
    [found] = interactions(layout, PAIRED)
    assert found.effect.value == pytest.approx(5, abs=0.05)
    assert found.effect.low is not None and found.effect.low > 0
    assert found.p_value is not None and found.p_value < 1e-4


def test_components_that_add_up_do_not_interact() -> None:
    """Binary fractions, so that nothing is rounded."""
    luck = np.array([0.25, -0.5, 0.375, 0.125])
    worth = {(): 7.0, ("a",): 5.0, ("b",): 4.0, ("a", "b"): 2.0}
    [found] = interactions({removed: value + luck for removed, value in worth.items()}, PAIRED)
    assert found.effect.value == 0
    assert (found.effect.low, found.p_value, found.adjusted_p) == (None, None, None), "no noise, no verdict"
    assert found.effect.reason == "no variation"


def test_rounding_is_no_interaction() -> None:
    """Components that add up, in decimals: what is left is dust of 1e-16, which may even look significant."""
    luck = np.random.default_rng(0).normal(0.7, 0.05, 40)
    for worth in [(0.0, -0.11, -0.07, -0.18), (0.123, 0.05, 0.07, -0.003), (0.3, 0.2, 0.1, 0.0)]:
        [found] = interactions({s: value + luck for s, value in zip(subsets("ab"), worth, strict=True)}, PAIRED)
        assert found.effect.value == pytest.approx(0, abs=1e-15)
        assert (found.p_value, found.effect.reason) == (None, "no variation")


# Several components


def test_all_pairs_of_three_are_judged_beside_the_third() -> None:
    layout = layout_of(subsets("abc", 2))
    found = by_name(layout)
    assert list(found) == ["ab", "ac", "bc"]
    for one, other in combinations("abc", 2):
        each = found[one + other]
        assert each.basis == "beside all other components"
        assert_is_paired_t(each, layout[()] - layout[one,] - layout[other,] + layout[one, other])


def test_in_a_factorial_pairs_are_averaged_over_the_settings_of_the_others() -> None:
    layout = layout_of(subsets("abc"))
    found = by_name(layout)
    assert list(found) == ["ab", "ac", "bc", "abc"]
    with_b = layout[()] - layout["a",] - layout["c",] + layout["a", "c"]
    without_b = layout["b",] - layout["a", "b"] - layout["b", "c"] + layout["a", "b", "c"]
    assert_is_paired_t(found["ac"], (with_b + without_b) / 2)
    assert found["ac"].basis == "averaged over the settings of the others"


def test_in_a_factorial_of_four_a_pair_is_averaged_over_four_settings() -> None:
    layout = layout_of(subsets("abcd"))
    found = by_name(layout)
    assert len(found) == 6 + 4 + 1
    parts = []
    for other in ((), ("a",), ("d",), ("a", "d")):
        sets = [tuple(sorted({*other, *removed})) for removed in ((), ("b",), ("c",), ("b", "c"))]
        parts.append(layout[sets[0]] - layout[sets[1]] - layout[sets[2]] + layout[sets[3]])
    assert_is_paired_t(found["bc"], np.mean(parts, axis=0))


def test_three_components_interact_by_the_difference_of_their_double_differences() -> None:
    layout = layout_of(subsets("abc"))
    with_c = layout[()] - layout["a",] - layout["b",] + layout["a", "b"]
    without_c = layout["c",] - layout["a", "c"] - layout["b", "c"] + layout["a", "b", "c"]
    found = by_name(layout)["abc"]
    assert_is_paired_t(found, with_c - without_c)
    assert found.basis == "beside all other components"


def test_a_named_combination_of_three_alone_gives_no_interaction() -> None:
    assert interactions(layout_of([(), ("a",), ("b",), ("c",), ("a", "b", "c")]), PAIRED) == []


@pytest.mark.parametrize(
    "sets",
    [[()], [(), ("a",), ("b",)], [(), ("a",), ("a", "b")], [("a",), ("b",), ("a", "b")], [(), ("b",), ("a", "b")]],
)
def test_without_all_four_corners_there_is_no_interaction(sets: Sets) -> None:
    assert interactions(layout_of(sets), PAIRED) == []


def test_one_arm_less_leaves_the_other_pairs_but_not_their_average() -> None:
    layout = layout_of(subsets("abc"))
    del layout["a", "b", "c"]
    found = by_name(layout)
    assert list(found) == ["ab", "ac", "bc"]
    assert {each.basis for each in found.values()} == {"beside all other components"}


# Adjustment and lost runs


def test_p_values_are_adjusted_by_holm_over_all_interactions() -> None:
    found = interactions(layout_of(subsets("abc"), seeds=4, key=3), PAIRED)
    raw = [each.p_value for each in found if each.p_value is not None]
    assert len(raw) == 4
    worst, expected = 0.0, {}
    for rank, p in enumerate(sorted(raw)):
        worst = max(worst, min(1.0, (4 - rank) * p))
        expected[p] = worst
    assert [each.adjusted_p for each in found] == pytest.approx([expected[p] for p in raw], rel=1e-12)


def test_an_interaction_without_a_p_takes_no_part_in_the_adjustment() -> None:
    """b does nothing at all, so what it would interact with has no variation."""
    layout = {s: np.round(sample * 1024) / 1024 for s, sample in layout_of(subsets("abc", 2), seeds=4).items()}
    for removed in [("b",), ("a", "b"), ("b", "c")]:
        layout[removed] = layout[tuple(name for name in removed if name != "b")]
    found = by_name(layout)
    assert found["ab"].p_value is None and found["ab"].adjusted_p is None and found["ab"].effect.value == 0
    assert found["bc"].p_value is None
    assert found["ac"].adjusted_p == found["ac"].p_value is not None


def test_where_runs_were_lost_the_interaction_is_unknown() -> None:
    """What is left without them may say the opposite: a lost run is never just omitted."""
    layout = layout_of(subsets("abc", 2), seeds=6)
    layout["a",][2] = math.nan
    found = by_name(layout)
    for name in ("ab", "ac"):
        assert found[name].effect.value is None and found[name].p_value is None and found[name].adjusted_p is None
        assert found[name].effect.reason == "attrition" and "lost" in found[name].basis
    assert found["bc"].p_value is not None and found["bc"].adjusted_p == found["bc"].p_value


def test_one_seed_has_no_interval() -> None:
    [found] = interactions(layout_of(subsets("ab"), seeds=1), PAIRED)
    assert (found.effect.n, found.effect.low, found.p_value) == (1, None, None)
    assert found.effect.reason == "too few runs" and found.effect.value is not None


@settings(max_examples=8, deadline=None)
@given(key=st.integers(0, 99), order=st.permutations(range(4)))
def test_the_order_of_seeds_does_not_matter(key: int, order: list[int]) -> None:
    layout = layout_of(subsets("abc"), seeds=4, key=key)
    turned = {removed: sample[order] for removed, sample in layout.items()}
    here, there = (interactions(each, PAIRED) for each in (layout, turned))
    assert [each.to_dict() for each in here] == [each.to_dict() for each in there], "to the last digit"


SCRIPT = """
import json
import numpy as np
from itertools import combinations
from fairtrial.stats.compare import ComparisonConfig
from fairtrial.stats.contrasts import interactions
rng = np.random.default_rng(0)
layout = {removed: rng.normal(0.7, 0.05, 5) for size in range(4) for removed in combinations("abc", size)}
print(json.dumps([found.to_dict() for found in interactions(layout, ComparisonConfig(paired=True))]))
"""


@pytest.mark.slow
def test_every_process_says_the_same_to_the_last_digit() -> None:
    told = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    ]  # fmt: skip
    assert told[0] == told[1]


def test_the_order_of_larger_sets_does_not_matter() -> None:
    layout = layout_of(subsets("abc"))
    turned = {removed: layout[removed] for removed in [*subsets("abc", 1), *reversed(subsets("abc")[4:])]}
    there = by_name(turned)
    for name, each in by_name(layout).items():
        assert there[name].effect.value == each.effect.value
        assert there[name].adjusted_p == each.adjusted_p


def test_the_dictionary_has_the_documented_keys() -> None:
    [found] = interactions(layout_of(subsets("ab")), PAIRED)
    told = json.loads(json.dumps(found.to_dict()))
    assert list(told) == ["components", "effect", "ci", "p", "p_adjusted", "n", "basis"]
    assert told["components"] == ["a", "b"] and told["ci"] == [found.effect.low, found.effect.high]
    [still] = interactions({removed: np.ones(3) for removed in subsets("ab")}, PAIRED)
    assert still.to_dict()["ci"] is None and still.to_dict()["p"] is None
