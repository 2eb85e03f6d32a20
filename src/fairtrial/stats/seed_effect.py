"""Detect seeds that have no effect: a metric that is the same in all runs of a variant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fairtrial.core.cautions import SAME_OVER_SEEDS
from fairtrial.core.directions import direction_by_name, varies_by_itself
from fairtrial.core.findings import FilledCaution
from fairtrial.stats.samples import Array, is_still


def seed_effect_cautions(
    variant: str,
    metric: str,
    values: Iterable[float],
    *,
    finals: Sequence[Mapping[str, Any]] = (),
    curves: Sequence[Array] = (),
) -> list[FilledCaution]:
    """Return a caution if at least two runs of a variant have a value and all values are equal.

    There is no caution if something else shows that the seed has an effect: the curve of the metric, or the final
    value of another quality metric. The metric is then a count, or at its optimum in all runs.
    """
    sample = np.fromiter(values, dtype=float)
    known = sample[np.isfinite(sample)]
    if len(known) < 2 or not is_still(known, float(np.abs(known).max())):
        return []
    if _differ(curves) or any(_varies(name, finals) for name in _others(finals, metric)):
        return []
    return [SAME_OVER_SEEDS.fill(variant=variant, metric=metric)]


def _differ(curves: Sequence[Array]) -> bool:
    """Return whether the curves of a metric differ, over the length that all of them have."""
    shared = min(map(len, curves), default=0)
    return any(not np.array_equal(curve[:shared], curves[0][:shared], equal_nan=True) for curve in curves)


def _others(finals: Sequence[Mapping[str, Any]], metric: str) -> list[str]:
    """Return the other quality metrics that every run has; timings vary without any effect of the seed."""
    shared = sorted(set.intersection(*map(set, finals))) if finals else []
    return [name for name in shared if name != metric and direction_by_name(name) and not varies_by_itself(name)]


def _varies(name: str, finals: Sequence[Mapping[str, Any]]) -> bool:
    return len({str(final[name]) for final in finals}) > 1
