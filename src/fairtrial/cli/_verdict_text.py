"""Text output of an analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairtrial.cli._pieces import show_cautions
from fairtrial.cli._tables import Column, plain_table
from fairtrial.core.formatting import (
    counted,
    decimals_for,
    p_equals,
    shown_change,
    shown_interval,
    shown_p,
    shown_percent,
    shown_value,
)
from fairtrial.core.target_verdict_text import failure_words
from fairtrial.core.verdict_text import p_words

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.comparing.analysis import Analysis, Followed
    from fairtrial.cli._tables import PlainTable
    from fairtrial.core.findings import Comparison, CovariateAdjustment, Estimate


RUN_COUNTS = (Column("planned", omit=3), Column("started", omit=2), Column("completed", omit=1))


def show_analysis(console: Console, analysis: Analysis) -> None:
    """Print the verdict, the tables, the basis of the numbers, and the cautions, in that order."""
    console.print(analysis.headline, style="bold", markup=False)
    console.print()
    console.print(_task_arms_table(analysis) if analysis.tasks else _arms_table(analysis))
    console.print()
    console.print(_differences_table(analysis.comparisons))
    if analysis.secondary:
        console.print("\nSecondary metrics, each analyzed separately and not part of the verdict:", markup=False)
        console.print(_differences_table(analysis.secondary, name_metrics=True))
    console.print()
    if analysis.plan:
        for line in _plan_lines(analysis.plan):
            console.print(line, markup=False)
    for line in _notes(analysis):
        console.print(line, markup=False)
    carried = [caution for each in analysis.comparisons for caution in each.cautions]
    show_cautions(console, [*carried, *analysis.cautions])
    if analysis.exploratory:
        console.print("\nExploratory, not in the registered plan:", style="bold")
        show_analysis(console, analysis.exploratory)


def _plan_lines(plan: Followed) -> list[str]:
    count = len(plan.deviations)
    said = f"{counted(count, 'deviation')} from it:" if count else "no deviation from it was found."
    deviations = [f"  {each.kind}: {each.text}" for each in plan.deviations]
    return [f"Registration {plan.registration[:12]} ({plan.path}): {said}", *deviations, *plan.unchecked]


def _arms_table(analysis: Analysis) -> PlainTable:
    table = plain_table("variant", *RUN_COUNTS, "used", "mean", "sd")
    for arm in analysis.arms:
        counts = [str(count) for count in (arm.planned, arm.started, arm.completed, arm.used)]
        table.add_row(arm.variant, *counts, shown_value(arm.mean), shown_value(arm.sd))
    return table


def _task_arms_table(analysis: Analysis) -> PlainTable:
    """Return the table of arms for several tasks. It counts cells and shows the statistic that the verdict is about."""
    tasks: Any = analysis.tasks
    statistic, level = tasks["statistic"], shown_percent(analysis.comparisons[0].effect.level)
    table = plain_table(
        "variant", Column("cells planned", omit=3), *RUN_COUNTS[1:], "used", statistic, f"{level} interval"
    )
    for arm in analysis.arms:
        aggregate = tasks["aggregates"].get(arm.variant, {}).get(statistic)
        runs = [str(count) for count in (arm.planned, arm.started, arm.completed)]
        value = [shown_value(aggregate["value"]), _limits(aggregate)] if aggregate else ["", ""]
        table.add_row(arm.variant, *runs, _used_words(tasks, arm.variant), *value)
    return table


def _used_words(tasks: Mapping[str, Any], arm: str) -> str:
    """`100 runs × 26 tasks`, or `3–5 runs on each of 55 tasks` if tasks have different seeds."""
    runs, count = tasks["runs"][arm], len(tasks["tasks"])
    if len(runs) == 1:
        return f"{counted(runs[0], 'run')} × {counted(count, 'task')}"
    least, most = min(runs), max(runs)
    message = counted(most, "run") if least == most else f"{least}–{most} runs"
    return f"{message} on each of {counted(count, 'task')}"


def _differences_table(comparisons: Sequence[Comparison], *, name_metrics: bool = False) -> PlainTable:
    """Return one row per comparison. Effect sizes follow as sentences below it."""
    adjusted = any(each.adjusted_p is not None for each in comparisons)
    level = _interval_heading(comparisons)
    p = [Column("p", omit=1), "adj. p"] if adjusted else ["p"]
    table = plain_table(f"minus {comparisons[0].control}", "difference", level, *p, Column("verdict", left=True))
    for each in comparisons:
        name = each.candidate + (f", {each.metric}" if name_metrics else "")
        decimals = decimals_for(_width(each))
        difference = "" if each.effect.value is None else shown_change(each.effect.value, decimals)
        cells = [difference, shown_interval(each.effect.low, each.effect.high, decimals)]
        cells += [p_words(each, each.p_value), *([p_words(each, each.adjusted_p)] if adjusted else [])]
        table.add_row(name, *cells, verdict_words(each))
    return table


def verdict_words(comparison: Comparison) -> str:
    """Return the verdict, with the reason if lost runs decided it: `worse (reliability)`."""
    decided_by_losses = comparison.reason in ("attrition", "reliability")
    return f"{comparison.verdict.value} ({comparison.reason})" if decided_by_losses else comparison.verdict.value


def _interval_heading(comparisons: Sequence[Comparison]) -> str:
    """Return the heading of the interval column. With Holm each interval has its own level, so the heading has none."""
    levels = {each.effect.level for each in comparisons if each.effect.low is not None}
    return f"{shown_percent(levels.pop())} interval" if len(levels) == 1 else "interval"


def _size_line(comparison: Comparison) -> str | None:
    """`kd wins 5 of 5 pairs, probability 1.00 [0.48, 1.00]; Hedges g 2.37 [0.61, 4.60], d_z 2.37 [0.55, 4.15].`"""
    if comparison.superiority is None or comparison.superiority.value is None:
        return None
    chance = f"P({comparison.candidate} beats {comparison.control}) = {_brief(comparison.superiority)}"
    if comparison.pairing == "paired":
        wins = f"{comparison.superiority.value * comparison.n_control:g} of {counted(comparison.n_control, 'pair')}"
        chance = f"{comparison.candidate} wins {wins}, probability {_brief(comparison.superiority)}"
    g = f"; Hedges g {_brief(comparison.hedges_g)}" if _brief(comparison.hedges_g) else ""
    d_z = f", d_z {_brief(comparison.d_z)}" if _brief(comparison.d_z) else ""
    return f"{chance}{g}{d_z}."


def _reliability_line(comparison: Comparison) -> str | None:
    """Describe the failure rates with their uncertainty; if no run was lost, their upper confidence limits."""
    lost = comparison.reliability
    if lost is None or lost.upper_control is None or lost.upper_candidate is None:
        return None
    level = f"{100 * (1 - comparison.alpha):g} %"
    if not lost.any:
        limits = {lost.runs_control: lost.upper_control, lost.runs_candidate: lost.upper_candidate}
        runs = " and ".join(map(str, limits)) + (" run" if list(limits) == [1] else " runs")
        up_to = " and ".join(f"{100 * limit:.0f} %" for limit in limits.values())
        return f"No run was lost. With {runs} per arm, the failure rate may be as high as {up_to} ({level} limit)."
    gap, p = lost.difference, ""
    if lost.p_value is not None:
        p = f", {p_equals(shown_p(lost.p_value))} by {lost.method}'s exact test"
    low, high = (shown_change(100 * each, 0) for each in (gap.low or 0.0, gap.high or 0.0))
    return (
        f"Failure rate: {comparison.candidate} {lost.lost_candidate} of {lost.runs_candidate}, {comparison.control} "
        f"{lost.lost_control} of {lost.runs_control}; difference {shown_change(100 * (gap.value or 0.0), 0)} points "
        f"[{low}, {high}]{p}."
    )


def _bootstrap_line(comparison: Comparison) -> str | None:
    """Describe the bootstrap interval that is shown in addition to the main interval."""
    known = comparison.bootstrap
    if known is None or known.low is None or known.high is None:
        return None
    interval = shown_interval(known.low, known.high, decimals_for(known.high - known.low))
    return f"For comparison, the {known.method} interval of {comparison.candidate} − {comparison.control}: {interval}."


def _brief(estimate: Estimate | None, *, limits: bool = True) -> str:
    if estimate is None or estimate.value is None:
        return ""
    known = limits and estimate.low is not None and estimate.high is not None
    text = f"{estimate.value:.2f}" + (f" [{estimate.low:.2f}, {estimate.high:.2f}]" if known else "")
    return text.replace("-", "−")


def _notes(analysis: Analysis) -> list[str]:
    first = analysis.comparisons[0]
    better = "lower" if first.direction == "min" else "higher"
    window = analysis.summary["window"]
    where = f", steps {window[0]:g} to {window[1]:g}" if window and analysis.summary["type"] != "last" else ""
    lines = [f"Value per run: {analysis.summary['text']} of {analysis.metric}{where} ({better} is better)."]
    if first.pairing == "paired":
        alone = len(analysis.comparisons) == 1
        r = f"; correlation within pairs {_brief(first.correlation)}" if alone and _brief(first.correlation) else ""
        known = first.streams != "unknown"
        lines.append(f"Pairs share these random streams: {first.streams}{r}." if known else f"Paired by seed{r}.")
    elif first.target is None:
        lines.append("Runs are not paired.")
    alone = len(analysis.comparisons) == 1
    lines += [
        failure_words(each.candidate, each.target)
        for each in analysis.comparisons
        if each.target and (alone or each.target.lost)
    ]
    if len(analysis.comparisons) > 1:  # the headline of a family does not explain inconclusive members
        lines += [str(each) for each in analysis.comparisons if each.verdict == "inconclusive"]
    lines += dict.fromkeys(line for each in analysis.comparisons if (line := _reliability_line(each)))
    lines += [line for each in analysis.comparisons if (line := _size_line(each))]
    lines += [line for each in analysis.comparisons if (line := _bootstrap_line(each))]
    lines += [_covariate_line(each, each.covariate) for each in analysis.comparisons if each.covariate]
    lines += [line for each in analysis.comparisons if (line := _sensitivity_line(each))]
    lines += [_ttest_line(each) for each in analysis.comparisons if "ttest" in each.tests]
    lines += dict.fromkeys(line for each in analysis.comparisons for line in _arrivals(each))
    for name, fairness in analysis.fairness.items():
        lines += _fairness_lines(analysis.control, name, fairness)
    for arm in analysis.arms:
        lines += [f"Left out: {each['run']}: {each['reason']}." for each in arm.left_out]
    if analysis.certificate:
        lines += _certificate_lines(analysis.certificate)
    if analysis.power:
        lines += _power_lines(analysis.power)
    if analysis.tasks:
        lines += _task_lines(analysis.tasks)
    return lines


def _sensitivity_line(comparison: Comparison) -> str | None:
    """Describe the robust estimates, only if they contradict the mean."""
    robust = comparison.sensitivity.estimates if comparison.sensitivity else None
    if robust is None or robust.disagrees is None:
        return None
    decimals = decimals_for(_width(comparison))
    messages = [
        f"{name} {shown_change(each.value, decimals)} {shown_interval(each.low, each.high, decimals)}".rstrip()
        for name, each in (("Hodges–Lehmann", robust.hodges_lehmann), ("20 % trimmed mean", robust.trimmed))
        if each is not None and each.value is not None
    ]
    return (
        f"Sensitivity, {comparison.candidate} − {comparison.control}: {', '.join(messages)} disagree with the mean in "
        f"{robust.disagrees}; a few runs dominate the result. Look at the single runs."
    )


def _covariate_line(comparison: Comparison, covariate: CovariateAdjustment) -> str:
    shown = covariate.plain if covariate.planned else covariate.effect
    low, high = shown.low, shown.high
    decimals = decimals_for(None if low is None or high is None else high - low)
    value = "" if shown.value is None else shown_change(shown.value, decimals)
    p = covariate.plain_p_value if covariate.planned else covariate.p_value
    message = f"{value} {shown_interval(low, high, decimals)}, {p_equals(shown_p(p))}"
    related = f"its correlation with the difference is {covariate.correlation:.2f}".replace("-", "−")
    if covariate.planned:
        return (
            f"{comparison.candidate} − {comparison.control} is adjusted for {covariate.covariate}, as "
            f"planned; {related}. "
            f"Without the adjustment: {message}, {covariate.plain_verdict}."
        )
    return (
        f"Exploratory: adjusted for {covariate.covariate}, {comparison.candidate} − "
        f"{comparison.control} is {message}; {related}. "
        "The adjustment was not planned, so the verdict does not use it."
    )


def _ttest_line(comparison: Comparison) -> str:
    test = comparison.tests["ttest"]
    return (
        f"Student's t-test, for comparison: {test['method']}, t = {test['statistic']:.3g} with {test['df']:.3g} "
        f"degrees of freedom, {p_equals(shown_p(test['p_value']))}."
    )


def _arrivals(comparison: Comparison) -> list[str]:
    """For times to a threshold that some runs never reached: the share that did, and the means up to the horizon."""
    if "horizon" not in comparison.tests:
        return []
    sides = (
        (comparison.control, comparison.tests["reached_control"], comparison.n_control, comparison.mean_control),
        (
            comparison.candidate,
            comparison.tests["reached_candidate"],
            comparison.n_candidate,
            comparison.mean_candidate,
        ),
    )
    return [
        f"{name} reached it in {round(share * n)} of {counted(n, 'run')}; mean up to step "
        f"{comparison.tests['horizon']:g}: {shown_value(mean)}."
        for name, share, n, mean in sides
        if share is not None
    ]


def _fairness_lines(control: str, candidate: str, fairness: Any) -> list[str]:
    differing = ", ".join(f"{d.option} ({d.control} → {d.candidate})" for d in fairness.options)
    sizes = [
        f"{label} {pair[0]:,.0f} versus {pair[1]:,.0f}" if pair[0] != pair[1] else f"{label} {pair[0]:,.0f} in both"
        for label, pair in zip(("parameters", "FLOPs per step"), fairness.sizes.values(), strict=True)
        if None not in pair
    ]
    messages = [f"{candidate} differs from {control} in {differing}" if differing else "", *sizes]
    line = "; ".join(part for part in messages if part)
    return [f"Is this fair? {line}."] if line else []


def _certificate_lines(certificate: Any) -> list[str]:
    """Return one line per fixed shape of noise, and one for the worst of the scanned collapse rates."""
    scanned = [row for row in certificate.covered if row.rate is not None]
    rows = [row for row in certificate.covered if row.rate is None]
    rows += [min(scanned, key=lambda row: min(row.both_arms, row.one_arm))] if scanned else []
    width = max(len(row.shape) for row in rows)
    lines = [f"Certificate: {certificate}"]
    for row in rows:
        out = "  (ruled out by the data)" if row.ruled_out else ""
        if row.rate is not None:
            out = (
                f"  (worst of {len(scanned)} rates from {100 * scanned[0].rate:.2g} to {100 * scanned[-1].rate:.2g} %)"
            )
        lines.append(
            f"  {row.shape:<{width}} both arms {100 * row.both_arms:5.1f} %   one arm {100 * row.one_arm:5.1f} %{out}"
        )
    return lines


def _power_lines(power: Mapping[str, Any]) -> list[str]:
    lines = [
        f"Power, with {counted(power['n'], 'run')} per arm and a standard deviation of {shown_value(power['sd'])}:"
    ]
    for row in power["rows"]:
        needed = (
            f"; {counted(row['seeds_for_sesoi'], 'seed')} for {shown_value(power['sesoi'])}"
            if row["seeds_for_sesoi"]
            else ""
        )
        lines.append(
            f"  {shown_percent(row['power'])}: detects a true difference of {shown_value(row['detectable'])}{needed}"
        )
    return lines


def _rank_line(rank: Mapping[str, Any]) -> str:
    lost = f", {rank['incomplete']} incomplete" if rank["incomplete"] else ""
    place = "  –" if rank["place"] is None else f"  {rank['place']}."
    value = shown_value(rank["value"]) or "no complete seed"
    return f"{place} {rank['arm']}: {value} ({counted(rank['seeds'], 'seed')}{lost})"


def _task_lines(tasks: Mapping[str, Any]) -> list[str]:
    lines = [f"Over {len(tasks['tasks'])} tasks:", *map(_rank_line, tasks["ranking"])]
    for arm, aggregates in tasks["aggregates"].items():
        parts = [f"{name} {shown_value(e['value'])} {_limits(e)}".strip() for name, e in aggregates.items()]
        lines.append(f"  {arm}: " + ", ".join(parts))
    for arm, e in tasks["probability_of_improvement"].items():
        lines.append(f"  P(a run of {arm} beats one of the control on a task): {e['value']:.3f} {_limits(e)}".rstrip())
    for arm, e in tasks.get("stratified_bootstrap", {}).items():
        lines.append(f"  {arm}, {e['method']}: {shown_value(e['value'])} {_limits(e)}".rstrip())
    if "stratified_bootstrap" in tasks:
        lines.append(
            "  The stratified bootstrap, as in rliable, treats scores of one run on different tasks as independent. "
            "The verdict treats a run as the unit."
        )
    return lines


def _limits(estimate: Mapping[str, Any]) -> str:
    if estimate["low"] is None or estimate["high"] is None:
        return ""
    return f"[{shown_value(estimate['low'])}, {shown_value(estimate['high'])}]"


def row_of(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as a row for spreadsheets."""
    return {
        "control": comparison.control,
        "candidate": comparison.candidate,
        "metric": comparison.metric,
        "verdict": comparison.verdict.value,
        "difference": comparison.effect.value,
        "percent_change": comparison.percent_change,
        "low": comparison.effect.low,
        "high": comparison.effect.high,
        "level": comparison.effect.level,
        "p": comparison.p_value,
        "p_adjusted": comparison.adjusted_p,
        "hedges_g": comparison.hedges_g.value if comparison.hedges_g else None,
        "superiority": comparison.superiority.value if comparison.superiority else None,
        "n_control": comparison.n_control,
        "n_candidate": comparison.n_candidate,
        "pairing": comparison.pairing,
        "method": comparison.method,
        "reason": comparison.reason,
        "label": comparison.label,
    }


def page_row_of(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as a row for a paper: rounded to the precision of the interval, which is one column."""
    decimals = decimals_for(_width(comparison))
    p = comparison.adjusted_p if comparison.adjusted_p is not None else comparison.p_value
    # In a step-wise family each member has its own level, but the column has one heading.
    level = "interval" if comparison.adjustment else f"{shown_percent(comparison.effect.level)} interval"
    return {
        "candidate": comparison.candidate,
        "control": comparison.control,
        "metric": comparison.metric,
        "difference": "" if comparison.effect.value is None else shown_change(comparison.effect.value, decimals),
        level: shown_interval(comparison.effect.low, comparison.effect.high, decimals),
        "adjusted p" if comparison.adjusted_p is not None else "p": p_words(comparison, p),
        "g": _brief(comparison.hedges_g, limits=False),
        "n": comparison.n_candidate if comparison.target else min(comparison.n_control, comparison.n_candidate),
        "verdict": verdict_words(comparison),
    }


def _width(comparison: Comparison) -> float | None:
    low, high = comparison.effect.low, comparison.effect.high
    return None if low is None or high is None else high - low
