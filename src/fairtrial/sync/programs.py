"""Load the command or function that a command-line argument names.

`package.module:attribute`, or `path/to/file.py:attribute`, followed by subcommands where the command is a group.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import pkgutil
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from fairtrial.core.errors import FairtrialError, UserError, nearest, unknown

FORM = "Write package.module:attribute, or path/to/file.py:attribute"


@dataclass(frozen=True)
class ExaminedProgram:
    """A command, with its full name as users type it: the names of its groups and its own."""

    command: Any
    name: str


def load_command(word: str) -> ExaminedProgram:
    """Load the Click or Typer command that a word names, including subcommands."""
    try:
        target, *subcommands = shlex.split(word) or [""]
    except ValueError as error:
        raise UserError(f"cannot read '{word}': {error}", hint=f"{FORM}.") from None
    root = as_command(load_object(target), word)
    return ExaminedProgram(subcommand(root, subcommands, word), " ".join(filter(None, [root.name, *subcommands])))


def load_object(target: str) -> Any:
    """Load an attribute of a module. Any error in the user's module becomes one error message."""
    place, colon, attribute = target.rpartition(":")
    if not (colon and place and attribute):
        raise UserError(f"'{target}' does not name a module and an attribute", hint=f"{FORM}.")
    value: Any = _load_module(place)
    for name in attribute.split("."):
        if not hasattr(value, name):
            raise _no_attribute(value, name, place)
        value = getattr(value, name)
    return value


def _no_attribute(holder: Any, name: str, place: str) -> UserError:
    public = [each for each in vars(holder) if not each.startswith("_")] if hasattr(holder, "__dict__") else []
    guess = nearest(name, public)
    commands = [each for each in public if _is_command(getattr(holder, each)) or _is_typer(getattr(holder, each))]
    return UserError(
        f"{place} has no attribute '{name}'" + (f"; did you mean '{guess}'?" if guess else ""),
        hint=f"Commands there: {', '.join(commands)}" if commands else None,
    )


def _load_module(place: str) -> ModuleType:
    with _importing(Path(place).parent if place.endswith(".py") else Path.cwd()):
        try:
            return _load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
        except FairtrialError:
            raise
        except ModuleNotFoundError as error:
            asked = error.name is not None and f"{place}.".startswith(f"{error.name}.")
            raise _no_module(error.name or place, place) if asked else _broken(place, error) from error
        except SystemExit as error:
            raise UserError(
                f"{place} exits when it is imported (exit code {error.code})",
                hint='Move the code that runs the program below: if __name__ == "__main__":',
            ) from error
        except Exception as error:
            raise _broken(place, error) from error


def _broken(place: str, error: Exception) -> UserError:
    message = f"{type(error).__name__}: {error}".rstrip(": ")
    return UserError(f"{place} cannot be imported: {message}", hint="Pass --debug to see the traceback.")


def _no_module(name: str, place: str) -> UserError:
    parent, _, last = name.rpartition(".")
    folders = list(getattr(sys.modules.get(parent), "__path__", [])) if parent else None
    # A module of the standard library is not a program of the user, however similar its name.
    guess = nearest(last, {each.name for each in pkgutil.iter_modules(folders)} - sys.stdlib_module_names)
    meant = f"; did you mean '{f'{parent}.' if parent else ''}{guess}'?" if guess else ""
    inside = "" if name == place else f" (needed for {place})"
    return UserError(
        f"no module '{name}'{inside}{meant}",
        hint="Modules are searched in the current folder first. To name a file, write path/to/file.py:attribute.",
    )


def _load_file(path: Path) -> ModuleType:
    path = path.expanduser().absolute()
    if not path.is_file():
        raise UserError(f"file not found: {path}", hint=f"{FORM}.")
    name = f"fairtrial_sync_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and type hints look up their module here
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _importing(folder: Path) -> Iterator[None]:
    """Put the folder first on `sys.path`, as `python file.py` does, and send what the module prints to stderr."""
    kept = list(sys.path)
    sys.path.insert(0, str(folder.expanduser().absolute()))
    importlib.invalidate_caches()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.path[:] = kept


def _is_command(target: Any) -> bool:
    """Whether an object is a command, by duck typing: Typer bundles its own Click, so isinstance is not reliable."""
    return not isinstance(target, type) and hasattr(target, "get_params") and hasattr(target, "make_context")


def _is_typer(target: Any) -> bool:
    return any(kind.__module__.partition(".")[0] == "typer" for kind in type(target).__mro__) and hasattr(
        target, "registered_commands"
    )


def _is_group(command: Any) -> bool:
    return hasattr(command, "list_commands") and hasattr(command, "get_command")


def as_command(target: Any, word: str) -> Any:
    """Return the object as a command; a Typer application is converted to one."""
    if _is_typer(target):
        from typer.main import get_command

        try:
            return get_command(target)
        except Exception as error:
            raise UserError(f"Typer cannot convert '{word}' to a command: {error}") from error
    if _is_command(target):
        return target
    hint = "Name a command made with @click.command(), or a typer.Typer() application."
    if inspect.isroutine(target):
        hint += " For a function registered with @app.command(), name its application: 'module:app name'."
    raise UserError(f"'{word}' is of type {type(target).__name__}, not a Click or Typer command", hint=hint)


def subcommand(command: Any, words: list[str], asked: str) -> Any:
    """Follow the words through groups to a command that is not a group."""
    context = command.context_class(command, info_name=command.name)
    for word in words:
        if not _is_group(command):
            raise UserError(f"'{asked}': the command has no subcommands, but '{word}' was given", hint="Remove it.")
        command = _inner(command, context, word, asked)
        context = command.context_class(command, info_name=word, parent=context)
    if _is_group(command):
        names = command.list_commands(context)
        raise UserError(
            f"'{asked}' is a group of commands: {', '.join(names) or 'an empty one'}",
            hint=f"Name one of them: '{asked} {names[0]}'" if names else None,
        )
    return command


def _inner(group: Any, context: Any, word: str, asked: str) -> Any:
    names = group.list_commands(context)
    try:
        command = group.get_command(context, word)
    except FairtrialError:
        raise
    except Exception as error:
        if word in names:
            raise _broken(f"'{asked}'", error) from error
        command = None
    if command is None:
        raise UserError(f"'{asked}': {unknown('command', word, names)}")
    return command
