"""variance --by-stream: which random stream does the noise come from?

The runs are those of an ordinary study, in which some variants hold streams at a seed of their own (`stream_seed`).
Which streams a variant varies follows from what its runs recorded, not from its name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairtrial.api.comparing.gather import MetricQuery, RunSet, damage_cautions, from_runs
from fairtrial.api.comparing.numbers import number_runs
from fairtrial.api.comparing.variance import by_variant, launch_command, plan_of, summary_rules
from fairtrial.api.running.recording import recorded
from fairtrial.core.canonical import canonical_json
from fairtrial.core.errors import InvalidOptions, UserError
from fairtrial.core.findings import FilledCaution
from fairtrial.core.traces import Trace
from fairtrial.record.store import Store, open_store
from fairtrial.stats.components import StreamRanking, rank_streams
from fairtrial.stats.samples import Array
from fairtrial.stats.summaries import SummaryRule

SEEDS = 5
HELD = 0
"""The seed at which the suggested command holds a stream."""
NO_STREAMS = "these runs do not record which random streams they draw from, so none can be varied alone"


@dataclass(frozen=True)
class ByStream:
    """What runs vary by when one random stream changes with the seed and the others do not."""

    metric: str
    summary: str
    ranking: StreamRanking
    left_out: Sequence[Mapping[str, str | None]]
    cautions: Sequence[FilledCaution] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "summary": self.summary,
            **self.ranking.to_dict(),
            "left_out": list(self.left_out),
            "cautions": list(self.cautions),
        }


@recorded("variance")
def variance_by_stream(
    runs: str | Sequence[str],
    *,
    metric: str | None = None,
    level: float = 0.95,
    window: SummaryRule | None = None,
    store: str | os.PathLike[str] | None = None,
) -> ByStream:
    """Which random stream matters most: runs of variants that differ in nothing but the streams they hold still."""
    if not 0.5 < level < 1:
        raise InvalidOptions(f"level must lie between 0.5 and 1, not {level!r}")
    references = [runs] if isinstance(runs, str) else list(runs)
    if not references:
        raise UserError("no runs given", hint="Name a study whose variants hold streams still (stream_seed).")
    place = open_store(store)
    run_set = from_runs(place, {"runs": references}, MetricQuery([metric] if metric else [], curve=True))
    run_set = replace(run_set, arms=by_variant(run_set.arms["runs"]))
    varied = {name: _varied(traces) for name, traces in run_set.arms.items()}
    _refuse_other_differences(run_set)
    _refuse_all_at_once(run_set, varied, place)
    kind, rule = next(iter(summary_rules(run_set, window).items()))
    scores, _ = number_runs(run_set, run_set.metric, run_set.direction_for(rule), rule.check())
    left_out: list[Mapping[str, str | None]] = [
        {"run": f"{name}, seed {label}", "seed": label, "reason": number.reason}
        for name, arm in scores.items()
        for label, number in arm.items()
        if number.value is None
    ]
    samples = {
        name: np.array([number.value for number in arm.values() if number.value is not None], dtype=float)
        for name, arm in scores.items()
    }
    ranking = _ranked(run_set, varied, samples, level)
    return ByStream(run_set.metric, kind, ranking, left_out, damage_cautions(run_set))


def _varied(traces: Sequence[Trace]) -> tuple[str, ...]:
    """The streams that change with the seed in the runs of a variant."""
    if any(trace.streams is None for trace in traces):
        raise UserError(NO_STREAMS, hint="A recipe that draws from named streams does; a program of its own does not.")
    used = frozenset[str]().union(*(trace.streams or () for trace in traces))
    return tuple(sorted(name for name in used if all(trace.stream_seed(name) == _seed(trace) for trace in traces)))


def _seed(trace: Trace) -> Any:
    return trace.facts.get("seed")


def _whole(traces: Sequence[Trace]) -> tuple[str, ...]:
    return tuple(sorted(frozenset[str]().union(*(trace.streams or () for trace in traces))))


def _refuse_other_differences(run_set: RunSet) -> None:
    """Variants that differ in more than their streams would be compared for the wrong reason."""
    names = list(run_set.arms)
    first = _options(run_set.arms[names[0]][0])
    for name in names:
        for trace in run_set.arms[name]:
            own = _options(trace)
            keys = sorted(key for key in {*own, *first} if _spelled(own.get(key)) != _spelled(first.get(key)))
            if keys:
                raise UserError(
                    f"{names[0]} and {name} differ in more than their random streams: {', '.join(keys)}",
                    hint="Name the variants of one configuration: STUDY:VARIANT …",
                )


def _options(trace: Trace) -> dict[str, Any]:
    recorded = {key: value for key, value in (trace.facts.get("options") or {}).items() if key != "stream_seed"}
    return {"recipe": trace.facts.get("recipe"), "data": trace.facts.get("data"), **recorded}


def _spelled(value: Any) -> bytes:
    return canonical_json(value)


def _refuse_all_at_once(run_set: RunSet, varied: Mapping[str, tuple[str, ...]], store: Store) -> None:
    """Runs in which everything changes with the seed say nothing about single streams; the hint is how to get those."""
    whole = {name for name, streams in varied.items() if streams == _whole(run_set.arms[name])}
    if len(whole) < len(varied):
        return
    [*_, streams] = varied.values()
    message = f"these runs vary all of their random streams at once ({', '.join(streams)})"
    if len(streams) < 2:
        raise UserError(f"these runs draw from one random stream only ({', '.join(streams) or 'none'})")
    plan = plan_of(store, run_set.studies)
    if plan is None:
        raise UserError(
            message, hint="Launch variants that hold streams still, such as --variant order:stream_seed=init=0."
        )
    own = plan["variants"].get(next(iter(run_set.arms)).partition("/")[2], {})
    held = {name: {"stream_seed": {other: HELD for other in streams if other != name}} for name in streams}
    again = {
        **plan,
        "study": f"{plan['study']}-streams",
        "variants": {"all": {}, **held},
        "options": {**plan["options"], **own},
    }
    raise UserError(message, hint=f"Vary them one by one: {launch_command(again, SEEDS)}")


def _ranked(
    run_set: RunSet, varied: Mapping[str, tuple[str, ...]], samples: Mapping[str, Array], level: float
) -> StreamRanking:
    alone: dict[tuple[str, ...], Array] = {}
    together: tuple[tuple[str, ...], Array] | None = None
    for name, streams in varied.items():
        if not streams:
            raise UserError(f"{name} holds every random stream still, so its runs are one run", hint="Leave it out.")
        if streams in alone or (together and together[0] == streams):
            raise UserError(
                f"two variants vary {' and '.join(streams)}; {name} is one of them", hint="Name one of them."
            )
        if streams == _whole(run_set.arms[name]):
            together = streams, samples[name]
        else:
            alone[streams] = samples[name]
    return rank_streams(alone, together, level)
