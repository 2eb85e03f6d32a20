"""Collect the points of a run while a source is read, within limits, and drop points that a restart repeats."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from fairtrial.core.errors import UserError
from fairtrial.readers.contract import MetricSeries

MOST_METRICS = 5_000
MOST_POINTS = 20_000_000
"""The maximum number of points of one run. Their arrays take half a gigabyte."""
LONGEST_METRIC = 1_000
MOST_STEP = 2**63 - 1


class _Points:
    __slots__ = ("fractional", "steps", "times", "values")

    def __init__(self) -> None:
        self.steps = array("q")
        self.values = array("d")
        self.times = array("d")
        self.fractional: array[float] | None = None
        """All steps as floats, once a step that is not an integer was added; None before."""


class PointCollector:
    """Points by metric, in the order in which they are added. `where` names the source in error messages."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.rewinds = 0
        self._metrics: dict[str, _Points] = {}
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._metrics)

    def add(self, metric: str, step: float, value: float, time: float = math.nan) -> None:
        points = self._metrics.get(metric)
        if points is None:
            points = self._new(metric)
        self._count += 1
        if self._count > MOST_POINTS:
            raise UserError(f"{self.where} has more than {MOST_POINTS:,} points in one run")
        if points.fractional is not None:
            points.fractional.append(step)
        elif isinstance(step, int) and -MOST_STEP <= step <= MOST_STEP:
            points.steps.append(step)
        elif step == step and abs(step) <= MOST_STEP and step == int(step):
            points.steps.append(int(step))
        else:
            points.fractional = array("d", points.steps)
            points.fractional.append(step)
        points.values.append(value)
        points.times.append(time)

    def rewind(self, metric: str, step: float) -> int:
        """Drop the points of a metric from a step on, which a restart logs again. Return how many were dropped."""
        points = self._metrics.get(metric)
        if points is None:
            return 0
        steps = points.steps if points.fractional is None else points.fractional
        kept = len(steps)
        while kept and steps[kept - 1] >= step:
            kept -= 1
        dropped = len(steps) - kept
        del steps[kept:], points.values[kept:], points.times[kept:]
        self._count -= dropped
        return dropped

    def last_step(self, metric: str) -> float | None:
        points = self._metrics.get(metric)
        if points is None:
            return None
        steps = points.steps if points.fractional is None else points.fractional
        return steps[-1] if steps else None

    def series(self) -> dict[str, MetricSeries]:
        """Return the collected series; metrics without remaining points are omitted."""
        return {name: _series(points) for name, points in self._metrics.items() if points.values}

    def _new(self, metric: str) -> _Points:
        if len(self._metrics) >= MOST_METRICS:
            raise UserError(f"{self.where} has more than {MOST_METRICS:,} metrics in one run")
        if len(metric) > LONGEST_METRIC:
            raise UserError(f"{self.where} has a metric whose name is longer than {LONGEST_METRIC:,} characters")
        return self._metrics.setdefault(metric, _Points())


def _series(points: _Points) -> MetricSeries:
    steps: npt.NDArray[np.int64] | npt.NDArray[np.float64]
    if points.fractional is None:
        steps = np.frombuffer(points.steps, dtype=np.int64)
    else:
        steps = np.frombuffer(points.fractional, dtype=np.float64)
    times = np.frombuffer(points.times, dtype=np.float64)
    known = None if np.isnan(times).all() else times
    return MetricSeries(steps, np.frombuffer(points.values, dtype=np.float64), known)


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun: `1 run`, `3 runs`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def total_points(series: Mapping[str, MetricSeries]) -> int:
    return sum(len(each) for each in series.values())
