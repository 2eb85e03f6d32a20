"""fairtrial variance"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from fairtrial.cli._output import Output, with_chart_output
from fairtrial.cli._pieces import show_cautions
from fairtrial.cli._source_options import rule_from, with_file, with_window
from fairtrial.core.words import shown_value

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.analyse.variance import Spread
    from fairtrial.api.variance import Variance

NAMES = {"auc": "AUC (mean height of the curve)", "derivative": "derivative (slope)", "last": "value"}


@click.command("variance")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@with_file
@click.option("--variant", metavar="NAME", help="With --from: the variant to look at.")
@click.option("--metric", metavar="NAME", help="Metric.  [default: the recipe's]")
@with_window
@click.option("--threshold", type=float, help="Half-width to reach, as a share of the mean.  [default: 0.05]")
@click.option("--threshold-abs", type=float, help="Half-width to reach, in the metric's own unit.")
@click.option("--level", type=float, default=0.95, show_default=True, help="Confidence level.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of random subsets.")
@with_chart_output
def command(
    out: Output, *, runs: Sequence[str], source: Sequence[str] | None, columns: Any, variant: str | None,
    metric: str | None, window: str | None, percent: float | None, percent_window: str | None, threshold: float | None,
    threshold_abs: float | None, level: float, seed: int,
) -> None:  # fmt: skip
    """Say how noisy one variant is and how many seeds are enough.

    Name runs by id, glob or STUDY:VARIANT. Enough means that the half-width of the mean's interval is at most the
    threshold, for the area under the curve and for its slope. It does not look at any difference between variants.
    """
    from fairtrial.api.variance import variance

    out.name_store() if source is None else None
    found = variance(
        runs, metric=metric, threshold=threshold, threshold_abs=threshold_abs, level=level,
        window=rule_from(None, window, percent, percent_window), source=source, columns=columns, variant=variant,
        seed=seed, store=out.store,
    )  # fmt: skip
    if out.chart:
        from fairtrial.api.plots import variance_chart

        variance_chart(found, out.chart)
        out.say(f"Wrote {out.chart}")
    rows = [{"summary": name, **_row(each)} for name, each in found.spreads.items()]
    out.give(found.to_dict(), rows, lambda console: _show(console, found))


def _row(spread: Spread) -> dict[str, Any]:
    low, high = spread.n_range
    return {
        "n": spread.n, "mean": spread.mean, "sd": spread.sd, "cv": spread.cv, "n_min": spread.n_min,
        "n_low": low, "n_high": high, "reason": spread.reason,
    }  # fmt: skip


def _show(console: Console, found: Variance) -> None:
    console.print(_verdict(found), style="bold", markup=False)
    console.print()
    for name, spread in found.spreads.items():
        console.print(f"{NAMES[name]}: {_told(spread)}", markup=False)
    for each in found.left_out:
        console.print(f"Left out: {each['run']}: {each['reason']}.", markup=False)
    told = [caution for spread in found.spreads.values() for caution in spread.cautions]
    show_cautions(console, [*told, *found.cautions])


def _verdict(found: Variance) -> str:
    """`n = 15 is enough` or `run k more seeds:` and the command."""
    limit = f"{100 * found.threshold:g} % of the mean" if found.relative else shown_value(found.threshold)
    main = next(iter(found.spreads.values()))
    if main.n_min is None:
        return f"Cannot say how many seeds {found.variant} needs: {_reason(main)}."
    high = main.n_range[1]
    if main.enough:
        known = f"the mean of {found.metric} is known to within {limit}"
        doubt = (
            ""
            if high is not None and high <= main.n
            else f"; up to {high or 'very many'} if this noise is underestimated"
        )
        return f"n = {main.n} is enough: {known} (n = {main.n_min} would do{doubt})."
    text = f"n = {main.n} is not enough for {limit} of {found.metric}: run {main.missing} more seeds"
    return f"{text}: {found.command}" if found.command else f"{text}."


def _reason(spread: Spread) -> str:
    return spread.reason or "it would take more than a million"


def _told(spread: Spread) -> str:
    if spread.mean is None or spread.sd is None:
        return f"{spread.n} usable runs; {spread.reason}"
    basis = f"mean {shown_value(spread.mean)}, sd {shown_value(spread.sd)} over {spread.n} runs"
    if spread.n_min is None:
        hint = " Give --threshold-abs instead." if spread.relative and spread.reason and "zero" in spread.reason else ""
        return f"{basis}; no answer: {_reason(spread)}.{hint}"
    cv = f", CV {100 * spread.cv:.2g} %" if spread.cv is not None else ""
    low, high = spread.n_range
    span = f"between {low} and {high or 'very many'}, as far as the noise is known"
    return f"{basis}{cv}; needs n = {spread.n_min} ({span})."
