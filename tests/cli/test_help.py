"""Every help page fits on a screen, reaches every option, breaks no word, and ends with examples that parse."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator

import click
import pytest

from fairtrial.cli._help import HelpfulCommand, full_help, term
from fairtrial.cli.app import COMMAND_GROUPS, cli
from tests.conftest import Answer

Cli = Callable[..., Answer]

MOST_LINES, WIDTH = 60, 80
Page = tuple[click.Command, click.Context]


def walk(command: click.Command, context: click.Context) -> Iterator[Page]:
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from walk(inner, click.Context(inner, context, info_name=name, terminal_width=WIDTH))


@pytest.fixture(scope="module")
def pages() -> list[Page]:
    root = click.Context(cli, info_name="fairtrial", terminal_width=WIDTH, help_option_names=["-h", "--help"])
    launch = cli.get_command(root, "launch")
    assert isinstance(launch, click.Group)
    at_launch = click.Context(launch, root, info_name="launch")
    study = launch.get_command(at_launch, "study.yaml")
    assert study is not None
    return [*walk(cli, root), (study, click.Context(study, at_launch, info_name="study.yaml", terminal_width=WIDTH))]


def test_every_help_fits_on_a_screen(pages: list[Page]) -> None:
    assert len(pages) > 70
    for command, context in pages:
        lines = command.get_help(context).splitlines()
        assert len(lines) <= MOST_LINES, f"{context.command_path}: {len(lines)} lines"
        assert max(map(len, lines)) <= WIDTH, context.command_path


@pytest.mark.slow
def test_every_option_is_explained_by_help_all_and_named_by_help(pages: list[Page]) -> None:
    for command, context in pages:
        shown, all_of_it = command.get_help(context), full_help(context)
        for option in command.get_params(context):
            if not isinstance(option, click.Option) or option.hidden:
                continue
            row = re.search(rf"^  {re.escape(term(option))}(  |$)", all_of_it, re.MULTILINE)
            assert row, f"{context.command_path} --help-all does not explain {option.opts}"
            names = {*option.opts, *option.secondary_opts}
            words = set(re.split(r"[\s,]+", shown))
            assert words & names, f"{context.command_path} --help does not name {option.opts}"


@pytest.mark.slow
def test_help_breaks_no_option_and_no_choice(pages: list[Page]) -> None:
    for command, context in pages:
        for text in (command.get_help(context), full_help(context)):
            assert not re.search(r"[\w|-]-\n|\|\n", text), context.command_path
            assert "..." not in re.sub(r"\[?[A-Z.]+\]?\.\.\.", "", text), f"{context.command_path} cuts a sentence"


def test_every_flag_of_a_layout_is_an_option(pages: list[Page]) -> None:
    """Recipes share the layout of their group, so a flag may be missing in one of its pages, but not in all."""
    flags_of: dict[int, set[str]] = {}
    layouts = {}
    for command, context in pages:
        assert isinstance(command, HelpfulCommand)
        options = [option for section in command.sections(context) for option in (*section.main, *section.more)]
        flags = {flag for option in options for flag in (*option.opts, *option.secondary_opts)}
        layouts[id(command.page.groups)] = command.page.groups
        flags_of.setdefault(id(command.page.groups), set()).update(flags)
    for key, groups in layouts.items():
        for title, text in groups.items():
            unknown = set(text.replace("|", " ").split()) - flags_of[key]
            assert not unknown, f"{title}: {unknown}"


def test_every_help_ends_with_one_to_three_examples_that_parse(pages: list[Page]) -> None:
    for command, context in pages:
        assert isinstance(command, HelpfulCommand)
        examples = command.examples(context)
        assert 1 <= len(examples) <= 3, context.command_path
        assert command.get_help(context).rstrip().splitlines()[-1].startswith("  ")
        for example in examples:
            if "completion" in example:
                continue
            words = shlex.split(example)
            assert words[0] == "fairtrial"
            parse(cli, "fairtrial", words[1:], None)


def parse(command: click.Command, name: str, words: list[str], parent: click.Context | None) -> None:
    """Parse a line with the real parser, without running anything; an unknown option raises."""
    if isinstance(command, click.Group) and words and not words[0].startswith("-"):
        context = click.Context(command, parent, info_name=name)
        _, inner, rest = command.resolve_command(context, words)
        assert inner is not None
        parse(inner, words[0], rest, context)
        return
    with command.make_context(name, words, parent=parent):
        pass


def test_own_options_come_first_and_recipe_options_first_in_train(cli: Cli) -> None:
    def order(text: str, *words: str) -> bool:
        places = [text.index(word) for word in words]
        return places == sorted(places)

    assert order(cli("launch", "distill", "--help").out, "--variant ", "--on ", "--strategy ", "--steps ", "--format")
    assert order(
        cli("train", "distill", "--help").out, "--strategy ", "--temperature ", "--steps ", "--seed ", "--format"
    )
    assert order(cli("sweep", "--help").out, "--param ", "--runs ", "--format", "Recipes:")
    assert order(cli("bench", "--help").out, "--max-batches ", "--baseline ", "--format", "Recipes:")
    assert order(cli("launch", "--help").out, "--variant ", "--on ", "--format", "Recipes:")


def test_commands_are_grouped_by_question(cli: Cli) -> None:
    text = cli("--help").out
    for title, commands in COMMAND_GROUPS.items():
        group = text.partition(f"\n{title}")[2].partition("\n\n")[0]
        assert all(re.search(rf"^  {name}  ", group, re.MULTILINE) for name in commands), title


def test_help_all_works_where_it_is_not_listed(cli: Cli) -> None:
    answer = cli("runs", "--help-all")
    assert answer.code == 0 and answer.out.startswith("Usage: fairtrial runs") and "--help-all" not in answer.out
