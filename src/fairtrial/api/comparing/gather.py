"""Which runs belong to which arm: from a study, chosen runs, pairs, or a file from elsewhere."""

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
from fairtrial.record.traces import read_traces
from fairtrial.stats.summaries import SummaryRule

MOST_NAMED = 5


@dataclass(frozen=True)
class RunSet:
    """Arms by name, in the order of the study; `planned` has the seeds that each was meant to have."""

    arms: Mapping[str, Sequence[Trace]]
    directions: Mapping[str, Direction]
    """Metric → which way is good; the first metric is the one that the verdict is about."""
    planned: Mapping[str, Sequence[str]] = field(default_factory=dict)
    plan: Mapping[str, Any] | None = None
    studies: Sequence[str] = ()
    source: str = ""
    repeated: int = 0
    damaged: Mapping[str, str] = field(default_factory=dict)
    """Run → why it is not scored: its files are not what was recorded."""
    paired_by_hand: bool = False
    lacking: Sequence[str] = ()
    """Roles that no column of the file has: `variant`, `step`."""
    free_columns: Sequence[str] = ()
    """Columns of the file without numbers and without a role."""
    removed: Collection[str] = ()
    """Ids of runs that were made, put into the archive of the study, and not made again."""
    baseline: Mapping[str, Sequence[Trace]] = field(default_factory=dict)
    """An arm that is no side of any comparison: differences are adjusted for its values."""

    def missing_seeds(self, name: str) -> list[str]:
        """Planned seeds of a variant that have no run."""
        present = {trace.seed for trace in self.arms[name]}
        return [seed for seed in self.planned_seeds(name) if seed not in present]

    def removed_seeds(self, name: str) -> list[str]:
        """Seeds of a variant whose runs were made and then removed."""
        parts = [parts_of_run_id(each) for each in sorted(self.removed)]
        return [str(seed) for variant, seed, attempt in filter(None, parts) if variant == name and attempt == 1]

    @property
    def metric(self) -> str:
        return next(iter(self.directions))

    @property
    def direction(self) -> Better:
        """Which way is good, or an error: nothing is judged by a metric whose direction is not known."""
        return self.direction_of(self.metric)

    def direction_for(self, rule: SummaryRule) -> Better:
        """The same for one variant by itself: only some summaries ask which way is good."""
        return self.direction if rule.kind.uses_direction else self.directions[self.metric].better or "max"

    @property
    def direction_source(self) -> str | None:
        return self.directions[self.metric].source

    def direction_of(self, metric: str) -> Better:
        first = metric == self.metric
        return self.directions[metric].known(GIVE_FLAG if first else f"Give --metric {metric}:max or {metric}:min.")

    @property
    def direction_cautions(self) -> list[FilledCaution]:
        return [caution for each in self.directions.values() for caution in each.cautions()]

    def planned_seeds(self, arm: str) -> list[str]:
        seen = [trace.seed for trace in self.arms[arm] if trace.seed is not None]
        return list(dict.fromkeys([*self.planned.get(arm, ()), *seen]))


@dataclass(frozen=True)
class MetricQuery:
    """What a person asked for about the metric: names in order of importance, and which way is good.

    A name may carry its own direction, NAME:max or NAME:min; `direction` is about the first.
    """

    metrics: Sequence[str] = ()
    direction: str | None = None
    curve: bool = False
    """Without a name: rather the metric that is logged along the way than the one that is reported at the end."""
    fallback: str | None = None
    """The direction to go by where nothing else says it."""
    covariate: str | None = None
    """A metric that is read too, and judged by nobody."""
    repeats: bool = False
    """Also the repeats of a variant's runs with the same seed, which are not further seeds."""

    def among(self, known: Collection[str]) -> tuple[list[str], dict[str, str]]:
        """The names, and the directions that were stated; a colon that belongs to a logged name is left alone."""
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
    """The variants of a study, by its name or file."""
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
    """The study that a person means by its name or by its file."""
    if reference.endswith((".yaml", ".yml")) and Path(reference).is_file():
        return read_study_file(Path(reference)).study
    known = store.studies()
    if reference not in known:
        hint = f"Store: {store.root}" if known else f"The store {store.root} has no studies yet."
        raise UserError(unknown("study", reference, known) if known else f"no study '{reference}'", hint=hint)
    return reference


def from_runs(store: Store, references: Mapping[str, Sequence[str]], query: MetricQuery) -> RunSet:
    """Chosen runs by arm. A reference is a run's id, path or glob, STUDY:VARIANT, a study, or a variant's bare name."""
    arms = {name: _resolve(store, each, repeats=query.repeats) for name, each in references.items()}
    runs = [each.run for arm in arms.values() for each in arm]
    twice = sorted(path for path, count in Counter(run.path for run in runs).items() if count > 1)
    if twice:
        raise UserError(f"run {twice[0].name} was chosen for both arms or twice")
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
    """STUDY:VARIANT for the bare name of a variant, as scripts name their runs: `run1` means `run1.seed7`.

    A run's own id comes first. A variant that several studies have is refused: their runs need not be comparable.
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
    read = [*metrics, *_covariates(query, plan), *_drawn(metrics[0], arms)]
    traces = {name: read_traces(each, read) for name, each in arms.items()}
    return RunSet(traces, directions, damaged=damaged)


def _drawn(metric: str, arms: Mapping[str, Sequence[Recorded]]) -> list[str]:
    """The metric of the learning curves, which is another one where the judged metric has one value per run."""
    points: Counter[str] = Counter()
    for each in (each for arm in arms.values() for each in arm):
        for name, (steps, _) in each.series.items():
            points[name] = max(points[name], len(steps))
    curve = curve_metric(metric, points)
    return [] if curve is None else [curve]


def _covariates(query: MetricQuery, plan: Mapping[str, Any] | None) -> list[str]:
    """The covariate that is asked for now, or the planned one. Whether it can be used is not decided here."""
    covariate = query.covariate or covariate_metric((plan or {}).get("adjust"))
    return [covariate] if covariate else []


def _is_nobodys(run: Run) -> bool:
    """Whether nothing says which variant and seed a damaged run belongs to: neither its files nor its folder."""
    return run.status is Status.DAMAGED and parts_of_run_id(run.path.name) is None


def _metrics(
    runs: Sequence[Run], query: MetricQuery, plan: Mapping[str, Any] | None
) -> tuple[list[str], dict[str, str]]:
    """The metrics that are asked for, and the directions that were stated with them."""
    logged = sorted({name for run in runs for name in run.final})
    given, stated = query.among(logged)
    given = given or ([plan["metric"]] if plan and plan.get("metric") else [])
    if given:
        refuse_not_logged(given, logged)
        return given, stated or ({given[0]: query.direction} if query.direction else {})
    ended = next((run for run in runs if run.final), None)
    default = _default_metric(ended, curve=query.curve) if ended else None
    if default is None:
        raise UserError("none of these runs has logged a metric yet", hint="Look at them: fairtrial runs list")
    return [default], {default: query.direction} if query.direction else {}


def refuse_not_logged(given: Sequence[str], logged: Sequence[str]) -> None:
    """A metric that no run logged is an error that names those which were; never another one in its place."""
    problems = [unknown("metric", name, logged) for name in given if logged and name not in logged]
    if problems:
        raise UserError(problems[0], problems=problems[1:], hint=f"Logged: {', '.join(logged)}.")


def _default_metric(run: Run, *, curve: bool) -> str | None:
    along = run.metadata.best_metric_name
    return along if curve and along in run.final else headline(run.metadata.metric, run.final)


def from_pairs(store: Store, pairs: Sequence[Mapping[str, Any]], query: MetricQuery) -> RunSet:
    """Pairs made by hand: each names a control run and a candidate run, and perhaps the seed they share."""
    problems = [
        f"pair {i}: takes 'control', 'candidate', perhaps 'seed', and nothing else"
        for i, pair in enumerate(pairs, 1)
        if not (isinstance(pair, Mapping) and {"control", "candidate"} <= set(pair) <= {"control", "candidate", "seed"})
    ]
    problems = problems or [
        f"pair {i}: seed {why}" for i, pair in enumerate(pairs, 1) if (why := refuse_shape(pair.get("seed", i)))
    ]
    if problems or not pairs:
        messages = problems or ["--pairs names no pair"]
        raise UserError(messages[0], problems=messages[1:], hint='Like {"control": RUN, "candidate": RUN, "seed": 1}.')
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
    """The one run of a pair's side."""
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
    """The control (named, or the first arm) and what is set against it: the named candidates, or all other arms.

    Arms without a single outcome say nothing; where others remain they are left aside.
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
            f"{run_set.source} has no column that names the variant, so there is nothing to compare",
            hint=f"Name the column that holds it{guess}, with --variant-column.",
        )
    if len(chosen) < 2:
        raise UserError(
            f"{run_set.source} has one variant, {first}; a comparison needs two",
            hint="How noisy one variant is: fairtrial variance.",
        )
    arms = {name: run_set.arms[name] for name in dict.fromkeys(chosen)}
    return replace(run_set, arms=arms), first


def files_of(source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The files that a person named: one, or several."""
    given = [source] if isinstance(source, str | os.PathLike) else list(source)
    if not given:
        raise UserError("no file was given to read results from")
    return [Path(each) for each in given]


def from_file(paths: Sequence[Path], columns: Columns, query: MetricQuery) -> RunSet:
    """The runs of files that another tool wrote; variants in the order in which they first occur."""
    return from_source(open_runs(paths, columns), query)


def from_source(table: RunSource, query: MetricQuery) -> RunSet:
    """The same for what a reader has opened already."""
    metrics, stated = _file_metrics(table, query)
    if query.covariate is not None and not table.known(query.covariate):
        raise UserError(f"{table.label}: {unknown('metric', query.covariate, table.metrics())}")
    traces = table.traces(list(dict.fromkeys([*metrics, *([query.covariate] if query.covariate else [])])))
    if not traces:
        raise UserError(f"{table.label} has no value of {metrics[0]}")
    arms: dict[str, list[Trace]] = {}
    for trace in traces:
        arms.setdefault(trace.variant, []).append(trace)
    directions = {metric: settle(metric, stated=stated.get(metric)) for metric in metrics}
    return RunSet(arms, directions, source=table.label, lacking=table.lacking, free_columns=table.text_columns())


def only_variants(run_set: RunSet, names: Sequence[str]) -> RunSet:
    """The variants of a file that were chosen by name; all of them where none was."""
    problems = [
        f"{run_set.source}: {unknown('variant', name, run_set.arms)}" for name in names if name not in run_set.arms
    ]
    if problems:
        raise UserError(problems[0], problems=problems[1:])
    return replace(run_set, arms={name: run_set.arms[name] for name in names}) if names else run_set


def _file_metrics(table: RunSource, query: MetricQuery) -> tuple[list[str], dict[str, str]]:
    known = table.metrics()
    names, stated = query.among(known)
    problems = [f"{table.label}: {unknown('metric', name, known)}" for name in names if not table.known(name)]
    if problems:
        raise UserError(problems[0], problems=problems[1:])
    if names:
        return names, stated
    if not known:
        why = table.why_none()
        raise UserError(
            f"{table.label} has no column of numbers" + (f" ({why})" if why else ""), hint="Choose with --metric."
        )
    if len(known) > 1:
        shown = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
        message = f"{table.label} has {len(known)} columns or names that may be metrics: {shown}"
        raise UserError(message, hint="Choose with --metric.")
    return known, {known[0]: query.direction} if query.direction else {}


def since(run_set: RunSet, created: float) -> RunSet:
    """Only runs that were begun at that moment or later."""
    arms = {
        name: [trace for trace in traces if trace.facts.get("created", created) >= created]
        for name, traces in run_set.arms.items()
    }
    return replace(run_set, arms=arms, planned={})


def damage_cautions(run_set: RunSet) -> list[FilledCaution]:
    """Who is damaged, and why: no run goes silently missing from a result."""
    if not run_set.damaged:
        return []
    messages = [f"{name} ({reason})" for name, reason in sorted(run_set.damaged.items())]
    more = f" and {len(messages) - MOST_NAMED} more" if len(messages) > MOST_NAMED else ""
    return [DAMAGED_RUNS.fill(count=len(messages), runs="; ".join(messages[:MOST_NAMED]) + more)]


def is_scored(trace: Trace) -> bool:
    """Whether a run is an outcome: it ended by itself, well or badly. Others are run again, not scored."""
    return is_outcome(trace.status)
