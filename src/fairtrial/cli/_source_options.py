"""Options of commands that read runs for an analysis: the source file, its columns, and the summary window."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from fairtrial.cli._many_values import InsteadOfArguments
from fairtrial.core.errors import UsageError

if TYPE_CHECKING:
    from fairtrial.core.readers import Columns
    from fairtrial.stats.summaries import SummaryRule

ROLES = ("run", "seed", "variant", "step", "metric", "value", "task", "status")
COLUMN_FLAGS = " ".join(f"--{role}-column" for role in ROLES)

_FILE_OPTIONS = (
    click.option(
        "--from",
        "source",
        cls=InsteadOfArguments,
        multiple=True,
        metavar="FILE...",
        help="Read results from CSV, JSON or any file that an installed reader recognizes, instead of the store.",
    ),
    *(
        click.option(f"--{role}-column", metavar="NAME", help=f"Column of the file with the {role}.")
        for role in ROLES[:-1]
    ),
    click.option(
        "--status-column",
        metavar="NAME",
        help="Column of the file with the status of a run; none if there is no such column.",
    ),
)
_WINDOW_OPTIONS = (
    click.option("--summary.window", "window", metavar="FIRST:LAST", help="Steps that the summary uses."),
    click.option(
        "--summary.percent", "percent", type=click.FloatRange(0, 1, min_open=True), metavar="SHARE",
        help="Share of the steps that the summary uses (0 to 1), instead of a window.",
    ),
    click.option(
        "--summary.percent-window", "percent_window", type=click.Choice(["first", "last"]),
        help="Whether --summary.percent means the first or the last steps.  [default: last]",
    ),
)  # fmt: skip


def with_file(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --from and the options that name its columns. The command gets `source` (files or None) and `columns`."""

    @functools.wraps(function)
    def command(*arguments: Any, source: Sequence[str], **options: Any) -> Any:
        from fairtrial.core.readers import Columns

        given = {role: options.pop(f"{role}_column") for role in ROLES}
        if not source and any(given.values()):
            raise UsageError("a column option needs --from FILE")
        columns: Columns = Columns(**given)
        return function(*arguments, source=list(source) or None, columns=columns, **options)

    return _add(command, _FILE_OPTIONS)


def with_window(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the window of the summary."""
    return _add(function, _WINDOW_OPTIONS)


def _add(function: Callable[..., Any], options: tuple[Callable[..., Any], ...]) -> Callable[..., Any]:
    for option in reversed(options):
        function = option(function)
    return function


def rule_from(
    kind: str | None,
    window: str | None,
    percent: float | None,
    percent_window: str | None,
    points: int | None = None,
    threshold: float | None = None,
) -> SummaryRule | None:
    """Return the summary that the options specify. None means that no option was given and the study's own applies."""
    from fairtrial.stats.summaries import SummaryRule

    if percent_window is not None and percent is None:
        raise UsageError("--summary.percent-window needs --summary.percent")
    given = {
        "type": kind,
        "window": _steps(window),
        "percent": percent,
        "percent_window": percent_window,
        "points": points,
        "threshold": threshold,
    }
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return SummaryRule(**chosen).check() if chosen else None


def _steps(window: str | None) -> tuple[float, float] | None:
    if window is None:
        return None
    first, colon, last = window.partition(":")
    try:
        steps = (float(first), float(last))
    except ValueError:
        colon = ""
    if not colon:
        raise UsageError(f"--summary.window must be FIRST:LAST in steps, such as 1000:5000, not '{window}'")
    return steps
