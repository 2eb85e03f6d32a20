"""The headline numbers of a project: what its studies and its recorded results say, computed from the raw series.

A bundle stores them, and `research verify` computes them again from what the bundle holds. Only series, statuses and
times of runs enter; no code that came with the runs is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from math import isclose, isfinite
from pathlib import Path
from statistics import stdev
from typing import Any

import orjson

from fairtrial.api.comparing.adjust import set_baseline_apart
from fairtrial.api.comparing.analysis import Question
from fairtrial.api.comparing.analyze import as_planned, judge_arms
from fairtrial.api.comparing.context import account_of
from fairtrial.api.comparing.gather import MetricQuery, RunSet, choose_arms, from_study
from fairtrial.api.comparing.numbers import align, number_runs, unpaired_samples
from fairtrial.api.evidence.preregistered_analysis import analyze_registered_runs
from fairtrial.api.lab.arms import LabConfig
from fairtrial.api.pricing.cost_performance import cost_performance
from fairtrial.api.pricing.points import Source
from fairtrial.api.pricing.recommend import recommend
from fairtrial.core.devices import Calibration
from fairtrial.core.errors import FairtrialError, UserError
from fairtrial.core.findings import Comparison
from fairtrial.costs.choice import Constraints
from fairtrial.costs.prices import BUILT_IN, REFERENCE
from fairtrial.record.interim_looks import InterimLook
from fairtrial.record.store import Store
from fairtrial.stats.summaries import SummaryRule, describe
from fairtrial.stats.sweeps import mean_of, pick_winner

TOLERANCE = 1e-9
"""Relative: other versions of the numerical libraries may round the last digits differently."""
BY_THE_AUTHOR = "deviations_told_by_the_author"
"""Of a registered analysis: what the runs of a bundle do not show, and nobody else can compute."""
SWEEPS = ("temperature", "alpha", "sweep")
ENOUGH_ARMS = 2
LEVEL = 0.95

Document = dict[str, Any]


def study_headlines(store: Store, study: str, direction: str | None = None) -> Document:
    """The arms of a study and, where it has several, each of them against the first. By the study's own plan.

    `direction` is what a bundle claims; it counts where neither the runs nor the metric's name say which way is good.
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
        numbers, windows = number_runs(run_set, run_set.metric, run_set.direction_for(rule.type), rule)
        return {**_about(run_set, rule, windows), "arms": _arms(run_set, numbers), "comparisons": []}
    chosen, control = choose_arms(set_baseline_apart(run_set, question), None, [])
    judged = judge_arms(chosen, control, question)
    return {
        **_about(chosen, judged.rule, judged.windows), "control": control, "arms": _arms(chosen, judged.numbers),
        "comparisons": [comparison_numbers(comparison) for comparison in judged.comparisons],
    }  # fmt: skip


def _about(run_set: RunSet, rule: SummaryRule, windows: Any) -> Document:
    better = run_set.directions[run_set.metric].better
    return {"metric": run_set.metric, "direction": better, "summary": dict(describe(rule, windows))}


def _arms(run_set: RunSet, numbers: Any) -> list[Document]:
    accounts = [account_of(run_set, name, numbers[name]) for name in run_set.arms]
    return [
        {"variant": arm.variant, "planned": arm.planned, "started": arm.started, "completed": arm.completed,
         "used": arm.used, "mean": arm.mean, "sd": arm.sd, "values": dict(arm.values)}
        for arm in accounts
    ]  # fmt: skip


def comparison_numbers(comparison: Comparison) -> Document:
    """What is quoted of a comparison."""
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


def plan_headlines(store: Store, registration: Path) -> Document:
    """What the registered analysis gives: the numbers that the registration promised to report."""
    return plan_headlines_and_looks(store, registration)[0]


def plan_headlines_and_looks(store: Store, registration: Path) -> tuple[Document, list[InterimLook]]:
    """The same, and what a reader of these numbers looks at."""
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


def recorded_headlines(
    store: Store, journal: Sequence[Mapping[str, Any]], studies: Iterable[str]
) -> tuple[list[Document], list[str]]:
    """Results of sweeps, prices and recommendations that were recorded and still hold; and those that do not.

    The newest of every question counts. A result that the runs no longer give, because seeds were added since, is no
    headline.
    """
    newest: dict[bytes, tuple[Document, Mapping[str, Any]]] = {}
    for entry in journal:
        asked = asked_by(entry)
        if asked is not None and asked["study"] in studies:
            known = {key: value for key, value in asked.items() if key != "day"}
            newest[orjson.dumps(known)] = asked, entry["result"]
    kept, stale = [], []
    for asked, result in newest.values():
        numbers = result_headlines(store, asked)
        if numbers.get("reason") is None and not differences(_told(asked, result), numbers):
            kept.append({"asked": asked, "numbers": numbers})
        else:
            stale.append(f"{asked['command']} of {asked['study']}")
    return kept, stale


def asked_by(entry: Mapping[str, Any]) -> Document | None:
    """What a listed command asked, as far as its numbers can be computed again; None where they cannot."""
    command, result = (entry.get("command") or [""])[0], entry.get("result")
    if entry.get("kind") != "command" or not isinstance(result, dict) or not isinstance(result.get("study"), str):
        return None
    day = datetime.fromtimestamp(float(entry["at"]), UTC).date().isoformat()
    asked = {"command": command, "study": result["study"], "metric": result.get("metric"),
             "direction": result.get("direction"), "day": day}  # fmt: skip
    if command in SWEEPS and isinstance(result.get("results"), list):
        param = result.get("sweep_type") or result.get("param")
        level = (result.get("statistical_analysis") or {}).get("level", LEVEL)
        return {**asked, "param": param, "level": level}
    priced = result.get("prices") == BUILT_IN.source and result.get("hypervolume") is None
    if command == "cost-performance" and priced:
        return {**asked, "gpu": result["gpu"]["name"], "objectives": result["objectives"],
                "calibration": result["calibration"]}  # fmt: skip
    if command == "recommend" and priced:
        return {**asked, "gpu": _given(entry["command"], "--gpu") or REFERENCE, "objective": result["objective"],
                "constraints": result["constraints"], "calibration": result["calibration"]}  # fmt: skip
    return None


def _given(words: Sequence[str], option: str) -> str | None:
    for at, word in enumerate(words):
        if word == option and at + 1 < len(words):
            return words[at + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None


def result_headlines(store: Store, asked: Mapping[str, Any]) -> Document:
    """The numbers of a recorded result, computed again from the runs."""
    try:
        if asked["command"] in SWEEPS:
            return _plain(_swept(store, asked))
        if asked["command"] == "cost-performance":
            found = cost_performance(
                _source(asked), gpu=asked["gpu"], objectives=asked["objectives"], terms=_terms(store), today=_day(asked)
            )
            return _told(asked, _plain(found.to_dict()))
        if asked["command"] == "recommend":
            limits = Constraints(**asked["constraints"])
            advice = recommend(
                _source(asked), limits, gpu=asked["gpu"], objective=asked["objective"], terms=_terms(store),
                today=_day(asked),
            )  # fmt: skip
            return _told(asked, _plain(advice.to_dict()))
    except (FairtrialError, KeyError, TypeError, ValueError) as error:
        return {"reason": str(error)}
    return {"reason": f"nobody knows how to compute '{asked['command']}' again"}


def _terms(store: Store) -> LabConfig:
    return LabConfig(store=str(store.root))


def _source(asked: Mapping[str, Any]) -> Source:
    told = asked["calibration"]
    known = None if told is None else Calibration(**{key: told[key] for key in Calibration.__dataclass_fields__})
    return Source(study=asked["study"], metric=f"{asked['metric']}:{asked['direction']}", calibration=known)


def _day(asked: Mapping[str, Any]) -> date:
    return date.fromisoformat(asked["day"])


def _swept(store: Store, asked: Mapping[str, Any]) -> Document:
    """Every setting of a sweep with its mean, and the best."""
    run_set = from_study(store, asked["study"], MetricQuery([asked["metric"]], asked["direction"]))
    numbers, _ = number_runs(run_set, run_set.metric, run_set.direction, SummaryRule())
    settings = (run_set.plan or {}).get("variants", {})
    alpha = round(1 - float(asked["level"]), 12)
    rows = []
    for name in (name for name in run_set.arms if name in settings and numbers[name]):
        mean = mean_of(unpaired_samples({name: numbers[name]})[name], alpha)
        rows.append(
            {"value": _value(settings[name], asked["param"]), "accuracy": mean.value, "ci": mean.limits,
             "std_dev": stdev(mean.samples or ()) if mean.n > 1 else None, "runs": mean.n}
        )  # fmt: skip
    scored = {name: arm for name, arm in numbers.items() if arm}
    winner = pick_winner(align(scored), direction=run_set.direction, alpha=alpha)
    best = None if winner is None else _value(settings[winner.best], asked["param"])
    alike = (
        None if winner is None or winner.alike is None else [_value(settings[n], asked["param"]) for n in winner.alike]
    )
    return {"results": sorted(rows, key=_by_value), "best": best, "set": _ordered(alike)}


def _value(values: Mapping[str, Any], param: str | Sequence[str]) -> Any:
    return values.get(param) if isinstance(param, str) else dict(values)


def _by_value(row: Mapping[str, Any]) -> bytes:
    return orjson.dumps(row["value"], option=orjson.OPT_SORT_KEYS)


def _ordered(values: Sequence[Any] | None) -> list[Any] | None:
    return (
        None if values is None else sorted(values, key=lambda value: orjson.dumps(value, option=orjson.OPT_SORT_KEYS))
    )


def _told(asked: Mapping[str, Any], result: Mapping[str, Any]) -> Document:
    """The headline numbers in a document that a command gave."""
    if asked["command"] in SWEEPS:
        key = result.get("sweep_type") or "value"
        rows = [
            {"value": row[key], **{name: row[name] for name in ("accuracy", "ci", "std_dev", "runs")}}
            for row in result["results"]
        ]
        best = result["best"]
        return {"results": sorted(rows, key=_by_value), "best": best[key], "set": _ordered(best["set"])}
    names: tuple[str, ...]
    if asked["command"] == "cost-performance":
        names = ("points", "frontier", "efficiency_winner", "marginal", "savings_against")
    else:
        names = ("recommended", "expected", "binding", "alternatives", "feasible", "candidates")
    return {name: result.get(name) for name in names}


def _plain(document: Mapping[str, Any]) -> Document:
    """As it reads when it was written down: no infinity, no tuples."""
    plain: Document = orjson.loads(orjson.dumps(document, default=str, option=orjson.OPT_NON_STR_KEYS))
    return plain


def count_numbers(document: Any) -> int:
    if isinstance(document, Mapping):
        return sum(map(count_numbers, document.values()))
    if isinstance(document, list):
        return sum(map(count_numbers, document))
    return int(isinstance(document, int | float) and not isinstance(document, bool))


def differences(said: Any, found: Any, where: str = "", tolerance: float = TOLERANCE) -> list[str]:
    """Every place where two documents do not say the same. Numbers may differ by the tolerance, all else may not."""
    if isinstance(said, Mapping) and isinstance(found, Mapping):
        keys = sorted({*said, *found})
        return [
            each for key in keys
            for each in differences(said.get(key), found.get(key), f"{where}.{key}" if where else str(key), tolerance)
        ]  # fmt: skip
    if isinstance(said, list) and isinstance(found, list) and len(said) == len(found):
        return [
            each for at, (a, b) in enumerate(zip(said, found, strict=True))
            for each in differences(a, b, f"{where}[{_label(a, at)}]", tolerance)
        ]  # fmt: skip
    return [] if _same(said, found, tolerance) else [f"{where}: {_short(said)} is said, the runs give {_short(found)}"]


def _label(row: Any, at: int) -> str:
    """A row of a list by its name, which a reader knows, rather than by its number."""
    if isinstance(row, Mapping):
        return str(next((row[name] for name in ("candidate", "variant", "name", "value") if name in row), at))
    return str(at)


def _same(said: Any, found: Any, tolerance: float) -> bool:
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (said, found))
    if not numbers or (isinstance(said, int) and isinstance(found, int)):
        return bool(said == found)
    return isfinite(said) and isfinite(found) and isclose(said, found, rel_tol=tolerance, abs_tol=tolerance * 1e-6)


def _short(value: Any) -> str:
    message = repr(value)
    return message if len(message) <= 60 else message[:57] + "…"
