"""A run as an analysis sees it: who it was, how it ended, and its curves. From a store or from anyone's file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairtrial.core.runs import Status

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
