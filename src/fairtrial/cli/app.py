"""The `fairtrial` entry point: the table of commands by question, and the only place that prints errors.

The module of a command is imported when the command is used, so that `--help` is fast.
"""

from __future__ import annotations

import io
import itertools
import os
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

import click

from fairtrial.api.running.logged_command import LoggedCommand
from fairtrial.cli._help import HelpfulGroup, HelpPage, write_section
from fairtrial.cli._streams import discard_output, fitted
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

COMMAND_GROUPS = {
    "Set up": {
        "init": "Write a complete, commented study file.",
        "doctor": "Show what is installed and what this machine can measure.",
        "completion": "Print a script that completes commands and names with TAB.",
    },
    "Run": {
        "train": "Train a recipe once and record the run.",
        "launch": "Run variants × seeds; skip runs that are already recorded.",
        "runs": "List, show, tail, export, query and remove runs.",
        "evaluate": "Re-evaluate a checkpoint on held-out data.",
    },
    "Which setting is best?": {
        "temperature": "Sweep the distillation temperature; find the best value.",
        "alpha": "Sweep the weight of the teacher; find the best value.",
        "sweep": "Sweep any options of any recipe; find the best setting.",
    },
    "Is it better?": {
        "power": "Plan how many seeds, hours and dollars a study needs.",
        "analyze": "Test whether a change made training better.",
        "compare": "Compare distillation strategies on the same seeds.",
        "ablation": "Measure what each component of a model contributes.",
        "variance": "Measure the noise between seeds; how many are enough.",
    },
    "What does it cost?": {
        "cost-performance": "Price configurations; show the Pareto frontier.",
        "recommend": "Recommend a configuration for a budget and a GPU.",
    },
    "What limits a step?": {
        "bench": "Measure what a training step costs and where time goes.",
        "profile": "Profile reinforcement learning on a language model.",
        "sync": "Check that two programs still take the same options.",
    },
    "Show others": {
        "research": "Describe, register, bundle and verify a project.",
    },
}
"""All commands by the question that they answer, in workflow order within a group."""
COMMANDS = {name: job for group in COMMAND_GROUPS.values() for name, job in group.items()}

LISTED = frozenset(COMMANDS) - {"init", "sync", "runs", "research", "doctor", "completion"}
"""Commands that produce or judge results: a project's command log lists them. Read-only commands are not listed."""
REMOVING = ["runs", "rm"]
"""The command that removes runs, which the command log lists too."""


class LazyGroup(HelpfulGroup):
    """A group that knows the name and one-line help of each command, and imports its module on use."""

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

    def described_commands(self, ctx: click.Context) -> list[tuple[str, str]]:  # noqa: ARG002
        return [*COMMANDS.items(), *_others().items()]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for title, commands in COMMAND_GROUPS.items():
            write_section(formatter, title, list(commands.items()), max(map(len, COMMANDS)) + 4)
        if others := _others():
            write_section(formatter, "Commands of other packages", list(others.items()), max(map(len, others)) + 4)


def _others() -> dict[str, str]:
    """Return commands of other packages with the package name as help. Their own help would need an import."""
    offers = sorted(plugin_offers(COMMAND_PLUGINS))
    return {offer.name: f"From {offer.origin}." for offer in offers if offer.name not in COMMANDS}


@click.group(
    cls=LazyGroup,
    no_args_is_help=False,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    page=HelpPage(examples=("fairtrial init --recipe classify", "fairtrial launch study.yaml")),
)
@click.version_option(__version__, message="fairtrial %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Find out whether a change to your training made it better: how certain, how fast, and at what cost.

    Every change gets a fair trial: the same seeds on both sides, real runs, and no run left out.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    if os.environ.get("_FAIRTRIAL_COMPLETE") in ("bash", "zsh", "fish"):  # a completion script asks
        from fairtrial.cli._completion import complete

        complete(os.environ["_FAIRTRIAL_COMPLETE"], sys.argv[1:] if arguments is None else arguments)
        sys.exit(EXIT_OK)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # do not fail on a terminal that cannot show ✓
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code. In a project, append it to the log next to artifact.yaml."""
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
    """Run the command. This is the only place that turns exceptions into an error message and a hint."""
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
        message = "Stopped. Everything recorded so far is kept; run the same command again to resume."
        return _tell(Interrupted(message), arguments)
    except BrokenPipeError:  # the reader closed the pipe, as in `runs tail --follow | head`
        discard_output()
        return EXIT_OK
    except OSError as error:
        if debug:
            raise
        where = f" {error.filename}" if error.filename else ""
        return _tell(FairtrialError(f"cannot access{where}: {error.strerror or error}"), arguments)
    return result if isinstance(result, int) else EXIT_OK


def _refuse_bytes(arguments: Sequence[str]) -> None:
    """Reject arguments that are not UTF-8. Python decodes them to lone surrogates, which cannot be written to files."""
    try:
        "".join(arguments).encode()
    except UnicodeEncodeError:
        raise UsageError("an argument is not UTF-8 text", hint="Rename the file, or retype the argument.") from None


def _from_click(error: click.UsageError) -> FairtrialError:
    path = error.ctx.command_path if error.ctx else "fairtrial"
    return UsageError(error.format_message().rstrip("."), hint=f"See: {path} --help")


def _tell(error: FairtrialError, arguments: Sequence[str]) -> int:
    """Print an error to stderr, and with --format json also as a JSON document to stdout. Return the exit code."""
    kind = "" if isinstance(error, Interrupted) else "Error: "
    lines = [f"{kind}{error.message}", *(f"Error: {problem}" for problem in error.problems)]
    if error.hint:
        lines.append(f"Hint: {error.hint}")
    click.echo(fitted(visible("\n".join(lines)), sys.stderr), err=True)
    if _wants_json(arguments):
        import json  # imported late to keep `--help` fast

        click.echo(json.dumps({"schema": 1, "error": error.to_dict()}))
    return error.exit_code


def _wants_json(arguments: Sequence[str]) -> bool:
    arguments = list(itertools.takewhile(lambda word: word != "--", arguments))
    return "--format=json" in arguments or ("--format", "json") in itertools.pairwise(arguments)
