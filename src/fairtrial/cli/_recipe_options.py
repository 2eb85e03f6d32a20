"""Command-line flags made from the options of a recipe. YAML keys and documentation come from the same declaration."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import click

from fairtrial.cli._many_values import ManyValuesCommand
from fairtrial.core.errors import UsageError
from fairtrial.core.options import LOOP_OPTIONS, NOT_BENCHED, OptionInfo, Options, describe_options
from fairtrial.core.registry import LoadedRecipe

NEVER_RECORDED = "Never record the value of this option, placeholder, flag or environment variable; repeat for more."
METAVARS = {"integer": "INTEGER", "number": "NUMBER", "text": "TEXT", "mapping": "NAME=VALUE"}


def flags(recipe: LoadedRecipe, *, without: Collection[str] = ()) -> list[click.Parameter]:
    """Return one parameter per option. A value of None means that the option was not given; its default applies."""
    return [_with_role(_flag(info), info) for info in describe_options(recipe.options) if info.name not in without]


def _with_role(parameter: click.Parameter, info: OptionInfo) -> click.Parameter:
    """Attach the option's role and the reason why `bench` leaves it out, if any. `sync` reads both attributes."""
    parameter.role = info.role.value  # type: ignore[attr-defined]
    parameter.excluded_reason = NOT_BENCHED.get(info.role)  # type: ignore[attr-defined]
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

    def __init__(self, recipe: LoadedRecipe, *, own: Sequence[click.Parameter] = (), **settings: Any) -> None:
        self.recipe = recipe
        self.own = {parameter.name for parameter in own}
        super().__init__(**settings)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        recipe_names = {info.name for info in describe_options(self.recipe.options)}
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record:
                groups.setdefault(self._kind(parameter.name or "", recipe_names), []).append(record)
        for title in ("Options", "Recipe", "Training loop", "Common options"):
            if title in groups:
                with formatter.section(title):
                    formatter.write_dl(groups[title])

    def _kind(self, name: str, recipe_names: set[str]) -> str:
        if name in self.own:
            return "Options"
        if name not in recipe_names:
            return "Common options"
        return "Training loop" if name in LOOP_OPTIONS else "Recipe"
