"""What an analysis found: frozen values that keep their evidence.

A finding that could not be made has no value and a `reason`, never a number that looks sure. Unbounded limits
are infinite here and `null` in JSON. `str()` of a finding is one sentence for people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

FilledCaution = Mapping[str, str]


class Verdict(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"


class Reason(StrEnum):
    """Why there is no verdict or no interval."""

    TOO_FEW = "too few runs"
    NO_VARIATION = "no variation"
    ATTRITION = "attrition"
    METHOD_NEEDS_MORE = "method needs more runs"
    CENSORED = "censored"
    NOT_COVERED = "interval contains zero"
    ADJUSTED = "not significant in its family"


@dataclass(frozen=True)
class Estimate:
    """A value and its interval. `samples` are the numbers that it rests on; null limits have a reason."""

    value: float | None
    low: float | None
    high: float | None
    level: float
    method: str
    n: int
    unit: str | None = None
    samples: Sequence[float] | None = field(default=None, repr=False)
    reason: str | None = None
    cautions: Sequence[FilledCaution] = ()

    @property
    def limits(self) -> list[float] | None:
        """The interval as documents have it."""
        return None if self.low is None or self.high is None else [self.low, self.high]

    def negated(self) -> Estimate:
        """The same finding seen from the other arm."""
        value, low, high = (None if x is None else -x + 0.0 for x in (self.value, self.high, self.low))
        samples = None if self.samples is None else tuple(-x + 0.0 for x in self.samples)
        return replace(self, value=value, low=low, high=high, samples=samples)

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        if self.value is None:
            return f"unknown: {self.reason}"
        if self.low is None or self.high is None:
            return f"{self.value:.4g}{unit}, without an interval ({self.reason})"
        return (
            f"{self.value:.4g}{unit} [{self.low:.4g}, {self.high:.4g}] at {self.level:.4g}, {self.method}, n = {self.n}"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "level": self.level,
            "method": self.method,
            "n": self.n,
            "unit": self.unit,
            "reason": self.reason,
            **({"samples": list(self.samples)} if self.samples is not None else {}),
            **({"cautions": list(self.cautions)} if self.cautions else {}),
        }


@dataclass(frozen=True)
class SeedsNeeded:
    """How many runs per arm would settle an open question, and on what that number rests."""

    per_arm: int | None
    more: int | None
    effect: float
    power: float
    assurance: float
    basis: str

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Attrition:
    """Runs without a valid number, and whether the verdict stands with each of them set to the worst value seen."""

    control: int
    candidate: int
    worst: float | None
    without: Verdict
    with_worst: Verdict

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Comparison:
    """Candidate against control. `effect` is candidate − control in the metric's own unit.

    `direction` says which sign is good; verdicts, one-sided tests and the probability of superiority honour it.
    `effect` has the interval at 1 − α, `equivalence` the same difference at 1 − 2α.
    """

    control: str
    candidate: str
    pairing: str
    method: str
    side: str
    direction: str
    alpha: float
    sesoi: float | None
    n_control: int
    n_candidate: int
    mean_control: float | None
    mean_candidate: float | None
    sd_control: float | None
    sd_candidate: float | None
    effect: Estimate
    equivalence: Estimate
    p_value: float | None
    verdict: Verdict
    reason: str | None = None
    adjusted_p: float | None = None
    adjustment: str | None = None
    significant: bool | None = None
    equivalent: bool | None = None
    exceeds_sesoi: bool | None = None
    not_worse: bool | None = None
    hedges_g: Estimate | None = None
    d_z: Estimate | None = None
    superiority: Estimate | None = None
    correlation: Estimate | None = None
    detectable: float | None = None
    seeds_needed: SeedsNeeded | None = None
    attrition: Attrition | None = None
    tests: Mapping[str, Any] = field(default_factory=dict)
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    streams: str = "unknown"
    label: str | None = None
    metric: str | None = None
    cautions: Sequence[FilledCaution] = ()

    @property
    def gain(self) -> float | None:
        """The difference, signed so that positive is good."""
        value = self.effect.value
        return None if value is None else value if self.direction == "max" else -value

    def __str__(self) -> str:
        from fairtrial.core.sentences import verdict_sentence

        return verdict_sentence(self)

    def to_dict(self) -> dict[str, Any]:
        return {name: _plain(value) for name, value in vars(self).items()}


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return list(value) if isinstance(value, tuple) else value
