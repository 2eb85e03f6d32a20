"""Settle the metric of a study before a comparison: its direction, its summary rule, and which runs count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fairtrial.core.directions import Direction, settle
from fairtrial.core.options import parse_options
from fairtrial.core.runs import Run, Status
from fairtrial.core.specs import split_and_quantity
from fairtrial.plan.study import Summary
from fairtrial.stats.summaries import SummaryRule


def _quantity(metric: str) -> str:
    """Return the metric without its split: a quantity has the same direction on every split."""
    return split_and_quantity(metric)[1]


def settle_direction(
    metric: str,
    runs: Sequence[Run],
    plan: Mapping[str, Any] | None,
    *,
    stated: str | None = None,
    recipe: str | None = None,
) -> Direction:
    """Determine the direction: as stated now, else from the study, its runs, the recipe, or the metric's name.

    The study's direction takes precedence over that of its runs. The direction of the best checkpoint comes last:
    older versions recorded `max` there for every metric whose direction the user had not stated.
    """
    recorded_by = [run.metadata for run in runs]
    own = next((metadata.metric for metadata in recorded_by if metadata.metric), None)
    judged = (plan or {}).get("metric") or own
    recorded = [
        metadata.direction
        for metadata in recorded_by
        if metadata.direction and metadata.metric and _same(metadata.metric, metric)
    ]
    if stated is None and plan and plan.get("direction") and (judged is None or _same(judged, metric)):
        direction = settle(metric, stated=str(plan["direction"]), recorded=recorded)
        return replace(direction, source="recorded")
    modes = [str(metadata.best_metric_mode) for metadata in recorded_by if metadata.best_metric_name == metric]
    hinted = modes[0] if len(set(modes)) == 1 else None
    return settle(metric, stated=stated, recorded=recorded, recipe=recipe, hinted=hinted)


def _same(one: str, other: str) -> bool:
    return _quantity(one) == _quantity(other)


def is_outcome(status: Status) -> bool:
    """Return whether a run with this status ended by itself: completed, diverged or failed."""
    return status in (Status.COMPLETED, Status.DIVERGED, Status.FAILED)


def rule_of_study(summary: Mapping[str, Any]) -> SummaryRule:
    """Return the summary rule stored with a study. Raises an error that lists the problems if it is invalid."""
    known = parse_options(Summary, summary, where="study.json, summary", noun="key").model_dump()
    if known["window"] is not None:
        first, _, last = str(known["window"]).partition(":")
        known["window"] = (float(first), float(last))
    return SummaryRule(**known)
