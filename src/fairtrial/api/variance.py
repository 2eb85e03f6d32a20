"""variance: how noisy is one variant, and how many seeds are enough?"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fairtrial.analyse.summaries import SummaryRule
from fairtrial.analyse.variance import Spread, spread
from fairtrial.api.gather import Gathered, Wanted, from_file, from_runs
from fairtrial.api.numbers import number_runs
from fairtrial.core.errors import UserError
from fairtrial.core.paths import default_store
from fairtrial.record.store import Store
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
    study: str | None = None

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
            "variant": self.variant,
            "threshold": self.threshold,
            "relative": self.relative,
            "n": self.n,
            **{name: each.to_dict() for name, each in self.spreads.items()},
            "left_out": list(self.left_out),
        }


def variance(
    runs: str | Sequence[str] = (),
    *,
    metric: str | None = None,
    threshold: float | None = None,
    threshold_abs: float | None = None,
    level: float = 0.95,
    window: SummaryRule | None = None,
    source: str | os.PathLike[str] | None = None,
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
    gathered = _gather(references, source, columns or Columns(), variant, wanted, Store(default_store(store)))
    [name] = gathered.arms
    base = window or SummaryRule()
    rules = {"auc": replace(base, type="auc"), "derivative": replace(base, type="slope")}
    if all(len(t.curves.get(gathered.metric, ((),))[0]) < 2 for t in gathered.arms[name]):
        rules = {"last": replace(base, type="last")}  # one value per run: there is no curve
    spreads, left_out = {}, []
    for kind, rule in rules.items():
        numbers, _ = number_runs(gathered, gathered.metric, gathered.direction, rule.check())
        values = [n.value for n in numbers[name].values() if n.value is not None]
        left_out += [
            {"run": f"{name}, seed {label}", "seed": label, "reason": f"{kind}: {n.reason}"}
            for label, n in numbers[name].items() if n.value is None
        ]  # fmt: skip
        spreads[kind] = spread(np.array(values), threshold=limit, relative=relative, level=level, rng=seed)
    study = gathered.studies[0] if len(gathered.studies) == 1 else None
    return Variance(gathered.metric, name, limit, relative, spreads, left_out, study)


def _gather(
    references: Sequence[str], source: Any, columns: Columns, variant: str | None, wanted: Wanted, store: Store
) -> Gathered:
    if source is not None:
        if references:
            raise UserError("runs and --from cannot be combined")
        gathered = from_file(Path(source), columns, wanted, [variant] if variant else [])
        return _one_variant(gathered, hint="Choose one with --variant.")
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
        what = f"variants ({', '.join(list(gathered.arms)[:4])})" if len(gathered.arms) > 1 else "tasks"
        count = len(gathered.arms) if len(gathered.arms) > 1 else len(tasks)
        raise UserError(f"{gathered.source} has {count} {what}; noise is that of one", hint=hint)
    return gathered
