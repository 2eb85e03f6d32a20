"""Help pages that fit on a screen.

`--help` explains the main options of a command in named groups, lists the names of all others, and ends with examples.
`--help-all` explains every option. A command states its groups and examples in a `HelpPage`; Click does the rest.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import click

WIDEST_TERM = 22
"""Longer terms, such as an option with many choices, have their help on the next line."""
SHORT = {"INTEGER": "N", "NUMBER": "X"}
COMMON, FURTHER = "Common options", "Further options"


class SharedOption(click.Option):
    """An option that all commands share, such as --format. `--help` lists only its name."""


class FullPage(click.HelpFormatter):
    """A page for `--help-all`."""


@dataclass(frozen=True)
class HelpPage:
    """The layout of a command's help.

    `groups` maps a title to flags: `--metric --sesoi | --gamma`. `--help` explains those before the bar and only names
    those after it. Options that are in no group are further options.
    """

    groups: Mapping[str, str] = field(default_factory=dict)
    examples: Sequence[str] = ()


class Section(NamedTuple):
    """One group of options on a page: `main` are explained by --help, `more` only by --help-all."""

    title: str
    main: list[click.Option]
    more: list[click.Option]


def sections_of(page: HelpPage, options: Sequence[click.Option]) -> list[Section]:
    """Divide options as the page states. Without groups, all options are main options."""
    if not page.groups:
        return [Section("Options", list(options), [])]
    by_flag = {flag: option for option in options for flag in (*option.opts, *option.secondary_opts)}
    left = list(options)
    sections = []
    for title, flags in page.groups.items():
        main, _, more = flags.partition("|")
        chosen = [[by_flag[flag] for flag in part.split() if flag in by_flag] for part in (main, more)]
        left = [option for option in left if option not in chosen[0] and option not in chosen[1]]
        sections.append(Section(title, *chosen))
    return [*sections, Section(FURTHER, [], left)]


class HelpfulCommand(click.Command):
    """A command with `--help-all` and a `HelpPage`."""

    def __init__(self, *arguments: Any, page: HelpPage | None = None, **settings: Any) -> None:
        self.page = page or HelpPage()
        super().__init__(*arguments, **settings)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), self._help_all(ctx)]

    def _help_all(self, ctx: click.Context) -> click.Option:
        """Return `--help-all`. It always works, and is listed if it shows more than `--help`."""
        more = any(section.more for section in self.sections(ctx))
        return click.Option(
            ["--help-all"], is_flag=True, is_eager=True, expose_value=False, hidden=not more, callback=_show_everything,
            help="Explain every option and exit.",
        )  # fmt: skip

    def sections(self, ctx: click.Context) -> list[Section]:  # noqa: ARG002
        """Return the groups of options in the order of the page."""
        options = [each for each in self.params if isinstance(each, click.Option) and not each.hidden]
        own = [each for each in options if not isinstance(each, SharedOption)]
        common = [each for each in options if each not in own]
        return [*sections_of(self.page, own), Section(COMMON, [], common)]

    def examples(self, ctx: click.Context) -> Sequence[str]:  # noqa: ARG002
        return self.page.examples

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        words = f"Usage: {' '.join([ctx.command_path, *self.collect_usage_pieces(ctx)])}"
        formatter.write("\n".join([*_wrapped(words, formatter.width, "  "), ""]))

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for paragraph in textwrap.dedent(self.help or "").strip().split("\n\n"):
            text = " ".join(paragraph.split())
            formatter.write("\n" + "\n".join(_wrapped(f"  {text}", formatter.width, "  ")) + "\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = self.sections(ctx)
        helping = [each for each in self.get_params(ctx)[-2:] if isinstance(each, click.Option) and not each.hidden]
        if isinstance(formatter, FullPage) or not any(section.more for section in sections):
            shown = _merged([Section(each.title, [*each.main, *each.more], []) for each in sections], helping)
            helping = []
        else:
            shown = sections
        terms = [len(term(option)) for section in shown for option in section.main]
        column = min(max(terms, default=0), WIDEST_TERM) + 4
        for section in shown:
            if section.main:
                write_section(
                    formatter, section.title, [(term(each), described(each, ctx)) for each in section.main], column
                )
        _write_names(
            formatter, FURTHER, [each for section in shown if section.title != COMMON for each in section.more]
        )
        common = [each for section in shown if section.title == COMMON for each in section.more]
        _write_names(formatter, COMMON, [*common, *helping])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        examples = self.examples(ctx)
        if not examples:
            return
        _write_heading(formatter, "Example" if len(examples) == 1 else "Examples")
        for example in examples:
            formatter.write("\n".join(_wrapped_command(example, formatter.width)) + "\n")


class HelpfulGroup(HelpfulCommand, click.Group):
    """A group of commands with a `HelpPage`. Its help lists the first sentence of each command, uncut."""

    command_class = HelpfulCommand

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.commands)  # in the order of the workflow, as they are defined

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        HelpfulCommand.format_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = self.described_commands(ctx)
        write_section(formatter, "Commands", rows, max(len(name) for name, _ in rows) + 4)

    def described_commands(self, ctx: click.Context) -> list[tuple[str, str]]:
        """Return the name and the first sentence of each command."""
        named = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        return [(name, first_sentence(command.help or "")) for name, command in named.items() if command]


def _merged(sections: Sequence[Section], helping: list[click.Option]) -> list[Section]:
    """Add --help to the last group that is not empty."""
    *rest, last = [section for section in sections if section.main] or [Section("Options", [], [])]
    return [*rest, last._replace(main=[*last.main, *helping])]


def _show_everything(ctx: click.Context, _option: click.Parameter, given: bool) -> None:
    if given and not ctx.resilient_parsing:
        click.echo(full_help(ctx), color=ctx.color)
        ctx.exit()


def full_help(ctx: click.Context) -> str:
    """Return the help of a command with every option explained."""
    formatter = FullPage(width=ctx.terminal_width, max_width=ctx.max_content_width)
    ctx.command.format_help(ctx, formatter)
    return formatter.getvalue().rstrip("\n")


# What stands on a page


def first_sentence(text: str) -> str:
    """Return the first sentence of a help text."""
    paragraph = " ".join(textwrap.dedent(text).strip().split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s(?=[A-Z`])", paragraph, maxsplit=1)[0]


def choices_of(option: click.Parameter) -> tuple[str, ...]:
    """Return the values that a parameter accepts, or () if it accepts others too."""
    declared: Sequence[str] = getattr(option, "choices", ())
    return tuple(map(str, option.type.choices)) if isinstance(option.type, click.Choice) else tuple(declared)


def term(option: click.Option) -> str:
    """Return the flags and the value of an option: `-f, --follow` or `--jobs INTEGER`."""
    flags = ", ".join(sorted(option.opts, key=len))
    if option.secondary_opts:
        flags = f"{flags}, {option.secondary_opts[0]}"
    value = "" if option.is_flag or option.count else f" {_value(option)}"
    return flags + value


def _value(option: click.Option) -> str:
    choices = choices_of(option)
    if choices:
        listed = "|".join(choices)
        return listed if len(option.opts[0]) + len(listed) < WIDEST_TERM else "NAME"
    if option.metavar:
        return SHORT.get(option.metavar, option.metavar)
    kinds = {click.types.IntParamType: "N", click.types.FloatParamType: "X"}
    return next((word for kind, word in kinds.items() if isinstance(option.type, kind)), "TEXT")


def described(option: click.Option, ctx: click.Context) -> str:
    """Return the help of an option, with the choices that do not fit into its term, and its default."""
    choices = choices_of(option)
    listed = f"One of {', '.join(choices)}." if choices and _value(option) == "NAME" else ""
    text, bracket, default = (option.help or "").partition("  [default")
    extra = option.get_help_extra(ctx)
    shown = [f"default: {extra['default']}" if "default" in extra else "", extra.get("required", "")]
    notes = "; ".join(note for note in shown if note)
    parts = (text, listed, f"[default{default}" if bracket else "", f"[{notes}]" if notes else "")
    return " ".join(part for part in parts if part)


# Writing


def write_section(formatter: click.HelpFormatter, title: str, rows: Sequence[tuple[str, str]], column: int) -> None:
    """Write a heading and two columns. Words, options and choices are never broken."""
    _write_heading(formatter, title)
    for name, text in rows:
        lines = _wrapped(text, formatter.width - column, "")
        if len(name) + 4 > column:
            formatter.write(f"  {name}\n")
        else:
            first, *lines = lines or [""]
            formatter.write(f"  {name:<{column - 2}}{first}".rstrip() + "\n")
        for line in lines:
            formatter.write(" " * column + line + "\n")


def _write_names(formatter: click.HelpFormatter, title: str, options: Sequence[click.Option]) -> None:
    if not options:
        return
    _write_heading(formatter, f"{title}, explained by --help-all")
    names = ", ".join(_name(option) for option in options)
    formatter.write("\n".join(_wrapped(f"  {names}", formatter.width, "  ")) + "\n")


def _name(option: click.Option) -> str:
    """Return the flag to list an option by: the one that changes something."""
    flags = option.secondary_opts if option.secondary_opts and option.default is True else option.opts
    return max(flags, key=len)


def _write_heading(formatter: click.HelpFormatter, title: str) -> None:
    bold = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    heading = title if title.endswith("?") else f"{title}:"
    formatter.write("\n" + (click.style(heading, bold=True) if bold else heading) + "\n")


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, max(width, 20), subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def _wrapped_command(command: str, width: int) -> Iterator[str]:
    """Yield a command line, continued with a backslash before an option where it is too long for the page."""
    line = " "
    for part in re.split(r" (?=-)", command):
        if len(line) + 1 + len(part) > width - 2 and line.strip():
            yield f"{line} \\"
            line = "   "
        line = f"{line} {part}"
    yield line
