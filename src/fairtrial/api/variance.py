"""variance: how noisy is one variant, and how many seeds are enough?"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairtrial.analyse.summaries import SummaryRule
from fairtrial.analyse.variance import Spread, spread
from fairtrial.api.gather import Gathered, Wanted, damage_cautions, files_of, from_file, from_runs, is_scored
from fairtrial.api.numbers import number_runs
from fairtrial.core.directions import Direction
from fairtrial.core.errors import StoreError, UserError, unknown
from fairtrial.core.findings import FilledCaution
from fairtrial.core.runs import Status
from fairtrial.core.traces import Trace
from fairtrial.record.store import Store, open_store
from fairtrial.record.studies import load_plan
from fairtrial.record.tables import Columns

THRESHOLD = 0.05


@dataclass(frozen=True)
class Variance:
    """The noise of one variant in its area and in its slope. `last` where runs have a single value each."""

    metric: str
    variant: str
    threshold: float
    relative: bool
    spreads: Mapping[str, Spread]
    left_out: Sequence[Mapping[str, str | None]]
    cautions: Sequence[FilledCaution] = ()
    command: str | None = None
    direction: Direction | None = None
    """Which way is good, as far as anything says it: noise has no direction, so nothing is refused here."""

    @property
    def n(self) -> int:
        return max(each.n for each in self.spreads.values())

    @property
    def n_min(self) -> int | None:
        """What the main summary needs: the area under the curve, or the values themselves."""
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
            "left_out": list(self.left_out),
            "cautions": list(self.cautions),
            "command": self.command,
        }


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
    """How many seeds bring the half-width of a mean to the threshold, for the area and the slope of a metric."""
    if threshold is not None and threshold_abs is not None:
        raise UserError("--threshold and --threshold-abs are two ways to say it; give one")
    relative = threshold_abs is None
    limit = (THRESHOLD if threshold is None else threshold) if threshold_abs is None else threshold_abs
    references = [runs] if isinstance(runs, str) else list(runs)
    wanted = Wanted([metric] if metric else [], curve=True)
    place = open_store(store)
    gathered = _gather(references, source, columns or Columns(), variant, wanted, place)
    [name] = gathered.arms
    base = window or SummaryRule()
    rules = {"auc": replace(base, type="auc"), "derivative": replace(base, type="slope")}
    if all(len(t.curves.get(gathered.metric, ((),))[0]) < 2 for t in gathered.arms[name]):
        rules = {"last": replace(base, type="last")}  # one value per run: there is no curve
    spreads = {}
    left_out: list[Mapping[str, str | None]] = [
        {"run": trace.run, "seed": trace.seed, "reason": f"{trace.status}; not scored{_because(trace)}"}
        for trace in gathered.arms[name] if not is_scored(trace)
    ]  # fmt: skip
    for kind, rule in rules.items():
        numbers, _ = number_runs(gathered, gathered.metric, gathered.direction_for(rule.type), rule.check())
        values = [n.value for n in numbers[name].values() if n.value is not None]
        left_out += [
            {"run": f"{name}, seed {label}", "seed": label, "reason": f"{kind}: {n.reason}"}
            for label, n in numbers[name].items() if n.value is None
        ]  # fmt: skip
        found = spread(np.array(values), threshold=limit, relative=relative, level=level, rng=seed)
        spreads[kind] = _without_answer(found) if kind == "derivative" and not relative else found
    main = next(iter(spreads.values()))
    plan = _plan(place, gathered.studies)
    command = launch_command(plan, main.n_min) if plan and main.missing else None
    direction = gathered.directions[gathered.metric]
    cautions = damage_cautions(gathered)
    return Variance(gathered.metric, name, limit, relative, spreads, left_out, cautions, command, direction)


def _plan(store: Store, studies: Sequence[str]) -> Mapping[str, Any] | None:
    """What the study was launched as, for the command that adds seeds; a damaged plan is no reason to say nothing."""
    with contextlib.suppress(StoreError):
        return load_plan(store, studies[0]) if len(studies) == 1 else None
    return None


def _because(trace: Trace) -> str:
    return f" ({trace.reason})" if trace.status is Status.DAMAGED and trace.reason else ""


def _without_answer(found: Spread) -> Spread:
    """A threshold in the metric's unit says nothing about its change per step."""
    reason = "an absolute threshold has the unit of the metric, not of its slope"
    return replace(found, n_min=None, n_range=(None, None), curve=(), reason=reason)


def launch_command(plan: Mapping[str, Any], seeds: int | None) -> str:
    """The launch that brings a study to this many seeds; finished cells are kept."""
    words = ["fairtrial", "launch", str(plan["recipe"]), "--base-run-name", str(plan["study"])]
    for name, values in plan["variants"].items():
        words += ["--variant", f"{name}:" + ",".join(f"{key}={value}" for key, value in values.items())]
    for key, value in plan["options"].items():
        flag = "--" + key.replace("_", "-")
        words += [flag if value else flag.replace("--", "--no-", 1)] if isinstance(value, bool) else [flag, str(value)]
    return shlex.join([*words, "--seeds", str(seeds)])


def _gather(
    references: Sequence[str], source: Any, columns: Columns, variant: str | None, wanted: Wanted, store: Store
) -> Gathered:
    if source is not None:
        if references:
            raise UserError("runs and --from cannot be combined")
        gathered = from_file(files_of(source), columns, wanted)
        if variant is not None:
            if variant not in gathered.arms:
                raise UserError(f"{gathered.source}: {unknown('variant', variant, gathered.arms)}")
            gathered = replace(gathered, arms={variant: gathered.arms[variant]})
        return _one_variant(gathered, hint="Choose one with --variant.")
    if variant is not None:
        raise UserError("--variant is for --from; a variant of a study is named STUDY:VARIANT")
    if not references:
        raise UserError("no runs given", hint="Name runs, a glob such as 'demo/none.*', or STUDY:VARIANT.")
    gathered = from_runs(store, {"runs": references}, wanted)
    names = list(dict.fromkeys(trace.run.rpartition(".seed")[0] for trace in gathered.arms["runs"]))
    if len(names) > 1:
        first = names[0].replace("/", ":", 1)
        raise UserError(
            f"these runs belong to {len(names)} variants ({', '.join(names[:4])}); noise is that of one",
            hint=f"For example: fairtrial variance '{first}'",
        )
    return replace(gathered, arms={names[0].partition("/")[2]: gathered.arms["runs"]})


def _one_variant(gathered: Gathered, hint: str) -> Gathered:
    tasks = {trace.task for traces in gathered.arms.values() for trace in traces}
    if len(gathered.arms) > 1 or len(tasks) > 1:
        what = f"variants ({', '.join(gathered.arms)})" if len(gathered.arms) > 1 else "tasks"
        count = len(gathered.arms) if len(gathered.arms) > 1 else len(tasks)
        raise UserError(f"{gathered.source} has {count} {what}; noise is that of one", hint=hint)
    return gathered
