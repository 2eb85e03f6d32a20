"""Collect the runs of each arm from a study, chosen runs, pairs of runs, or a file of another tool."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairtrial.api.running.study_metric import is_outcome, settle_direction
from fairtrial.core.cautions import DAMAGED_RUNS
from fairtrial.core.cells import refuse_shape, seed_text
from fairtrial.core.directions import GIVE_FLAG, Better, Direction, checked, settle
from fairtrial.core.errors import UserError, unknown
from fairtrial.core.findings import FilledCaution
from fairtrial.core.paths import parts_of_run_id
from fairtrial.core.plugin_registry import READERS, plugin_names
from fairtrial.core.readers import Columns, RunSource, open_runs
from fairtrial.core.runs import Run, Status, headline
from fairtrial.core.specs import covariate_metric
from fairtrial.core.traces import Trace, curve_metric
from fairtrial.plan.study import read_study as read_study_file
from fairtrial.record.metadata import HINT, DamagedRun
from fairtrial.record.recorded import with_series
from fairtrial.record.store import Store
from fairtrial.record.studies import load_plan
from fairtrial.record.study_cache import Recorded, read_study, record_of
from fairtrial.record.tables import Table
from fairtrial.record.traces import read_traces
from fairtrial.stats.summaries import SummaryRule

MOST_NAMED = 5


@dataclass(frozen=True)
class RunSet:
    """The runs of each arm, in the order of the study. `planned` holds the planned seeds of each arm."""

    arms: Mapping[str, Sequence[Trace]]
    directions: Mapping[str, Direction]
    """Metric → its direction. The verdict is about the first metric."""
    planned: Mapping[str, Sequence[str]] = field(default_factory=dict)
    plan: Mapping[str, Any] | None = None
    studies: Sequence[str] = ()
    source: str = ""
    repeated: int = 0
    damaged: Mapping[str, str] = field(default_factory=dict)
    """Run → why it is not scored: its files do not match what was recorded."""
    paired_by_hand: bool = False
    lacking: Sequence[str] = ()
    """Roles without a column in the file: `variant`, `step`."""
    free_columns: Sequence[str] = ()
    """Non-numeric columns of the file that have no role."""
    removed: Collection[str] = ()
    """Ids of runs that were moved to the archive of the study and not run again."""
    baseline: Mapping[str, Sequence[Trace]] = field(default_factory=dict)
    """An arm that is not compared; differences are adjusted for its values."""
    curves: Sequence[str] = ()
    """Metrics of recorded runs that have more than one value per run, whether or not they were read."""

    def missing_seeds(self, name: str) -> list[str]:
        """Return the planned seeds of a variant that have no run."""
        present = {trace.seed for trace in self.arms[name]}
        return [seed for seed in self.planned_seeds(name) if seed not in present]

    def removed_seeds(self, name: str) -> list[str]:
        """Return the seeds of a variant whose runs were removed."""
        parts = [parts_of_run_id(each) for each in sorted(self.removed)]
        return [str(seed) for variant, seed, attempt in filter(None, parts) if variant == name and attempt == 1]

    @property
    def metric(self) -> str:
        return next(iter(self.directions))

    @property
    def direction(self) -> Better:
        """The direction of the main metric. Raises if it is unknown, because no verdict is possible then."""
        return self.direction_of(self.metric)

    def direction_for(self, rule: SummaryRule) -> Better:
        """Return the direction for a single variant. Raises only if the summary rule depends on it."""
        return self.direction if rule.kind.uses_direction else self.directions[self.metric].better or "max"

    @property
    def direction_source(self) -> str | None:
        return self.directions[self.metric].source

    def direction_of(self, metric: str) -> Better:
        first = metric == self.metric
        return self.directions[metric].known(GIVE_FLAG if first else f"Pass --metric {metric}:max or {metric}:min.")

    @property
    def direction_cautions(self) -> list[FilledCaution]:
        return [caution for each in self.directions.values() for caution in each.cautions()]

    def planned_seeds(self, arm: str) -> list[str]:
        seen = [trace.seed for trace in self.arms[arm] if trace.seed is not None]
        return list(dict.fromkeys([*self.planned.get(arm, ()), *seen]))


@dataclass(frozen=True)
class MetricQuery:
    """The metrics that the user requested, in order of importance, and their directions.

    A name may include its direction, as NAME:max or NAME:min; `direction` applies to the first one.
    """

    metrics: Sequence[str] = ()
    direction: str | None = None
    curve: bool = False
    """If no metric is named, prefer one that is logged during training over one that is reported at the end."""
    fallback: str | None = None
    """The direction to use if nothing else determines it."""
    covariate: str | None = None
    """A metric to read in addition, which is not judged."""
    repeats: bool = False
    """Whether to include repeats of a run with the same seed, which do not add seeds."""

    def among(self, known: Collection[str]) -> tuple[list[str], dict[str, str]]:
        """Return the names and the stated directions. A colon that is part of a logged name is kept."""
        names: list[str] = []
        stated: dict[str, str] = {}
        for given in self.metrics:
            name, colon, way = given.rpartition(":")
            if not colon or given in known or way not in ("max", "min"):
                names.append(given)
                continue
            if stated.get(name, way) != way or (not names and self.direction not in (None, way)):
                raise UserError(f"two directions were given for {name}")
            names.append(name)
            stated[name] = way
        if self.direction and names:
            stated[names[0]] = self.direction
        return names, stated


def from_study(store: Store, reference: str, query: MetricQuery) -> RunSet:
    """Return the runs of a study, given by name or file, by variant."""
    name = study_name(store, reference)
    plan = load_plan(store, name)
    recorded = read_study(store, name)
    runs = [each.run for each in recorded]
    if not runs:
        raise UserError(f"study '{name}' has no runs yet in {store.root}", hint=f"Launch it: fairtrial launch {name}")
    nobodys = {run.name: run.reason or "" for run in runs if _is_nobodys(run)}
    known = [run.variant for run in runs if run.name not in nobodys]
    order = list(dict.fromkeys([*(plan or {}).get("variants", {}), *known]))
    first = [each for each in recorded if each.run.attempt == 1]
    run_set = _from_runs(query, {v: [r for r in first if r.run.variant == v] for v in order}, plan)
    run_set = replace(run_set, damaged={**run_set.damaged, **nobodys})
    seeds = [str(seed) for seed in (plan or {}).get("seeds", [])]
    planned = {v: seeds for v in order if v in (plan or {}).get("variants", {})}
    repeated = sum(run.attempt > 1 for run in runs)
    return replace(
        run_set,
        planned=planned,
        plan=plan,
        studies=[name],
        source=name,
        repeated=repeated,
        removed=store.archived_ids(name) - {run.id for run in runs},
    )


def study_name(store: Store, reference: str) -> str:
    """Return the name of the study that a study name or a study file refers to."""
    if reference.endswith((".yaml", ".yml")) and Path(reference).is_file():
        return read_study_file(Path(reference)).study
    known = store.studies()
    if reference not in known:
        hint = f"Store: {store.root}" if known else f"The store {store.root} has no studies yet."
        raise UserError(unknown("study", reference, known) if known else f"no study '{reference}'", hint=hint)
    return reference


def from_runs(store: Store, references: Mapping[str, Sequence[str]], query: MetricQuery) -> RunSet:
    """Return chosen runs by arm. A reference is a run's id, path or glob, STUDY:VARIANT, a study, or a variant."""
    arms = {name: _resolve(store, each, repeats=query.repeats) for name, each in references.items()}
    runs = [each.run for arm in arms.values() for each in arm]
    twice = sorted(path for path, count in Counter(run.path for run in runs).items() if count > 1)
    if twice:
        raise UserError(f"run {twice[0].name} was chosen more than once or for both arms")
    run_set = _from_runs(query, arms, None)
    return replace(run_set, studies=sorted({run.study for run in runs}), source="chosen runs")


def _resolve(store: Store, references: Sequence[str], *, repeats: bool = False) -> list[Recorded]:
    recorded_runs: list[Recorded] = []
    for given in references:
        reference = _spell_out(store, given)
        study, colon, variant = reference.partition(":")
        if colon and study in store.studies():
            first = [each for each in read_study(store, study) if repeats or each.run.attempt == 1]
            names = sorted({each.run.variant for each in first})
            if variant not in names:
                raise UserError(f"study '{study}': {unknown('variant', variant, names)}")
            recorded_runs += [each for each in first if each.run.variant == variant]
        elif reference in store.studies():
            recorded_runs += [each for each in read_study(store, reference) if repeats or each.run.attempt == 1]
        else:
            matched = store.match_paths([reference])
            recorded_runs += [each for paths in matched if (each := record_of(paths, in_store=store.holds(paths)))]
    return list({each.run.path: each for each in recorded_runs}.values())


def _spell_out(store: Store, reference: str) -> str:
    """Return STUDY:VARIANT for the bare name of a variant: for a script, `run1` means `run1.seed7`.

    The id of a run takes precedence. Raises if several studies have the variant: their runs may not be comparable.
    """
    studies: dict[str, None] = {}
    for study, entry in store.directories():
        parts = parts_of_run_id(entry.name)
        if reference in (entry.name, study):
            return reference
        if parts and parts[0] == reference:
            studies[study] = None
    if len(studies) > 1:
        raise UserError(
            f"{len(studies)} studies have a variant '{reference}': {', '.join(list(studies)[:MOST_NAMED])}",
            hint="Name one as STUDY:VARIANT.",
        )
    return next((f"{study}:{reference}" for study in studies), reference)


def _from_runs(query: MetricQuery, arms: Mapping[str, Sequence[Recorded]], plan: Mapping[str, Any] | None) -> RunSet:
    runs = [each.run for arm in arms.values() for each in arm]
    damaged = {run.name: run.reason or "" for run in runs if run.status is Status.DAMAGED}
    if runs and len(damaged) == len(runs):
        name, reason = next(iter(damaged.items()))
        raise DamagedRun(f"all {len(runs)} runs are damaged: {name}: {reason}", hint=HINT)
    arms = {name: [each for each in arm if not _is_nobodys(each.run)] for name, arm in arms.items()}
    runs = [each.run for arm in arms.values() for each in arm]
    metrics, stated = _metrics(runs, query, plan)
    directions = {metric: settle_direction(metric, runs, plan, stated=stated.get(metric)) for metric in metrics}
    if query.fallback and directions[metrics[0]].better is None:
        directions[metrics[0]] = Direction(metrics[0], checked(query.fallback), "recorded")
    points = _points(arms)
    drawn = curve_metric(metrics[0], points)  # another metric if the judged one has one value per run
    read = [*metrics, *_covariates(query, plan), *([] if drawn is None else [drawn])]
    traces = {name: read_traces(each, read) for name, each in arms.items()}
    curves = sorted(name for name, count in points.items() if count > 1)
    return RunSet(traces, directions, damaged=damaged, curves=curves)


def _points(arms: Mapping[str, Sequence[Recorded]]) -> Counter[str]:
    """Return for each metric the largest number of values that a run has of it."""
    points: Counter[str] = Counter()
    for each in (each for arm in arms.values() for each in arm):
        for name, (steps, _) in each.series.items():
            points[name] = max(points[name], len(steps))
    return points


def _covariates(query: MetricQuery, plan: Mapping[str, Any] | None) -> list[str]:
    """Return the requested covariate, or the planned one, without checking whether it can be used."""
    covariate = query.covariate or covariate_metric((plan or {}).get("adjust"))
    return [covariate] if covariate else []


def _is_nobodys(run: Run) -> bool:
    """Return whether neither the files nor the directory of a damaged run identify its variant and seed."""
    return run.status is Status.DAMAGED and parts_of_run_id(run.path.name) is None


def _metrics(
    runs: Sequence[Run], query: MetricQuery, plan: Mapping[str, Any] | None
) -> tuple[list[str], dict[str, str]]:
    """Return the requested metrics and the directions that were stated with them."""
    logged = sorted({name for run in runs for name in run.final})
    given, stated = query.among(logged)
    given = given or ([plan["metric"]] if plan and plan.get("metric") else [])
    if given:
        refuse_not_logged(given, logged)
        return given, stated or ({given[0]: query.direction} if query.direction else {})
    ended = next((run for run in runs if run.final), None)
    default = _default_metric(ended, curve=query.curve) if ended else None
    if default is None:
        raise UserError("none of these runs has logged a metric yet", hint="List the runs: fairtrial runs list")
    return [default], {default: query.direction} if query.direction else {}


def refuse_not_logged(given: Sequence[str], logged: Sequence[str]) -> None:
    """Raise if a metric was not logged, and list the logged ones; never use another metric in its place."""
    problems = [unknown("metric", name, logged) for name in given if logged and name not in logged]
    if problems:
        raise UserError(problems[0], problems=problems[1:], hint=f"Logged: {', '.join(logged)}.")


def _default_metric(run: Run, *, curve: bool) -> str | None:
    along = run.metadata.best_metric_name
    return along if curve and along in run.final else headline(run.metadata.metric, run.final)


def from_pairs(store: Store, pairs: Sequence[Mapping[str, Any]], query: MetricQuery) -> RunSet:
    """Return runs that the user paired: each pair names a control run, a candidate run and optionally a seed."""
    problems = [
        f"pair {i}: takes 'control', 'candidate', optionally 'seed', and nothing else"
        for i, pair in enumerate(pairs, 1)
        if not (isinstance(pair, Mapping) and {"control", "candidate"} <= set(pair) <= {"control", "candidate", "seed"})
    ]
    problems = problems or [
        f"pair {i}: seed {why}" for i, pair in enumerate(pairs, 1) if (why := refuse_shape(pair.get("seed", i)))
    ]
    if problems or not pairs:
        messages = problems or ["--pairs names no pair"]
        raise UserError(
            messages[0], problems=messages[1:], hint='Example: {"control": RUN, "candidate": RUN, "seed": 1}.'
        )
    sides = {side: [_one(store, str(pair[side])) for pair in pairs] for side in ("control", "candidate")}
    runs = [each.run for side in sides.values() for each in side]
    if len({run.path for run in runs}) < len(runs):
        raise UserError("a run occurs in more than one pair")
    run_set = _from_runs(query, sides, None)
    labels = _pair_labels(pairs, sides)
    arms = {
        name: [replace(trace, seed=label) for trace, label in zip(traces, labels, strict=True)]
        for name, traces in run_set.arms.items()
    }
    studies = sorted({run.study for run in runs})
    return replace(run_set, arms=arms, studies=studies, source="pairs", paired_by_hand=True)


def _one(store: Store, reference: str) -> Recorded:
    """Return the single run that a reference in a pair names."""
    if _spell_out(store, reference) == reference:
        return Recorded(*with_series(store.find(reference)))
    recorded_runs = _resolve(store, [reference])
    if len(recorded_runs) != 1:
        names = ", ".join(each.run.name for each in recorded_runs[:MOST_NAMED])
        raise UserError(f"'{reference}' names {len(recorded_runs)} runs: {names} …", hint="Name one as STUDY/RUN.")
    return recorded_runs[0]


def _pair_labels(pairs: Sequence[Mapping[str, Any]], sides: Mapping[str, Sequence[Recorded]]) -> list[str]:
    labels = []
    for number, (pair, first, second) in enumerate(zip(pairs, *sides.values(), strict=True), 1):
        seeds = first.run.seed, second.run.seed
        shared = seeds[0] if seeds[0] == seeds[1] else f"pair {number}"
        labels.append(seed_text(pair.get("seed", shared)))
    return labels if len(set(labels)) == len(labels) else [f"pair {n}" for n in range(1, len(labels) + 1)]


def choose_arms(run_set: RunSet, control: str | None, candidates: Sequence[str]) -> tuple[RunSet, str]:
    """Keep the control (named, or the first arm) and the named candidates, or all other arms. Returns the control too.

    Arms without a scored run are dropped if others remain.
    """
    names = list(run_set.arms)
    problems = [unknown("variant", name, names) for name in (control, *candidates) if name and name not in names]
    if problems:
        raise UserError(problems[0], problems=problems[1:])
    first = control or names[0]
    if first in candidates:
        raise UserError(f"'{first}' is the control; it cannot be the candidate too")
    others = list(candidates) or [name for name in names if name != first]
    scored = [name for name in others if any(is_scored(trace) for trace in run_set.arms[name])]
    chosen = [first, *(scored or others)]
    if len(chosen) < 2 and "variant" in run_set.lacking:
        guess = f", such as {run_set.free_columns[0]}" if run_set.free_columns else ""
        raise UserError(
            f"{run_set.source} has no variant column, so there is nothing to compare",
            hint=f"Name the column{guess}, with --variant-column.",
        )
    if len(chosen) < 2:
        raise UserError(
            f"{run_set.source} has one variant, {first}; a comparison needs two",
            hint="To measure the noise of one variant, use: fairtrial variance",
        )
    arms = {name: run_set.arms[name] for name in dict.fromkeys(chosen)}
    return replace(run_set, arms=arms), first


def files_of(source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """Return the given file or files as a list of paths."""
    given = [source] if isinstance(source, str | os.PathLike) else list(source)
    if not given:
        raise UserError("no result file was given")
    return [Path(each) for each in given]


def from_file(paths: Sequence[Path], columns: Columns, query: MetricQuery) -> RunSet:
    """Return the runs in files of another tool; variants are in order of first appearance."""
    return from_source(open_runs(paths, columns), query)


def from_source(table: RunSource, query: MetricQuery) -> RunSet:
    """Return the runs of a source that a reader has already opened."""
    metrics, stated = _file_metrics(table, query)
    if query.covariate is not None and not table.known(query.covariate):
        raise UserError(f"{table.label}: {unknown('metric', query.covariate, table.metrics())}")
    traces = table.traces(list(dict.fromkeys([*metrics, *([query.covariate] if query.covariate else [])])))
    if not traces:
        raise UserError(f"{table.label} has no values of {metrics[0]}")
    arms: dict[str, list[Trace]] = {}
    for trace in traces:
        arms.setdefault(trace.variant, []).append(trace)
    directions = {metric: settle(metric, stated=stated.get(metric)) for metric in metrics}
    return RunSet(arms, directions, source=table.label, lacking=table.lacking, free_columns=table.text_columns())


def only_variants(run_set: RunSet, names: Sequence[str]) -> RunSet:
    """Keep the named variants of a file, or all of them if none is named."""
    problems = [
        f"{run_set.source}: {unknown('variant', name, run_set.arms)}" for name in names if name not in run_set.arms
    ]
    if problems:
        raise UserError(problems[0], problems=problems[1:])
    return replace(run_set, arms={name: run_set.arms[name] for name in names}) if names else run_set


def _file_metrics(table: RunSource, query: MetricQuery) -> tuple[list[str], dict[str, str]]:
    known = table.metrics()
    names, stated = query.among(known)
    missing = [name for name in names if not table.known(name)]
    if not known and (missing or not names):
        raise _no_metrics(table)
    if missing:
        problems = [f"{table.label}: {unknown('metric', name, known)}" for name in missing]
        raise UserError(problems[0], problems=problems[1:])
    if names:
        return names, stated
    if len(known) > 1:
        shown = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
        message = f"{table.label} {_has(table)} {len(known)} possible metrics: {shown}"
        raise UserError(message, hint="Choose with --metric.")
    return known, {known[0]: query.direction} if query.direction else {}


def _no_metrics(table: RunSource) -> UserError:
    if isinstance(table, Table) and not table.looks_like_a_table:
        return UserError(
            f"no reader recognizes {table.label}, and as a table it has no columns of numbers",
            hint=f"Installed readers: {', '.join(plugin_names(READERS))}.",
        )
    why = table.why_none()
    message = f"{table.label} {_has(table)} no numeric column" + (f" ({why})" if why else "")
    return UserError(message, hint="Choose with --metric.")


def _has(table: RunSource) -> str:
    return "have" if ", " in table.label else "has"


def since(run_set: RunSet, created: float) -> RunSet:
    """Keep only runs that started at this time or later."""
    arms = {
        name: [trace for trace in traces if trace.facts.get("created", created) >= created]
        for name, traces in run_set.arms.items()
    }
    return replace(run_set, arms=arms, planned={})


def damage_cautions(run_set: RunSet) -> list[FilledCaution]:
    """Return a caution that names the damaged runs and why: no run may be left out without notice."""
    if not run_set.damaged:
        return []
    messages = [f"{name} ({reason})" for name, reason in sorted(run_set.damaged.items())]
    more = f" and {len(messages) - MOST_NAMED} more" if len(messages) > MOST_NAMED else ""
    return [DAMAGED_RUNS.fill(count=len(messages), runs="; ".join(messages[:MOST_NAMED]) + more)]


def is_scored(trace: Trace) -> bool:
    """Return whether a run is an outcome, that is, it ended by itself. Other runs are run again, not scored."""
    return is_outcome(trace.status)
