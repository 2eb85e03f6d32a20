"""A run as an analysis sees it: who it was, how it ended, and its curves. From a store or from anyone's file."""

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
    """`curves` maps a metric to its steps and values. `facts` is what fairness is judged by: options, versions …

    `seed` is None where the source does not say; such runs cannot be paired.
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
        """The seed that a random stream was drawn from: the run's own, unless that stream was given another one."""
        given = (self.facts.get("options") or {}).get("stream_seed") or {}
        return given.get(name, self.facts.get("seed"))

    @property
    def streams(self) -> frozenset[str] | None:
        """The random streams that the run asked for; None where nobody recorded them."""
        streams = self.facts.get("streams")
        return frozenset(streams) if streams else None


def curve_metric(metric: str, points: Mapping[str, int]) -> str | None:
    """The metric whose learning curve shows how a judged metric came about; None where nothing was logged twice.

    `points` has the number of logged values by metric. It is the judged metric itself; where that has one value per
    run, as on report data, the same quantity on eval data; else what was logged most often, the first of equals.
    """
    for name in (metric, f"eval_{split_and_quantity(metric)[1]}"):
        if points.get(name, 0) > 1:
            return name
    most = max(sorted(points), key=lambda name: points[name], default=None)
    return most if most is not None and points[most] > 1 else None
