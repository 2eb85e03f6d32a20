"""`fairtrial`: the table of commands in workflow order, and the one place that prints errors.

A command's module is imported when the command is used, so that `--help` stays instant.
"""

from __future__ import annotations

import io
import itertools
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

import click

from fairtrial.api.running.logged_command import LoggedCommand
from fairtrial.cli._streams import discard_output
from fairtrial.core.command_line import carrying_out
from fairtrial.core.errors import (
    EXIT_OK,
    FairtrialError,
    Interrupted,
    UsageError,
    unknown,
)
from fairtrial.core.plugin_registry import COMMANDS as COMMAND_PLUGINS
from fairtrial.core.plugin_registry import load_plugin, plugin_names, plugin_offers, take_ignored
from fairtrial.core.terminal import visible
from fairtrial.jobs.signals import like_ctrl_c
from fairtrial.version import __version__

COMMANDS = {
    "init": "Write a complete, commented study file.",
    "train": "Train a recipe once, recorded; resume; keep the best checkpoint.",
    "bench": "Say what a training step costs, and where the time goes.",
    "profile": "Say where the time of reinforcement learning on a language model goes.",
    "sync": "Say whether two programs, such as train and bench, still take the same options.",
    "launch": "Run variants × seeds, only what is missing.",
    "runs": "List, show, tail, export, query and remove runs.",
    "evaluate": "Evaluate a checkpoint again, on what chose nothing.",
    "temperature": "Distil at every temperature of a range; name the best and its equals.",
    "alpha": "Distil with every weight of the teacher; name the best and its equals.",
    "sweep": "Train any recipe over a grid of any of its options.",
    "compare": "Set distillation strategies against each other on the same seeds.",
    "ablation": "Say what each component of a model contributes.",
    "variance": "Say how noisy it is and how many seeds are enough.",
    "analyze": "Say whether a change made it better, and how sure that is.",
    "power": "Say how many seeds, hours and dollars a question needs.",
    "cost-performance": "Price every configuration; show the frontier of cost and accuracy.",
    "recommend": "Name the configuration that fits a budget, a deadline and a card.",
    "research": "Make evidence that others can check: describe, register, bundle, verify.",
    "doctor": "Show what is installed and what this machine can measure.",
}


LISTED = frozenset(COMMANDS) - {"init", "sync", "runs", "research", "doctor"}
"""Commands that make or judge something: a project lists them. Those that only look are not listed."""
REMOVING = ["runs", "rm"]
"""What is taken away is listed too."""


class LazyGroup(click.Group):
    """Knows its commands by name and one line; imports the rest on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [*COMMANDS, *_others()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in plugin_names(COMMAND_PLUGINS):
            return None
        command: click.Command = load_plugin(COMMAND_PLUGINS, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in plugin_names(COMMAND_PLUGINS) and not args[0].startswith("-"):
            raise click.UsageError(unknown("command", args[0], plugin_names(COMMAND_PLUGINS)), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))
        if others := _others():
            with formatter.section("Commands of other packages"):
                formatter.write_dl(list(others.items()))


def _others() -> dict[str, str]:
    """Commands of other packages, each with its package: their own help would have to be imported."""
    offers = sorted(plugin_offers(COMMAND_PLUGINS))
    return {offer.name: f"From {offer.origin}." for offer in offers if offer.name not in COMMANDS}


@click.group(
    cls=LazyGroup,
    no_args_is_help=False,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="fairtrial %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Did your change to training really make it better? How sure, how fast, and at what price.

    Give every change a fair trial: the same seeds on both sides, real runs, nothing dropped.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show ✓ is no reason to fail
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code. What is run below an artifact.yaml is listed beside it."""
    command = LoggedCommand(arguments, time.time())
    with like_ctrl_c(), carrying_out(["fairtrial", *arguments]):
        code = _run(command)
    for sentence in take_ignored():
        if "--quiet" not in arguments:
            click.echo(visible(f"Warning: {sentence}."), err=True)
    if arguments and (arguments[0] in LISTED or list(arguments[:2]) == REMOVING):
        command.write(code)
    return code


def _run(command: LoggedCommand) -> int:
    """Errors become a sentence and a hint, here and nowhere else."""
    arguments = command.words
    debug = "--debug" in arguments
    try:
        _refuse_bytes(arguments)
        result = cli.main(args=list(arguments), prog_name="fairtrial", standalone_mode=False, obj=command)
    except FairtrialError as error:
        if debug:
            raise
        return _tell(error, arguments)
    except click.UsageError as error:
        return _tell(_from_click(error), arguments)
    except click.ClickException as error:
        return _tell(FairtrialError(error.format_message()), arguments)
    except (click.Abort, KeyboardInterrupt):
        message = "Stopped. What was recorded is kept; the same command goes on from there."
        return _tell(Interrupted(message), arguments)
    except BrokenPipeError:  # whoever reads a long stream, such as `runs tail --follow | head`, has had enough
        discard_output()
        return EXIT_OK
    except OSError as error:
        if debug:
            raise
        where = f" {error.filename}" if error.filename else ""
        return _tell(FairtrialError(f"cannot use{where}: {error.strerror or error}"), arguments)
    return result if isinstance(result, int) else EXIT_OK


def _refuse_bytes(arguments: Sequence[str]) -> None:
    """Python spells bytes that are not text as lone surrogates, which no file that we write can hold."""
    try:
        "".join(arguments).encode()
    except UnicodeEncodeError:
        raise UsageError("an argument is not UTF-8 text", hint="Rename the file, or type it anew.") from None


def _from_click(error: click.UsageError) -> FairtrialError:
    path = error.ctx.command_path if error.ctx else "fairtrial"
    return UsageError(error.format_message().rstrip("."), hint=f"See: {path} --help")


def _tell(error: FairtrialError, arguments: Sequence[str]) -> int:
    """People read it on standard error; programs that asked for JSON get one document on standard output."""
    kind = "" if isinstance(error, Interrupted) else "Error: "
    lines = [f"{kind}{error.message}", *(f"Error: {problem}" for problem in error.problems)]
    if error.hint:
        lines.append(f"Hint: {error.hint}")
    click.echo(visible("\n".join(lines)), err=True)
    if _wants_json(arguments):
        import json  # nothing else here needs it, and `--help` is to be instant

        click.echo(json.dumps({"schema": 1, "error": error.to_dict()}))
    return error.exit_code


def _wants_json(arguments: Sequence[str]) -> bool:
    arguments = list(itertools.takewhile(lambda word: word != "--", arguments))
    return "--format=json" in arguments or ("--format", "json") in itertools.pairwise(arguments)
