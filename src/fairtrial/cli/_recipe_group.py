"""Commands whose first word is the name or the file of a recipe: `train`, `bench`, `launch`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from fairtrial.cli._help import COMMON, HelpfulGroup, HelpPage, Section, sections_of, write_section
from fairtrial.cli._output import declared, shared_options
from fairtrial.cli._recipe_options import RecipeCommand, flags
from fairtrial.core.errors import UserError
from fairtrial.core.registry import LoadedRecipe, load_recipe, recipe_names

Body = Callable[[LoadedRecipe], Callable[..., Any]]


class RecipeGroup(HelpfulGroup):
    """A group that creates the subcommand for a recipe on demand. `body(recipe)` returns its callback.

    The options of the group's page belong after the recipe: they are the options that all its subcommands have.
    """

    body: Body
    plan: Body | None = None
    """`plan(recipe)` returns a function that makes the study to be launched; None if the command launches none."""
    own_options: tuple[click.Parameter, ...] = ()
    recipe_first = False
    recipe_examples: Sequence[str] = ()
    """Examples for one recipe. `example_of` tells what the words in braces stand for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return recipe_names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        try:
            recipe = load_recipe(cmd_name)
        except UserError as error:
            if cmd_name.endswith(".py") or cmd_name in recipe_names():  # the recipe is wrong, not the command line
                raise
            raise click.UsageError(error.message, ctx) from None
        return self.make_command(recipe, cmd_name)

    def make_command(self, recipe: LoadedRecipe, name: str) -> click.Command:
        function = self.body(recipe)
        return RecipeCommand(
            recipe,
            own=self.own_options,
            recipe_first=self.recipe_first,
            page=self.recipe_page(),
            name=name,
            params=[*flags(recipe, without=self.without(recipe)), *self.own_options, *declared(function)],
            callback=function,
            plan=self.plan(recipe) if self.plan else None,
            help=recipe.summary + (" SYNTHETIC." if recipe.synthetic else ""),
        )

    def recipe_page(self) -> HelpPage:
        return HelpPage(self.page.groups, self.recipe_examples)

    def sections(self, ctx: click.Context) -> list[Section]:  # noqa: ARG002
        own = [each for each in self.own_options if isinstance(each, click.Option)]
        common = [each for each in shared_options() if isinstance(each, click.Option)]
        return [*sections_of(self.page, own), Section(COMMON, [], common)]

    def without(self, recipe: LoadedRecipe) -> list[str]:  # noqa: ARG002
        """Return the recipe options that this command does not take."""
        return []

    def described_commands(self, ctx: click.Context) -> list[tuple[str, str]]:  # noqa: ARG002
        return [(name, _summary(name)) for name in recipe_names()]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [*self.described_commands(ctx), ("./FILE.py", "Your own recipe.")]
        write_section(formatter, "Recipes", rows, max(len(name) for name, _ in rows) + 4)


def _summary(name: str) -> str:
    try:
        return load_recipe(name).summary
    except UserError as error:
        return f"({error.message})"
