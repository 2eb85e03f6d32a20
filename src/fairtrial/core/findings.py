"""What an analysis found: frozen values that keep their evidence.

A finding that could not be made has no value and a `reason`, never a number that looks sure. Unbounded limits
are infinite here and `null` in JSON. `str()` of a finding is one sentence for people.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
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
    RELIABILITY = "reliability"
    METHOD_NEEDS_MORE = "method needs more runs"
    CENSORED = "censored"
    DISAGREE = "ranks and restricted means disagree"
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
    assurance: float | None
    """Null: planned for the mean power over what the noise may be, not for an upper bound of it."""
    basis: str

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Reliability:
    """How many runs of each arm were lost (diverged, failed, not finite, too short), and what that says.

    `worse`: the candidate loses significantly more. `capped`: it loses more, so that it can be neither better, nor
    equivalent, nor not worse. `upper_…` is the largest failure rate that the losses of an arm still allow.
    """

    lost_control: int
    runs_control: int
    lost_candidate: int
    runs_candidate: int
    difference: Estimate
    p_value: float | None
    method: str
    worse: bool
    capped: bool
    upper_control: float | None
    upper_candidate: float | None
    how: str = "were lost"
    """What became of the lost runs: `diverged`, where all of them did."""

    @property
    def any(self) -> bool:
        return bool(self.lost_control or self.lost_candidate)

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "difference": self.difference.to_dict()}


@dataclass(frozen=True)
class RobustEstimates:
    """The same difference by estimates that single runs move less than they move the mean.

    `disagrees` is the way in which one of them contradicts the mean, `sign` or `significance`; None: in no way, or
    `reason` says why it is not known.
    """

    hodges_lehmann: Estimate | None
    trimmed: Estimate | None
    disagrees: str | None = None
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {name: _plain(value) for name, value in vars(self).items()}


@dataclass(frozen=True)
class Sensitivity:
    """Robust estimates that are computed when they are first read: simulations never ask for them."""

    compute: Callable[[], RobustEstimates] = field(repr=False)

    @cached_property
    def estimates(self) -> RobustEstimates:
        return self.compute()

    def to_dict(self) -> dict[str, Any]:
        return self.estimates.to_dict()


@dataclass(frozen=True)
class Target:
    """The fixed value that one arm is held against. The arm's losses are here, because a target has none.

    `known_sd`: the standard deviation of runs, known from elsewhere; None: it is estimated from these runs.
    `upper_loss_rate`: the largest failure rate that the losses still allow, at 1 − α.
    """

    value: float
    known_sd: float | None
    lost: int
    runs: int
    upper_loss_rate: float | None = None
    failure_value: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class CovariateAdjustment:
    """A paired difference adjusted for a covariate from before the change.

    `planned`: the study file or the registration says so, and the headline is the adjusted difference; otherwise this
    is exploratory and the headline is the plain one. `plain` is the difference without it, `effect` the one with it.
    `centre` is the value of the covariate at which the difference is read off.
    """

    covariate: str
    planned: bool
    n: int
    slope: float
    correlation: float
    centre: float
    effect: Estimate
    equivalence: Estimate
    p_value: float
    verdict: Verdict
    plain: Estimate
    plain_p_value: float | None
    plain_verdict: Verdict

    def to_dict(self) -> dict[str, Any]:
        return {name: _plain(value) for name, value in vars(self).items()}


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
    reliability: Reliability | None = None
    failure_value: float | None = None
    """The number that the person chose for lost runs; None: they have none, and reliability is judged."""
    bootstrap: Estimate | None = None
    """The interval of a bootstrap next to the headline, which is that of another method."""
    tests: Mapping[str, Any] = field(default_factory=dict)
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    streams: str = "unknown"
    label: str | None = None
    metric: str | None = None
    target: Target | None = None
    """Where this is one arm against a fixed value: `control` names the value, and `n_control` is 0."""
    covariate: CovariateAdjustment | None = None
    sensitivity: Sensitivity | None = field(default=None, compare=False)
    cautions: Sequence[FilledCaution] = ()

    @property
    def gain(self) -> float | None:
        """The difference, signed so that positive is good."""
        value = self.effect.value
        return None if value is None else value if self.direction == "max" else -value

    @property
    def percent_change(self) -> float | None:
        """The difference as a percentage of the control's mean; None where a ratio of the means says nothing."""
        control, candidate, value = self.mean_control, self.mean_candidate, self.effect.value
        if control is None or candidate is None or value is None or control * candidate <= 0:
            return None
        return 100 * value / abs(control)

    def __str__(self) -> str:
        from fairtrial.core.verdict_text import verdict_sentence

        return verdict_sentence(self)

    def to_dict(self) -> dict[str, Any]:
        return {**{name: _plain(value) for name, value in vars(self).items()}, "percent_change": self.percent_change}


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return list(value) if isinstance(value, tuple) else value
