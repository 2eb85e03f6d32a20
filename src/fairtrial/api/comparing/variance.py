"""variance: measure the noise of one variant, its sources, and how many seeds are enough."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairtrial.api.comparing.context import constant_metrics
from fairtrial.api.comparing.gather import (
    MetricQuery,
    RunSet,
    damage_cautions,
    files_of,
    from_file,
    from_runs,
    is_scored,
    only_variants,
)
from fairtrial.api.comparing.numbers import RunScores, number_runs
from fairtrial.api.running.recording import recorded
from fairtrial.core.cautions import LOOKED_AT, SYNTHETIC
from fairtrial.core.directions import Direction
from fairtrial.core.errors import StoreError, UserError
from fairtrial.core.findings import FilledCaution
from fairtrial.core.readers import Columns
from fairtrial.core.results import Result
from fairtrial.core.runs import Status
from fairtrial.core.specs import confirmation_seeds
from fairtrial.core.traces import Trace
from fairtrial.record.interim_looks import read_interim_looks
from fairtrial.record.store import Store, open_store
from fairtrial.record.studies import load_plan
from fairtrial.stats.components import Repeats, same_seed_noise
from fairtrial.stats.summaries import SummaryRule
from fairtrial.stats.variance import Spread, spread

THRESHOLD = 0.05
MOST_LISTED = 50
"""Largest number of seeds that a suggested command lists explicitly."""


@dataclass(frozen=True, repr=False)
class Variance(Result):
    """The noise of one variant, by summary: `auc` and `derivative`, or `last` if each run has a single value."""

    metric: str
    variant: str
    threshold: float
    relative: bool
    spreads: Mapping[str, Spread]
    left_out: Sequence[Mapping[str, str | None]]
    cautions: Sequence[FilledCaution] = ()
    command: str | None = None
    direction: Direction | None = None
    """The direction of the metric if it is known. Noise has no direction, so an unknown one is not an error."""
    same_seed: Mapping[str, Repeats] | None = None
    """By summary: the variance between repeats with the same seed, and between seeds. None without repeats."""
    looked_at: bool = False
    """Whether more seeds are needed after an interim look. `command` then launches a new study with fresh seeds."""

    @property
    def n(self) -> int:
        return max(each.n for each in self.spreads.values())

    @property
    def n_min(self) -> int | None:
        """Seeds needed by the main summary: the area under the curve, or the single values."""
        return next(iter(self.spreads.values())).n_min

    def to_dict(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "direction": self.direction.better if self.direction else None,
            "direction_source": self.direction.source if self.direction else None,
            "variant": self.variant,
            "threshold": self.threshold,
            "relative": self.relative,
            "n": self.n,
            **{name: each.to_dict() for name, each in self.spreads.items()},
            "same_seed": {name: each.to_dict() for name, each in self.same_seed.items()} if self.same_seed else None,
            "left_out": list(self.left_out),
            "cautions": list(self.cautions),
            "command": self.command,
            "looked_at": self.looked_at,
        }


@recorded("variance")
def variance(
    runs: str | Sequence[str] = (),
    *,
    metric: str | None = None,
    threshold: float | None = None,
    threshold_abs: float | None = None,
    level: float = 0.95,
    window: SummaryRule | None = None,
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    columns: Columns | None = None,
    variant: str | None = None,
    seed: int = 0,
    store: str | os.PathLike[str] | None = None,
) -> Variance:
    """Compute how many seeds bring the half-width of the mean's interval to the threshold, for area and slope.

    >>> fairtrial.variance(["demo:base"]).variant
    'base'
    """
    if threshold is not None and threshold_abs is not None:
        raise UserError("--threshold and --threshold-abs cannot be combined; pass one of them")
    relative = threshold_abs is None
    limit = (THRESHOLD if threshold is None else threshold) if threshold_abs is None else threshold_abs
    references = [runs] if isinstance(runs, str) else list(runs)
    query = MetricQuery([metric] if metric else [], curve=True, repeats=True)
    place = open_store(store)
    every = _gather(references, source, columns or Columns(), variant, query, place)
    [name] = every.arms
    run_set = replace(every, arms={name: _first_attempts(every.arms[name])})
    [task] = {trace.task for trace in run_set.arms[name]}
    spreads, repeats, main_scores = {}, {}, RunScores()
    left_out: list[Mapping[str, str | None]] = [
        {"run": trace.run, "seed": trace.seed, "reason": f"{trace.status}; not scored{_because(trace)}"}
        for trace in run_set.arms[name]
        if not is_scored(trace)
    ]
    for kind, rule in summary_rules(run_set, window).items():
        scores, _ = number_runs(run_set, run_set.metric, run_set.direction_for(rule), rule.check(), task)
        main_scores = main_scores or scores
        values = [n.value for n in scores[name].values() if n.value is not None]
        left_out += [
            {"run": f"{name}, seed {label}", "seed": label, "reason": f"{kind}: {n.reason}"}
            for label, n in scores[name].items()
            if n.value is None
        ]
        result = spread(np.array(values), threshold=limit, relative=relative, level=level, rng=seed)
        spreads[kind] = _without_answer(result) if kind == "derivative" and not relative else result
        if parts := _repeats(every, name, rule, level):
            repeats[kind] = parts
    main = next(iter(spreads.values()))
    plan = plan_of(place, run_set.studies)
    direction = run_set.directions[run_set.metric]
    cautions = [*_synthetic(run_set), *damage_cautions(run_set), *constant_metrics(run_set, main_scores)]
    looked_at = bool(main.missing) and _is_looked_at(place, run_set.studies, name)
    if looked_at:
        cautions.append(LOOKED_AT.fill(study=run_set.studies[0]))
    command = None
    if plan and main.n_min is not None and main.missing:
        command = _fresh_command(plan, main.n_min) if looked_at else launch_command(plan, main.n_min)
    return Variance(
        run_set.metric,
        name,
        limit,
        relative,
        spreads,
        left_out,
        cautions,
        command,
        direction,
        repeats or None,
        looked_at,
    )


def _synthetic(run_set: RunSet) -> list[FilledCaution]:
    """Return the caution that the runs are synthetic, once, if they say so."""
    recorded = [
        each for traces in run_set.arms.values() for trace in traces for each in trace.facts.get("cautions", ())
    ]
    return [each for each in recorded if each["code"] == SYNTHETIC.code][:1]


def summary_rules(run_set: RunSet, window: SummaryRule | None) -> dict[str, SummaryRule]:
    """Return the rules for area and slope, or for the last value if no run has more than one."""
    base = window or SummaryRule()
    if all(len(t.curves.get(run_set.metric, ((),))[0]) < 2 for arm in run_set.arms.values() for t in arm):
        return {"last": replace(base, type="last")}
    return {"auc": replace(base, type="auc"), "derivative": replace(base, type="slope")}


def _first_attempts(traces: Sequence[Trace]) -> list[Trace]:
    """Keep one run per seed: repeats with the same seed do not add seeds."""
    first: dict[str, Trace] = {}
    for trace in sorted(traces, key=lambda trace: trace.attempt):
        first.setdefault(trace.run if trace.seed is None else trace.seed, trace)
    kept = {id(trace) for trace in first.values()}
    return [trace for trace in traces if trace.attempt == 1 or id(trace) in kept]


def _repeats(every: RunSet, name: str, rule: SummaryRule, level: float) -> Repeats | None:
    """Return the noise of repeats for one summary; None if no seed has two completed runs."""
    traces = [trace for trace in every.arms[name] if trace.status is Status.COMPLETED]
    if all(trace.attempt == 1 for trace in traces):
        return None
    # Scores are keyed by seed. Drop the seeds, so that repeats are keyed by run name instead.
    unseeded = replace(every, arms={name: [replace(trace, seed=None) for trace in traces]})
    scores, _ = number_runs(unseeded, every.metric, every.direction_for(rule), rule)
    groups: dict[str | None, list[Trace]] = {}
    for trace in traces:
        if scores[name][trace.run].value is not None:
            groups.setdefault(trace.seed, []).append(trace)
    repeats = same_seed_noise([[scores[name][trace.run].number for trace in group] for group in groups.values()], level)
    if repeats is None or not repeats.identical:
        return repeats
    curves = [[trace.curves[every.metric] for trace in group] for group in groups.values()]
    alike = all(
        np.array_equal(a, b) for group in curves for each in group[1:] for a, b in zip(group[0], each, strict=True)
    )
    return replace(repeats, identical=alike)


def plan_of(store: Store, studies: Sequence[str]) -> Mapping[str, Any] | None:
    """Return the stored plan of a single study, for the command that adds seeds; None if it is damaged."""
    with contextlib.suppress(StoreError):
        return load_plan(store, studies[0]) if len(studies) == 1 else None
    return None


def _because(trace: Trace) -> str:
    return f" ({trace.reason})" if trace.status is Status.DAMAGED and trace.reason else ""


def _without_answer(spread: Spread) -> Spread:
    """Remove the seed count: a threshold in the unit of the metric does not apply to its slope."""
    reason = "an absolute threshold has the unit of the metric, not of its slope"
    return replace(spread, n_min=None, n_range=(None, None), curve=(), reason=reason)


def _is_looked_at(store: Store, studies: Sequence[str], variant: str) -> bool:
    """Return whether an interim look showed a difference of this variant of the study."""
    return len(studies) == 1 and any(variant in row["seeds"] for row in read_interim_looks(store, studies[0]))


def _fresh_command(plan: Mapping[str, Any], seeds: int) -> str | None:
    """Return the command that launches the same study on unused seeds; None if there are too many to list."""
    if seeds > MOST_LISTED:
        return None
    used = {int(seed) for seed in plan["seeds"]}
    fresh = ",".join(map(str, confirmation_seeds(seeds, used)))
    return launch_command({**plan, "study": f"{plan['study']}-fresh"}, fresh)


def launch_command(plan: Mapping[str, Any], seeds: int | str | None) -> str:
    """Return the command that extends a study to `seeds`, a number or a list; finished cells are kept."""
    words = ["fairtrial", "launch", str(plan["recipe"]), "--base-run-name", str(plan["study"])]
    for name, values in plan["variants"].items():
        words += ["--variant", f"{name}:" + ",".join(f"{key}={_word(value)}" for key, value in values.items())]
    for key, value in plan["options"].items():
        flag = "--" + key.replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        elif isinstance(value, Mapping):
            words += [word for name, each in value.items() for word in (flag, f"{name}={each}")]
        else:
            words += [flag, str(value)]
    return shlex.join([*words, "--seeds", str(seeds)])


def _word(value: Any) -> str:
    """Format the value of an option for --variant on the command line."""
    return "+".join(f"{name}={each}" for name, each in value.items()) if isinstance(value, Mapping) else str(value)


def _gather(
    references: Sequence[str], source: Any, columns: Columns, variant: str | None, query: MetricQuery, store: Store
) -> RunSet:
    if source is not None:
        if references:
            raise UserError("runs and --from cannot be combined")
        run_set = only_variants(from_file(files_of(source), columns, query), [variant] if variant else [])
        return _one_variant(run_set, hint="Choose one with --variant.")
    if variant is not None:
        raise UserError("--variant applies to --from; name a variant of a study as STUDY:VARIANT")
    if not references:
        raise UserError("no runs given", hint="Name runs, a glob such as 'demo/none.*', or STUDY:VARIANT.")
    run_set = from_runs(store, {"runs": references}, query)
    traces = run_set.arms["runs"]
    names = list(by_variant(traces))
    if len(names) > 1:
        _refuse_unlike(traces, names)
    variants = list(dict.fromkeys(name.partition("/")[2] for name in names))
    label = variants[0] if len(variants) == 1 else f"{variants[0]} … {variants[-1]}"
    return replace(run_set, arms={label: traces})


def _refuse_unlike(traces: Sequence[Trace], names: Sequence[str]) -> None:
    """Raise unless runs with different names differ only in their seed: scripts may name every run differently."""
    shown = f"{', '.join(names[:4])}{' …' if len(names) > 4 else ''}"
    settings = [{key: trace.facts.get(key) for key in ("recipe", "recipe_file", "options")} for trace in traces]
    if any(each != settings[0] for each in settings):
        raise UserError(
            f"these runs belong to {len(names)} variants with different settings ({shown}); variance takes one variant",
            hint=f"For example: fairtrial variance '{names[0].replace('/', ':', 1)}'",
        )
    first = [trace.seed for trace in traces if trace.attempt == 1]
    repeated = [seed for seed, count in Counter(first).items() if count > 1]
    if repeated:
        raise UserError(
            f"these runs have {len(names)} names ({shown}), but several of them have seed {repeated[0]}; variance "
            "needs different seeds",
            hint="Name the runs of one variant, or give each run its own seed.",
        )


def by_variant(traces: Sequence[Trace]) -> dict[str, list[Trace]]:
    """Group runs by STUDY/VARIANT, in order of first appearance."""
    variants: dict[str, list[Trace]] = {}
    for trace in traces:
        variants.setdefault(trace.run.rpartition(".seed")[0], []).append(trace)
    return variants


def _one_variant(run_set: RunSet, hint: str) -> RunSet:
    tasks = {trace.task for traces in run_set.arms.values() for trace in traces}
    if len(run_set.arms) > 1 or len(tasks) > 1:
        what = f"variants ({', '.join(run_set.arms)})" if len(run_set.arms) > 1 else "tasks"
        count = len(run_set.arms) if len(run_set.arms) > 1 else len(tasks)
        raise UserError(f"{run_set.source} has {count} {what}; variance takes one", hint=hint)
    return run_set
