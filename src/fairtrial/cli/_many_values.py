"""Several values after one flag: `--control-run-ids r1 r2 r3` is the same as repeating the flag three times.

Click options take a fixed number of values per flag; only arguments can take any number. Commands of this class insert
the repeated flags before Click parses the line, so everything after the parser (help, `--config`, `sync`, shell
completion) still sees an ordinary option with `multiple=True`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from fairtrial.cli._help import HelpfulCommand

if TYPE_CHECKING:
    from fairtrial.plan.study import Study


class InsteadOfArguments(click.Option):
    """An option that replaces the arguments, such as runs instead of a study.

    It cannot be combined with arguments, so every word after it is one of its values.
    """


class ManyValuesCommand(HelpfulCommand):
    """A command whose repeatable options take all words up to the next option.

    If the command has arguments, they come before such an option or after `--`. As long as no argument was given, the
    option takes one word, so that `analyze --metric loss STUDY` names a study. `--flag=value` always takes one value.

    `plan` takes the same parameters as the callback and returns the study that the command would launch. It is None
    for commands that do not launch a study.
    """

    def __init__(self, *arguments: Any, plan: Callable[..., Study] | None = None, **settings: Any) -> None:
        self.plan = plan
        super().__init__(*arguments, **settings)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, repeat_flags(ctx, self.get_params(ctx), args))


def repeat_flags(ctx: click.Context, parameters: Sequence[click.Parameter], words: Sequence[str]) -> list[str]:
    """Return the command line with the flag of a repeatable option inserted before each of its values."""
    options = {
        name: each
        for each in parameters
        if isinstance(each, click.Option)
        for name in (*each.opts, *each.secondary_opts)
    }
    arguments = [each for each in parameters if isinstance(each, click.Argument)]
    missing = sum(1 if each.nargs == -1 else each.nargs for each in arguments)
    rest = list(words)
    if "--" in rest:
        missing -= len(rest) - rest.index("--") - 1
    repeated: list[str] = []
    while rest and rest[0] != "--":
        word = rest.pop(0)
        option = options.get(word)
        if option is None:
            missing -= not _looks_like_option(word)
            repeated.append(word)
        elif option.multiple and option.nargs == 1 and not option.is_flag:
            greedy = missing <= 0 or isinstance(option, InsteadOfArguments)
            for value in _take_values(ctx, word, rest, options, greedy=greedy):
                repeated += [word, value]
        else:
            count = 0 if option.is_flag or option.count else option.nargs
            repeated += [word, *rest[:count]]
            del rest[:count]
    return [*repeated, *rest]


def _take_values(
    ctx: click.Context, flag: str, rest: list[str], options: dict[str, click.Option], *, greedy: bool
) -> list[str]:
    """Remove and return the values of one flag at the front of `rest`. Only the first may begin with a dash."""
    if not rest or rest[0] in options or rest[0] == "--":
        if ctx.resilient_parsing:  # shell completion: an incomplete line is not an error
            return []
        follows = f", but {rest[0]} follows" if rest else ""
        raise click.BadOptionUsage(flag, f"{flag} needs a value{follows}", ctx)
    values = [rest.pop(0)]
    while greedy and rest and not _looks_like_option(rest[0]):
        values.append(rest.pop(0))
    return values


def _looks_like_option(word: str) -> bool:
    return word.startswith("-") and len(word) > 1
