"""Results of an analysis: frozen values that keep their evidence.

A result that could not be computed has no value and a `reason`, never a number that looks certain. Unbounded limits
are infinite here and `null` in JSON. `str()` of a result is one readable sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from fairtrial.core.results import Result

FilledCaution = Mapping[str, str]


class Verdict(StrEnum):
    """What a comparison concludes about the candidate.

    >>> fairtrial.compare(
    ...     [0.81, 0.80, 0.83, 0.79], [0.85, 0.83, 0.88, 0.84], paired=True).verdict is fairtrial.Verdict.BETTER
    True
    """

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


@dataclass(frozen=True, repr=False)
class Estimate(Result):
    """A value and its confidence interval. `samples` are the underlying numbers; missing limits have a reason.

    >>> estimate = fairtrial.compare([0.81, 0.80, 0.83, 0.79], [0.85, 0.83, 0.88, 0.84], paired=True).effect
    >>> estimate.n
    4
    """

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
        """The interval as it is written in JSON documents."""
        return None if self.low is None or self.high is None else [self.low, self.high]

    def negated(self) -> Estimate:
        """Return the same estimate with control and candidate swapped."""
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
    """How many runs per arm would settle an inconclusive comparison, and the basis of that number."""

    per_arm: int | None
    more: int | None
    effect: float
    power: float
    assurance: float | None
    """None: planned for the mean power over the possible noise levels, not for an upper bound of the noise."""
    basis: str

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Reliability:
    """How many runs of each arm were lost (diverged, failed, not finite, too short), and the test of the difference.

    `worse`: the candidate loses significantly more runs. `capped`: it loses more, so the verdict can be neither better
    nor equivalent nor not worse. `upper_…` is the upper confidence bound of an arm's failure rate.
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
    """How the runs were lost: `diverged` if all of them diverged."""

    @property
    def any(self) -> bool:
        return bool(self.lost_control or self.lost_candidate)

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "difference": self.difference.to_dict()}


@dataclass(frozen=True)
class RobustEstimates:
    """Estimates of the same difference that are less sensitive to single runs than the mean.

    `disagrees` states how one of them contradicts the mean, `sign` or `significance`. None means that none does, or
    that it is unknown for the given `reason`.
    """

    hodges_lehmann: Estimate | None
    trimmed: Estimate | None
    disagrees: str | None = None
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {name: _plain(value) for name, value in vars(self).items()}


@dataclass(frozen=True)
class Sensitivity:
    """Robust estimates, computed on first access, because simulations never need them."""

    compute: Callable[[], RobustEstimates] = field(repr=False)

    @cached_property
    def estimates(self) -> RobustEstimates:
        return self.compute()

    def to_dict(self) -> dict[str, Any]:
        return self.estimates.to_dict()


@dataclass(frozen=True)
class Target:
    """The fixed value that one arm is compared with. The arm's lost runs are counted here; a target has none.

    `known_sd`: the standard deviation of runs, known from another source; None: it is estimated from these runs.
    `upper_loss_rate`: the upper confidence bound of the failure rate, at level 1 − α.
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
    """A paired difference adjusted for a covariate that was measured before the change.

    `planned`: the study file or the registration specifies the adjustment, and the headline is the adjusted difference;
    otherwise it is exploratory and the headline is the unadjusted one. `plain` is the unadjusted difference, `effect`
    the adjusted one. `centre` is the value of the covariate at which the difference is evaluated.
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


@dataclass(frozen=True, repr=False)
class Comparison(Result):
    """Candidate against control. `effect` is candidate − control in the metric's own unit.

    `direction` states which sign is better; verdicts, one-sided tests and the probability of superiority respect it.
    `effect` has the interval at level 1 − α, `equivalence` the same difference at level 1 − 2α.

    >>> print(fairtrial.compare([0.81, 0.80, 0.83, 0.79], [0.85, 0.83, 0.88, 0.84], paired=True).effect)
    0.0425 [0.02727, 0.05773] at 0.95, paired t, n = 4
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
    """The value that the user chose for lost runs; None: lost runs have no value, and reliability is judged."""
    bootstrap: Estimate | None = None
    """A bootstrap interval shown next to the headline, which comes from another method."""
    tests: Mapping[str, Any] = field(default_factory=dict)
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    streams: str = "unknown"
    label: str | None = None
    metric: str | None = None
    target: Target | None = None
    """Set if one arm is compared with a fixed value: `control` then names the value, and `n_control` is 0."""
    covariate: CovariateAdjustment | None = None
    sensitivity: Sensitivity | None = field(default=None, compare=False)
    cautions: Sequence[FilledCaution] = ()

    @property
    def gain(self) -> float | None:
        """The difference, signed so that positive is better."""
        value = self.effect.value
        return None if value is None else value if self.direction == "max" else -value

    @property
    def percent_change(self) -> float | None:
        """The difference as a percentage of the control's mean; None if a ratio of the means is not meaningful."""
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
