"""analyze on a table of means, as printed in papers: the same verdicts, and which differences in it hold."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from fairtrial.api.comparing.analysis import Analysis, Question
from fairtrial.core.cautions import DOUBTFUL_VALUE, IMPOSSIBLE_VALUE, INTERVAL_READ_AS_T, ROUNDED_VALUES
from fairtrial.core.directions import settle
from fairtrial.core.errors import InvalidOptions, UserError, unknown
from fairtrial.core.findings import Comparison, FilledCaution, Verdict
from fairtrial.core.formatting import counted, shown_percent
from fairtrial.core.printed import PrintedArm, SummaryOptions
from fairtrial.core.verdict_text import family_sentence
from fairtrial.record.summary_tables import SummaryTable, read_summary_table
from fairtrial.record.tables import Table
from fairtrial.stats.compare import ComparisonConfig
from fairtrial.stats.impossible import IMPOSSIBLE, Finding, find_impossible, means_checked
from fairtrial.stats.published import (
    ArmSummary,
    Pair,
    check_adjustment,
    compare_summaries,
    normal_factor,
    runs_needed,
    sd_per_spread,
    summary_of,
    verdicts_within_rounding,
)

MOST_COMPARISONS = 1_000
MOST_NAMED = 3
NOTABLE_FACTOR = 1.05
ALLOWED = ("metrics", "direction", "alpha", "side", "sesoi", "family", "unpaired", "seed")
"""Fields of a question that a table of means can answer; all others need the runs."""
FLAGS = {"power": "--power.enabled", "ttest": "--ttest.enabled", "resamples": "--bootstrap.n_resamples"}
NAME_THE_METRIC = "Name it with --metric, such as --metric accuracy, or pass --direction max or --direction min."


@dataclass(frozen=True)
class TableClaim:
    """One difference in a table: whether it holds, and the runs needed to detect the SESOI."""

    comparison: Comparison
    task: str | None
    holds: bool | None
    """None if it cannot be determined, because the table shows no variation."""
    n_needed: int | None
    n_equivalence: int | None

    def to_dict(self) -> dict[str, Any]:
        comparison = self.comparison
        return {
            "candidate": comparison.candidate,
            "control": comparison.control,
            "task": self.task,
            "holds": self.holds,
            "verdict": comparison.verdict.value,
            "difference": comparison.effect.value,
            "low": comparison.effect.low,
            "high": comparison.effect.high,
            "level": comparison.effect.level,
            "p": comparison.p_value,
            "p_adjusted": comparison.adjusted_p,
            "n_control": comparison.n_control,
            "n_candidate": comparison.n_candidate,
            "detectable": comparison.detectable,
            "sesoi": comparison.sesoi,
            "n_needed": self.n_needed,
            "n_needed_equivalence": self.n_equivalence,
        }


@dataclass(frozen=True)
class PublishedAnalysis(Analysis):
    """An analysis of a table of means. Fields that need the runs are unknown."""

    printed: Sequence[PrintedArm] = ()
    summaries: Sequence[ArmSummary] = ()
    tasks_of: Sequence[str | None] = ()
    """The task of each comparison."""
    findings: Sequence[Finding] = ()
    options: SummaryOptions = field(default_factory=SummaryOptions)
    claims: Sequence[TableClaim] = ()
    missing: Sequence[str] = ()
    """One sentence for each comparison that lacks a row in the table."""

    @property
    def headline(self) -> str:
        if self.options.claims:
            return _claims_sentence(self)
        if len(self.comparisons) == 1:
            return str(self.comparisons[0])
        return family_sentence(self.comparisons) if self.tasks_of[0] is None else _tasks_sentence(self)

    def to_dict(self) -> dict[str, Any]:
        arms: list[dict[str, Any]] = [
            {
                "variant": arm.variant, "task": arm.task, "planned": None, "started": None, "completed": None,
                "used": arm.n, "mean": summary.mean, "sd": summary.sd, "sd_from": arm.spread, "values": {},
                "left_out": [],
            }
            for arm, summary in zip(self.printed, self.summaries, strict=True)
        ]  # fmt: skip
        document = {
            "claims": [claim.to_dict() for claim in self.claims] if self.options.claims else None,
            "findings": [finding.to_dict() for finding in self.findings],
            "means_checked": self.means_checked,
            "missing": list(self.missing),
        }
        return {**super().to_dict(), "arms": arms, **document}

    @property
    def means_checked(self) -> int | None:
        """Number of means that could be checked against the number of items; None if that was not given."""
        return None if self.options.items is None else means_checked(self.printed, self.options)


def analyze_summary_table(
    table: Table, control: str | None, candidates: Sequence[str], question: Question, options: SummaryOptions | None
) -> PublishedAnalysis | None:
    """Analyze a table of means. Returns None if the rows of the table are runs."""
    options = options or SummaryOptions()
    problems = options.problems()
    if options.all_pairs and not options.claims:
        problems.append("--all-pairs needs --claims")
    if problems:
        raise InvalidOptions(problems[0], problems=problems[1:])
    metrics, stated = question.metric_query.among(table.files[0].names)
    read = read_summary_table(table, metrics, options)
    if read is None:
        return None
    _refuse_what_needs_runs(question, read)
    metric = read.metric or (metrics[0] if metrics else "mean")
    better = settle(metric, stated=stated.get(metrics[0]) if metrics else question.direction)
    chosen = _choose(read, control, candidates, options)
    arms = read.arms(chosen)
    config = ComparisonConfig(
        paired=False,
        alpha=0.05 if question.alpha is None else question.alpha,
        side=question.side,
        sesoi=question.sesoi,
        direction=better.known(NAME_THE_METRIC),
    ).check()
    summaries = [summary_of(arm, options.level) for arm in arms]
    printed = dict(zip(summaries, arms, strict=True))
    pairs, tasks, missing = _pairs(printed, chosen, options)
    family = check_adjustment(question.family or "holm") if len(pairs) > 1 else None
    comparisons = [
        replace(each, metric=metric if task is None else f"{metric} on {task}")
        for each, task in zip(compare_summaries(pairs, config, family), tasks, strict=True)
    ]
    findings = find_impossible(arms, options)
    return PublishedAnalysis(
        source=read.label,
        metric=metric,
        direction=config.direction,
        direction_source=better.source,
        summary={"type": "mean", "text": "mean over runs, as printed", "window": None},
        control=chosen[0],
        arms=(),
        comparisons=comparisons,
        cautions=[
            *(_caution_of(each) for each in findings),
            *_rounding(printed, pairs, comparisons, config, options),
            *_interval_reading(printed, pairs, comparisons, config, options, family),
            *better.cautions(),
        ],
        printed=arms,
        summaries=summaries,
        tasks_of=tasks,
        findings=findings,
        options=options,
        missing=missing,
        claims=[
            _claim(pair, each, task, config, len(pairs))
            for pair, each, task in zip(pairs, comparisons, tasks, strict=True)
        ]
        if options.claims
        else (),
    )


def _refuse_what_needs_runs(question: Question, table: SummaryTable) -> None:
    usual = Question()
    asked = [
        each.name
        for each in fields(Question)
        if each.name not in ALLOWED and getattr(question, each.name) != getattr(usual, each.name)
    ]
    if question.method == "t":
        asked.remove("method")
    problems = [
        f"{FLAGS.get(name, '--' + name.replace('_', '-'))} needs the runs, but {table.label} has one mean per arm"
        for name in asked
    ]
    if len(question.metrics) > 1:
        problems.append(f"{table.label} is a table of means, which takes one metric at a time")
    if problems:
        hint = "Omit it: a task column gives one comparison per task." if asked == ["tasks"] else "Omit it."
        raise UserError(problems[0], problems=problems[1:], hint=hint)


def _choose(table: SummaryTable, control: str | None, candidates: Sequence[str], options: SummaryOptions) -> list[str]:
    """Return the control (the first row unless another is named), followed by the arms to compare with it."""
    names = table.variants
    problems = [unknown("variant", name, names) for name in (control, *candidates) if name and name not in names]
    if problems:
        raise UserError(problems[0], problems=problems[1:])
    first = control or names[0]
    if first in candidates:
        raise UserError(f"'{first}' is the control; it cannot be the candidate too")
    others = list(dict.fromkeys(candidates)) or [name for name in names if name != first]
    without_control = options.all_pairs and control is None and len(candidates) > 1
    chosen = others if without_control else [first, *others]
    if len(chosen) < 2:
        raise UserError(f"{table.label} has one variant, {first}; a comparison needs two")
    return chosen


Rows = Mapping[ArmSummary, PrintedArm]


def _pairs(
    printed: Rows, chosen: Sequence[str], options: SummaryOptions
) -> tuple[list[Pair], list[str | None], list[str]]:
    """Return the pairs to compare, the task of each pair, and a sentence for each missing row."""
    known: dict[str | None, dict[str, ArmSummary]] = {}
    for summary, arm in printed.items():
        known.setdefault(arm.task, {})[arm.variant] = summary
    wanted = list(itertools.combinations(chosen, 2)) if options.all_pairs else [(chosen[0], n) for n in chosen[1:]]
    if len(wanted) * len(known) > MOST_COMPARISONS:
        raise UserError(
            f"these are {len(wanted) * len(known):,} comparisons; the limit is {MOST_COMPARISONS:,}",
            hint="Choose variants with --control and --candidate.",
        )
    pairs: list[Pair] = []
    tasks: list[str | None] = []
    missing = []
    for task, here in known.items():
        for control, candidate in wanted:
            if control in here and candidate in here:
                pairs.append((here[control], here[candidate]))
                tasks.append(task)
            elif control in here or candidate in here:
                absent, other = (control, candidate) if candidate in here else (candidate, control)
                missing.append(f"{absent} has no row for task {task}, so it is not compared with {other} there.")
    if not pairs:
        raise UserError("no two of these variants have a row for the same task")
    return pairs, tasks, missing


def _claim(
    pair: Pair, comparison: Comparison, task: str | None, config: ComparisonConfig, comparisons: int
) -> TableClaim:
    needed = runs_needed(pair, config.sesoi, config, comparisons) if config.sesoi is not None else None
    holds = None if comparison.significant is None else comparison.verdict in (Verdict.BETTER, Verdict.WORSE)
    return TableClaim(
        comparison,
        task,
        holds,
        needed.to_detect if needed else None,
        needed.to_equate if needed else None,
    )


# Limits of what the table shows


def _caution_of(finding: Finding) -> FilledCaution:
    kind = IMPOSSIBLE_VALUE if finding.severity == IMPOSSIBLE else DOUBTFUL_VALUE
    return kind.fill(finding=finding.sentence)


def _rounding(
    printed: Rows,
    pairs: Sequence[Pair],
    comparisons: Sequence[Comparison],
    config: ComparisonConfig,
    options: SummaryOptions,
) -> list[FilledCaution]:
    """Return a caution about verdicts that depend on rounded digits.

    Programs drop trailing zeros, so the row with the most digits sets the rounding unit.
    """
    mean_unit = float(min(arm.mean.unit for arm in printed.values()))
    spread_unit = min(_spread_unit(arm) for arm in printed.values())
    open_pairs: list[str] = []
    verdicts: dict[Verdict, None] = {}
    for pair, each in zip(pairs, comparisons, strict=True):
        control, candidate = (sd_per_spread(printed[arm], options.level) * spread_unit for arm in pair)
        possible = verdicts_within_rounding(pair, mean_unit, (control, candidate), config, 1 - each.effect.level)
        if each.effect.low is not None and len(possible) > 1:
            open_pairs.append(_named(each))
            verdicts.update(dict.fromkeys(possible))
    if not open_pairs:
        return []
    message = " or ".join(verdict.value for verdict in Verdict if verdict in verdicts)
    return [ROUNDED_VALUES.fill(pair=_some(open_pairs), verdicts=message)]


def _spread_unit(arm: PrintedArm) -> float:
    printed = arm.sd or arm.se or (arm.limits[0] if arm.limits is not None else arm.half_width)
    return float(printed.unit) if printed is not None else 0.0


def _interval_reading(
    printed: Rows,
    pairs: Sequence[Pair],
    comparisons: Sequence[Comparison],
    config: ComparisonConfig,
    options: SummaryOptions,
    family: str | None,
) -> list[FilledCaution]:
    """Return a caution about verdicts that change if the printed intervals used the normal quantile."""
    factors = {
        summary: normal_factor(arm.n, options.level) for summary, arm in printed.items() if arm.spread == "interval"
    }
    if not factors or max(factors.values()) < NOTABLE_FACTOR:
        return []
    wider = {arm: replace(arm, sd=arm.sd * factors.get(arm, 1.0)) for arm in printed}
    others = compare_summaries([(wider[one], wider[other]) for one, other in pairs], config, family)
    changed = [
        f"{_named(one)} would be {other.verdict}"
        for one, other in zip(comparisons, others, strict=True)
        if one.verdict is not other.verdict
    ]
    fewest = min(arm.n for arm in factors)
    consequence = f"; then {_some(changed)}" if changed else ", which changes no verdict here"
    return [
        INTERVAL_READ_AS_T.fill(
            level=f"{100 * options.level:g}",
            n=fewest,
            factor=f"{normal_factor(fewest, options.level):.2f}",
            consequence=consequence,
        )
    ]


# Sentences

_FAMILIES = {"holm": "Holm", "bh": "Benjamini–Hochberg"}


def _named(comparison: Comparison) -> str:
    on = (comparison.metric or "").partition(" on ")[2]
    return f"{comparison.candidate} − {comparison.control}" + (f" on {on}" if on else "")


def _some(messages: Sequence[str]) -> str:
    shown = [*messages[:MOST_NAMED], *([f"{len(messages) - MOST_NAMED} more"] if len(messages) > MOST_NAMED else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _claims_sentence(analysis: PublishedAnalysis) -> str:
    claims, first = analysis.claims, analysis.comparisons[0]
    held = sum(bool(claim.holds) for claim in claims)
    verb = "holds" if held == 1 else "hold"
    how = f", {_FAMILIES[first.adjustment]} over {len(claims)} comparisons" if first.adjustment else ""
    against = "" if analysis.options.all_pairs else f" from {analysis.control}"
    return (
        f"{held} of {counted(len(claims), 'difference')}{against} {verb} ({analysis.metric}, error rate "
        f"{shown_percent(first.alpha)}{how})."
    )


def _tasks_sentence(analysis: PublishedAnalysis) -> str:
    """Describe each candidate on each task, grouped by verdict."""
    first = analysis.comparisons[0]
    parts = []
    grouped: dict[tuple[str, Verdict], list[str]] = {}
    for comparison, task in zip(analysis.comparisons, analysis.tasks_of, strict=True):
        grouped.setdefault((comparison.candidate, comparison.verdict), []).append(str(task))
    words: Mapping[Verdict, str] = {
        Verdict.BETTER: "better than",
        Verdict.WORSE: "worse than",
        Verdict.EQUIVALENT: "equivalent to",
        Verdict.INCONCLUSIVE: "not distinguishable from",
    }
    for candidate in dict.fromkeys(comparison.candidate for comparison in analysis.comparisons):
        messages = [
            f"{words[verdict]} {analysis.control} on {_some(grouped[candidate, verdict])}"
            for verdict in Verdict
            if (candidate, verdict) in grouped
        ]
        parts.append(f"{candidate} is {', '.join(messages)}")
    how = f"{_FAMILIES[first.adjustment or 'holm']} over {len(analysis.comparisons)} comparisons"
    return f"{'; '.join(parts)} ({analysis.metric}, {how})."
