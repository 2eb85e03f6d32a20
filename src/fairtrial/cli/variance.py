"""fairtrial variance"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from fairtrial.cli._help import HelpPage
from fairtrial.cli._many_values import ManyValuesCommand
from fairtrial.cli._output import Output, with_chart_output
from fairtrial.cli._pieces import show_cautions
from fairtrial.cli._source_options import COLUMN_FLAGS, rule_from, with_file, with_window
from fairtrial.cli._tables import plain_table
from fairtrial.core.errors import UsageError
from fairtrial.core.formatting import counted, shown_chance, shown_percent, shown_value

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.comparing.by_stream import ByStream
    from fairtrial.api.comparing.variance import Variance
    from fairtrial.stats.components import StreamNoise, VarianceComponent
    from fairtrial.stats.summaries import SummaryRule
    from fairtrial.stats.variance import Spread

NAMES = {"auc": "AUC (mean height of the curve)", "derivative": "derivative (slope)", "last": "value"}
SHORT = {"auc": "AUC", "derivative": "slope", "last": "value"}


PAGE = HelpPage(
    {
        "What to measure": "--metric --by-stream --summary.window --summary.percent | --summary.percent-window",
        "How many seeds are enough": "--threshold --threshold-abs --level | --seed",
        "Results from a file": f"--from | --variant {COLUMN_FLAGS}",
    },
    ("fairtrial variance demo:kd", "fairtrial variance 'demo/kd.*' --threshold 0.01 --output noise.png"),
)


@click.command("variance", cls=ManyValuesCommand, page=PAGE)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@with_file
@click.option("--variant", metavar="NAME", help="With --from: variant to use.")
@click.option("--metric", metavar="NAME", help="Metric.  [default: the recipe's]")
@with_window
@click.option("--by-stream", is_flag=True, help="Find the random stream that matters most; see --stream-seed of train.")
@click.option("--threshold", type=float, help="Target half-width, as a fraction of the mean.  [default: 0.05]")
@click.option("--threshold-abs", type=float, help="Target half-width, in the unit of the metric.")
@click.option("--level", type=float, default=0.95, show_default=True, help="Confidence level.")
@click.option("--seed", type=click.IntRange(min=0), help="Random seed for subsets.  [default: 0]")
@with_chart_output
def command(
    out: Output, *, runs: Sequence[str], source: Sequence[str] | None, columns: Any, variant: str | None,
    metric: str | None, window: str | None, percent: float | None, percent_window: str | None, by_stream: bool,
    threshold: float | None, threshold_abs: float | None, level: float, seed: int | None,
) -> None:  # fmt: skip
    """Measure how noisy one variant is and how many seeds are enough.

    Refer to runs by id, glob or STUDY:VARIANT. Enough means that the half-width of the mean's confidence interval is
    at most the threshold, for the area under the curve and for its slope. Variants are not compared.

    Repeats with the same seed (train --again) do not count as further seeds; their variation is shown separately.
    --by-stream takes a study whose variants hold some random streams fixed, and finds the stream that the noise comes
    from.
    """
    from fairtrial.api.comparing.variance import variance

    out.name_store() if source is None else None
    if by_stream:
        given = {
            "--from": source,
            "--variant": variant,
            "--threshold": threshold,
            "--threshold-abs": threshold_abs,
            "--seed": seed,
            "a chart (--output)": out.chart,
        }
        for name, value in given.items():
            if value is not None:
                raise UsageError(f"--by-stream cannot be used with {name}")
        _by_stream(out, runs, metric, level, rule_from(None, window, percent, percent_window))
        return
    result = out.command.answer(
        variance, runs, metric=metric, threshold=threshold, threshold_abs=threshold_abs, level=level,
        window=rule_from(None, window, percent, percent_window), source=source, columns=columns, variant=variant,
        seed=seed or 0, store=out.store,
    )  # fmt: skip
    if out.chart:
        from fairtrial.api.comparing.plots import variance_chart

        variance_chart(result, out.chart)
        out.say(f"Wrote {out.chart}")
    rows = [{"summary": name, **_row(each)} for name, each in result.spreads.items()]
    out.give(result.to_dict(), rows, lambda console: _show(console, result))


def _by_stream(out: Output, runs: Sequence[str], metric: str | None, level: float, window: SummaryRule | None) -> None:
    from fairtrial.api.comparing.by_stream import variance_by_stream

    by_stream = out.command.answer(variance_by_stream, runs, metric=metric, level=level, window=window, store=out.store)
    rows = [_stream_row(row) for row in _stream_rows(by_stream)]
    out.give(by_stream.to_dict(), rows, lambda console: _show_streams(console, by_stream))


def _stream_rows(by_stream: ByStream) -> list[StreamNoise]:
    whole = by_stream.ranking.together
    return [*by_stream.ranking.rows, *([whole] if whole else [])]


def _stream_row(row: StreamNoise) -> dict[str, Any]:
    return {
        "stream": row.name, "n": row.n, "sd": row.sd.value, "sd_low": row.sd.low, "sd_high": row.sd.high,
        "share": row.share.value, "share_low": row.share.low, "share_high": row.share.high,
    }  # fmt: skip


def _show_streams(console: Console, by_stream: ByStream) -> None:
    ranking = by_stream.ranking
    console.print(_stream_verdict(by_stream), style="bold", markup=False)
    console.print()
    span = f"{shown_percent(ranking.level)} interval"
    table = plain_table("varied stream", "runs", "sd", span, "share of variance", span)
    for row in _stream_rows(by_stream):
        name = f"all ({row.name})" if row is ranking.together else row.name
        table.add_row(name, str(row.n), shown_value(row.sd.value), _span(row.sd), *_shares(row.share))
    console.print(table)
    console.print(
        "In each row only that stream varies and all others are fixed; shares need not add up to 100 %.",
        markup=False,
    )
    for each in by_stream.left_out:
        console.print(f"Left out: {each['run']}: {each['reason']}.", markup=False)
    show_cautions(console, by_stream.cautions)


def _stream_verdict(by_stream: ByStream) -> str:
    first, unclear = by_stream.ranking.rows[0], by_stream.ranking.unclear
    where = f"the {SHORT[by_stream.summary]} of {by_stream.metric}"
    if first.sd.value is None:
        return f"Cannot rank the random streams: each stream needs at least two runs, not {first.n}."
    if not first.sd.value:
        return f"No random stream changes {where} by itself."
    message = f"{first.name} changes {where} most (sd {shown_value(first.sd.value)} when only it varies)"
    return f"{message}; statistically indistinguishable from it: {', '.join(unclear)}." if unclear else f"{message}."


def _span(part: VarianceComponent) -> str:
    return "" if part.low is None or part.high is None else f"{shown_value(part.low)} to {shown_value(part.high)}"


def _shares(part: VarianceComponent) -> tuple[str, str]:
    if part.value is None:
        return "", ""
    span = "" if part.low is None or part.high is None else f"{100 * part.low:.0f} to {100 * part.high:.0f} %"
    return f"{100 * part.value:.0f} %", span


def _row(spread: Spread) -> dict[str, Any]:
    low, high = spread.n_range
    return {
        "n": spread.n, "mean": spread.mean, "sd": spread.sd, "cv": spread.cv, "n_min": spread.n_min,
        "n_low": low, "n_high": high, "reason": spread.reason,
    }  # fmt: skip


def _show(console: Console, variance: Variance) -> None:
    console.print(_verdict(variance), style="bold", markup=False)
    console.print()
    for name, spread in variance.spreads.items():
        console.print(f"{NAMES[name]}: {_spread_text(spread)}", markup=False)
    if variance.same_seed:
        console.print()
        for line in _repeat_lines(variance):
            console.print(line, markup=False)
    for each in variance.left_out:
        console.print(f"Left out: {each['run']}: {each['reason']}.", markup=False)
    messages = [caution for spread in variance.spreads.values() for caution in spread.cautions]
    show_cautions(console, [*messages, *variance.cautions])


def _repeat_lines(variance: Variance) -> list[str]:
    """Describe the noise within a seed, the noise between seeds, and its share, for the main summary."""
    assert variance.same_seed is not None
    kind, parts = next(iter(variance.same_seed.items()))
    runs = f"{counted(parts.repeated, 'seed')} run more than once, {counted(parts.runs, 'run')} in total"
    if parts.identical:
        return [f"Repeats with the same seed are identical ({runs}): the seed determines the result."]
    limits = f"{shown_percent(parts.level)} interval"
    lines = [f"Repeats with the same seed: sd of the {SHORT[kind]} {_part(parts.same_seed, limits)} ({runs})."]
    if parts.between_seeds.value is None:
        return [*lines, "Noise between seeds: unknown. Repeat more than one seed with train --again."]
    lines.append(f"Additional noise between seeds: sd {_part(parts.between_seeds, limits)}.")
    share = parts.share
    if share.value is not None and share.low is not None and share.high is not None:
        span = f"{shown_chance(share.low)} to {shown_chance(share.high)}"
        lines.append(f"Seeds account for {shown_chance(share.value)} of the variance ({limits} {span}).")
    return lines


def _part(part: VarianceComponent, limits: str) -> str:
    span = _span(part)
    return f"{shown_value(part.value)}, {limits} {span}" if span else shown_value(part.value)


def _verdict(variance: Variance) -> str:
    """Return `n = 15 is enough`, or `run k more seeds:` and a command; `plan n fresh seeds:` after an interim look."""
    limit = f"{shown_percent(variance.threshold)} of the mean" if variance.relative else shown_value(variance.threshold)
    main = next(iter(variance.spreads.values()))
    if main.n_min is None:
        return f"Cannot tell how many seeds {variance.variant} needs: {_sentence(_reason(main))}"
    high = main.n_range[1]
    if main.enough:
        known = f"the mean of {variance.metric} is known to within {limit}"
        doubt = (
            ""
            if high is not None and high <= main.n
            else f"; up to {high or 'very many'} if the noise is underestimated"
        )
        return f"n = {main.n} is enough: {known} (n = {main.n_min} would suffice{doubt})."
    needed = (
        f"plan {counted(main.n_min, 'fresh seed')}"
        if variance.looked_at
        else f"run {counted(main.missing, 'more seed')}"
    )
    text = f"n = {main.n} is not enough for {limit} of {variance.metric}: {needed}"
    return f"{text}: {variance.command}" if variance.command else f"{text}."


def _reason(spread: Spread) -> str:
    if spread.reason == "no variation":
        return f"all {spread.n} runs have the same value; does the seed reach your program?"
    return spread.reason or "more than a million would be needed"


def _sentence(text: str) -> str:
    return text if text.endswith("?") else f"{text}."


def _spread_text(spread: Spread) -> str:
    if spread.mean is None or spread.sd is None:
        return f"{counted(spread.n, 'usable run')}; {spread.reason}."
    basis = f"mean {shown_value(spread.mean)}, sd {shown_value(spread.sd)} over {counted(spread.n, 'run')}"
    if spread.n_min is None:
        hint = " Pass --threshold-abs instead." if spread.relative and spread.reason and "zero" in spread.reason else ""
        return f"{basis}; no answer: {_sentence(_reason(spread))}{hint}"
    cv = f", CV {100 * spread.cv:.2g} %" if spread.cv is not None else ""
    low, high = spread.n_range
    span = f"{low} to {high or 'very many'} over the {shown_percent(spread.level)} interval of the sd"
    return f"{basis}{cv}; needs n = {spread.n_min} ({span})."
