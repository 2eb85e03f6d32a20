"""Commands of Click and Typer are read alike, and nothing of them is run."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import click
import pytest
import typer
from typer.main import get_command

from fairtrial.sync.parameters import Parameter, read_parameters


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Ratio(click.ParamType):
    name = "ratio"


class Softly(click.Choice):  # type: ignore[type-arg]
    """A type of somebody's own that knows choices."""


def now() -> int:
    raise AssertionError("a default that is computed is never called")


def of_click(*parameters: click.Parameter) -> dict[str, Parameter]:
    return {each.variable: each for each in read_parameters(click.Command("program", params=list(parameters)))}


def option(*words: str, **settings: Any) -> Parameter:
    [found] = of_click(click.Option(words, **settings)).values()
    return found


def of_typer(function: Any) -> dict[str, Parameter]:
    app = typer.Typer()
    app.command()(function)
    return {each.variable: each for each in read_parameters(get_command(app))}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"type": int}, "integer"),
        ({"type": float}, "float"),
        ({}, "text"),
        ({"is_flag": True}, "boolean"),
        ({"type": click.IntRange(1, 9)}, "integer (≥ 1, ≤ 9)"),
        ({"type": click.FloatRange(0, 1, min_open=True, max_open=True)}, "float (> 0, < 1)"),
        ({"type": click.IntRange(max=9, clamp=True)}, "integer (≤ 9, clamped)"),
        ({"type": click.IntRange(max=2**62 + 1)}, f"integer (≤ {2**62 + 1})"),
        ({"type": click.FloatRange(0.5, 1.0)}, "float (≥ 0.5, ≤ 1)"),
        ({"type": Softly(["a"])}, "Softly"),
        ({"type": click.Path(exists=True, dir_okay=False)}, "path (must exist, no folder)"),
        ({"type": click.File("wb")}, "file (mode wb)"),
        ({"type": click.File("r", encoding="latin-1")}, "file (mode r, encoding latin-1)"),
        ({"type": click.DateTime(["%Y"])}, "datetime (%Y)"),
        ({"type": click.UUID}, "uuid"),
        ({"type": (int, str)}, "(integer, text)"),
        ({"type": (int, click.Choice(["a", "b"]))}, "(integer, a|b)"),
        ({"type": Ratio()}, "Ratio"),
        ({"type": now}, "now"),
        ({"type": click.Choice(["a", "b"])}, "choice"),
    ],
)
def test_types_of_click_are_told_with_their_limits(settings: dict[str, Any], words: str) -> None:
    assert str(option("--x", **settings).type) == words


def test_choices_and_their_case_are_read() -> None:
    assert option("--x", type=click.Choice(["a", "b"], case_sensitive=False)).type.choices == ("a", "b")
    assert option("--x", type=click.Choice(["a", "b"], case_sensitive=False)).type.any_case
    assert option("--x", type=Softly(["a", "b"])).type.choices == ("a", "b")
    assert option("--x", type=click.Choice(Size)).type.choices == ("SMALL", "LARGE"), "the words that Click takes"


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({}, "None"),
        ({"default": None}, "None"),
        ({"default": 0}, "0"),
        ({"default": 0.0}, "0.0"),
        ({"default": ""}, "''"),
        ({"is_flag": True}, "False"),
        ({"is_flag": True, "default": None}, "None"),
        ({"multiple": True}, "()"),
        ({"multiple": True, "default": None}, "()"),
        ({"multiple": True, "default": [1, 2]}, "(1, 2)"),
        ({"type": float, "default": 1}, "1.0"),
        ({"type": int, "default": "3"}, "3"),
        ({"type": click.Path(), "default": Path("x")}, "'x'"),
        ({"type": click.Choice(Size), "default": Size.SMALL}, "'SMALL'"),
        ({"default": now}, "computed by now"),
        ({"type": float, "default": "no number"}, "'no number'"),
    ],
)
def test_defaults_that_a_program_tells_apart_are_told_apart(settings: dict[str, Any], shown: str) -> None:
    assert option("--x", **settings).default == shown


def test_lambdas_are_told_apart_by_what_they_say() -> None:
    three, again, four = (option("--x", default=each).default for each in (lambda: 3, lambda: 3, lambda: 4))
    assert three == again != four


def test_an_object_without_words_of_its_own_is_the_same_every_time() -> None:
    class Thing:
        pass

    assert (
        option("--x", type=click.UNPROCESSED, default=Thing()).default
        == option("--x", type=click.UNPROCESSED, default=Thing()).default
    )


def test_ways_to_give_a_value_are_read() -> None:
    assert option("--x").given == "a value"
    assert option("--x", is_flag=True).given == option("--x/--no-x").given == "a switch"
    assert option("--x", flag_value="up").given == "a switch for 'up'"
    assert option("--x", flag_value=1, type=int).given == "a switch for 1"
    assert option("--x", is_flag=False, flag_value="up").given == "a value, or 'up' by the flag alone"
    assert option("--x").repeats == "once"
    assert option("--x", multiple=True).repeats == "many times"
    assert option("--x", nargs=2).repeats == "2 values"
    assert option("--x", nargs=2, multiple=True).repeats == "2 values many times"
    assert option("--x", count=True).repeats == "counted"
    assert of_click(click.Argument(["x"], nargs=-1))["x"].repeats == "any number of values"
    assert option("--x", envvar=["A", "B"]).envvars == ("A", "B")


def test_an_option_is_named_by_its_first_long_flag() -> None:
    found = option("-l", "--lr", "--learning-rate", "rate")
    assert (found.name, found.variable, found.shown) == ("lr", "rate", "--lr")
    assert found.names == {"lr", "learning-rate", "rate"}
    assert option("-q").shown == "-q"
    assert of_click(click.Argument(["data"]))["data"].shown == "DATA"


def test_switches_of_every_program_are_not_compared_but_options_of_that_name_are() -> None:
    with_version = click.version_option("1")(click.Command("x", params=[]))
    assert read_parameters(with_version) == []
    assert option("--version", type=int).name == "version"
    app = typer.Typer()
    app.command()(lambda: None)
    assert read_parameters(get_command(app)) == []


def test_roles_and_reasons_come_from_attributes_of_the_option() -> None:
    plain = click.Option(["--x"])
    plain.role = "output"  # type: ignore[attr-defined]
    plain.excluded_reason = "nothing is written"  # type: ignore[attr-defined]
    found = of_click(plain)["x"]
    assert (found.role, found.excluded_reason) == ("output", "nothing is written")


def test_typer_is_read_like_click() -> None:
    def program(
        data: str,
        lr: Annotated[float, typer.Option(help="Learning  rate.", envvar="LR")] = 1,
        size: Size = Size.SMALL,
        kind: Literal["a", "b"] = "a",
        steps: Annotated[int, typer.Option("-s", "--steps", min=1, max=9)] = 3,
        amp: bool = False,
        only: Annotated[bool, typer.Option("--only")] = False,
        layers: list[int] = [1],  # noqa: B006
        loud: Annotated[int, typer.Option("--loud", count=True)] = 0,
        out: Annotated[Optional[Path], typer.Option(exists=True, hidden=True)] = None,  # noqa: UP045
        pair: tuple[int, str] = (1, "x"),
        log: Annotated[Optional[typer.FileTextWrite], typer.Option()] = None,  # noqa: UP045
        when: Annotated[int, typer.Option(default_factory=now)] = ...,  # type: ignore[assignment]
        own: Annotated[int, typer.Option(parser=int)] = 1,
    ) -> None: ...

    program.__annotations__ = {
        name: eval(text, {**globals()}) for name, text in program.__annotations__.items()
    }  # as without the __future__ import
    found = of_typer(program)
    types = {name: str(each.type) for name, each in found.items()}
    assert types == {
        "data": "text", "lr": "float", "size": "choice", "kind": "choice", "steps": "integer (≥ 1, ≤ 9)",
        "amp": "boolean", "only": "boolean", "layers": "integer", "loud": "integer (≥ 0)", "out": "path (must exist)",
        "pair": "(integer, text)", "log": "file (mode w)", "when": "integer", "own": "int",
    }  # fmt: skip
    assert found["size"].type.choices == ("small", "large") and found["kind"].type.choices == ("a", "b")
    defaults = {name: each.default for name, each in found.items()}
    assert defaults["lr"] == "1.0" and defaults["size"] == "'small'" and defaults["layers"] == "(1,)"
    assert defaults["amp"] == "False" and defaults["out"] == "None" and defaults["when"] == "computed by now"
    assert found["data"].kind == "argument" and found["data"].required and not found["lr"].required
    assert found["amp"].off_flags == ("--no-amp",) and found["only"].off_flags == ()
    assert found["layers"].repeats == "many times" and found["loud"].repeats == "counted"
    assert found["pair"].repeats == "2 values" and found["out"].hidden
    assert found["lr"].help == "Learning rate." and found["lr"].envvars == ("LR",)
    assert found["steps"].flags == ("-s", "--steps")
