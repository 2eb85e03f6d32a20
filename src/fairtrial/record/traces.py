"""Conversion of recorded runs to traces for an analysis: their curves, and the facts for the fairness checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fairtrial.core.runs import Run, Status
from fairtrial.core.traces import Trace
from fairtrial.record.study_cache import Recorded

_MACHINE = ("python", "platform", "cpu", "gpu")
_PROCESSOR = ("cpu", "cpu_model", "cpu_features", "torch_instruction_set")


def read_traces(recorded: Iterable[Recorded], metrics: Sequence[str]) -> list[Trace]:
    """Return one trace per run with the curves of those metrics that it logged."""
    return [_trace(each, metrics) for each in recorded]


def _trace(recorded: Recorded, metrics: Sequence[str]) -> Trace:
    run, series = recorded.run, recorded.series
    return Trace(
        run=run.name,
        variant=run.variant,
        seed=str(run.seed),
        curves={name: series[name] for name in metrics if name in series},
        status=run.status,
        reason=run.reason,
        study=run.study,
        facts=_facts(run) if run.status is not Status.DAMAGED else {"created": run.metadata.timings.created},
    )


def _facts(run: Run) -> dict[str, Any]:
    metadata = run.metadata
    environment, resources, timings = metadata.environment, metadata.resources, metadata.timings
    return {
        "recipe": metadata.recipe,
        "recipe_file": metadata.recipe_file,
        "options": metadata.identity,
        "data": metadata.data_sha256,
        "commit": environment.git_commit,
        "changes": environment.git_dirty_hash or ("none" if environment.git_commit else None),
        "versions": environment.versions or {},
        "machine": {name: environment.get(name) for name in _MACHINE},
        "processor": {name: environment.get(name) for name in _PROCESSOR},
        "resources": resources,
        "parameters": resources.parameters,
        "flops_per_step": resources.flops_per_step,
        "streams": metadata.lineage.streams,
        "seed": run.seed,
        "final": run.final,
        "attempt": run.attempt,
        "variant": run.variant,
        "cautions": metadata.cautions,
        "created": timings.created,
        "wall_s": timings.wall_s,
    }
