"""variance --by-stream: find the random stream that causes the noise.

The runs come from an ordinary study in which some variants fix the seed of single streams (`stream_seed`). The streams
that a variant varies follow from what its runs recorded, not from its name.
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
from fairtrial.core.results import Result
from fairtrial.core.traces import Trace
from fairtrial.record.store import Store, open_store
from fairtrial.stats.components import StreamRanking, rank_streams
from fairtrial.stats.samples import Array
from fairtrial.stats.summaries import SummaryRule

SEEDS = 5
HELD = 0
"""The fixed stream seed in the suggested command."""
NO_STREAMS = "these runs did not record their random streams, so no stream can be varied alone"


@dataclass(frozen=True, repr=False)
class ByStream(Result):
    """The variation of runs when one random stream follows the run seed and the others are fixed."""

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
    """Rank random streams by their noise, from variants that differ only in the streams they fix.

    >>> fairtrial.variance_by_stream(["streams"])  # doctest: +SKIP
    """
    if not 0.5 < level < 1:
        raise InvalidOptions(f"level must lie between 0.5 and 1, not {level!r}")
    references = [runs] if isinstance(runs, str) else list(runs)
    if not references:
        raise UserError("no runs given", hint="Name a study whose variants fix streams with stream_seed.")
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
    """Return the streams that follow the run seed in the runs of a variant."""
    if any(trace.streams is None for trace in traces):
        raise UserError(
            NO_STREAMS, hint="Use a recipe that draws from named streams; an external program does not record them."
        )
    used = frozenset[str]().union(*(trace.streams or () for trace in traces))
    return tuple(sorted(name for name in used if all(trace.stream_seed(name) == _seed(trace) for trace in traces)))


def _seed(trace: Trace) -> Any:
    return trace.facts.get("seed")


def _whole(traces: Sequence[Trace]) -> tuple[str, ...]:
    return tuple(sorted(frozenset[str]().union(*(trace.streams or () for trace in traces))))


def _refuse_other_differences(run_set: RunSet) -> None:
    """Raise if variants differ in more than their streams: the difference could not be attributed to a stream."""
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
    """Raise if all streams vary together in every variant. The hint is a command that varies them one by one."""
    whole = {name for name, streams in varied.items() if streams == _whole(run_set.arms[name])}
    if len(whole) < len(varied):
        return
    [*_, streams] = varied.values()
    message = f"these runs vary all their random streams at once ({', '.join(streams)})"
    if len(streams) < 2:
        raise UserError(f"these runs use only one random stream ({', '.join(streams) or 'none'})")
    plan = plan_of(store, run_set.studies)
    if plan is None:
        raise UserError(message, hint="Launch variants that fix streams, such as --variant order:stream_seed=init=0.")
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
            raise UserError(f"{name} fixes every random stream, so all its runs are identical", hint="Omit it.")
        if streams in alone or (together and together[0] == streams):
            raise UserError(
                f"two variants vary {' and '.join(streams)}; {name} is one of them", hint="Name only one of them."
            )
        if streams == _whole(run_set.arms[name]):
            together = streams, samples[name]
        else:
            alone[streams] = samples[name]
    return rank_streams(alone, together, level)
