"""Facts that come from the source of the runs: missing runs, fairness, and shared random streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fairtrial.api.comparing.analysis import ArmAccount
from fairtrial.api.comparing.gather import RunSet, damage_cautions, is_scored
from fairtrial.api.comparing.numbers import RunScores, label
from fairtrial.core.cautions import (
    DIFFERENT_ENDS,
    DIRTY_TREE,
    DUPLICATE_SEEDS,
    FAMILY_SEEDS,
    MISSING_RUNS,
    REMOVED_RUNS,
    STILL_MOVING,
    UNKNOWN_COMMIT,
)
from fairtrial.core.errors import UserError
from fairtrial.core.findings import Comparison, FilledCaution
from fairtrial.core.options import describe_options
from fairtrial.core.registry import LoadedRecipe, load_recipe
from fairtrial.core.runs import Status
from fairtrial.core.traces import Trace
from fairtrial.stats.fairness import Fairness, judge_fairness, mixed_commits
from fairtrial.stats.seed_effect import seed_effect_cautions
from fairtrial.stats.summaries import Summarised, Window, end_slope, tidy

ENOUGH_CURVES = 30
MOVING = 0.1
"""Mean change in the last tenth of a run, as a fraction of its range, above which the run has not settled."""


def fairness_of(run_set: RunSet, control: str, candidate: str) -> Fairness:
    sides = [
        [t.facts for t in run_set.arms[name] if t.facts and t.status is not Status.DAMAGED]
        for name in (control, candidate)
    ]
    recipe = _recipe(sides[0] or sides[1])
    variants = (run_set.plan or {}).get("variants", {})
    declared = None
    if control in variants and candidate in variants:
        free = recipe.options.free_values if recipe else None  # holds the keys that are not options of the recipe
        declared = {*variants[control], *variants[candidate], *([free] if free else [])}
    roles = {info.name: info.role.value for info in describe_options(recipe.options)} if recipe else {}
    return judge_fairness(sides[0], sides[1], names=(control, candidate), declared=declared, roles=roles)


def _recipe(facts: Sequence[Mapping[str, Any]]) -> LoadedRecipe | None:
    """Return the recipe of recorded runs if it is available: it defines the role of each option.

    Jobs record the absolute path of a recipe file. A relative path comes with imported runs, whose code must not run.
    """
    if not facts or (facts[0]["recipe_file"] and not Path(facts[0]["recipe_file"]).is_absolute()):
        return None
    if facts[0]["recipe_file"] is None and str(facts[0]["recipe"]).endswith(".py"):  # a job never records this
        return None
    try:
        return load_recipe(facts[0]["recipe"], file=facts[0]["recipe_file"])
    except UserError:
        return None


def in_context(comparison: Comparison, run_set: RunSet, fairness: Fairness) -> Comparison:
    """Add the shared random streams and the fairness cautions to a comparison."""
    cautions = (*comparison.cautions, *fairness.cautions)
    return replace(comparison, streams=_streams(run_set, comparison), cautions=cautions)


def _streams(run_set: RunSet, comparison: Comparison) -> str:
    """Return the random streams that paired runs shared: used by both, with the same seed."""
    if comparison.pairing != "paired":
        return "none"
    sides = [
        {t.seed: t for t in run_set.arms[name] if t.status is Status.COMPLETED}  # others may have ended too early
        for name in (comparison.control, comparison.candidate)
    ]
    pairs = [(sides[0][seed], sides[1][seed]) for seed in sides[0] if seed in sides[1]]
    if not pairs or any(a.streams is None or b.streams is None for a, b in pairs):
        return "unknown"
    asked = frozenset.intersection(*(each.streams for pair in pairs for each in pair if each.streams is not None))
    shared = [name for name in sorted(asked) if all(a.stream_seed(name) == b.stream_seed(name) for a, b in pairs)]
    return ", ".join(shared) or "none"


def account_of(run_set: RunSet, name: str, scores: Mapping[str, Summarised]) -> ArmAccount:
    traces = run_set.arms[name]
    seeds = run_set.planned_seeds(name)
    values = np.sort(np.array([n.value for n in scores.values() if n.value is not None], dtype=float))
    known = not any(n.censored for n in scores.values())  # a mean without censored runs would be too good
    left_out: list[Mapping[str, str | None]] = [
        {"run": trace.run, "seed": trace.seed, "reason": _why_left_out(trace, scores)}
        for trace in traces
        if not is_scored(trace) or not scores[label(trace)].is_used
    ]
    removed = run_set.removed_seeds(name)
    for seed in dict.fromkeys([*run_set.missing_seeds(name), *removed]):
        why = "removed after it was made" if seed in removed else "not started; not scored"
        left_out.append({"run": f"{name}, seed {seed}", "seed": seed, "reason": why})
    return ArmAccount(
        name,
        max(len(seeds), len(traces)),
        len(traces),
        sum(trace.status is Status.COMPLETED for trace in traces),
        sum(n.is_used for n in scores.values()),
        float(values.mean()) if known and len(values) else None,
        float(values.std(ddof=1)) if known and len(values) > 1 else None,
        {seed: number.value for seed, number in sorted(scores.items())},
        left_out,
    )


def _why_left_out(trace: Trace, scores: Mapping[str, Summarised]) -> str:
    if not is_scored(trace):
        return f"{trace.status}; not scored" + (f" ({trace.reason})" if trace.reason else "")
    why = scores[label(trace)].reason or "no number"
    return why if trace.status is Status.COMPLETED else f"{trace.status}: {why}"


def shared_cautions(
    run_set: RunSet, scores: RunScores, windows: Mapping[str, Window | None], *, paired: bool
) -> list[FilledCaution]:
    """Return the cautions that apply to all comparisons of an analysis."""
    cautions: dict[str, FilledCaution] = {caution["text"]: caution for caution in run_set.direction_cautions}
    ends = {name: window[1] for name, window in windows.items() if window is not None}
    if len(set(ends.values())) > 1:
        message = ", ".join(f"{name} at {end:g}" for name, end in ends.items())
        cautions["ends"] = DIFFERENT_ENDS.fill(ends=message)
    traces = [trace for each in run_set.arms.values() for trace in each]
    for trace in traces:
        cautions.update({caution["text"]: caution for caution in trace.facts.get("cautions", ())})
    cautions.update({caution["text"]: caution for caution in _about_code(run_set)})
    removed = {name: run_set.removed_seeds(name) for name in run_set.arms}
    absent = sum(len(set(run_set.missing_seeds(name)) - set(removed[name])) for name in run_set.arms)
    unscored = sum(not is_scored(trace) and trace.status is not Status.DAMAGED for trace in traces)
    if unscored + absent:
        cautions["missing"] = MISSING_RUNS.fill(count=unscored + absent)
    if names := [f"{name}.seed{seed}" for name, seeds in removed.items() for seed in seeds]:
        cautions["removed"] = REMOVED_RUNS.fill(count=len(names), runs=", ".join(names))
    cautions.update({caution["text"]: caution for caution in damage_cautions(run_set)})
    if run_set.repeated:
        cautions["repeated"] = DUPLICATE_SEEDS.fill(count=run_set.repeated)
    if paired and len(scores) > 2:
        shared = set.intersection(*(set(arm) for arm in scores.values()))
        left = sum(len(set(arm) - shared) for arm in scores.values())
        if left:
            cautions["family"] = FAMILY_SEEDS.fill(n=len(shared), left=left)
    cautions.update({caution["text"]: caution for caution in constant_metrics(run_set, scores)})
    for name in run_set.arms:
        if (slope := _still_moving(run_set.arms[name], run_set.metric)) is not None and abs(slope) > MOVING:
            cautions[f"moving {name}"] = STILL_MOVING.fill(variant=name)
    return list(cautions.values())


def _about_code(run_set: RunSet) -> list[FilledCaution]:
    """Return cautions about code that others cannot reproduce: uncommitted, from several commits, or unknown.

    Runs from a file have no information about their code, and so cause no caution.
    """
    recorded = {
        name: [trace.facts for trace in traces if "commit" in trace.facts] for name, traces in run_set.arms.items()
    }
    runs = [facts for each in recorded.values() for facts in each]
    about_code = [caution for name, facts in recorded.items() for caution in mixed_commits(name, facts)]
    if any(facts["changes"] not in (None, "none") for facts in runs):
        about_code.append(DIRTY_TREE.fill())
    unknown = sum(facts["commit"] is None for facts in runs)
    if unknown:
        about_code.append(UNKNOWN_COMMIT.fill(count=unknown, all=len(runs)))
    return about_code


def constant_metrics(run_set: RunSet, scores: RunScores) -> list[FilledCaution]:
    """Return cautions about arms whose runs all have the same number although their seeds differ."""
    constant_metrics: list[FilledCaution] = []
    for name, arm in scores.items():
        completed = [trace for trace in run_set.arms[name] if trace.status is Status.COMPLETED]
        values = [number.value for number in arm.values() if number.value is not None]
        curves = [tidy(*trace.curves[run_set.metric])[1] for trace in completed if run_set.metric in trace.curves]
        finals = [trace.facts.get("final", {}) for trace in completed]
        constant_metrics += seed_effect_cautions(name, run_set.metric, values, finals=finals, curves=curves)
    return constant_metrics


def _still_moving(traces: Sequence[Trace], metric: str) -> float | None:
    some = [trace for trace in traces if metric in trace.curves and is_scored(trace)][:ENOUGH_CURVES]
    slopes = [end_slope(tidy(*trace.curves[metric])) for trace in some]
    known = [slope for slope in slopes if slope is not None]
    return float(np.mean(known)) if known else None
