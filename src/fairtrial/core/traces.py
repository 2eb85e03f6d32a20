"""A run as input of an analysis: its identity, status and curves, from a store or from another tool's file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairtrial.core.runs import Status
from fairtrial.core.specs import split_and_quantity

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Curve = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Trace:
    """One run. `curves` maps a metric to its steps and values; `facts` (options, versions …) are for fairness checks.

    `seed` is None if the source does not state it; such runs cannot be paired.
    """

    run: str
    variant: str
    seed: str | None
    curves: Mapping[str, Curve]
    status: Status = Status.COMPLETED
    reason: str | None = None
    task: str | None = None
    study: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def attempt(self) -> int:
        """1, or more for a repeat with the same seed."""
        return int(self.facts.get("attempt", 1))

    def stream_seed(self, name: str) -> int | None:
        """Return the seed of a random stream: the run's seed, unless the stream has its own."""
        given = (self.facts.get("options") or {}).get("stream_seed") or {}
        return given.get(name, self.facts.get("seed"))

    @property
    def streams(self) -> frozenset[str] | None:
        """The random streams that the run used; None if they were not recorded."""
        streams = self.facts.get("streams")
        return frozenset(streams) if streams else None


def curve_metric(metric: str, points: Mapping[str, int]) -> str | None:
    """Return the metric whose learning curve to show for a judged metric; None if no metric was logged twice.

    `points` has the number of logged values by metric. The result is the judged metric itself; if that has one value
    per run, as on report data, the same quantity on eval data, then on training data; else the metric with the most
    values, the first by name.
    """
    quantity = split_and_quantity(metric)[1]
    for name in (metric, f"eval_{quantity}", f"train_{quantity}"):
        if points.get(name, 0) > 1:
            return name
    most = max(sorted(points), key=lambda name: points[name], default=None)
    return most if most is not None and points[most] > 1 else None
