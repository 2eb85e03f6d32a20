"""Options for a published table of means, and output of its analysis in every format."""

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
        help="For a table of means: list which differences hold, and how many runs each would need.",
    ),
    click.option("--all-pairs", is_flag=True, help="With --claims: test all pairs of arms, not only with the control."),
    click.option("--n", "n", type=int, metavar="RUNS", help="Runs per arm, for a table of means without an n column."),
    click.option(
        "--plus-minus", type=click.Choice(["sd", "se", "ci"]), help="What ± means in a table with '0.871 ± 0.012'."
    ),
    click.option(
        "--interval-level", type=float, metavar="LEVEL", help="Level of intervals in a table of means.  [default: 0.95]"
    ),
    click.option(
        "--items", type=int, metavar="ITEMS",
        help="Size of a test set scored right or wrong: report means that are impossible with that many items.",
    ),
    click.option(
        "--range", "bounds", metavar="LOW:HIGH",
        help="Valid range of the metric in a table of means: report values outside it.",
    ),
)  # fmt: skip


def with_summary_table(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for tables of means. The command gets them as `summary_table`."""

    @functools.wraps(function)
    def command(*arguments: Any, **options: Any) -> Any:
        from fairtrial.core.printed import SummaryOptions

        names = ("claims", "all_pairs", "n", "plus_minus", "interval_level", "items")
        given: dict[str, Any] = {name: options.pop(name) for name in names}
        summary_table = SummaryOptions(**given, bounds=_bounds(options.pop("bounds")))
        if summary_table.given() and not options.get("source"):
            raise UsageError(f"{summary_table.given()[0]} needs --from FILE with a table of means")
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
    """Return the analysis if it is about a table of means, else None."""
    from fairtrial.api.comparing.published_claims import PublishedAnalysis

    return analysis if isinstance(analysis, PublishedAnalysis) else None


def give_published(
    out: Output, analysis: PublishedAnalysis, requirement: Mapping[str, Any], files: Mapping[str, Any]
) -> None:
    """Write the result in the requested format. Charts and lists of single runs are refused."""
    from fairtrial.cli._published_text import claim_row, page_claim_row, show_published
    from fairtrial.cli._verdict_text import page_row_of, row_of

    asked = next((flag for flag, given in files.items() if given), None)
    if asked is not None:
        raise UserError(f"{asked} needs the runs, but {analysis.source} has only one mean per arm", hint="Remove it.")
    for_page = out.format in ("markdown", "latex")
    rows: list[dict[str, Any]]
    if analysis.options.claims:
        rows = [(page_claim_row if for_page else claim_row)(claim) for claim in analysis.claims]
    else:
        rows = [(page_row_of if for_page else row_of)(each) for each in analysis.comparisons]
    out.give({**analysis.to_dict(), **requirement}, rows, lambda console: show_published(console, analysis))
