"""Shared by all commands: the options for output file, output format and store."""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from fairtrial.api.running.logged_command import LoggedCommand
from fairtrial.cli._help import SharedOption
from fairtrial.cli._streams import fitted, reader_may_leave
from fairtrial.core.errors import UsageError, UserError, unknown
from fairtrial.core.plugin_registry import FORMATS, plugin_names
from fairtrial.core.terminal import visible, visible_json
from fairtrial.record.store_location import store_address
from fairtrial.report.formats import CHART_SUFFIXES, SUFFIXES, format_of

if TYPE_CHECKING:
    from rich.console import Console

LARGEST = 2**63
COPIED_AT_ONCE = 1 << 16
PIPED_WIDTH = 120


@dataclass
class Screen:
    """What is drawn on the terminal at the moment."""

    bars: Console | None = None
    """The console that redraws progress bars; lines for people must be printed through it."""


@dataclass(frozen=True)
class Output:
    """Where and in which format one invocation of a command writes its result."""

    format: str
    path: Path | None
    store: str | None
    quiet: bool
    color: bool
    chart: Path | None = None
    command: LoggedCommand = field(default_factory=LoggedCommand)
    """The current command line. API functions are called through it so that a project can log their results."""
    screen: Screen = field(default_factory=Screen)
    given: Sequence[str] = ()
    """Names of the parameters that the user set, on the command line or in a --config file."""

    def check_path(self) -> None:
        """Fail before the work starts if the result could not be written afterwards."""
        for path in (self.path, self.chart):
            if path is not None and not path.absolute().parent.is_dir():
                raise UserError(f"cannot write {path}: no such folder", hint="Choose another --output.")

    @property
    def live(self) -> bool:
        """Whether to show progress bars: only on a terminal."""
        return sys.stderr.isatty() and not self.quiet

    def console(self, *, err: bool = False) -> Console:
        from fairtrial.cli._console import SafeConsole

        stream = sys.stderr if err else sys.stdout
        width = None if stream.isatty() else piped_width()
        # Wrap long lines on a terminal only; programs that read a pipe get each line whole.
        return SafeConsole(
            file=stream, no_color=None if self.color else True, width=width, soft_wrap=not stream.isatty()
        )

    def say(self, text: str) -> None:
        """Print a line to stderr, unless --quiet was given."""
        if self.quiet:
            return
        bars = self.screen.bars
        if bars is None:
            click.echo(fitted(visible(text), sys.stderr), err=True)
        else:  # text that is written past the bars would leave parts of them on the screen
            bars.print(text, soft_wrap="fairtrial " in text)

    def name_store(self) -> None:
        self.say(f"Store: {store_address(self.store)}")

    def give(
        self,
        document: Mapping[str, Any],
        rows: Sequence[Mapping[str, Any]],
        show: Callable[[Console], None],
    ) -> None:
        """Write the result in the requested format to the file or to stdout."""
        if self.format == "text":
            self._give_text(show)
            return
        from fairtrial.report.documents import render

        self._write(render(self.format, document, rows))

    def give_rows(self, key: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write a table of any length in a machine-readable format, in constant memory.

        The table goes to a temporary file first, so an error in the middle does not leave a partial result.
        """
        import shutil
        import tempfile

        from fairtrial.report.documents import render_rows

        with tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as text:
            text.writelines(render_rows(self.format, key, rows))
            text.seek(0)
            if self.path is None:
                for piece in iter(lambda: text.read(COPIED_AT_ONCE), ""):
                    click.echo(piece, nl=False)
                return
            with self._open() as file:
                shutil.copyfileobj(text, file, COPIED_AT_ONCE)
        self.say(f"Wrote {self.path}")

    def _give_text(self, show: Callable[[Console], None]) -> None:
        if self.path is None:
            with reader_may_leave():
                show(self.console())
            return
        from fairtrial.cli._console import SafeConsole

        with self._open() as file:
            show(SafeConsole(file=file, no_color=True, width=piped_width(), soft_wrap=True))
        self.say(f"Wrote {self.path}")

    def _write(self, text: str) -> None:
        if self.path is None:
            if sys.stdout.isatty():  # in a file or a pipe, control characters are data
                text = visible_json(text) if self.format == "json" else visible(text)
            with reader_may_leave():
                click.echo(text, nl=False, color=True)  # else Click strips some escapes
            return
        with self._open() as file:
            file.write(text)
        self.say(f"Wrote {self.path}")

    def _open(self) -> Any:
        assert self.path is not None
        try:
            return self.path.open("w", encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {error.strerror}", hint="Choose another --output.") from None


def piped_width() -> int:
    """Return the width of text that does not go to a terminal: 120 columns, unless COLUMNS says otherwise."""
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isdecimal() and int(given) > 0 else PIPED_WIDTH


def with_output(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that all commands share. The command gets an `Output` as its first argument."""
    return _with_output(function, charts=False)


def with_own_output(function: Callable[..., Any]) -> Callable[..., Any]:
    """Like `with_output`, for commands that write a file or folder and define their own `--output`."""
    return _with_output(function, charts=False, shared_output=False)


def with_chart_output(function: Callable[..., Any]) -> Callable[..., Any]:
    """Like `with_output`, for commands with charts: `--output` may also name an image; the text is still printed."""
    return _with_output(function, charts=True)


def declared(function: Callable[..., Any]) -> list[click.Parameter]:
    """Return the parameters that decorators such as `with_output` added to a function, in the order of the help."""
    return list(reversed(getattr(function, "__click_params__", [])))


def shared_options() -> list[click.Parameter]:
    """Return the options that all commands share."""

    def nothing() -> None: ...

    return declared(with_output(nothing))


def _with_output(function: Callable[..., Any], *, charts: bool, shared_output: bool = True) -> Callable[..., Any]:

    @click.pass_context
    @functools.wraps(function)
    def command(
        context: click.Context,
        /,
        *arguments: Any,
        output_format: str | None,
        store: str | None,
        quiet: bool,
        color: bool,
        **options: Any,
    ) -> Any:
        given = options.pop("output") if shared_output else None
        path = Path(given) if given else None
        chart = path if path and charts and path.suffix in CHART_SUFFIXES else None
        path = None if chart else path
        _refuse_unusable(context, options)
        out = Output(
            _format(output_format, path, charts=charts), path, store, quiet, color, chart,
            command=context.obj or LoggedCommand(), given=_given(context),
        )  # fmt: skip
        out.check_path()
        return function(out, *arguments, **options)

    for option in reversed(_SHARED):
        if shared_output or option is not _OUTPUT:
            command = option(command)
    return command


def _format(given: str | None, path: Path | None, *, charts: bool) -> str:
    if given is None and path is not None:
        chosen = format_of(path.suffix)
        if chosen is None:
            raise UsageError(
                f"the suffix of '{path.name}' does not name a format",
                hint=f"Use one of {', '.join([*SUFFIXES, *(CHART_SUFFIXES if charts else ())])}, or pass --format.",
            )
        return chosen
    return given or "text"


def _given(context: click.Context) -> list[str]:
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return [name for name, source in sources.items() if source is not ParameterSource.DEFAULT]


def _refuse_unusable(context: click.Context, options: Mapping[str, Any]) -> None:
    """Reject values that Click accepts but later code cannot use: NaN and integers beyond 64 bits."""
    for name, given in options.items():
        for value in given if isinstance(given, (tuple, list)) else (given,):
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"{_flag(context, name)} must be a finite number, not {value}")
            if isinstance(value, int) and abs(value) >= LARGEST:
                raise UsageError(f"{_flag(context, name)} must be an integer of at most 64 bits")


def _flag(context: click.Context, name: str) -> str:
    return next((parameter.opts[0] for parameter in context.command.params if parameter.name == name), name)


def _load_config(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    """Load values for this command's options from a YAML file. Flags override them."""
    if value is None:
        return
    from fairtrial.plan.study import read_mapping

    given = {_config_key(key): item for key, item in read_mapping(Path(value)).items()}
    options = {
        _config_key(name): option
        for option in ctx.command.params
        if isinstance(option, click.Option) and option.name != "config"
        for name in option.opts
        if name.startswith("--")
    }
    problems = [f"{value}: {unknown('option', key, options)}" for key in given if key not in options]
    problems += [
        f"{value}: {key}: {why}"
        for key, item in given.items()
        if key in options and (why := _unfit(options[key], item))
    ]
    if problems:
        raise UserError(problems[0], problems=problems[1:])
    ctx.default_map = {options[key].name or "": _as_typed(options[key], item) for key, item in given.items()}


def _unfit(option: click.Option, item: Any) -> str | None:
    """Return why an option cannot take this value, or None. Click itself only expects typed text."""
    takes_list = option.multiple or option.nargs > 1 or _takes_commas(option)
    if isinstance(item, dict) and option.multiple:
        item = list(item.values())
    parts = item if isinstance(item, list) and takes_list else [item]
    if not all(part is None or isinstance(part, (str, bool, int, float, date)) for part in parts):
        return "must be a single value or a list of values" if takes_list else "must be a single value"
    return next((why for part in parts if (why := _wrong_number(option, part))), None)


def _wrong_number(option: click.Option, part: Any) -> str | None:
    """Return why a value is not a valid number for an option. Click would truncate 2.5 to 2 and read `true` as 1."""
    whole = isinstance(option.type, click.types.IntParamType)
    if option.is_flag or not (whole or isinstance(option.type, click.types.FloatParamType)):
        return None
    if isinstance(part, bool):
        return f"must be a number, not {str(part).lower()}"
    if whole and isinstance(part, float) and not part.is_integer():
        return f"must be an integer, not {part:g}"
    return None


def _takes_commas(option: click.Option) -> bool:
    """Whether an option takes text, which may be a list such as `--seeds 1,2,3`. Other options take one value."""
    one_value = (click.types.IntParamType, click.types.FloatParamType, click.types.BoolParamType, click.Choice)
    return not option.is_flag and not isinstance(option.type, one_value)


def _as_typed(option: click.Option, item: Any) -> Any:
    """Return the value as it would be typed: a mapping as NAME=VALUE words, a date as text."""
    if isinstance(item, dict):
        item = [f"{name}={value}" for name, value in item.items()]
    if option.multiple and not isinstance(item, list):
        item = [] if item is None else [item]
    if isinstance(item, list) and not option.multiple and option.nargs == 1:
        return ",".join(str(part) for part in item)
    if isinstance(item, list):
        return [str(part) if isinstance(part, date) else part for part in item]
    return str(item) if isinstance(item, date) else item


def _config_key(name: object) -> str:
    """Normalize the name of an option: --summary.type, summary.type and summary_type are the same key."""
    return str(name).lstrip("-").replace("-", "_").replace(".", "_")


_OUTPUT = click.option(
    "--output", cls=SharedOption, metavar="FILE", help="Write the result to a file; the suffix sets the format."
)
_SHARED = (
    click.option(
        "--format", "output_format", cls=SharedOption, type=click.Choice(plugin_names(FORMATS)),
        help="Output format.  [default: text]",
    ),
    _OUTPUT,
    click.option(
        "--store", cls=SharedOption, metavar="PATH|URL",
        help="Store of runs: a folder, s3://… or gs://…  [default: $FAIRTRIAL_STORE, the project's store, or ./runs]",
    ),
    click.option(
        "--config", cls=SharedOption, metavar="FILE", is_eager=True, expose_value=False, callback=_load_config,
        help="Read option values from a YAML file; flags override them.",
    ),
    click.option("--quiet", cls=SharedOption, is_flag=True, help="Print only the result."),
    click.option("--color/--no-color", cls=SharedOption, default=True, help="Use color on terminals."),
    click.option(
        "--debug", cls=SharedOption, is_flag=True, expose_value=False, help="Show the full traceback of an error."
    ),
)  # fmt: skip
