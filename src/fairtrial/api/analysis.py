"""What is asked of runs, what an analysis gives back, and whether that meets what was required."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairtrial.analyse.certificate import Certificate
from fairtrial.analyse.compare import RESAMPLES
from fairtrial.analyse.fairness import Fairness
from fairtrial.analyse.summaries import SummaryRule
from fairtrial.api.gather import Wanted
from fairtrial.core.errors import CheckFailed, InvalidOptions
from fairtrial.core.findings import Comparison, Estimate, FilledCaution, Verdict
from fairtrial.core.sentences import family_sentence
from fairtrial.core.traces import Trace

REQUIREMENTS = ("better", "not-worse", "equivalent")


@dataclass(frozen=True)
class Question:
    """What is asked of the runs. None: as the study says, or the default."""

    metrics: Sequence[str] = ()
    direction: str | None = None
    summary: SummaryRule | None = None
    alpha: float | None = None
    side: str = "two-sided"
    sesoi: float | None = None
    method: str = "t"
    resamples: int = RESAMPLES
    unpaired: bool = False
    family: str | None = None
    certify: bool = False
    tasks: bool = False
    statistic: str | None = None
    power: bool = False
    ttest: bool = False
    since: str | None = None
    seed: int = 0

    @property
    def wanted(self) -> Wanted:
        return Wanted(self.metrics, self.direction)


@dataclass(frozen=True)
class ArmAccount:
    """One arm: how many runs were planned, started, completed and used, and why the others were not."""

    variant: str
    planned: int
    started: int
    completed: int
    used: int
    mean: float | None
    sd: float | None
    values: Mapping[str, float | None]
    left_out: Sequence[Mapping[str, str | None]]

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "values": dict(self.values), "left_out": list(self.left_out)}


@dataclass(frozen=True)
class Analysis:
    """Verdicts first; then what they rest on."""

    source: str
    metric: str
    direction: str
    summary: Mapping[str, Any]
    control: str
    arms: Sequence[ArmAccount]
    comparisons: Sequence[Comparison]
    fairness: Mapping[str, Fairness] = field(default_factory=dict)
    secondary: Sequence[Comparison] = ()
    certificate: Certificate | None = None
    tasks: Mapping[str, Any] | None = None
    power: Mapping[str, Any] | None = None
    cautions: Sequence[FilledCaution] = ()
    curves: Mapping[str, Sequence[Trace]] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.headline

    @property
    def headline(self) -> str:
        """The verdict in one sentence, also for a family."""
        return str(self.comparisons[0]) if len(self.comparisons) == 1 else family_sentence(self.comparisons)

    def to_dict(self) -> dict[str, Any]:
        first = self.comparisons[0]
        return {
            "source": self.source,
            "verdict": first.verdict.value if len(self.comparisons) == 1 else None,
            "sentence": self.headline,
            "sentences": [str(comparison) for comparison in self.comparisons],
            "metric": self.metric,
            "direction": self.direction,
            "summary": dict(self.summary),
            "control": self.control,
            "arms": [arm.to_dict() for arm in self.arms],
            "comparisons": [comparison.to_dict() for comparison in self.comparisons],
            "secondary": [comparison.to_dict() for comparison in self.secondary],
            "fairness": {name: each.to_dict() for name, each in self.fairness.items()},
            "certificate": self.certificate.to_dict() if self.certificate else None,
            "tasks": self.tasks,
            "power": self.power,
            "cautions": list(self.cautions),
        }


def require(analysis: Analysis, wanted: str) -> None:
    """Raise unless every comparison has the verdict that is required."""
    if wanted not in REQUIREMENTS:
        raise InvalidOptions(f"--require takes {', '.join(REQUIREMENTS)}, not '{wanted}'")
    accepted = {
        "better": {Verdict.BETTER},
        "not-worse": {Verdict.BETTER, Verdict.EQUIVALENT},
        "equivalent": {Verdict.EQUIVALENT},
    }[wanted]
    failed = [
        found for found in analysis.comparisons if found.verdict not in accepted and not _is_not_worse(found, wanted)
    ]
    if failed:
        told = ", ".join(f"{found.candidate} is {found.verdict}" for found in failed)
        raise CheckFailed(f"required '{wanted}', but {told}")


def _is_not_worse(found: Comparison, wanted: str) -> bool:
    """Not worse by as much as matters: the interval lies above −SESOI."""
    effect: Estimate = found.effect
    if wanted != "not-worse" or found.sesoi is None or effect.low is None or effect.high is None:
        return False
    lowest = effect.low if found.direction == "max" else -effect.high
    return lowest > -found.sesoi and found.reason != "attrition"
