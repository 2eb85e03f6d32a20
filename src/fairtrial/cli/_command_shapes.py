"""What shell completion needs to know about a command: its subcommands, options and arguments.

Importing a command takes longer than a person waits after pressing TAB, so the shape of each command is cached in the
user's cache folder until the installed package changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import click

SHAPE_VERSION = 1
LARGEST_SHAPE_BYTES = 1 << 20
SOURCES = {
    "study": "study", "studies": "study", "since_benchmark": "study",
    "run": "run", "runs": "run", "resume": "run",
    "control_run_ids": "run", "candidate_run_ids": "run",
    "control": "variant", "candidate": "variant", "variant": "variant",
    "metric": "metric", "metrics": "metric",
    "status": "status",
    "recipe": "recipe",
    "checkpoint": "checkpoint",
    "store": "folder", "plots": "folder", "trace_dir": "folder", "to": "folder",
}  # fmt: skip
"""What the values of a parameter are, by the name of the parameter."""
SPECIAL = {
    ("analyze", "since"): "run",
    ("doctor", "since"): "study",
    ("launch", "variants"): None,
    ("train", "variant"): None,
    ("train", "study"): "study",
    ("launch", "metrics"): "file",
    ("train", "metrics"): "file",
    ("power", "pilot"): "run or variant",
    ("variance", "runs"): "run or variant",
    ("variance", "variant"): None,
    ("profile show", "name"): "profile",
    ("profile check", "name"): "profile",
    ("profile diff", "first"): "profile",
    ("profile diff", "second"): "profile",
    ("research export", "kind"): "export",
    ("research cite", "style"): "citation",
    ("research init", "kind"): "artifact",
    ("research preregister", "study"): "study file",
    ("research preregister", "control"): None,
    ("research preregister", "candidate"): None,
    ("runs sync", "studies"): "study",
}
"""The same for parameters whose name means something else in one command; None if their value is free text."""
FILE_WORDS = ("FILE", "PATH", "BUNDLE", "REGISTRATION", "ARTIFACT", "FOLDER", "DIR", "KEY|")


class OptionShape(NamedTuple):
    flags: Sequence[str]
    values: int
    """How many values follow the flag: 0 for switches."""
    many: bool
    """Whether it can be repeated and takes several values."""
    source: str | None
    choices: Sequence[str]
    help: str
    name: str


class ArgumentShape(NamedTuple):
    values: int
    """How many values it takes; -1 for any number."""
    source: str | None
    choices: Sequence[str]


class CommandShape(NamedTuple):
    """The subcommands of a command with their help, its options and its arguments."""

    commands: Sequence[tuple[str, str]]
    options: Sequence[OptionShape]
    arguments: Sequence[ArgumentShape]


def shape_of(path: tuple[str, ...]) -> CommandShape:
    """Return the shape of a command, given the words that name it; from the cache if possible."""
    file = _cache_file(path)
    with contextlib.suppress(Exception):
        return _unpack(json.loads(_read(file)))
    shape = _made(path)
    with contextlib.suppress(OSError):
        _write(file, json.dumps(shape))
    return shape


# Making a shape from a Click command


def _made(path: tuple[str, ...]) -> CommandShape:
    import click

    from fairtrial.cli._help import HelpfulGroup
    from fairtrial.cli.app import cli

    command: click.Command = cli
    context = click.Context(cli, info_name="fairtrial")
    for word in path:
        assert isinstance(command, click.Group)
        inner = command.get_command(context, word)
        if inner is None:
            raise LookupError(word)
        context = click.Context(inner, context, info_name=word)
        command = inner
    commands = command.described_commands(context) if isinstance(command, HelpfulGroup) else []
    parameters = command.get_params(context)
    return CommandShape(
        commands,
        [_option(path, each) for each in parameters if isinstance(each, click.Option)],
        [_argument(path, each) for each in parameters if isinstance(each, click.Argument)],
    )


def _option(path: tuple[str, ...], option: click.Option) -> OptionShape:
    from fairtrial.cli._help import choices_of, first_sentence

    return OptionShape(
        [*option.opts, *option.secondary_opts], 0 if option.is_flag or option.count else option.nargs,
        option.multiple, source_of(path, option), choices_of(option),
        first_sentence((option.help or "").partition("  [default")[0]), option.name or "",
    )  # fmt: skip


def _argument(path: tuple[str, ...], argument: click.Argument) -> ArgumentShape:
    from fairtrial.cli._help import choices_of

    return ArgumentShape(argument.nargs, source_of(path, argument), choices_of(argument))


def source_of(path: tuple[str, ...], parameter: click.Parameter) -> str | None:
    """Return what the values of a parameter are, or None for numbers and free text."""
    name = parameter.name or ""
    for words in (path, path[:1]):
        if (" ".join(words), name) in SPECIAL:
            return SPECIAL[" ".join(words), name]
    if name in SOURCES:
        return SOURCES[name]
    metavar = (parameter.metavar or name).upper()
    return "file" if any(word in metavar for word in FILE_WORDS) or name == "argv" else None


# The cache


def _cache_file(path: tuple[str, ...]) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    digest = hashlib.sha256("\0".join([*path, *_stamps()]).encode()).hexdigest()[:20]
    return Path(base).expanduser() / "fairtrial" / "completion" / f"{digest}.json"


def _stamps() -> list[str]:
    """Return what changes when the package, or one with plug-ins for it, is updated or edited."""
    from fairtrial.core.plugin_registry import COMMANDS, RECIPES, plugin_offers

    home = Path(__file__).parent.parent
    folders = [home / name for name in ("cli", "recipes", "core")]
    files = [entry for folder in folders for entry in os.scandir(folder) if entry.name.endswith(".py")]
    newest = max(entry.stat().st_mtime_ns for entry in files)
    offers = [repr(offer) for kind in (COMMANDS, RECIPES) for offer in plugin_offers(kind)]
    return [str(SHAPE_VERSION), sys.version, str(home), str(newest), str(len(files)), *offers]


def _read(file: Path) -> bytes:
    from fairtrial.core.regular_files import open_regular  # core.untrusted would import orjson

    with open_regular(str(file)) as opened:
        return opened.read(LARGEST_SHAPE_BYTES)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(text)
    temporary.replace(file)


def _unpack(content: Any) -> CommandShape:
    commands, options, arguments = content
    return CommandShape(
        [(name, text) for name, text in commands],
        [OptionShape(*option) for option in options],
        [ArgumentShape(*argument) for argument in arguments],
    )
