"""What an ablation takes away: each component, named combinations, pairs, or every subset."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.core.errors import InvalidOptions
from fairtrial.core.paths import check_name
from fairtrial.core.registry import load_recipe
from fairtrial.plan.ablations import FULL, MOST_FACTORIAL, changes_without, check_components, removals, variant_of
from fairtrial.plan.cells import resolve

DISTILL = load_recipe("distill")
NAMES = tuple(DISTILL.components)


def test_each_component_is_left_out_once_after_the_full_model() -> None:
    assert removals(["a", "b", "c"]) == [(), ("a",), ("b",), ("c",)]
    assert removals(["a"]) == [(), ("a",)]


def test_named_combinations_come_last_in_the_order_of_the_components() -> None:
    assert removals(["a", "b", "c"], also=["c + a", "a+b+c"])[4:] == [("a", "c"), ("a", "b", "c")]


@pytest.mark.parametrize("also", [["b+a", "a+b"], ["a+b", "a+b"], ["a + b", "a+a+b"]])
def test_a_combination_named_twice_is_there_once(also: list[str]) -> None:
    assert removals(["a", "b"], also=also) == [(), ("a",), ("b",), ("a", "b")]


def test_a_combination_that_is_there_anyhow_adds_nothing() -> None:
    assert removals(["a", "b"], also=["b", "a+a"]) == removals(["a", "b"])
    assert removals(["a", "b"], also=["b+a"], all_pairs=True) == removals(["a", "b"], all_pairs=True)
    assert removals(["a", "b"], also=["a+b"], factorial=True) == removals(["a", "b"], factorial=True)


def test_all_pairs_follow_the_single_ones() -> None:
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    assert removals(["a", "b", "c"], all_pairs=True) == [(), ("a",), ("b",), ("c",), *pairs]
    assert removals(["a"], all_pairs=True) == [(), ("a",)]


@given(count=st.integers(1, MOST_FACTORIAL), all_pairs=st.booleans())
def test_a_factorial_has_every_subset_once_smaller_ones_first(count: int, all_pairs: bool) -> None:
    names = [f"c{n}" for n in range(count)]
    sets = removals(names, factorial=True, all_pairs=all_pairs)
    assert len(sets) == len(set(sets)) == 2**count
    assert sets[0] == () and sets[-1] == tuple(names)
    assert [len(each) for each in sets] == sorted(len(each) for each in sets)
    assert set(sets) == {chosen for size in range(count + 1) for chosen in combinations(names, size)}


@given(
    names=st.lists(st.sampled_from(NAMES), min_size=1, unique=True),
    also=st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), max_size=3),
    all_pairs=st.booleans(),
)
def test_sets_are_never_repeated_and_always_in_the_order_given(
    names: list[str], also: list[list[str]], all_pairs: bool
) -> None:
    texts = ["+".join(each) for each in also if set(each) <= set(names)]
    sets = removals(names, also=texts, all_pairs=all_pairs)
    assert len(sets) == len(set(sets)) and sets[0] == ()
    assert all(list(each) == [name for name in names if name in each] for each in sets)
    assert {frozenset(text.split("+")) for text in texts} <= {frozenset(each) for each in sets}


def test_a_factorial_of_too_many_is_refused_with_its_size() -> None:
    names = [f"c{n}" for n in range(MOST_FACTORIAL + 1)]
    with pytest.raises(InvalidOptions, match="a factorial of 7 components has 128 settings") as caught:
        removals(names, factorial=True)
    assert "--all-pairs" in (caught.value.hint or "")
    assert len(removals(names, all_pairs=True)) == 1 + 7 + 21


def test_a_combination_of_what_is_not_there_is_refused_with_all_its_problems() -> None:
    with pytest.raises(InvalidOptions) as caught:
        removals(["temperature", "attention_loss"], also=["temprature+zzz+attention_loss"])
    told = str(caught.value)
    assert told.startswith("--also temprature+zzz+attention_loss: ")
    assert "did you mean 'temperature'" in told and "'zzz'" in told
    assert "Components: temperature, attention_loss." in told


@pytest.mark.parametrize("text", ["", "+", "temperature+", "temperature,attention_loss"])
def test_a_combination_that_is_no_sum_of_names_is_refused(text: str) -> None:
    with pytest.raises(InvalidOptions, match="--also"):
        removals(["temperature", "attention_loss"], also=[text])


def test_unknown_components_are_all_told_with_what_is_valid() -> None:
    with pytest.raises(InvalidOptions) as caught:
        check_components(DISTILL, ["temprature", "zzz", "layer_matching"])
    assert "unknown component 'temprature'; did you mean 'temperature'?" in str(caught.value)
    assert any("unknown component 'zzz'" in problem for problem in caught.value.problems)
    assert all(name in (caught.value.hint or "") for name in NAMES)


def test_components_are_named_and_named_once() -> None:
    check_components(DISTILL, list(NAMES))
    with pytest.raises(InvalidOptions, match="component temperature is named twice"):
        check_components(DISTILL, ["temperature", "layer_matching", "temperature"])
    with pytest.raises(InvalidOptions, match="no component is named"):
        check_components(DISTILL, [])


def test_a_recipe_without_components_says_so() -> None:
    with pytest.raises(InvalidOptions, match="recipe 'fake' has no components"):
        check_components(load_recipe("fake"), ["temperature"])


def test_variants_carry_the_changes_of_all_that_is_taken_away() -> None:
    both = ("temperature", "attention_loss")
    changes = changes_without(DISTILL, [(), ("temperature",), both])
    assert changes == {
        (): {},
        ("temperature",): {"temperature": 1.0},
        both: {"temperature": 1.0, "attention_loss": False},
    }
    assert [variant_of(removed) for removed in changes] == [
        FULL,
        "without-temperature",
        "without-temperature+attention_loss",
    ]


def test_every_subset_of_the_recipes_components_is_a_valid_folder_and_a_valid_model() -> None:
    sets = removals(NAMES, factorial=True)
    variants = {variant_of(removed): changes for removed, changes in changes_without(DISTILL, sets).items()}
    assert len(variants) == 2 ** len(NAMES)
    base = {"strategy": "combined", "student": "cnn"}
    resolved = [resolve(DISTILL, {**base, **changes}, where=name).to_dict() for name, changes in variants.items()]
    assert len({str(options) for options in resolved}) == len(sets), "no two of them are the same model"
    assert all(check_name("variant", variant_of(removed)) for removed in sets)
