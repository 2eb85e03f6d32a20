"""analyze --target: compare each arm with a fixed value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fairtrial.api.comparing.analysis import Analysis, Question
from fairtrial.api.comparing.context import account_of, in_context, shared_cautions
from fairtrial.api.comparing.gather import RunSet, is_scored
from fairtrial.api.comparing.numbers import number_runs
from fairtrial.api.comparing.shown_comparisons import comparisons_on_view
from fairtrial.core.errors import UserError, unknown
from fairtrial.stats.compare import ComparisonConfig
from fairtrial.stats.fairness import Fairness
from fairtrial.stats.summaries import SummaryRule, describe
from fairtrial.stats.target import compare_arms_to_target, target_name


def refuse_without_effect(question: Question, control: str | None, *, paired_by_hand: bool) -> None:
    """Raise for options that need a control: a target takes its place."""
    asked = {
        "--control": control is not None, "--pairs": paired_by_hand, "--unpaired": question.unpaired,
        "--tasks": question.tasks, "--method": question.method not in (None, "t"),
        "--family": question.family not in (None, "holm"), "--certify": question.certify,
        "--ttest.enabled": question.ttest, "--power.enabled": question.power, "--adjust": question.adjust is not None,
        "a second --metric": len(question.metrics) > 1, "--bootstrap.n_resamples": question.resamples is not None,
    }  # fmt: skip
    given = [option for option, is_given in asked.items() if is_given]
    if given:
        raise UserError(
            f"{given[0]} does not apply with --target, which compares one arm with a fixed value", hint="Omit it."
        )


def choose_candidates(run_set: RunSet, candidates: Sequence[str]) -> RunSet:
    """Keep the named arms, or all that have a scored run."""
    names = list(run_set.arms)
    problems = [unknown("variant", name, names) for name in candidates if name not in names]
    if problems:
        raise UserError(problems[0], problems=problems[1:])
    scored = [name for name in names if any(is_scored(trace) for trace in run_set.arms[name])]
    return replace(run_set, arms={name: run_set.arms[name] for name in list(candidates) or scored or names})


def against_target(run_set: RunSet, question: Question) -> Analysis:
    """Compare the scores of every arm with the target; several arms form a family, adjusted by Holm."""
    assert question.target is not None
    rule = (question.summary or SummaryRule()).check()
    config = ComparisonConfig(
        paired=True,
        alpha=0.05 if question.alpha is None else question.alpha,
        side=question.side,
        sesoi=question.sesoi,
        direction=rule.direction(run_set.direction),
    ).check()
    scores, windows = number_runs(run_set, run_set.metric, run_set.direction, rule)
    if any(number.censored for arm in scores.values() for number in arm.values()):
        raise UserError("some runs never reached the threshold, so there is no mean to compare with --target")
    arms = {name: np.array([n.number for n in arm.values()], dtype=float) for name, arm in scores.items()}
    comparisons = compare_arms_to_target(
        arms,
        question.target,
        config,
        known_sd=question.known_sd,
        failure_value=question.failure_value,
    )
    label, nothing = rule.label(run_set.metric), Fairness((), {}, ())
    shown = [in_context(each, run_set, nothing) for each in comparisons]
    asked = question.asked(run_set.metric, f"{rule}, against {target_name(question.target)}")
    return Analysis(
        source=run_set.source,
        metric=run_set.metric,
        direction=run_set.direction,
        direction_source=run_set.direction_source,
        summary=describe(rule, windows),
        control=target_name(question.target),
        arms=[account_of(run_set, name, scores[name]) for name in run_set.arms],
        comparisons=[replace(each, metric=label) for each in shown],
        cautions=shared_cautions(run_set, scores, windows, paired=False),
        curves=run_set.arms,
        on_view=[comparisons_on_view(shown, run_set, asked)],
    )
