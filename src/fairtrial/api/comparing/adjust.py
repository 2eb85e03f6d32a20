"""analyze --adjust: adjust differences for a covariate that was measured before the change could act.

A planned covariate (`adjust:` in the study file, or registered) determines the verdict. One that is requested
afterwards is shown next to the verdict as exploratory: anyone free to choose among covariates will find one that helps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fairtrial.api.comparing.analysis import Question
from fairtrial.api.comparing.gather import RunSet, is_scored
from fairtrial.api.comparing.numbers import RunScores, label, number_runs
from fairtrial.core.cautions import COVARIATE_DIFFERS, COVARIATE_NOT_USED, COVARIATE_UNDATED
from fairtrial.core.errors import UserError, unknown
from fairtrial.core.findings import Comparison, CovariateAdjustment, FilledCaution
from fairtrial.core.formatting import shown_p
from fairtrial.core.specs import baseline_variant
from fairtrial.core.traces import Trace
from fairtrial.stats.compare import ComparisonConfig, outlook
from fairtrial.stats.covariate import (
    FEWEST_PAIRS,
    Adjusted,
    CannotAdjust,
    Covariate,
    adjust_differences,
    differs_between_arms,
    from_baseline,
    from_both_arms,
    refuse_few,
)
from fairtrial.stats.holm import HolmVerdict, judge_by_holm
from fairtrial.stats.reliability import with_reliability
from fairtrial.stats.samples import Array
from fairtrial.stats.summaries import SummaryRule, tidy
from fairtrial.stats.verdicts import Decision

FIRST_STEP = 1.0
"""Last step at which a first value counts as measured before the change."""
SUSPICIOUS = 0.01


def with_planned_covariate(question: Question, planned: str | None) -> Question:
    """Add the planned covariate to a question. Raises if the user now requests a different one."""
    if planned and question.adjust not in (None, planned):
        raise UserError(
            f"the study plans to adjust for {planned}, not for {question.adjust}",
            hint="Omit --adjust to use the planned covariate.",
        )
    return replace(question, planned_adjust=planned or question.planned_adjust)


def check_planned(
    adjust: str, config: ComparisonConfig, variants: Sequence[str], compared: Sequence[str], seeds: int
) -> None:
    """Raise at planning time if the planned adjustment could never be computed."""
    baseline = baseline_variant(adjust)
    if not config.paired or config.method != "t":
        raise UserError("adjusting for a covariate needs paired runs and method t")
    if seeds < FEWEST_PAIRS:
        raise UserError(f"adjusting for {adjust} needs {FEWEST_PAIRS} pairs, but {seeds} seeds are planned")
    if baseline is not None and baseline not in variants:
        raise UserError(f"adjust: {unknown('variant', baseline, variants)}")
    if baseline in compared:
        raise UserError(_COMPARED.format(name=baseline))


_COMPARED = "'{name}' is one of the compared variants, so differences cannot be adjusted for it"


def refuse_over_tasks(question: Question) -> None:
    if question.adjust is not None:
        raise UserError("--adjust does not apply over tasks", hint="Omit it, or compare one task.")


def _asked(question: Question) -> str | None:
    return question.adjust or question.planned_adjust


def set_baseline_apart(run_set: RunSet, question: Question, named: Sequence[str | None] = ()) -> RunSet:
    """Move the baseline arm of a covariate out of the compared arms. Raises if it is one of the `named` arms."""
    name = baseline_variant(_asked(question))
    if name is None:
        return run_set
    if name in named:
        raise UserError(_COMPARED.format(name=name))
    if name not in run_set.arms:
        raise UserError(f"--adjust: {unknown('variant', name, list(run_set.arms))}")
    arms = {arm: traces for arm, traces in run_set.arms.items() if arm != name}
    return replace(run_set, arms=arms, baseline={name: run_set.arms[name]})


def adjust_comparisons_for(
    comparisons: Sequence[Comparison], run_set: RunSet, scores: RunScores, config: ComparisonConfig, question: Question
) -> list[Comparison]:
    """Return every comparison with its covariate adjustment, if one is planned or requested."""
    name = _asked(question)
    if name is None:
        return list(comparisons)
    planned = name == question.planned_adjust
    try:
        _refuse_other_designs(comparisons, config)
        rule = question.summary or SummaryRule()
        made = [_adjusted_pair(each, run_set, scores, config, rule, name) for each in comparisons]
    except CannotAdjust as error:
        if not planned:
            raise
        caution = COVARIATE_NOT_USED.fill(covariate=name, reason=error.message)
        return [replace(each, cautions=(*each.cautions, caution)) for each in comparisons]
    judged = judge_by_holm([each.adjusted.inference for each in made], config)
    return [_with_adjustment(*each, config, planned=planned) for each in zip(comparisons, made, judged, strict=True)]


def _refuse_other_designs(comparisons: Sequence[Comparison], config: ComparisonConfig) -> None:
    if not config.paired:
        raise CannotAdjust("the runs are not paired by seed")
    if config.method != "t" or any("horizon" in each.tests for each in comparisons):
        raise CannotAdjust("adjusting for a covariate is a regression, which needs means and method t")


@dataclass(frozen=True)
class _Made:
    covariate: Covariate
    adjusted: Adjusted
    pairs: int
    cautions: tuple[FilledCaution, ...]


def _adjusted_pair(
    comparison: Comparison, run_set: RunSet, scores: RunScores, config: ComparisonConfig, rule: SummaryRule, name: str
) -> _Made:
    lost = config.failure_value
    control, candidate = (
        {seed: lost if n.value is None else n.value for seed, n in scores[arm].items()}
        for arm in (comparison.control, comparison.candidate)
    )
    seeds = sorted(s for s in control if control[s] is not None and candidate.get(s) is not None)
    refuse_few(name, len(seeds))
    differences = _array(candidate, seeds) - _array(control, seeds)
    baseline = baseline_variant(name)
    if baseline is not None:
        covariate = _baseline_covariate(baseline, seeds, run_set, rule)
        cautions: list[FilledCaution] = []
    else:
        covariate, cautions = _first_values(name, comparison, seeds, run_set)
    return _Made(covariate, adjust_differences(differences, covariate), len(seeds), tuple(cautions))


def _array(values: Mapping[str, float | None], seeds: Sequence[str]) -> Array:
    return np.array([values[seed] for seed in seeds], dtype=float)


def _baseline_covariate(name: str, seeds: Sequence[str], run_set: RunSet, rule: SummaryRule) -> Covariate:
    """Return the baseline's number per seed, by the same rule as for the compared arms."""
    alone = replace(run_set, arms=run_set.baseline)
    own, _ = number_runs(alone, run_set.metric, run_set.direction, rule)
    values = {seed: number.value for seed, number in own[name].items() if number.value is not None}
    missing = [seed for seed in seeds if seed not in values]
    if missing:
        raise CannotAdjust(f"{name} has no value for seed {missing[0]}, which is one of the pairs")
    return from_baseline(name, _array(values, seeds), np.array(list(values.values()), dtype=float))


def _first_values(
    name: str, comparison: Comparison, seeds: Sequence[str], run_set: RunSet
) -> tuple[Covariate, list[FilledCaution]]:
    """Return the first value of a metric in both runs of every pair, with cautions."""
    dated = "step" not in run_set.lacking
    sides = [
        {label(trace): trace for trace in run_set.arms[arm] if is_scored(trace)}
        for arm in (comparison.control, comparison.candidate)
    ]
    control, candidate = (
        np.array([_first_value(side[seed], name, run_set, dated=dated) for seed in seeds], dtype=float)
        for side in sides
    )
    covariate = from_both_arms(name, control, candidate)
    p = differs_between_arms(covariate)
    cautions: list[FilledCaution] = [] if dated else [COVARIATE_UNDATED.fill(covariate=name)]
    if p is not None and p < SUSPICIOUS:
        cautions.append(COVARIATE_DIFFERS.fill(covariate=name, p=shown_p(p)))
    return covariate, cautions


def _first_value(trace: Trace, name: str, run_set: RunSet, *, dated: bool) -> float:
    steps, values = tidy(*trace.curves.get(name, ((), ())))
    if not len(steps) or not np.isfinite(values[0]):
        raise CannotAdjust(f"{trace.run} has no first value of {name}")
    if name == run_set.metric and len(steps) == 1:
        raise CannotAdjust(f"{name} has one value per run, which is the value being compared")
    if dated and steps[0] > FIRST_STEP:
        raise CannotAdjust(
            f"{name} was first logged at step {steps[0]:g} ({trace.run}), after the change took effect",
            hint="Log it once before the first training step, at step 0.",
        )
    return float(values[0])


def _with_adjustment(
    comparison: Comparison, made: _Made, judged: HolmVerdict, config: ComparisonConfig, *, planned: bool
) -> Comparison:
    inference, n, side = made.adjusted.inference, made.pairs, config.on_difference()
    effect = replace(inference.estimate(judged.alpha, side, n), samples=comparison.effect.samples)
    equivalence = replace(inference.estimate(2 * judged.share, "two-sided", n), samples=comparison.effect.samples)
    decision = _with_losses(judged.decision, comparison)
    record = CovariateAdjustment(
        covariate=made.covariate.name,
        planned=planned,
        n=n,
        slope=made.adjusted.slope,
        correlation=made.adjusted.correlation,
        centre=made.covariate.centre,
        effect=replace(effect, samples=None),
        equivalence=replace(equivalence, samples=None),
        p_value=inference.p_value(side),
        verdict=decision.verdict,
        plain=replace(comparison.effect, samples=None),
        plain_p_value=comparison.p_value,
        plain_verdict=comparison.verdict,
    )
    cautions = (*comparison.cautions, *made.cautions)
    if not planned:
        return replace(comparison, covariate=record, cautions=cautions)
    family = comparison.adjustment is not None
    changed = replace(
        comparison,
        method=inference.method,
        effect=effect,
        equivalence=equivalence,
        p_value=inference.p_value(side),
        adjusted_p=judged.adjusted_p if family else None,
        adjustment="holm" if family else None,
        verdict=decision.verdict,
        reason=decision.reason,
        significant=decision.significant,
        equivalent=decision.equivalent,
        exceeds_sesoi=decision.exceeds_sesoi,
        not_worse=decision.not_worse,
        tests=dict(inference.detail),
        covariate=record,
        cautions=cautions,
    )
    # The slope uses up a degree of freedom, so the outlook needs the standard error of the adjusted difference.
    error = inference.detail["standard_error"], inference.detail["df"]
    own = replace(config, alpha=judged.alpha)
    return replace(changed, **outlook(changed, made.adjusted.residual_sd, n, own, error[1], error))


def _with_losses(decision: Decision, comparison: Comparison) -> Decision:
    """Apply the candidate's lost runs to the adjusted verdict, as for the unadjusted one."""
    if comparison.reliability is None or comparison.failure_value is not None:
        return decision
    return with_reliability(decision, comparison.reliability)
