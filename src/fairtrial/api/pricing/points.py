"""Gather configurations to choose from: variants of a study, rows of a file, or a family that is trained now."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from fairtrial.api.comparing.gather import MetricQuery, RunSet, damage_cautions, from_study
from fairtrial.api.comparing.numbers import RunScores, number_runs
from fairtrial.api.lab.arms import LabConfig, lab_name, run_arms
from fairtrial.api.pricing.point_files import read_points
from fairtrial.api.running.devices import measured_on
from fairtrial.api.running.planning import load_checked_recipe
from fairtrial.api.running.prices import load_prices
from fairtrial.core.cautions import FEW_FOR_CHOICE, INERT_OPTION, LOST_AS_WORST, MISSING_RUNS, NO_HOURS
from fairtrial.core.devices import GIGABYTE, Calibration
from fairtrial.core.directions import Direction, settle
from fairtrial.core.errors import UserError, all_at_once
from fairtrial.core.findings import FilledCaution
from fairtrial.core.formatting import counted
from fairtrial.core.paths import ADHOC_STUDY, DEPENDENCIES_STUDY
from fairtrial.core.runs import Status
from fairtrial.core.traces import Trace
from fairtrial.costs.cost import LOCAL
from fairtrial.costs.frontier import OptimizationTarget
from fairtrial.costs.points import CostPoint
from fairtrial.costs.prices import BUILT_IN, PriceTable
from fairtrial.record.index import list_rows
from fairtrial.record.store import Store, open_store
from fairtrial.record.studies import load_plan
from fairtrial.stats.summaries import SummaryRule

FAMILY_RECIPE, FAMILY_STUDY = "finetune", "finetune-family"
ENOUGH = 5


@dataclass(frozen=True)
class Source:
    """Where the points come from. Set at most one of study, file and training; with none, the newest study is used.

    >>> fairtrial.Source(configs="points.json").configs
    'points.json'
    """

    study: str | None = None
    configs: str | os.PathLike[str] | None = None
    train: bool = False
    metric: str | None = None
    """NAME, or NAME:max or NAME:min."""
    device: str | None = None
    """What the hours were measured on, if neither the file nor this machine says so."""
    prices: str | os.PathLike[str] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """Recipe options that the whole family shares when it is trained."""
    calibration: Calibration | None = None
    """Speed of the machine that made the runs, if it was measured before."""


@dataclass(frozen=True)
class Points:
    """Points, with facts about all of them together."""

    points: Sequence[CostPoint]
    judged: OptimizationTarget
    source: str
    table: PriceTable = BUILT_IN
    study: str | None = None
    trained: bool = False
    failed: bool = False
    local: Calibration | None = None
    cautions: Sequence[FilledCaution] = field(default_factory=list)
    direction_source: str | None = None


@dataclass(frozen=True)
class RecordedPoints:
    """The points of a recorded question, priced as on its day."""

    source: Source
    terms: LabConfig
    today: date

    @classmethod
    def of(cls, store: Store, question: Mapping[str, Any]) -> RecordedPoints:
        calibration = question["calibration"]
        if calibration is not None:
            calibration = Calibration(**{key: calibration[key] for key in Calibration.__dataclass_fields__})
        metric = f"{question['metric']}:{question['direction']}"
        source = Source(study=question["study"], metric=metric, calibration=calibration)
        return cls(source, LabConfig(store=str(store.root)), date.fromisoformat(question["day"]))


def can_be_priced_again(result: Mapping[str, Any]) -> bool:
    """Return whether a recorded result used the built-in prices: a price file is not part of a bundle."""
    return result.get("prices") == BUILT_IN.source


def gather_points(
    source: Source, terms: LabConfig, today: date, gpu: str | None, also: Callable[[], object] = lambda: None
) -> Points:
    """Return the requested points; report all errors in the request before anything is trained.

    If `gpu` is given, it must have a price; `also` checks the rest of the request.
    """
    store = open_store(terms.store)
    study = source.study or (None if source.train or source.configs else _newest(store, source))
    begun = _begun_family(store, study) if study and not source.study else None

    def read_table() -> PriceTable:
        table = load_prices(source.prices, today)
        if gpu is not None:
            table.card(gpu)
        return table

    def read_what_is_at_hand() -> Points | None:
        if source.configs:
            return _from_file(Path(source.configs), source)
        return _from_study(store, study, source) if study and not begun else None

    table, points, *_ = all_at_once(read_table, read_what_is_at_hand, partial(_refuse_two_places, source), also)
    if begun:  # the same command resumes a family that was interrupted
        source, terms = replace(source, options=begun["options"]), replace(terms, runs=begun["seeds"])
    return replace(points or _from_family(store, source, terms), table=table)


def _begun_family(store: Store, study: str) -> dict[str, Any] | None:
    """Return the plan of a family that was started but not finished; None for every other study."""
    plan = load_plan(store, study) if study.startswith(FAMILY_STUDY) else None
    if plan is None:
        return None
    ended = (Status.COMPLETED, Status.DIVERGED, Status.FAILED)
    there = {(row["variant"], row["seed"]) for row in list_rows(store, study) if row["status"] in ended}
    planned = {(variant, seed) for variant in plan["variants"] for seed in plan["seeds"]}
    return plan if planned - there else None


def _refuse_two_places(source: Source) -> None:
    chosen = [word for word in ("study", "configs", "train") if getattr(source, word)]
    problems = [f"points come from one source: {' and '.join(chosen)} exclude each other"] if len(chosen) > 1 else []
    if source.train and source.device:
        problems.append("device: runs that are trained now are measured on this machine")
    if problems:
        raise UserError(problems[0], problems=problems[1:])


def parse_metric(given: str | None) -> tuple[str | None, str | None]:
    """Split NAME:max or NAME:min into name and direction; a name alone has the direction None."""
    if given is None:
        return None, None
    name, colon, direction = given.rpartition(":")
    if not (name if colon else given).strip():
        raise UserError(f"metric: '{given}' has no name")
    if colon and direction not in ("max", "min"):
        raise UserError(f"metric: the direction of '{given}' must be max or min, not '{direction}'")
    return (name, direction) if colon else (given, None)


def _newest(store: Store, source: Source) -> str | None:
    """Return the newest study with a completed run that has a wall time and the metric."""
    metric, _ = parse_metric(source.metric)
    for row in list_rows(store):
        usual = row["study"] not in (ADHOC_STUDY, DEPENDENCIES_STUDY)
        timed = row["status"] == Status.COMPLETED.value and row["wall_s"] is not None and not row["synthetic"]
        if usual and timed and (metric or row["metric"]) in row["final"]:
            return str(row["study"])
    return None


def _from_family(store: Store, source: Source, terms: LabConfig) -> Points:
    """Train LoRA at four ranks and full fine-tuning now, each run in its own process, because hours are measured."""
    recipe = load_checked_recipe(FAMILY_RECIPE)
    family: Mapping[str, Mapping[str, Any]] = recipe.module.FAMILY
    changed = {name for values in family.values() for name in values} & set(source.options)
    if changed:
        raise UserError(f"{', '.join(sorted(changed))}: differs within the family, so it cannot be set for all of it")
    name = lab_name(FAMILY_STUDY, recipe, source.options, None, variant_values=next(iter(family.values())))
    metric = recipe.metric.on("report") if recipe.metric else None
    study = terms.study_of(name, recipe, metric, options=dict(source.options), variants=dict(family))
    why = "Training" if source.train else "Nothing to price yet: training"
    terms.tell(f"{why} {', '.join(family)}, {counted(len(study.seed_list), 'run')} each.")
    ran = run_arms(study, replace(terms, stack=False), metric)
    points = _from_study(store, name, source)
    return replace(points, trained=True, failed=bool(ran.launched.bad))


def _from_study(store: Store, name: str, source: Source) -> Points:
    metric, direction = parse_metric(source.metric)
    run_set = from_study(store, name, MetricQuery([metric] if metric else (), direction))
    decided = run_set.directions[run_set.metric]
    way = decided.known(give_way(run_set.metric))
    scores, _ = number_runs(run_set, run_set.metric, way, SummaryRule())
    points: list[CostPoint] = []
    cautions: list[FilledCaution] = []
    worst = _worst(scores, way)
    for arm, traces in run_set.arms.items():
        hours = {str(t.seed): t.facts["wall_s"] / 3600 for t in traces if _is_timed(t)}
        if not hours or not any(each.value is not None for each in scores[arm].values()):
            cautions.append(NO_HOURS.fill(variant=arm))
            continue
        points.append(_point(arm, traces, hours, scores, worst, run_set))
    if not points:
        raise UserError(
            f"no variant of study '{run_set.source}' has both {run_set.metric} and measured hours",
            hint="Hours are recorded only for runs in their own process: launch it, or run it with --no-stack.",
        )
    facts = [trace.facts for traces in run_set.arms.values() for trace in traces if _is_timed(trace)]
    device, local = _device(store, source, facts)
    points = [replace(point, device=device) for point in points]
    judged = OptimizationTarget(run_set.metric, way)
    cautions += [
        *_against(decided),
        *_of_runs(run_set),
        *damage_cautions(run_set),
        *_missing(run_set, scores),
        *_lost(points, run_set.metric),
        *_few(points),
    ]
    return Points(
        points, judged, f"study {name}", study=name, local=local, cautions=cautions, direction_source=decided.source
    )


def _device(store: Store, source: Source, facts: Sequence[Mapping[str, Any]]) -> tuple[str, Calibration | None]:
    """Return what the hours were measured on, and its speed if it is not a card of the table."""
    if source.device:
        return source.device, None
    return (LOCAL, source.calibration) if source.calibration else measured_on(store, facts)


def _is_timed(trace: Trace) -> bool:
    return trace.status is Status.COMPLETED and trace.facts.get("wall_s") is not None


def _worst(scores: RunScores, direction: str) -> float:
    values = [each.value for arm in scores.values() for each in arm.values() if each.value is not None]
    return (min if direction == "max" else max)(values, default=float("nan"))


def _point(
    arm: str, traces: Sequence[Trace], hours: Mapping[str, float], scores: RunScores, worst: float, run_set: RunSet
) -> CostPoint:
    """Return the point of a variant. A lost run counts as the worst value seen: the next one may be lost too."""
    values = {seed: worst if each.value is None else each.value for seed, each in scores[arm].items()}
    lost = sum(each.value is None for each in scores[arm].values())
    memory, basis = _memory(traces)
    named = (run_set.plan or {}).get("variants", {}).get(arm, {})
    facts = next(trace.facts for trace in traces if trace.status is not Status.DAMAGED)
    settings = {name: facts["options"].get(name, value) for name, value in named.items()}
    return CostPoint(arm, dict(hours), values, memory, settings=settings, memory_basis=basis, lost=lost)


def _memory(traces: Sequence[Trace]) -> tuple[float | None, str]:
    """Return the most memory that any run needed: training tensors if they were counted, else the whole process."""
    for name, basis in (
        ("peak_tensor_bytes", "tensors that training keeps, measured"),
        ("peak_process_bytes", "largest size of the process, measured"),
    ):
        readings = [t.facts["resources"].get(name) for t in traces if _is_timed(t)]
        known = [value for value in readings if value is not None]
        if known:
            return max(known) / GIGABYTE, basis
    return None, "not measured"


def _of_runs(run_set: RunSet) -> list[FilledCaution]:
    """Return the cautions of the runs themselves, each once."""
    cautions = [
        each for traces in run_set.arms.values() for trace in traces for each in trace.facts.get("cautions", ())
    ]
    return list({each["text"]: each for each in cautions if each["code"] != INERT_OPTION.code}.values())


def _missing(run_set: RunSet, scores: RunScores) -> list[FilledCaution]:
    """Return a caution if planned runs are missing: the answer then covers only a part of the study."""
    damaged = {
        arm: {trace.seed for trace in traces if trace.status is Status.DAMAGED} for arm, traces in run_set.arms.items()
    }
    count = sum(len(set(run_set.planned_seeds(a)) - set(scores[a]) - damaged[a]) for a in run_set.arms)
    return [MISSING_RUNS.fill(count=count)] if count else []


def _lost(points: Sequence[CostPoint], metric: str) -> list[FilledCaution]:
    count = sum(point.lost for point in points)
    return [LOST_AS_WORST.fill(count=count, metric=metric)] if count else []


def _few(points: Sequence[CostPoint]) -> list[FilledCaution]:
    known = [point.quality.n for point in points if point.quality.n]
    return [FEW_FOR_CHOICE.fill(runs=counted(min(known), "seed"))] if known and min(known) < ENOUGH else []


def _from_file(path: Path, source: Source) -> Points:
    metric, direction = parse_metric(source.metric)
    metric = metric or "accuracy"
    points = read_points(path, metric, source.device)
    decided = settle(metric, stated=direction)
    judged = OptimizationTarget(metric, decided.known(give_way(metric)))
    cautions = [*_against(decided), *_few(points)]
    return Points(points, judged, path.name, cautions=cautions, direction_source=decided.source)


def give_way(metric: str) -> str:
    return f"Give --metric {metric}:max or --metric {metric}:min."


def _against(decided: Direction) -> list[FilledCaution]:
    return decided.cautions(f"--metric {decided.metric} with the direction")
