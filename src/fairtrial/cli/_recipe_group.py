"""Commands whose first word is the name or the file of a recipe: `train`, `bench`, `launch`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from fairtrial.cli._recipe_options import RecipeCommand, flags
from fairtrial.core.errors import UserError
from fairtrial.core.registry import LoadedRecipe, load_recipe, recipe_names

Body = Callable[[LoadedRecipe], Callable[..., Any]]


class RecipeGroup(click.Group):
    """A group that creates the subcommand for a recipe on demand. `body(recipe)` returns its callback."""

    body: Body
    plan: Body | None = None
    """`plan(recipe)` returns a function that makes the study to be launched; None if the command launches none."""
    own_options: tuple[click.Parameter, ...] = ()

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return recipe_names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        try:
            recipe = load_recipe(cmd_name)
        except UserError as error:
            if cmd_name.endswith(".py"):
                raise
            raise click.UsageError(error.message, ctx) from None
        return self.make_command(recipe, cmd_name)

    def make_command(self, recipe: LoadedRecipe, name: str) -> click.Command:
        function = self.body(recipe)
        shared: list[click.Parameter] = list(reversed(getattr(function, "__click_params__", [])))
        return RecipeCommand(
            recipe,
            name=name,
            params=[*flags(recipe, without=self.without(recipe)), *self.own_options, *shared],
            callback=function,
            plan=self.plan(recipe) if self.plan else None,
            help=recipe.summary + (" SYNTHETIC." if recipe.synthetic else ""),
        )

    def without(self, recipe: LoadedRecipe) -> list[str]:  # noqa: ARG002
        """Return the recipe options that this command does not take."""
        return []

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Recipes"):
            formatter.write_dl([(name, _summary(name)) for name in recipe_names()])
            formatter.write_dl([("./FILE.py", "Your own recipe.")])


def _summary(name: str) -> str:
    try:
        return load_recipe(name).summary
    except UserError as error:
        return f"({error.message})"
