"""Grids: ranges that end where they say, lists, and every mistake told by name."""

from __future__ import annotations

import math
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.core.errors import InvalidOptions
from fairtrial.core.paths import check_name
from fairtrial.core.registry import load_recipe
from fairtrial.plan import grids
from fairtrial.plan.grids import (
    MOST_VALUES,
    GridAxis,
    GridPoint,
    beyond,
    defaults_of,
    lay_out,
    log_span,
    parse_axis,
    span,
)

FAKE, DISTILL = load_recipe("fake"), load_recipe("distill")


def laid(*params: str, fixed: dict[str, Any] | None = None, zipped: bool = False) -> list[GridPoint]:
    return lay_out(FAKE, fixed or {}, [parse_axis(param) for param in params], zipped=zipped)


def refused(*params: str, **how: Any) -> str:
    with pytest.raises(InvalidOptions) as caught:
        laid(*params, **how)
    return str(caught.value)


# Ranges


@pytest.mark.parametrize(
    ("start", "end", "step", "count", "among"),
    [(0, 1, 0.1, 11, 0.3), (0.3, 0.7, 0.05, 9, 0.6), (1, 8, 0.5, 15, 4.0), (-1, 1, 0.25, 9, 0.0), (2, 2, 1, 1, 2.0)],
)
def test_a_range_has_the_values_that_a_person_would_count(
    start: float, end: float, step: float, count: int, among: float
) -> None:
    axis = span("x", start, end, step)
    assert len(axis.values) == count
    assert axis.values[0] == start and axis.values[-1] == end
    assert among in axis.values
    assert axis.span == {"start": start, "end": end, "step": step}
    assert all(type(value) is float for value in axis.values)


@given(
    start=st.integers(-(10**6), 10**6),
    step=st.integers(1, 10**5),
    count=st.integers(0, 300),
    places=st.integers(0, 8),
)
def test_any_range_of_decimals_is_counted_and_exact(start: int, step: int, count: int, places: int) -> None:
    unit = Decimal(1).scaleb(-places)
    wanted = [float((start + step * n) * unit) for n in range(count + 1)]
    axis = span("x", float(start * unit), wanted[-1], float(step * unit))
    assert list(axis.values) == wanted, "each value is the decimal itself, not a sum of steps"
    assert all(one < other for one, other in pairwise(axis.values))


@pytest.mark.parametrize(
    ("given_", "what"),
    [
        ((0, 1, 0), "step must be above 0, not 0"),
        ((0, 1, -0.1), "step must be above 0, not -0.1"),
        ((0, 1, math.nan), "step must be a finite number, not nan"),
        ((0, 1, math.inf), "step must be a finite number, not inf"),
        ((math.nan, 1, 0.1), "start must be a finite number"),
        ((0, -math.inf, 0.1), "end must be a finite number"),
        ((1, 0, 0.1), "the range is reversed, from 1 to 0"),
        ((0, 1, 0.3), "steps of 0.3 from 0 do not reach 1. End at 0.9 or 1.2"),
        ((0, 0.05, 0.1), "End at 0.0 or 0.1"),
        ((0, 1, 1e-5), f"100,001 values are more than {MOST_VALUES:,}"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused_by_name(given_: tuple[float, float, float], what: str) -> None:
    with pytest.raises(InvalidOptions) as caught:
        span("warmth", *given_)
    assert caught.value.message.startswith("warmth: ")
    assert what in str(caught.value)


def test_all_that_is_not_finite_is_told_at_once() -> None:
    with pytest.raises(InvalidOptions) as caught:
        span("x", math.nan, math.inf, -math.inf)
    assert len(caught.value.problems) == 2
    assert all(word in str(caught.value) for word in ("start", "end", "step"))


def test_the_most_values_are_allowed_and_one_more_is_not() -> None:
    assert len(span("x", 1, MOST_VALUES, 1).values) == MOST_VALUES
    with pytest.raises(InvalidOptions, match="10,001"):
        span("x", 0, MOST_VALUES, 1)


@pytest.mark.parametrize("given_", [(0.0, 1.0, 1e-300), (0.0, 1e30, 1.0)])
def test_a_step_far_too_small_is_too_many_values_and_no_crash(given_: tuple[float, float, float]) -> None:
    with pytest.raises(InvalidOptions, match="x: "):
        span("x", *given_)


# Logarithmic ranges


def test_a_logarithmic_range_has_equal_factors_and_exact_ends() -> None:
    axis = parse_axis("lr=log:1e-4:1e-1:7")
    assert axis.log and axis.span == {"start": 1e-4, "end": 1e-1, "count": 7}
    assert axis.values == (1e-4, 0.000316228, 1e-3, 0.00316228, 1e-2, 0.0316228, 1e-1)
    assert log_span("batch", 16, 256, 5).values == (16, 32, 64, 128, 256)
    assert log_span("x", 3, 7, 2).values == (3, 7)


@given(start=st.floats(1e-12, 1e6), factor=st.floats(1.5, 1e6), count=st.integers(2, 40))
def test_any_logarithmic_range_rises_evenly_from_end_to_end(start: float, factor: float, count: int) -> None:
    end = start * factor
    axis = log_span("x", start, end, count)
    assert (axis.values[0], axis.values[-1], len(axis.values)) == (start, end, count)
    assert all(one < other for one, other in pairwise(axis.values))
    ratios = [math.log(other / one) for one, other in pairwise(axis.values)]
    assert max(ratios) - min(ratios) <= 4e-5


def test_a_narrow_logarithmic_range_still_has_different_values() -> None:
    values = log_span("x", 1, 1.00001, 5).values
    assert all(one < other for one, other in pairwise(values))


@pytest.mark.parametrize("ends", ["0:1:3", "-1:1:3", "1:1:3", "2:1:3", "1:inf:3", "nan:1:3", "1:2:1", "1:2:-4"])
def test_a_logarithmic_range_that_makes_no_sense_is_refused_by_name(ends: str) -> None:
    with pytest.raises(InvalidOptions, match="lr: a logarithmic range needs a positive start, a larger end"):
        parse_axis(f"lr=log:{ends}")


def test_too_many_values_on_a_logarithmic_range_are_refused() -> None:
    with pytest.raises(InvalidOptions, match="lr: 10,001 values are more than 10,000"):
        parse_axis("lr=log:1:2:10001")


# As text


def test_text_is_a_range_a_list_or_one_value() -> None:
    assert parse_axis("temperature=1:8:0.5") == span("temperature", 1, 8, 0.5)
    assert parse_axis(" learning-rate = 1 : 2 : 0.5 ") == span("learning_rate", 1, 2, 0.5)
    assert parse_axis("label= a, b ,c") == GridAxis("label", ("a", "b", "c"))
    assert parse_axis("effect=0.1") == GridAxis("effect", ("0.1",))
    assert parse_axis("label=a=b").values == ("a=b",)


@pytest.mark.parametrize("text", ["x", "", "=1,2", "x=", "x=   ", " =1"])
def test_text_without_a_name_or_values_is_refused(text: str) -> None:
    with pytest.raises(InvalidOptions, match="is not of the form NAME=VALUES") as caught:
        parse_axis(text)
    assert f"'{text}'" in caught.value.message and "1:8:0.5" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ("1:8", "is not a valid range"), ("1:2:3:4", "is not a valid range"), ("log:1:2:3:4", "is not a valid range"), ("log:1", "is not a valid range"),
        ("a:b:c", "not a number"), ("1:8:", "not a number"), ("1:8:0,5", "not a number"), ("log:1:2", "not a number"),
        ("log:1:x:3", "not a number"), ("log:1:2:three", "not a number"),
    ],
)  # fmt: skip
def test_a_range_that_cannot_be_read_is_refused_with_the_forms_that_can(values: str, what: str) -> None:
    with pytest.raises(InvalidOptions) as caught:
        parse_axis(f"warmth={values}")
    assert caught.value.message.startswith(f"warmth: '{values}'") and what in caught.value.message
    assert "log:1e-4:1e-1:7" in (caught.value.hint or "")


# Laid out


def test_several_axes_make_all_combinations_in_order() -> None:
    points = laid("effect=0:0.2:0.1", "label=a,b", fixed={"steps": 5})
    assert [point.variant for point in points] == [
        f"effect={effect},label={label}" for effect in (0.0, 0.1, 0.2) for label in ("a", "b")
    ]
    assert points[3].values == {"effect": 0.1, "label": "b"}


def test_zipped_axes_go_side_by_side() -> None:
    points = laid("effect=0,0.1", "label=a,b", zipped=True)
    assert [point.values for point in points] == [{"effect": 0.0, "label": "a"}, {"effect": 0.1, "label": "b"}]


def test_values_are_what_the_recipe_understands() -> None:
    assert [point.values["steps"] for point in laid("steps=10:30:10")] == [10, 20, 30]
    assert [type(point.values["steps"]) for point in laid("steps=10:30:10")] == [int, int, int]
    assert [point.values["effect"] for point in laid("effect=1,1e-1,.25")] == [1.0, 0.1, 0.25]


def test_words_and_switches_can_be_swept() -> None:
    points = lay_out(DISTILL, {}, [parse_axis("strategy=kd,mse"), parse_axis("soft-targets=true,false")], zipped=False)
    assert [tuple(point.values.values()) for point in points] == [
        ("kd", True), ("kd", False), ("mse", True), ("mse", False),
    ]  # fmt: skip
    assert points[1].variant == "strategy=kd,soft_targets=False"


def test_zipped_axes_of_different_length_are_refused_with_their_lengths() -> None:
    told = refused("effect=0,0.1,0.2", "label=a,b", zipped=True)
    assert "the same number of values" in told and "effect has 3" in told and "label has 2" in told


def test_an_option_is_swept_once_and_not_fixed_besides() -> None:
    assert "effect is swept twice" in refused("effect=0,1", "effect=2,3")
    assert "effect is both swept and fixed" in refused("effect=0,1", fixed={"effect": 0.5})
    told = refused("effect=0,1", "effect=0", "label=a,b", fixed={"label": "c"}, zipped=True)
    assert "effect is swept twice" in told and "label is both swept and fixed" in told


def test_nothing_to_sweep_is_said() -> None:
    assert "nothing to sweep" in refused()


def test_an_unknown_option_is_told_with_the_nearest_name() -> None:
    assert "unknown option 'efect'; did you mean 'effect'?" in refused("efect=0,1")


def test_all_bad_values_are_told_at_once_each_with_its_setting() -> None:
    told = refused("correlation=-0.5,0.5,1.5,much", "noise=0,-1")
    for setting in ("correlation=-0.5, noise=0", "correlation=1.5, noise=0", "correlation=much, noise=0"):
        assert f"{setting}: correlation: must be" in told
    assert "correlation=0.5, noise=-1: noise: must be" in told
    assert "correlation=0.5, noise=0:" not in told


def test_a_fixed_setting_that_does_not_fit_is_told_too() -> None:
    assert "noise: must be greater than or equal to 0" in refused("effect=0,1", fixed={"noise": -1})


@pytest.mark.parametrize("values", ["0.1,0.10", "1,1.0", "1e-1,0.2,.1"])
def test_the_same_value_twice_is_one_setting_too_many(values: str) -> None:
    assert "occurs twice" in refused(f"effect={values}")
    assert "effect=" in refused(f"effect={values}")


def test_all_combinations_together_are_limited_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grids, "MOST_VALUES", 100)
    with pytest.raises(InvalidOptions, match="121"):
        laid("effect=0:1:0.1", "plateau=0:1:0.1")


STRANGE = [
    "a/b",
    "../up",
    "ü",
    "",
    " ",
    "a b",
    "-",
    "--",
    "\n",
    "x" * 300,
    "x" * 301,
    "日本",
    "a:b|c",
    ".",
    "con?",
    "~",
]


def test_variants_of_strange_texts_can_be_folders_and_stay_apart() -> None:
    points = lay_out(FAKE, {}, [GridAxis("label", tuple(STRANGE))], zipped=False)
    names = [check_name("variant", point.variant) for point in points]
    assert len(set(names)) == len(STRANGE)
    assert [point.values["label"] for point in points] == STRANGE


@given(texts=st.lists(st.text(max_size=90), min_size=1, max_size=6, unique=True))
def test_variants_of_any_texts_can_be_folders_and_stay_apart(texts: list[str]) -> None:
    points = lay_out(FAKE, {}, [GridAxis("label", tuple(texts))], zipped=False)
    assert len({check_name("variant", point.variant) for point in points}) == len(texts)


@given(values=st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=6, unique=True))
def test_variants_of_any_numbers_can_be_folders_and_stay_apart(values: list[float]) -> None:
    points = lay_out(FAKE, {}, [GridAxis("effect", tuple(values))], zipped=False)
    assert len({check_name("variant", point.variant) for point in points}) == len(values)


# Defaults and edges


def test_defaults_are_those_of_the_recipe() -> None:
    assert defaults_of(FAKE, ["effect", "label"]) == {"effect": 0.0, "label": ""}
    assert defaults_of(DISTILL, ["temperature", "alpha"]) == {"temperature": 4.0, "alpha": 0.5}
    assert defaults_of(FAKE, ["no_such"]) == {"no_such": None}


@pytest.mark.parametrize(
    ("param", "value", "more"),
    [
        ("alpha=0:1:0.1", 1.0, False), ("alpha=0:1:0.1", 0.0, False), ("alpha=0:1:0.1", 0.5, False),
        ("alpha=0.2:0.8:0.1", 0.2, True), ("alpha=0.2:0.8:0.1", 0.8, True), ("alpha=0.5:1:0.5", 0.5, True),
        ("temperature=1:8:0.5", 8.0, True), ("temperature=1:8:0.5", 1.0, True), ("temperature=1:8:0.5", 1.5, False),
        ("temperature=0.5:8:0.5", 0.5, True), ("temperature=1:8:1", 1.0, True),
        ("alpha=0:0.9:0.3", 0.9, True), ("alpha=0.1:0.999:0.0899", 0.999, True), ("alpha=0.4:1:0.6", 0.4, True),
        ("steps=3:9:3", 3, True), ("steps=1:7:6", 1, False),
        ("learning_rate=log:1e-4:1e-1:4", 1e-4, True), ("learning_rate=log:1e-4:1e-1:4", 1e-1, True),
        ("steps=1:3:1", 1, False), ("steps=1:3:1", 3, True),
        ("temperature=4:4:1", 4.0, False), ("temperature=1,2,4", 4.0, True), ("strategy=kd,mse", "mse", False),
    ],
)  # fmt: skip
def test_a_range_could_go_on_unless_it_ends_where_values_do(param: str, value: Any, more: bool) -> None:
    """An alpha of 1.0 cannot be exceeded; one of 0.9 can, although 0.3 more would be too much."""
    axis = parse_axis(param)
    [point] = [p for p in lay_out(DISTILL, {}, [axis], zipped=False) if p.values[axis.name] == value]
    assert beyond(DISTILL, {}, point, axis) is more


def test_the_other_axes_of_a_grid_do_not_matter_for_the_edge_of_one() -> None:
    axes = [parse_axis("alpha=0:1:0.5"), parse_axis("temperature=1:8:3.5")]
    corner = lay_out(DISTILL, {}, axes, zipped=False)[-1]
    assert corner.values == {"alpha": 1.0, "temperature": 8.0}
    assert [beyond(DISTILL, {}, corner, axis) for axis in axes] == [False, True]


def test_a_range_of_a_value_for_ones_own_program_has_an_edge_too() -> None:
    command, axis = load_recipe("command"), parse_axis("lr=0.1:0.3:0.1")
    fixed = {"argv": ["program", "{lr}", "{seed}"], "metrics": "out.jsonl"}
    last = lay_out(command, fixed, [axis], zipped=False)[-1]
    assert beyond(command, fixed, last, axis)
