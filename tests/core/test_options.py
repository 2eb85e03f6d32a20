"""Options are declared once: flags, YAML keys and JSON come from one place and agree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.cli._recipe_options import flags, given_values
from fairtrial.core.errors import InvalidOptions
from fairtrial.core.options import LoopOptions, Role, describe_options, option, parse_options, result_options
from fairtrial.core.plugin_registry import RECIPES
from fairtrial.core.registry import load_recipe
from tests.conftest import Answer

SNAPSHOT = Path(__file__).parent / "option_names.txt"


class Sample(LoopOptions):
    count: int = option(3, "A number.", role=Role.TRAINING)
    rate: float = option(0.5, "A rate.", role=Role.TRAINING)
    flag: bool = option(True, "A switch.", role=Role.MODEL)
    name: str = option("x", "A text.", role=Role.DATA)
    maybe: bool | None = option(None, "On, off, or neither.", role=Role.TRAINING)
    kind: Literal["a", "b"] = option("a", "A choice.", role=Role.MODEL)


def test_the_names_of_all_options_are_frozen() -> None:
    """A renamed or vanished option breaks people's files: change the snapshot knowingly."""
    names = [
        f"{word} {info.flag} {info.role}"
        for word in sorted(RECIPES.built_in)
        for info in describe_options(load_recipe(word).options)
    ]
    assert SNAPSHOT.read_text().split("\n") == [*names, ""]


@given(
    values=st.fixed_dictionaries(
        {},
        optional={
            "count": st.integers(-5, 5),
            "rate": st.floats(allow_nan=False, allow_infinity=False),
            "flag": st.booleans(),
            "name": st.text(max_size=5),
            "maybe": st.sampled_from([None, True, False]),
            "kind": st.sampled_from(["a", "b"]),
        },
    )
)
def test_values_survive_the_way_to_a_file_and_back(values: dict[str, Any]) -> None:
    """Falsy ones above all: 0, False, "" and None are values, not absences."""
    options = parse_options(Sample, values, where="test")
    assert {name: getattr(options, name) for name in values} == values
    assert parse_options(Sample, options.to_dict(), where="test") == options
    assert options.differing().keys() == {k for k, v in values.items() if v != Sample.model_fields[k].default}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--count", "0"], {"count": "0"}),
        (["--name", ""], {"name": ""}),
        (["--no-flag", "--no-maybe"], {"flag": False, "maybe": False}),
        (["--maybe"], {"maybe": True}),
        (["--rate", "1e-3", "--best-metric", "none"], {"rate": "1e-3", "best_metric": None}),
        ([], {}),
    ],
)
def test_flags_reach_the_model_as_given(words: list[str], expected: dict[str, Any]) -> None:
    import click

    class Module:
        Options = Sample
        SUMMARY, REQUIRES, METRIC = "", (), None

    from fairtrial.core.registry import LoadedRecipe

    command = click.Command("x", params=flags(LoadedRecipe("x", Module)))  # type: ignore[arg-type]
    context = command.make_context("x", list(words))
    assert given_values(Sample, context.params) == expected
    parse_options(Sample, expected, where="flags")


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(InvalidOptions) as caught:
        parse_options(Sample, {"count": "many", "rat": 1, "kind": "c", "steps": 0}, where="file.yaml")
    told = [caught.value.message, *caught.value.problems]
    assert len(told) == 4
    assert any("did you mean 'rate'?" in line for line in told)
    assert any("kind: must be one of a or b, not 'c'" in line for line in told)
    assert any("steps: must be greater than or equal to 1, not 0" in line for line in told)
    assert all(line.startswith("file.yaml: ") for line in told)


def test_roles_that_change_no_number_stay_out_of_the_fingerprint() -> None:
    options = parse_options(Sample, {}, where="test")
    identity = result_options(Sample, options)
    assert "checkpoint_every" not in identity and "log_every" not in identity
    assert {"steps", "eval_every", "best_metric", "count"} <= identity.keys()


def test_an_undeclared_option_is_refused_when_it_is_described() -> None:
    class Careless(LoopOptions):
        secret: int = 3

    with pytest.raises(TypeError, match="must be declared with option"):
        describe_options(Careless)


def test_every_recipe_option_is_a_flag_of_train_and_launch(cli: Callable[..., Answer]) -> None:
    for word in RECIPES.built_in:
        for verb in ("train", "launch"):
            text = cli(verb, word, "--help").out
            for info in describe_options(load_recipe(word).options):
                assert info.type_name == "list" or info.flag in text, f"{verb} {word} {info.flag}"
