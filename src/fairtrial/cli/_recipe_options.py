"""Command-line flags made from the options of a recipe. YAML keys and documentation come from the same declaration."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import click

from fairtrial.cli._help import COMMON, Section, SharedOption, sections_of
from fairtrial.cli._many_values import ManyValuesCommand
from fairtrial.core.errors import UsageError
from fairtrial.core.options import LOOP_OPTIONS, NOT_BENCHED, OptionInfo, Options, describe_options
from fairtrial.core.registry import LoadedRecipe

NEVER_RECORDED = "Never record the value of this option, placeholder, flag or environment variable; repeat for more."
MOST_RECIPE_OPTIONS = 4
"""Commands with options of their own explain only so many of a recipe's, so that their help fits on a screen."""
MAIN_LOOP_OPTIONS = ("steps", "eval_every", "checkpoint_every", "device")
METAVARS = {"integer": "INTEGER", "number": "NUMBER", "text": "TEXT", "mapping": "NAME=VALUE"}


def flags(recipe: LoadedRecipe, *, without: Collection[str] = ()) -> list[click.Parameter]:
    """Return one parameter per option. A value of None means that the option was not given; its default applies."""
    return [_with_role(_flag(info), info) for info in describe_options(recipe.options) if info.name not in without]


def _with_role(parameter: click.Parameter, info: OptionInfo) -> click.Parameter:
    """Attach the option's role, the reason why `bench` leaves it out, which `sync` reads, and its choices."""
    parameter.role = info.role.value  # type: ignore[attr-defined]
    parameter.excluded_reason = NOT_BENCHED.get(info.role)  # type: ignore[attr-defined]
    parameter.choices = info.choices or ()  # type: ignore[attr-defined]
    return parameter


def _flag(info: OptionInfo) -> click.Parameter:
    if info.type_name == "list":
        return click.Argument([info.name], nargs=-1, type=click.UNPROCESSED, metavar="[-- PROGRAM ARGUMENTS…]")
    if info.is_switch:
        off = info.flag.replace("--", "--no-", 1)
        return click.Option([f"{info.flag}/{off}", info.name], default=None, help=_help(info))
    return click.Option(
        [info.flag, info.name],
        metavar="|".join(info.choices) if info.choices else METAVARS[info.type_name],
        multiple=info.type_name == "mapping",
        help=_help(info),
    )


def _help(info: OptionInfo) -> str:
    unit = f" [{info.unit}]" if info.unit and info.unit not in info.help else ""
    shown = "" if info.default in (None, (), {}) else f"  [default: {_plain(info.default)}]"
    return f"{info.help}{unit}{shown}"


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def given_values(model: type[Options], parsed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the user gave, in the form that the options model accepts."""
    given = {}
    for info in describe_options(model):
        value = parsed.get(info.name)
        if value is None or value == ():
            continue
        if info.type_name == "mapping":
            value = dict(pairs(value)) if not isinstance(value, dict) else value
        elif info.optional and isinstance(value, str) and value.lower() == "none":
            value = None
        given[info.name] = value
    return given


def pairs(words: Sequence[str]) -> list[tuple[str, str]]:
    """Split `name=value` words at the first equals sign."""
    split = [word.partition("=") for word in words]
    bad = [name for name, equals, _ in split if not equals or not name]
    if bad:
        raise UsageError(f"'{bad[0]}' does not have the form name=value")
    return [(name.strip().replace("-", "_"), value) for name, _, value in split]


class RecipeCommand(ManyValuesCommand):
    """A command whose help groups the options: its own, the recipe's, the training loop's, and the common ones."""

    def __init__(
        self, recipe: LoadedRecipe, *, own: Sequence[click.Parameter] = (), recipe_first: bool = False, **settings: Any
    ) -> None:
        self.recipe = recipe
        self.own = {parameter.name for parameter in own}
        self.recipe_first = recipe_first
        super().__init__(**settings)

    def sections(self, ctx: click.Context) -> list[Section]:  # noqa: ARG002
        options = [each for each in self.params if isinstance(each, click.Option)]
        own = sections_of(self.page, [each for each in options if each.name in self.own])
        rest = {each.name or "": each for each in options if each.name not in self.own}
        common = [name for name, each in rest.items() if isinstance(each, SharedOption)]
        loop = [name for name in rest if name in LOOP_OPTIONS]
        recipe = [name for name in rest if name not in (*common, *loop)]
        most = None if self.recipe_first else MOST_RECIPE_OPTIONS
        groups = {
            f"Recipe {self.recipe.name}": (self.recipe.main_options[:most], recipe),
            "Training loop": (MAIN_LOOP_OPTIONS if self.recipe_first else MAIN_LOOP_OPTIONS[:1], loop),
        }
        sections = [
            Section(title, [rest[name] for name in main if name in names], [rest[n] for n in names if n not in main])
            for title, (main, names) in groups.items()
        ]
        sections = [*sections, *own] if self.recipe_first else [*own, *sections]
        return [*sections, Section(COMMON, [], [rest[name] for name in common])]

    def examples(self, ctx: click.Context) -> Sequence[str]:
        return [example_of(self.recipe, ctx, line) for line in self.page.examples]


def example_of(recipe: LoadedRecipe, ctx: click.Context, line: str) -> str:
    """Fill the example of a command with the recipe's name, as the user gave it, and its example variants.

    `{flags}` stands for the last variant as flags, `{variants}` for two variants, `{param}` for an option with the
    values of both. Options that the recipe cannot run without, such as the program of `command`, are added.
    """
    variants: Mapping[str, Mapping[str, Any]] = recipe.example.get("variants", {})
    needed: Mapping[str, Any] = recipe.example.get("options", {}) if recipe.options.free_values else {}
    last: Mapping[str, Any] = list(variants.values())[-1] if variants else {}
    arms = [f"{name}:" + ",".join(f"{key}={value}" for key, value in each.items()) for name, each in variants.items()]
    words = {
        "recipe": [ctx.info_name or recipe.name],
        "flags": _as_flags(last) if recipe.options.free_values is None else _as_placeholders(recipe, last),
        "variants": [word for arm in arms for word in ("--variant", arm)],
        "param": ["--param", _as_param(variants)],
    }
    filled = line.format(**{name: shlex.join(each) for name, each in words.items()})
    program = needed.get("argv", ())
    flags = _as_flags({name: value for name, value in needed.items() if name != "argv"})
    parts = [" ".join(filled.split()), shlex.join(flags), f"-- {shlex.join(program)}" if program else ""]
    return " ".join(part for part in parts if part)


def _as_flags(values: Mapping[str, Any]) -> list[str]:
    return [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", _plain(value))]


def _as_placeholders(recipe: LoadedRecipe, values: Mapping[str, Any]) -> list[str]:
    return [word for name, value in values.items() for word in (f"--{recipe.options.free_values}", f"{name}={value}")]


def _as_param(variants: Mapping[str, Mapping[str, Any]]) -> str:
    """Return an option in which the example variants differ, as `name=value,value`."""
    name = next((name for each in variants.values() for name in each), "steps")
    values = [_plain(each[name]) for each in variants.values() if name in each]
    return f"{name}={','.join(values)}"
