"""What only the source of the runs knows: who is missing, was it fair, what was shared, has someone looked before?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fairtrial.analyse.fairness import Fairness, judge_fairness
from fairtrial.analyse.summaries import Summarised, Window, end_slope, tidy
from fairtrial.api.analysis import ArmAccount
from fairtrial.api.gather import Gathered, damage_cautions, is_scored
from fairtrial.api.numbers import Numbers, label
from fairtrial.core.cautions import (
    CHANCE_PAIRS,
    DIFFERENT_ENDS,
    DUPLICATE_SEEDS,
    FAMILY_SEEDS,
    LOOK_NOT_NOTED,
    LOOKS_DAMAGED,
    MISSING_RUNS,
    SEEDS_AFTER_LOOK,
    STILL_MOVING,
)
from fairtrial.core.errors import UserError
from fairtrial.core.findings import Comparison, FilledCaution
from fairtrial.core.options import describe_options
from fairtrial.core.registry import LoadedRecipe, load_recipe
from fairtrial.core.runs import Status
from fairtrial.core.traces import Trace
from fairtrial.record.looks import note_look, seeds_came_later, why_looks_damaged
from fairtrial.record.store import Store

EXPLORATORY = "exploratory: seeds added after looking"
ENOUGH_CURVES = 30
MOVING = 0.1
"""An average run that still changes by a tenth of its range in its last tenth has not settled."""


def fairness_of(gathered: Gathered, control: str, candidate: str) -> Fairness:
    sides = [
        [t.facts for t in gathered.arms[name] if t.facts and t.status is not Status.DAMAGED]
        for name in (control, candidate)
    ]
    recipe = _recipe(sides[0] or sides[1])
    variants = (gathered.plan or {}).get("variants", {})
    declared = None
    if control in variants and candidate in variants:
        free = recipe.options.free_values if recipe else None  # holds the keys that are no options of the recipe
        declared = {*variants[control], *variants[candidate], *([free] if free else [])}
    roles = {info.name: info.role.value for info in describe_options(recipe.options)} if recipe else {}
    return judge_fairness(sides[0], sides[1], names=(control, candidate), declared=declared, roles=roles)


def _recipe(facts: Sequence[Mapping[str, Any]]) -> LoadedRecipe | None:
    """The recipe of recorded runs, where it is at hand: it knows the role of each option.

    Jobs record the full path of a recipe file. Any other comes with runs from elsewhere, whose code is not run here.
    """
    if not facts or (facts[0]["recipe_file"] and not Path(facts[0]["recipe_file"]).is_absolute()):
        return None
    if facts[0]["recipe_file"] is None and str(facts[0]["recipe"]).endswith(".py"):  # never written by a job
        return None
    try:
        return load_recipe(facts[0]["recipe"], file=facts[0]["recipe_file"])
    except UserError:
        return None


def in_context(found: Comparison, gathered: Gathered, fairness: Fairness, store: Store) -> Comparison:
    """Add what only the source knows: shared streams, unfairness, and whether someone has looked before."""
    cautions = [*found.cautions, *fairness.cautions]
    streams = _streams(gathered, found)
    if found.pairing == "paired" and streams == "unknown":
        cautions.append(CHANCE_PAIRS.fill())
    told = None
    for study in gathered.studies:
        told = _look(gathered, found, study, store, cautions) or told
    return replace(found, streams=streams, label=told, cautions=tuple(cautions))


def _streams(gathered: Gathered, found: Comparison) -> str:
    """The random streams that paired runs shared: asked for by both, from the same seed."""
    if found.pairing != "paired":
        return "none"
    sides = [
        {t.seed: t for t in gathered.arms[name] if t.status is not Status.DAMAGED}
        for name in (found.control, found.candidate)
    ]
    pairs = [(sides[0][seed], sides[1][seed]) for seed in sides[0] if seed in sides[1]]
    if not pairs or any(a.streams is None or b.streams is None for a, b in pairs):
        return "unknown"
    if any(a.facts.get("seed") != b.facts.get("seed") for a, b in pairs):
        return "none"
    shared = frozenset.intersection(*(each.streams for pair in pairs for each in pair if each.streams is not None))
    return ", ".join(sorted(shared)) or "none"


def _look(gathered: Gathered, found: Comparison, study: str, store: Store, cautions: list[FilledCaution]) -> str | None:
    """Note this look in the study; says so if seeds came after the first one.

    Variants and seeds are those that the runs were recorded under, whatever the arms are called here.
    """
    seeds: dict[str, set[str]] = {}
    for trace in [t for name in (found.control, found.candidate) for t in gathered.arms[name] if is_scored(t)]:
        own = trace.facts.get("variant", trace.variant)
        name = own if trace.study == study else f"{trace.study}:{own}"
        seeds.setdefault(name, set()).add(str(trace.facts.get("seed", label(trace))))
    if not seeds:
        return None
    looked = {name: sorted(each) for name, each in seeds.items()}
    if why := why_looks_damaged(store, study):
        cautions.append(LOOKS_DAMAGED.fill(reason=why))
    later = seeds_came_later(store, study, looked)
    if not note_look(store, study, metric=gathered.metric, seeds=looked):
        cautions.append(LOOK_NOT_NOTED.fill())
    if not later:
        return None
    cautions.append(SEEDS_AFTER_LOOK.fill())
    return EXPLORATORY


def account_of(gathered: Gathered, name: str, numbers: Mapping[str, Summarised]) -> ArmAccount:
    traces = gathered.arms[name]
    seeds = gathered.planned_seeds(name)
    present = {trace.seed for trace in traces}
    values = np.sort(np.array([n.value for n in numbers.values() if n.value is not None], dtype=float))
    known = not any(n.censored for n in numbers.values())  # the mean of those that arrived would flatter
    left_out: list[Mapping[str, str | None]] = [
        {"run": trace.run, "seed": trace.seed, "reason": _why_left_out(trace, numbers)}
        for trace in traces
        if not is_scored(trace) or not numbers[label(trace)].is_used
    ]
    missing = [seed for seed in seeds if seed not in present]
    left_out += [{"run": f"{name}, seed {seed}", "seed": seed, "reason": "not started; not scored"} for seed in missing]
    return ArmAccount(
        name, max(len(seeds), len(traces)), len(traces),
        sum(trace.status is Status.COMPLETED for trace in traces), sum(n.is_used for n in numbers.values()),
        float(values.mean()) if known and len(values) else None,
        float(values.std(ddof=1)) if known and len(values) > 1 else None,
        {seed: number.value for seed, number in sorted(numbers.items())}, left_out,
    )  # fmt: skip


def _why_left_out(trace: Trace, numbers: Mapping[str, Summarised]) -> str:
    if not is_scored(trace):
        return f"{trace.status}; not scored" + (f" ({trace.reason})" if trace.reason else "")
    why = numbers[label(trace)].reason or "no number"
    return why if trace.status is Status.COMPLETED else f"{trace.status}: {why}"


def shared_cautions(
    gathered: Gathered, numbers: Numbers, windows: Mapping[str, Window | None], *, paired: bool
) -> list[FilledCaution]:
    """What all comparisons of an analysis rest on."""
    found: dict[str, FilledCaution] = {caution["text"]: caution for caution in gathered.direction_cautions}
    ends = {name: window[1] for name, window in windows.items() if window is not None}
    if len(set(ends.values())) > 1:
        told = ", ".join(f"{name} at {end:g}" for name, end in ends.items())
        found["ends"] = DIFFERENT_ENDS.fill(ends=told)
    traces = [trace for each in gathered.arms.values() for trace in each]
    for trace in traces:
        found.update({caution["text"]: caution for caution in trace.facts.get("cautions", ())})
    seeds = {name: gathered.planned_seeds(name) for name in gathered.arms}
    unscored = sum(not is_scored(trace) and trace.status is not Status.DAMAGED for trace in traces)
    absent = sum(len(set(seeds[name]) - {t.seed for t in each}) for name, each in gathered.arms.items() if seeds[name])
    if unscored + absent:
        found["missing"] = MISSING_RUNS.fill(count=unscored + absent)
    found.update({caution["text"]: caution for caution in damage_cautions(gathered)})
    if gathered.repeated:
        found["repeated"] = DUPLICATE_SEEDS.fill(count=gathered.repeated)
    if paired and len(numbers) > 2:
        shared = set.intersection(*(set(arm) for arm in numbers.values()))
        left = sum(len(set(arm) - shared) for arm in numbers.values())
        if left:
            found["family"] = FAMILY_SEEDS.fill(n=len(shared), left=left)
    for name in gathered.arms:
        if (slope := _still_moving(gathered.arms[name], gathered.metric)) is not None and abs(slope) > MOVING:
            found[f"moving {name}"] = STILL_MOVING.fill(variant=name)
    return list(found.values())


def _still_moving(traces: Sequence[Trace], metric: str) -> float | None:
    some = [trace for trace in traces if metric in trace.curves and is_scored(trace)][:ENOUGH_CURVES]
    slopes = [end_slope(tidy(*trace.curves[metric])) for trace in some]
    known = [slope for slope in slopes if slope is not None]
    return float(np.mean(known)) if known else None
