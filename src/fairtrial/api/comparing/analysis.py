"""The question of an analysis, its result, and the check of a required verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairtrial.api.comparing.gather import MetricQuery
from fairtrial.core.deprecation import renamed_attribute
from fairtrial.core.errors import CheckFailed, InvalidOptions
from fairtrial.core.findings import Comparison, FilledCaution, Verdict
from fairtrial.core.formatting import counted
from fairtrial.core.results import Result
from fairtrial.core.specs import covariate_metric
from fairtrial.core.traces import Trace
from fairtrial.core.verdict_text import family_sentence
from fairtrial.record.interim_looks import Asked, InterimLook, Seeds
from fairtrial.research.deviations import Deviation
from fairtrial.stats.certificate import Certificate
from fairtrial.stats.fairness import Fairness
from fairtrial.stats.summaries import SummaryRule

REQUIREMENTS = ("better", "not-worse", "equivalent")


@dataclass(frozen=True)
class Question:
    """The question to answer with the runs. None means the value from the study, or the default.

    >>> fairtrial.analyze("demo", question=fairtrial.Question(metrics=["eval_accuracy"], alpha=0.01)).metric
    'eval_accuracy'
    """

    metrics: Sequence[str] = ()
    direction: str | None = None
    summary: SummaryRule | None = None
    alpha: float | None = None
    side: str = "two-sided"
    sesoi: float | None = None
    method: str | None = None
    resamples: int | None = None
    unpaired: bool = False
    family: str | None = None
    certify: bool = False
    tasks: bool = False
    statistic: str | None = None
    gamma: float | None = None
    """The target score of an optimality gap. None means 1, or 100 for normalized scores."""
    power: bool = False
    ttest: bool = False
    since: str | None = None
    seed: int = 0
    failure_value: float | None = None
    """The score to assign to a lost run. None means no score; reliability is judged instead."""
    target: float | None = None
    """A fixed value to compare each arm with, in place of a control."""
    known_sd: float | None = None
    """With a target: the standard deviation of runs, if it is known in advance."""
    adjust: str | None = None
    """A covariate measured before the change: a metric (its first value), or `variant:NAME`, a baseline arm."""
    planned_adjust: str | None = None
    """The covariate from the study file or the registration. Only this one affects the verdict."""

    wanted = renamed_attribute("wanted", "metric_query")

    @property
    def metric_query(self) -> MetricQuery:
        return MetricQuery(self.metrics, self.direction, covariate=covariate_metric(self.adjust or self.planned_adjust))

    def asked(self, metric: str, summary: str) -> Asked:
        """Return what an interim look records about the question: the request, not what it became for these runs."""
        method = (self.method or "t") + (", unpaired" if self.unpaired else "")
        return Asked(metric, method, self.side, summary)


@dataclass(frozen=True)
class ArmAccount:
    """The runs of one arm: numbers planned, started, completed and used, and why the others were left out."""

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
class Followed:
    """The registration that an analysis followed, the deviations from it, and what was not checked."""

    registration: str
    path: str
    late: bool
    deviations: Sequence[Deviation]
    unchecked: Sequence[str] = ()

    @property
    def sentence(self) -> str:
        if self.late:
            return f"exploratory: its registration {self.registration[:12]} came after runs had begun"
        count = len(self.deviations)
        message = f", with {counted(count, 'deviation')}" if count else ""
        return f"as registered in {self.registration[:12]}{message}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "registration": self.registration,
            "path": self.path,
            "late": self.late,
            "sentence": self.sentence,
            "deviations": [each.to_dict() for each in self.deviations],
            "unchecked": list(self.unchecked),
        }


@dataclass(frozen=True)
class ComparisonsOnView:
    """What an analysis shows to its reader: a question, and per study the seeds of every comparison."""

    asked: Asked
    seeds: Mapping[str, Sequence[Seeds]]
    """Study → the seeds of each comparison, in the order of the analysis; empty if it has no run of the study."""
    secondary: bool = False
    """Whether these are secondary metrics. Their looks are recorded, but earlier looks do not label their verdicts."""

    def looks_at(self, study: str) -> list[InterimLook]:
        return [InterimLook(self.asked, seeds) for seeds in self.seeds.get(study, ()) if seeds]


@dataclass(frozen=True, repr=False)
class Analysis(Result):
    """The result of an analysis: the verdicts and the data behind them.

    >>> fairtrial.analyze("demo").metric
    'report_accuracy'
    """

    source: str
    metric: str
    direction: str
    """`max` or `min`. `direction_source` is where it comes from: stated, recorded, recipe or name."""
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
    plan: Followed | None = None
    exploratory: Analysis | None = None
    """Results for questions beyond the plan, if a registration was followed."""
    direction_source: str | None = None
    curves: Mapping[str, Sequence[Trace]] = field(default_factory=dict, repr=False)
    resampling_seed: int = 0
    on_view: Sequence[ComparisonsOnView] = field(default=(), repr=False)
    """What to record as an interim look once the analysis is shown."""

    @property
    def headline(self) -> str:
        """The verdict in one sentence, for one comparison or a family."""
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
            "direction_source": self.direction_source,
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
            "plan": self.plan.to_dict() if self.plan else None,
            "exploratory": self.exploratory.to_dict() if self.exploratory else None,
        }


def unmet(analysis: Analysis, requirement: str) -> str | None:
    """Return one sentence on why a required verdict was not met; None if it was met."""
    if requirement not in REQUIREMENTS:
        raise InvalidOptions(f"a requirement must be one of {', '.join(REQUIREMENTS)}, not '{requirement}'")
    accepted: Mapping[str, Callable[[Comparison], bool]] = {
        "better": lambda comparison: comparison.verdict is Verdict.BETTER,
        "not-worse": lambda comparison: (
            bool(comparison.not_worse) or comparison.verdict in (Verdict.BETTER, Verdict.EQUIVALENT)
        ),
        "equivalent": lambda comparison: comparison.verdict is Verdict.EQUIVALENT,
    }
    failed = [comparison for comparison in analysis.comparisons if not accepted[requirement](comparison)]
    message = ", ".join(f"{comparison.candidate} is {comparison.verdict}" for comparison in failed)
    return f"required '{requirement}', but {message}" if failed else None


def require(analysis: Analysis, requirement: str) -> None:
    """Raise `CheckFailed` unless every comparison has the required verdict."""
    missed = unmet(analysis, requirement)
    if missed:
        raise CheckFailed(missed)
