"""Which runs belong to which arm: from a study, chosen runs, pairs, or a file from elsewhere."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairtrial.core.cells import refuse_shape, seed_text
from fairtrial.core.errors import UserError, unknown
from fairtrial.core.runs import Run, Status, headline
from fairtrial.core.specs import split_and_quantity
from fairtrial.core.traces import Trace, likely_direction
from fairtrial.plan.study import read_study as read_study_file
from fairtrial.record.bulk import Recorded, read_study, record_of
from fairtrial.record.series import read_series
from fairtrial.record.store import Store
from fairtrial.record.studies import load_plan
from fairtrial.record.tables import Columns, Table, read_table
from fairtrial.record.traces import read_traces


@dataclass(frozen=True)
class Gathered:
    """Arms by name, in the order of the study; `planned` has the seeds that each was meant to have."""

    arms: Mapping[str, Sequence[Trace]]
    directions: Mapping[str, str]
    """Metric → which way is good; the first metric is the one that the verdict is about."""
    planned: Mapping[str, Sequence[str]] = field(default_factory=dict)
    plan: Mapping[str, Any] | None = None
    studies: Sequence[str] = ()
    source: str = ""
    repeated: int = 0
    paired_by_hand: bool = False
    lacking: Sequence[str] = ()
    """Roles that no column of the file has: `variant`, `step`."""
    free_columns: Sequence[str] = ()
    """Columns of the file without numbers and without a role."""

    @property
    def metric(self) -> str:
        return next(iter(self.directions))

    @property
    def direction(self) -> str:
        return self.directions[self.metric]

    def planned_seeds(self, arm: str) -> list[str]:
        seen = [trace.seed for trace in self.arms[arm] if trace.seed is not None]
        return list(dict.fromkeys([*self.planned.get(arm, ()), *seen]))


@dataclass(frozen=True)
class Wanted:
    """What a person asked for about the metric: names in order of importance, and which way is good."""

    metrics: Sequence[str] = ()
    direction: str | None = None
    curve: bool = False
    """Without a name: rather the metric that is logged along the way than the one that is reported at the end."""


def from_study(store: Store, reference: str, wanted: Wanted) -> Gathered:
    """The variants of a study, by its name or file."""
    name = study_name(store, reference)
    plan = load_plan(store, name)
    recorded = read_study(store, name)
    runs = [each.run for each in recorded]
    if not runs:
        raise UserError(f"study '{name}' has no runs yet in {store.root}", hint=f"Launch it: fairtrial launch {name}")
    order = list(dict.fromkeys([*(plan or {}).get("variants", {}), *(run.variant for run in runs)]))
    first = [each for each in recorded if each.run.attempt == 1]
    gathered = _from_runs(wanted, {v: [r for r in first if r.run.variant == v] for v in order}, plan)
    seeds = [str(seed) for seed in (plan or {}).get("seeds", [])]
    planned = {v: seeds for v in order if v in (plan or {}).get("variants", {})}
    repeated = sum(run.attempt > 1 for run in runs)
    return replace(gathered, planned=planned, plan=plan, studies=[name], source=name, repeated=repeated)


def study_name(store: Store, reference: str) -> str:
    """The study that a person means by its name or by its file."""
    if reference.endswith((".yaml", ".yml")) and Path(reference).is_file():
        return read_study_file(Path(reference)).study
    known = store.studies()
    if reference not in known:
        hint = f"Store: {store.root}" if known else f"The store {store.root} has no studies yet."
        raise UserError(unknown("study", reference, known) if known else f"no study '{reference}'", hint=hint)
    return reference


def from_runs(store: Store, references: Mapping[str, Sequence[str]], wanted: Wanted) -> Gathered:
    """Chosen runs by arm. A reference is a run's id, path or glob, or STUDY:VARIANT."""
    arms = {name: _resolve(store, each) for name, each in references.items()}
    runs = [each.run for arm in arms.values() for each in arm]
    twice = sorted(path for path, count in Counter(run.path for run in runs).items() if count > 1)
    if twice:
        raise UserError(f"run {twice[0].name} was chosen for both arms or twice")
    gathered = _from_runs(wanted, arms, None)
    return replace(gathered, studies=sorted({run.study for run in runs}), source="chosen runs")


def _resolve(store: Store, references: Sequence[str]) -> list[Recorded]:
    found: list[Recorded] = []
    for reference in references:
        study, colon, variant = reference.partition(":")
        if colon and study in store.studies():
            first = [each for each in read_study(store, study) if each.run.attempt == 1]
            names = sorted({each.run.variant for each in first})
            if variant not in names:
                raise UserError(f"study '{study}': {unknown('variant', variant, names)}")
            found += [each for each in first if each.run.variant == variant]
        elif reference in store.studies():
            found += [each for each in read_study(store, reference) if each.run.attempt == 1]
        else:
            found += [each for paths in store.match_paths([reference]) if (each := record_of(paths))]
    return list({each.run.path: each for each in found}.values())


def _from_runs(wanted: Wanted, arms: Mapping[str, Sequence[Recorded]], plan: Mapping[str, Any] | None) -> Gathered:
    runs = [each.run for arm in arms.values() for each in arm]
    metrics = _metrics(runs, wanted, plan)
    directions = {metric: direction_of(metric, runs, plan) for metric in metrics}
    if wanted.direction:
        directions[metrics[0]] = wanted.direction
    traces = {name: read_traces(each, metrics) for name, each in arms.items()}
    return Gathered(traces, directions)


def _metrics(runs: Sequence[Run], wanted: Wanted, plan: Mapping[str, Any] | None) -> list[str]:
    logged = sorted({name for run in runs for name in run.final})
    given = list(wanted.metrics) or ([plan["metric"]] if plan and plan.get("metric") else [])
    if given:
        problems = [unknown("metric", name, logged) for name in given if logged and name not in logged]
        if problems:
            raise UserError(problems[0], problems=problems[1:])
        return given
    ended = next((run for run in runs if run.final), None)
    found = _default_metric(ended, curve=wanted.curve) if ended else None
    if found is None:
        raise UserError("none of these runs has logged a metric yet", hint="Look at them: fairtrial runs list")
    return [found]


def _default_metric(run: Run, *, curve: bool) -> str | None:
    along = run.metadata["best_metric_name"]
    return along if curve and along in run.final else headline(run.metadata["metric"], run.final)


def _quantity(metric: str) -> str:
    """The same quantity on another split has the same direction."""
    return split_and_quantity(metric)[1]


def direction_of(metric: str, runs: Sequence[Run], plan: Mapping[str, Any] | None) -> str:
    """Which way is good: as the study says, as the recipe recorded, or by the metric's name."""
    own = next((run.metadata["metric"] for run in runs if run.metadata["metric"]), None)
    judged = (plan or {}).get("metric") or own
    if plan and plan.get("direction") and (judged is None or _quantity(judged) == _quantity(metric)):
        return str(plan["direction"])
    for run in runs:
        own, direction = run.metadata["metric"], run.metadata["direction"]
        if own and direction and _quantity(own) == _quantity(metric):
            return str(direction)
    return likely_direction(metric)


def from_pairs(store: Store, pairs: Sequence[Mapping[str, Any]], wanted: Wanted) -> Gathered:
    """Pairs made by hand: each names a control run and a candidate run, and perhaps the seed they share."""
    problems = [
        f"pair {i}: takes 'control', 'candidate', perhaps 'seed', and nothing else" for i, pair in enumerate(pairs, 1)
        if not (isinstance(pair, Mapping) and {"control", "candidate"} <= set(pair) <= {"control", "candidate", "seed"})
    ]  # fmt: skip
    problems = problems or [
        f"pair {i}: seed {why}" for i, pair in enumerate(pairs, 1) if (why := refuse_shape(pair.get("seed", i)))
    ]
    if problems or not pairs:
        told = problems or ["--pairs names no pair"]
        raise UserError(told[0], problems=told[1:], hint='Like {"control": RUN, "candidate": RUN, "seed": 1}.')
    sides = {side: [_one(store, str(pair[side])) for pair in pairs] for side in ("control", "candidate")}
    runs = [each.run for side in sides.values() for each in side]
    if len({run.path for run in runs}) < len(runs):
        raise UserError("a run occurs in more than one pair")
    gathered = _from_runs(wanted, sides, None)
    labels = _pair_labels(pairs, sides)
    arms = {
        name: [replace(trace, seed=label) for trace, label in zip(traces, labels, strict=True)]
        for name, traces in gathered.arms.items()
    }
    studies = sorted({run.study for run in runs})
    return replace(gathered, arms=arms, studies=studies, source="pairs", paired_by_hand=True)


def _one(store: Store, reference: str) -> Recorded:
    run = store.find(reference)
    return Recorded(run, read_series(run.paths))


def _pair_labels(pairs: Sequence[Mapping[str, Any]], sides: Mapping[str, Sequence[Recorded]]) -> list[str]:
    labels = []
    for number, (pair, first, second) in enumerate(zip(pairs, *sides.values(), strict=True), 1):
        seeds = first.run.seed, second.run.seed
        shared = seeds[0] if seeds[0] == seeds[1] else f"pair {number}"
        labels.append(seed_text(pair.get("seed", shared)))
    return labels if len(set(labels)) == len(labels) else [f"pair {n}" for n in range(1, len(labels) + 1)]


def choose_arms(gathered: Gathered, control: str | None, candidates: Sequence[str]) -> tuple[Gathered, str]:
    """The control (named, or the first arm) and what is set against it: the named candidates, or all other arms.

    Arms without a single outcome say nothing; where others remain they are left aside.
    """
    names = list(gathered.arms)
    problems = [unknown("variant", name, names) for name in (control, *candidates) if name and name not in names]
    if problems:
        raise UserError(problems[0], problems=problems[1:])
    first = control or names[0]
    if first in candidates:
        raise UserError(f"'{first}' is the control; it cannot be the candidate too")
    others = list(candidates) or [name for name in names if name != first]
    scored = [name for name in others if any(is_scored(trace) for trace in gathered.arms[name])]
    chosen = [first, *(scored or others)]
    if len(chosen) < 2 and "variant" in gathered.lacking:
        guess = f", such as {gathered.free_columns[0]}" if gathered.free_columns else ""
        raise UserError(
            f"{gathered.source} has no column that names the variant, so there is nothing to compare",
            hint=f"Name the column that holds it{guess}, with --variant-column.",
        )
    if len(chosen) < 2:
        raise UserError(
            f"{gathered.source} has one variant, {first}; a comparison needs two",
            hint="How noisy one variant is: fairtrial variance.",
        )
    arms = {name: gathered.arms[name] for name in dict.fromkeys(chosen)}
    return replace(gathered, arms=arms), first


def files_of(source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The files that a person named: one, or several."""
    given = [source] if isinstance(source, str | os.PathLike) else list(source)
    if not given:
        raise UserError("no file was given to read results from")
    return [Path(each) for each in given]


def from_file(paths: Sequence[Path], columns: Columns, wanted: Wanted) -> Gathered:
    """The rows of CSV or JSONL files together; variants in the order in which they first occur."""
    table = read_table(paths, columns)
    metrics = _file_metrics(table, wanted)
    traces = table.traces(metrics)
    if not traces:
        raise UserError(f"{table.label} has no value of {metrics[0]}")
    arms: dict[str, list[Trace]] = {}
    for trace in traces:
        arms.setdefault(trace.variant, []).append(trace)
    directions = {metric: likely_direction(metric) for metric in metrics}
    if wanted.direction:
        directions[metrics[0]] = wanted.direction
    lacking = [role for role in ("variant", "step") if table.columns[role] is None]
    return Gathered(arms, directions, source=table.label, lacking=lacking, free_columns=table.text_columns())


def _file_metrics(table: Table, wanted: Wanted) -> list[str]:
    known = table.metrics()
    problems = [f"{table.label}: {unknown('metric', name, known)}" for name in wanted.metrics if not table.known(name)]
    if problems:
        raise UserError(problems[0], problems=problems[1:])
    if wanted.metrics:
        return list(wanted.metrics)
    if not known:
        why = table.why_none()
        raise UserError(
            f"{table.label} has no column of numbers" + (f" ({why})" if why else ""), hint="Choose with --metric."
        )
    if len(known) > 1:
        shown = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
        told = f"{table.label} has {len(known)} columns or names that may be metrics: {shown}"
        raise UserError(told, hint="Choose with --metric.")
    return known


def since(gathered: Gathered, created: float) -> Gathered:
    """Only runs that were begun at that moment or later."""
    arms = {
        name: [trace for trace in traces if trace.facts.get("created", created) >= created]
        for name, traces in gathered.arms.items()
    }
    return replace(gathered, arms=arms, planned={})


def is_scored(trace: Trace) -> bool:
    """Whether a run is an outcome: it ended by itself, well or badly. Others are run again, not scored."""
    return trace.status in (Status.COMPLETED, Status.DIVERGED, Status.FAILED)
