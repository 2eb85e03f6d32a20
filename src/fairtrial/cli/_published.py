"""A table of means on the command line: its options, and the result in every format."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from fairtrial.cli._output import Output
from fairtrial.core.errors import UsageError, UserError

if TYPE_CHECKING:
    from fairtrial.api.comparing.analysis import Analysis
    from fairtrial.api.comparing.published_claims import PublishedAnalysis

_OPTIONS = (
    click.option(
        "--claims", is_flag=True,
        help="For a table of means: which of its differences hold, and the runs that each would need.",
    ),
    click.option("--all-pairs", is_flag=True, help="With --claims: every two arms, not only against the control."),
    click.option("--n", "n", type=int, metavar="RUNS", help="For a table of means without that column: runs per arm."),
    click.option(
        "--plus-minus", type=click.Choice(["sd", "se", "ci"]), help="What ± means in a table with '0.871 ± 0.012'."
    ),
    click.option(
        "--interval-level", type=float, metavar="LEVEL", help="Level of intervals in a table of means.  [default: 0.95]"
    ),
    click.option(
        "--items", type=int, metavar="ITEMS",
        help="Items of the test set, each right or wrong: means that so many cannot give are pointed out.",
    ),
    click.option(
        "--range", "bounds", metavar="LOW:HIGH",
        help="Range of the metric in a table of means: values that it excludes are pointed out.",
    ),
)  # fmt: skip


def with_summary_table(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options for tables of means; the command gets `summary_table`."""

    @functools.wraps(function)
    def command(*arguments: Any, **options: Any) -> Any:
        from fairtrial.core.printed import SummaryOptions

        names = ("claims", "all_pairs", "n", "plus_minus", "interval_level", "items")
        given: dict[str, Any] = {name: options.pop(name) for name in names}
        summary_table = SummaryOptions(**given, bounds=_bounds(options.pop("bounds")))
        if summary_table.given() and not options.get("source"):
            raise UsageError(f"{summary_table.given()[0]} needs --from FILE, a table of means")
        return function(*arguments, summary_table=summary_table, **options)

    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _bounds(given: str | None) -> tuple[float, float] | None:
    if given is None:
        return None
    low, colon, high = given.partition(":")
    try:
        limits = (float(low), float(high))
    except ValueError:
        colon = ""
    if not colon:
        raise UsageError(f"--range must be LOW:HIGH, such as 0:1, not '{given}'")
    return limits


def as_published(analysis: Analysis) -> PublishedAnalysis | None:
    """The analysis, if it is one of a table of means."""
    from fairtrial.api.comparing.published_claims import PublishedAnalysis

    return analysis if isinstance(analysis, PublishedAnalysis) else None


def give_published(
    out: Output, analysis: PublishedAnalysis, requirement: Mapping[str, Any], files: Mapping[str, Any]
) -> None:
    """The result in the format that was asked for. What would draw or list single runs is refused."""
    from fairtrial.cli._published_text import claim_row, page_claim_row, show_published
    from fairtrial.cli._verdict_text import page_row_of, row_of

    asked = next((flag for flag, given in files.items() if given), None)
    if asked is not None:
        raise UserError(f"{asked} needs the runs; {analysis.source} has one mean per arm", hint="Leave it out.")
    for_page = out.format in ("markdown", "latex")
    rows: list[dict[str, Any]]
    if analysis.options.claims:
        rows = [(page_claim_row if for_page else claim_row)(claim) for claim in analysis.claims]
    else:
        rows = [(page_row_of if for_page else row_of)(each) for each in analysis.comparisons]
    out.give({**analysis.to_dict(), **requirement}, rows, lambda console: show_published(console, analysis))
