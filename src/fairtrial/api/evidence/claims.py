"""The headline numbers of a project: the results of its studies and recorded commands, computed from the raw series.

A bundle stores them, and `research verify` recomputes them from the contents of the bundle. They depend only on the
series, statuses and times of runs; code that came with the runs is never loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import isclose, isfinite
from pathlib import Path
from typing import Any

import orjson

from fairtrial.api.comparing.adjust import set_baseline_apart
from fairtrial.api.comparing.analysis import Question
from fairtrial.api.comparing.analyze import as_planned, judge_arms
from fairtrial.api.comparing.context import account_of
from fairtrial.api.comparing.gather import MetricQuery, RunSet, choose_arms, from_study
from fairtrial.api.comparing.numbers import number_runs
from fairtrial.api.evidence.preregistered_analysis import analyze_registered_runs
from fairtrial.api.lab import sweep
from fairtrial.api.pricing import cost_performance, recommend
from fairtrial.api.running.recomputing import FROM_SERIES, Document, RecomputableVerb
from fairtrial.core.errors import FairtrialError, UserError
from fairtrial.core.findings import Comparison
from fairtrial.record.interim_looks import InterimLook
from fairtrial.record.store import Store
from fairtrial.research.command_log import COMMAND
from fairtrial.stats.summaries import SummaryRule, describe

TOLERANCE = 1e-9
"""Relative tolerance: other versions of the numerical libraries may round the last digits differently."""
BY_THE_AUTHOR = "deviations_told_by_the_author"
"""Key of the deviations in a registered analysis that the runs do not show, so that others cannot recompute them."""
RECOMPUTABLE: Mapping[str, RecomputableVerb] = {
    "temperature": sweep.RECOMPUTABLE,
    "alpha": sweep.RECOMPUTABLE,
    "sweep": sweep.RECOMPUTABLE,
    "cost-performance": cost_performance.RECOMPUTABLE,
    "recommend": recommend.RECOMPUTABLE,
}
"""The verbs whose recorded results are claims, by the first word of their command. Results of `launch`, `analyze`,
`compare` and `ablation` are part of the claims of their study instead."""
ENOUGH_ARMS = 2
SENTENCES = frozenset({"reason", "text"})
"""Keys whose values are sentences. Another version may word them differently; their numbers must be equal."""
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def study_claims(store: Store, study: str, direction: str | None = None) -> Document:
    """Return the arms of a study and, if it has several, the comparison of each with the first, as the study planned.

    `direction` is what a bundle claims; it is used if neither the runs nor the metric's name give a direction.
    """
    try:
        run_set = from_study(store, study, MetricQuery(fallback=direction))
        question = as_planned(Question(), run_set.plan)
        return _plain(_compared(run_set, question))
    except UserError as error:
        return {"reason": error.message}


def _compared(run_set: RunSet, question: Question) -> Document:
    if len(run_set.arms) < ENOUGH_ARMS:
        rule = (question.summary or SummaryRule()).check()
        scores, windows = number_runs(run_set, run_set.metric, run_set.direction_for(rule), rule)
        return {**_about(run_set, rule, windows), "arms": _arms(run_set, scores), "comparisons": []}
    chosen, control = choose_arms(set_baseline_apart(run_set, question), None, [])
    judged = judge_arms(chosen, control, question)
    return {
        **_about(chosen, judged.rule, judged.windows),
        "control": control,
        "arms": _arms(chosen, judged.numbers),
        "comparisons": [comparison_numbers(comparison) for comparison in judged.comparisons],
    }


def _about(run_set: RunSet, rule: SummaryRule, windows: Any) -> Document:
    better = run_set.directions[run_set.metric].better
    return {"metric": run_set.metric, "direction": better, "summary": dict(describe(rule, windows))}


def _arms(run_set: RunSet, scores: Any) -> list[Document]:
    accounts = [account_of(run_set, name, scores[name]) for name in run_set.arms]
    return [
        {"variant": arm.variant, "planned": arm.planned, "started": arm.started, "completed": arm.completed,
         "used": arm.used, "mean": arm.mean, "sd": arm.sd, "values": dict(arm.values)}
        for arm in accounts
    ]  # fmt: skip


def comparison_numbers(comparison: Comparison) -> Document:
    """Return the numbers of a comparison that a claim contains."""
    return {
        "control": comparison.control,
        "candidate": comparison.candidate,
        "pairing": comparison.pairing,
        "method": comparison.method,
        "side": comparison.side,
        "alpha": comparison.alpha,
        "sesoi": comparison.sesoi,
        "n_control": comparison.n_control,
        "n_candidate": comparison.n_candidate,
        "mean_control": comparison.mean_control,
        "mean_candidate": comparison.mean_candidate,
        "difference": comparison.effect.value,
        "low": comparison.effect.low,
        "high": comparison.effect.high,
        "level": comparison.effect.level,
        "p_value": comparison.p_value,
        "adjusted_p": comparison.adjusted_p,
        "verdict": comparison.verdict.value,
        "reason": comparison.reason,
    }


def plan_claims(store: Store, registration: Path) -> Document:
    """Return the results of the registered analysis: the numbers that the registration promised to report."""
    return plan_claims_and_looks(store, registration)[0]


def plan_claims_and_looks(store: Store, registration: Path) -> tuple[Document, list[InterimLook]]:
    """Return the same results, and the interim looks that reading them amounts to."""
    try:
        computed = analyze_registered_runs(registration, store)
    except FairtrialError as error:
        return {"reason": error.message}, []
    analysis, plan = computed.analysis, computed.followed
    arms = [
        {"variant": a.variant, "planned": a.planned, "used": a.used, "mean": a.mean, "sd": a.sd} for a in analysis.arms
    ]
    compared = [comparison_numbers(each) for each in (*analysis.comparisons, *analysis.secondary)]
    followed = {"late": plan.late, "deviations": [each.to_dict() for each in plan.deviations]}
    document = {"study": analysis.source, "metric": analysis.metric, "arms": arms, "comparisons": compared, **followed}
    return _plain(document), [look for view in analysis.on_view for look in view.looks_at(analysis.source)]


def recorded_claims(
    store: Store, command_log: Sequence[Mapping[str, Any]], studies: Iterable[str]
) -> tuple[list[Document], list[str]]:
    """Return the recorded results of sweeps, prices and recommendations that still hold, and names those that do not.

    Only the newest result of each question counts. A result that the runs no longer give, for example because seeds
    were added, is not a headline number.
    """
    newest: dict[bytes, tuple[list[Document], Mapping[str, Any]]] = {}
    for entry in command_log:
        questions = questions_of(entry)
        if questions and questions[0]["study"] in studies:
            known = [{key: value for key, value in asked.items() if key != "day"} for asked in questions]
            newest[orjson.dumps(known)] = questions, entry["result"]
    kept, stale = [], []
    for questions, result in newest.values():
        said = RECOMPUTABLE[questions[0]["command"]].claims(result)
        again = ({"asked": asked, "numbers": result_claims(store, asked)} for asked in questions)
        claim = next((each for each in again if not differences(said, each["numbers"])), None)
        if claim:
            kept.append(claim)
        else:
            stale.append(f"{questions[0]['command']} of {questions[0]['study']}")
    return kept, stale


def questions_of(entry: Mapping[str, Any]) -> list[Document]:
    """Return the questions that a logged command may have asked, inferred from its result; empty if not recomputable.

    Of the command, only the first word is read, which names the verb.
    """
    command, result = (entry.get("command") or [""])[0], entry.get("result")
    if entry.get("kind") != COMMAND or command not in RECOMPUTABLE or not isinstance(result, dict):
        return []
    if not isinstance(result.get("study"), str):
        return []
    day = datetime.fromtimestamp(float(entry["at"]), UTC).date().isoformat()
    shared = {"command": command, "study": result["study"], "metric": result.get("metric"),
              "direction": result.get("direction"), "day": day}  # fmt: skip
    try:
        return [{**shared, **own} for own in RECOMPUTABLE[command].questions(result)]
    except (LookupError, TypeError, AttributeError):  # the result in the log was edited
        return []


def result_claims(store: Store, asked: Mapping[str, Any]) -> Document:
    """Recompute the numbers of a recorded result from the runs."""
    verb = RECOMPUTABLE.get(asked["command"])
    if verb is None:
        return {"reason": f"results of '{asked['command']}' cannot be recomputed"}
    try:
        return _plain(verb.recompute(store, asked))
    except (FairtrialError, KeyError, TypeError, ValueError) as error:
        return {"reason": str(error)}


def basis_of(command: str) -> str:
    """Return what the numbers of a recorded result are computed from."""
    return RECOMPUTABLE[command].basis if command in RECOMPUTABLE else FROM_SERIES


def _plain(document: Mapping[str, Any]) -> Document:
    """Return the document as JSON represents it: without infinities and tuples."""
    plain: Document = orjson.loads(orjson.dumps(document, default=str, option=orjson.OPT_NON_STR_KEYS))
    return plain


def count_numbers(document: Any) -> int:
    if isinstance(document, Mapping):
        return sum(map(count_numbers, document.values()))
    if isinstance(document, list):
        return sum(map(count_numbers, document))
    return int(isinstance(document, int | float) and not isinstance(document, bool))


def differences(said: Any, computed: Any, where: str = "", tolerance: float = TOLERANCE) -> list[str]:
    """Return every place where two documents differ.

    Numbers may differ by the tolerance and sentences in their wording, but not in the numbers that they state.
    """
    if isinstance(said, Mapping) and isinstance(computed, Mapping):
        keys = sorted({*said, *computed})
        return [
            each
            for key in keys
            if not (key in SENTENCES and _same_sentence(said.get(key), computed.get(key)))
            for each in differences(
                said.get(key), computed.get(key), f"{where}.{key}" if where else str(key), tolerance
            )
        ]
    if isinstance(said, list) and isinstance(computed, list) and len(said) == len(computed):
        return [
            each
            for at, (a, b) in enumerate(zip(said, computed, strict=True))
            for each in differences(a, b, f"{where}[{_label(a, at)}]", tolerance)
        ]
    return (
        []
        if _same(said, computed, tolerance)
        else [f"{where}: {_short(said)} is claimed, the runs give {_short(computed)}"]
    )


def _same_sentence(said: Any, computed: Any) -> bool:
    return isinstance(said, str) and isinstance(computed, str) and NUMBER.findall(said) == NUMBER.findall(computed)


def _label(row: Any, at: int) -> str:
    """Return the name of a list row if it has one, because readers know it; else its position."""
    if isinstance(row, Mapping):
        return str(next((row[name] for name in ("candidate", "variant", "name", "value") if name in row), at))
    return str(at)


def _same(said: Any, computed: Any, tolerance: float) -> bool:
    are_numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (said, computed))
    if not are_numbers or (isinstance(said, int) and isinstance(computed, int)):
        return bool(said == computed)
    return (
        isfinite(said) and isfinite(computed) and isclose(said, computed, rel_tol=tolerance, abs_tol=tolerance * 1e-6)
    )


def _short(value: Any) -> str:
    message = repr(value)
    return message if len(message) <= 60 else message[:57] + "…"
