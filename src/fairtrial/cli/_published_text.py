"""Text output for a published table of means: the verdicts in one table, their basis, and problems of the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fairtrial.cli._pieces import show_cautions
from fairtrial.cli._tables import Column, plain_table
from fairtrial.core.cautions import DOUBTFUL_VALUE, IMPOSSIBLE_VALUE
from fairtrial.core.directions import better_words
from fairtrial.core.formatting import counted, decimals_for, shown_change, shown_interval, shown_p, shown_percent

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.comparing.published_claims import PublishedAnalysis, TableClaim
    from fairtrial.cli._tables import PlainTable
    from fairtrial.core.findings import Comparison

MOST_SENTENCES = 3
MANY_RUNS = 10_000
"""Largest number of runs per arm that is printed exactly."""
TOO_MANY_SENTENCES = "--claims lists the difference that each comparison could have detected."


def show_published(console: Console, analysis: PublishedAnalysis) -> None:
    console.print(analysis.headline, style="bold", markup=False)
    console.print()
    console.print(_claims_table(analysis) if analysis.options.claims else _arms_table(analysis))
    console.print()
    if not analysis.options.claims:
        console.print(_differences_table(analysis))
        console.print()
    for line in _notes(analysis):
        console.print(line, markup=False)
    messages = {IMPOSSIBLE_VALUE.code: "Impossible", DOUBTFUL_VALUE.code: "Doubtful"}
    for finding in analysis.findings:
        console.print(f"{finding.severity.capitalize()}: {finding.sentence}", style="yellow", markup=False)
    carried = [caution for each in analysis.comparisons for caution in each.cautions]
    show_cautions(console, [each for each in [*carried, *analysis.cautions] if each["code"] not in messages])


TASK = Column("task", left=True)
VERDICT = Column("verdict", left=True)


def _arms_table(analysis: PublishedAnalysis) -> PlainTable:
    by_task = any(arm.task is not None for arm in analysis.printed)
    computed = any(arm.spread != "sd" for arm in analysis.printed)
    table = plain_table("variant", *([TASK] if by_task else []), "n", "mean", "sd", *(["from"] if computed else []))
    for arm, summary in zip(analysis.printed, analysis.summaries, strict=True):
        cells = [*([arm.task or ""] if by_task else []), str(arm.n), arm.mean.text]
        cells.append(arm.sd.text if arm.sd is not None else f"{summary.sd:.4g}")
        table.add_row(arm.variant, *cells, *([arm.spread] if computed else []))
    return table


def _differences_table(analysis: PublishedAnalysis) -> PlainTable:
    comparisons = analysis.comparisons
    adjusted = comparisons[0].adjusted_p is not None
    names, headings = _names(analysis)
    p = [Column("p", omit=1), "adj. p"] if adjusted else ["p"]
    table = plain_table(*headings, "difference", _level_heading(comparisons), *p, VERDICT)
    for each, name in zip(comparisons, names, strict=True):
        cells = [*name, *_difference(each), shown_p(each.p_value)]
        table.add_row(*cells, *([shown_p(each.adjusted_p)] if adjusted else []), each.verdict.value)
    return table


def _claims_table(analysis: PublishedAnalysis) -> PlainTable:
    comparisons = analysis.comparisons
    p = "adj. p" if comparisons[0].adjusted_p is not None else "p"
    names, headings = _names(analysis)
    last = "detects" if comparisons[0].sesoi is None else "n needed"
    table = plain_table(*headings, "difference", _level_heading(comparisons), p, "holds", last)
    for claim, name in zip(analysis.claims, names, strict=True):
        each = claim.comparison
        shown = shown_p(each.adjusted_p if each.adjusted_p is not None else each.p_value)
        cells = [*name, *_difference(each), shown, _holds(claim), _planned(claim)]
        table.add_row(*cells)
    return table


def _names(analysis: PublishedAnalysis) -> tuple[list[list[str]], list[str | Column]]:
    """Return the row labels and their headings. A pair that all rows share appears once, in the heading."""
    comparisons, tasks = analysis.comparisons, [task or "" for task in analysis.tasks_of]
    pairs = {f"{each.candidate} − {each.control}" for each in comparisons}
    if analysis.options.all_pairs:
        names, heading = [f"{each.candidate} − {each.control}" for each in comparisons], "difference of"
    else:
        names, heading = [each.candidate for each in comparisons], f"minus {analysis.control}"
    if not any(tasks):
        return [[name] for name in names], [heading]
    if len(pairs) == 1:
        return [[task] for task in tasks], [pairs.pop()]
    return [[name, task] for name, task in zip(names, tasks, strict=True)], [heading, TASK]


def _level_heading(comparisons: Sequence[Comparison]) -> str:
    levels = {round(each.effect.level, 12) for each in comparisons}
    return f"{shown_percent(levels.pop())} interval" if len(levels) == 1 else "interval"


def _difference(comparison: Comparison) -> list[str]:
    low, high = comparison.effect.low, comparison.effect.high
    decimals = decimals_for(None if low is None or high is None else high - low)
    change = "" if comparison.effect.value is None else shown_change(comparison.effect.value, decimals)
    return [change, shown_interval(low, high, decimals)]


def _holds(claim: TableClaim) -> str:
    if claim.comparison.equivalent:
        return "small"
    return "" if claim.holds is None else "yes" if claim.holds else "no"


def _planned(claim: TableClaim) -> str:
    """Return the detectable difference or the runs needed for the margin, with three digits: they are for planning."""
    size = claim.comparison.detectable
    if claim.comparison.sesoi is None:
        return "" if size is None else f"{size:,.3g}" if size < 1000 else f"{size:,.0f}"
    if claim.comparison.significant is None:
        return ""
    if claim.n_needed is None or claim.n_needed > MANY_RUNS:
        return f"> {MANY_RUNS:,}"
    return f"{claim.n_needed:,}"


def _notes(analysis: PublishedAnalysis) -> list[str]:
    first = analysis.comparisons[0]
    lines = [f"Means of {analysis.metric} as printed ({better_words(analysis.direction)}); {_sd_words(analysis)}."]
    lines.append(
        "The table has no seeds, so the comparison is unpaired. It does not say how many runs failed, and an arm "
        "that lost runs may look better than it is."
    )
    levels = sorted({round(100 * each.effect.level, 10) for each in analysis.comparisons})
    if first.adjustment and len(levels) > 1:
        lines.append(
            f"Each interval has the level at which its comparison was decided ({levels[0]:.4g} to {levels[-1]:.4g} %), "
            "so that intervals and verdicts agree."
        )
    if analysis.options.claims:
        lines += _planning(analysis)
    elif len(analysis.comparisons) > 1:
        open_questions = [str(each) for each in analysis.comparisons if each.verdict == "inconclusive"]
        lines += open_questions if len(open_questions) <= MOST_SENTENCES else [TOO_MANY_SENTENCES]
    elif first.hedges_g is not None and first.hedges_g.value is not None:
        g = first.hedges_g
        lines.append(f"Hedges g {g.value:.2f} [{g.low:.2f}, {g.high:.2f}].".replace("-", "−"))
    lines += analysis.missing
    return [*lines, *_checked(analysis)]


def _sd_words(analysis: PublishedAnalysis) -> str:
    kinds = {arm.spread for arm in analysis.printed}
    level = f"{shown_percent(analysis.options.level)}"
    messages = {
        "sd": "standard deviations over runs as printed",
        "se": "standard deviations computed as standard errors times √n",
        "interval": f"standard deviations computed from the intervals, read as {level} t intervals of the mean",
    }
    return "; ".join(words for kind, words in messages.items() if kind in kinds)


def _planning(analysis: PublishedAnalysis) -> list[str]:
    first = analysis.comparisons[0]
    rate, count = f"{shown_percent(first.alpha)}", len(analysis.claims)
    family = {
        None: f" at {rate}",
        "holm": f" at a family-wise error rate of {rate} over all {count}",
        "bh": f" at a false discovery rate of {rate}",
    }[first.adjustment]
    margin = "" if first.sesoi is None else f"; small: it is within ±{first.sesoi:g}, whether significant or not"
    lines = [f"holds: the difference is significant{family}{margin}."]
    if first.sesoi is None:
        lines.append(
            "detects: the true difference that the printed number of runs detects with 80 % power. Pass --sesoi, the "
            "smallest difference that matters, to see how many runs it needs."
        )
        return lines
    lines.append(
        f"n needed: runs per arm that detect a true difference of {first.sesoi:g} (--sesoi) with 80 % power, averaged "
        "over the uncertainty of the printed standard deviations. It assumes that the true difference equals the "
        "margin, not the printed difference: published differences tend to be larger than the true ones."
    )
    return lines


def _checked(analysis: PublishedAnalysis) -> list[str]:
    """State how many means could be checked against --items, because no output would look like a passed check."""
    count = analysis.means_checked
    if count is None:
        return []
    items = f"{analysis.options.items:,} items"
    if count == 0:
        return [f"With {items} per run, every mean with this few digits is possible, so no mean could be checked."]
    return [f"{count} of {counted(len(analysis.printed), 'mean')} could be checked against {items} per run."]


def claim_row(claim: TableClaim) -> dict[str, Any]:
    """Return a claim as a row for spreadsheets."""
    return claim.to_dict()


def page_claim_row(claim: TableClaim) -> dict[str, Any]:
    """Return a claim as a rounded row for a paper."""
    comparison = claim.comparison
    change, interval = _difference(comparison)
    p = comparison.adjusted_p if comparison.adjusted_p is not None else comparison.p_value
    return {
        "candidate": comparison.candidate,
        "control": comparison.control,
        **({"task": claim.task} if claim.task else {}),
        "difference": change,
        "interval": interval,
        "adjusted p" if comparison.adjusted_p is not None else "p": shown_p(p),
        "verdict": comparison.verdict.value,
        "holds": _holds(claim),
        "n": min(comparison.n_control, comparison.n_candidate),
        "detects" if comparison.sesoi is None else "n needed": _planned(claim),
    }
