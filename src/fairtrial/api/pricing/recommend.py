"""recommend: find the best configuration that meets the constraints, with the reasons and the alternatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any

from fairtrial.api.lab.arms import LabConfig, check_terms
from fairtrial.api.pricing.cost_performance import conversion_cautions, estimated, point_row, price_cautions
from fairtrial.api.pricing.points import (
    Points,
    RecordedPoints,
    Source,
    can_be_priced_again,
    gather_points,
    parse_metric,
)
from fairtrial.api.running.recomputing import FROM_SERIES_AND_TIMES, RecomputableVerb
from fairtrial.api.running.recording import recorded, unrecorded
from fairtrial.core.cautions import (
    CHOSEN_OF_MANY,
    INERT_LIMIT,
    NO_CHANCE_KNOWN,
    TIGHT_MEMORY,
    UNSURE_CONSTRAINT,
)
from fairtrial.core.deprecation import renamed_attribute
from fairtrial.core.directions import settle
from fairtrial.core.errors import all_at_once
from fairtrial.core.findings import Estimate, FilledCaution
from fairtrial.core.results import Result
from fairtrial.costs.analysis import CostPerformanceAnalysis
from fairtrial.costs.choice import CARD_MEMORY, LIKELY, Candidate, Constraints, Recommendation
from fairtrial.costs.cost import CostModel
from fairtrial.costs.frontier import OptimizationTarget
from fairtrial.costs.points import Reading
from fairtrial.costs.prices import BUILT_IN, REFERENCE
from fairtrial.costs.recommend import check_objective
from fairtrial.record.store import Store
from fairtrial.stats.diagnostics import one_arm_cautions

ANY = "any"
NEARLY_FULL = 0.9


@dataclass(frozen=True, repr=False)
class Advice(Result):
    """The recommendation, the points that it is based on, and cautions.

    >>> import pathlib
    >>> points = pathlib.Path("points.json")
    >>> _ = points.write_text(
    ...     '[{"name": "small", "hours": 1, "accuracy": 0.8, "memory": 4, "device": "t4"}]')
    >>> fairtrial.recommend(
    ...     fairtrial.Source(configs="points.json"), fairtrial.Constraints(max_cost=0.1), gpu="t4").feasible
    False
    """

    recommendation: Recommendation
    gathered: Points
    level: float
    cautions: Sequence[FilledCaution] = ()

    found = renamed_attribute("found", "recommendation")

    @property
    def feasible(self) -> bool:
        return self.recommendation.chosen is not None

    def estimate(self, reading: Reading) -> Estimate:
        return estimated(reading, self.level)

    def to_dict(self) -> dict[str, Any]:
        recommendation, chosen = self.recommendation, self.recommendation.chosen
        return {
            "source": self.gathered.source,
            "study": self.gathered.study,
            "trained": self.gathered.trained,
            "objective": recommendation.objective,
            "metric": recommendation.judged.metric,
            "direction": recommendation.judged.direction,
            "direction_source": self.gathered.direction_source,
            "constraints": {**recommendation.constraints.given(), "confidence": recommendation.constraints.confidence},
            "prices": recommendation.cost_model.table.source,
            "calibration": None if self.gathered.local is None else self.gathered.local.to_dict(),
            "recommended": None if chosen is None else self._recommended(chosen),
            "expected": None if chosen is None else self._expected(chosen),
            "rationale": recommendation.rationale,
            "binding": [each.to_dict() for each in recommendation.binding],
            "alternatives": [self._row(each) for each in recommendation.alternatives],
            "fits_on": [
                {
                    "card": each.card.name,
                    "hours": each.hours.value,
                    "cost": each.cost.value,
                    "estimated": each.basis is not None,
                }
                for each in recommendation.fits_on
            ],
            "not_told_apart": dict(recommendation.alike),
            "feasible": len(recommendation.feasible),
            "candidates": len(recommendation.candidates),
            "relaxations": [each.to_dict() for each in recommendation.relaxations],
            "joint_relaxation": None if recommendation.joint is None else recommendation.joint.to_dict(),
            "cautions": list(self.cautions),
        }

    def rows(self) -> list[dict[str, Any]]:
        """The recommended configuration and its alternatives."""
        chosen = [point_row(each.priced, self.level) for each in (self.recommendation.chosen,) if each]
        return [*chosen, *(self._row(each) for each in self.recommendation.alternatives)]

    def _recommended(self, chosen: Candidate) -> dict[str, Any]:
        return {**chosen.priced.point.settings, "name": chosen.priced.name, "card": chosen.priced.card.name}

    def _expected(self, chosen: Candidate) -> dict[str, Any]:
        row = point_row(chosen.priced, self.level)
        return {**row, "constraints": [check.to_dict() for check in chosen.checks]}

    def _row(self, candidate: Candidate) -> dict[str, Any]:
        assert self.recommendation.chosen is not None
        chosen, other = self.recommendation.chosen.priced, candidate.priced
        return {
            **point_row(other, self.level),
            "cost_difference": other.cost.value - chosen.cost.value,
            "accuracy_difference": other.quality.value - chosen.quality.value,
        }


@recorded("recommend")
def recommend(
    source: Source | None = None,
    constraints: Constraints | None = None,
    *,
    gpu: str = REFERENCE,
    objective: str = "accuracy",
    terms: LabConfig | None = None,
    today: date | None = None,
) -> Advice:
    """Find the best configuration that meets the constraints on a card, or on any card with `gpu="any"`.

    >>> import pathlib
    >>> points = pathlib.Path("points.json")
    >>> _ = points.write_text(
    ...     '[{"name": "small", "hours": 1, "accuracy": 0.8, "memory": 4, "device": "t4"}]')
    >>> fairtrial.recommend(
    ...     fairtrial.Source(configs="points.json"), fairtrial.Constraints(max_cost=5), gpu="t4").feasible
    True
    """
    terms, today, constraints = terms or LabConfig(), today or date.today(), constraints or Constraints()
    check_terms(terms)
    source, several = source or Source(), gpu.lower() == ANY
    asked = _asked(source)

    def check() -> None:
        known = [partial(check_objective, objective, asked)] if asked else []
        all_at_once(partial(constraints.check, asked), *known)

    gathered = gather_points(source, terms, today, None if several else gpu, check)
    model = CostModel.of(next(iter(gathered.table.cards)) if several else gpu, gathered.table, gathered.local)
    cards = list(gathered.table.cards.values()) if several else [model.card]
    recommendation = CostPerformanceAnalysis(model, gathered.judged).recommend(
        gathered.points, constraints, objective, cards
    )
    return Advice(recommendation, gathered, terms.level, _cautions(recommendation, gathered, today))


def _asked(source: Source) -> OptimizationTarget | None:
    """Return the metric of the request; None if it or its direction is unknown before the points are read."""
    metric, direction = parse_metric(source.metric)
    metric = metric or ("accuracy" if source.configs else None)
    way = None if metric is None else settle(metric, stated=direction).better
    return (
        None if metric is None or way is None else OptimizationTarget(metric, way)
    )  # a study may have recorded the direction


def _cautions(recommendation: Recommendation, gathered: Points, today: date) -> list[FilledCaution]:
    cautions = list(gathered.cautions)
    limit = recommendation.constraints.max_memory
    largest = max(each.priced.card.memory_gb for each in recommendation.candidates)
    if limit is not None and limit > largest:
        cautions.append(INERT_LIMIT.fill(limit=f"{limit:g}", memory=f"{largest:g}"))
    shown = [each.priced for each in (recommendation.chosen, *recommendation.alternatives) if each]
    shown += [each.candidate.priced for each in recommendation.relaxations if each.candidate]
    if recommendation.joint is not None and (recommendation.chosen is None or len(recommendation.joint.changes) > 1):
        shown.append(recommendation.joint.candidate.priced)
    cautions += [*price_cautions([*shown, *recommendation.fits_on], gathered.table, today), *conversion_cautions(shown)]
    if recommendation.chosen is not None:
        cautions += _of_choice(recommendation, recommendation.chosen)
    return cautions


def _of_choice(recommendation: Recommendation, chosen: Candidate) -> list[FilledCaution]:
    cautions: list[FilledCaution] = []
    names = {each.priced.name for each in recommendation.feasible}
    if len(names) > 1 and chosen.priced.quality.n:
        cautions.append(CHOSEN_OF_MANY.fill(count=len(names), metric=recommendation.judged.quantity))
        cautions += one_arm_cautions(chosen.priced.quality.n)
    for check in chosen.checks:
        if check.probability is not None and check.probability < LIKELY:
            message = f"{100 * check.probability:.0f}"
            cautions.append(UNSURE_CONSTRAINT.fill(constraint=check.constraint, percent=message))
        memory = check.constraint in (CARD_MEMORY, "max_memory")
        if check.probability is None and recommendation.constraints.confidence is not None and not memory:
            cautions.append(NO_CHANCE_KNOWN.fill(constraint=check.constraint, name=chosen.priced.name))
        if check.constraint == CARD_MEMORY and check.value is not None and check.value > NEARLY_FULL * check.limit:
            cautions.append(TIGHT_MEMORY.fill(need=f"{check.value:.3g}", memory=f"{check.limit:g}"))
    return cautions


# A recorded recommendation as a claim


def _claimed_questions(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    if not can_be_priced_again(result):
        return []
    rest = {name: result[name] for name in ("objective", "constraints", "calibration")}
    return [{"gpu": gpu, **rest} for gpu in _possible_cards(result)]


def _possible_cards(result: Mapping[str, Any]) -> list[str]:
    """Return what `gpu` may have been: a result names the card of each row, but not if it was asked for."""
    table = list(BUILT_IN.cards)
    rows = [result["expected"], result["joint_relaxation"], *result["alternatives"], *result["relaxations"]]
    named = {row["card"] for row in rows if row and row["card"]}
    every = [ANY] if result["candidates"] % len(table) == 0 else []  # then each configuration may be on every card
    return every if len(named) > 1 else [*(named or table), *every]


def _claimed_numbers(result: Mapping[str, Any]) -> dict[str, Any]:
    names = ("recommended", "expected", "binding", "alternatives", "feasible", "candidates")
    return {name: result.get(name) for name in names}


def recompute(store: Store, question: Mapping[str, Any]) -> dict[str, Any]:
    """Recompute the recommendation among the configurations of a study from its runs."""
    points = RecordedPoints.of(store, question)
    advice = unrecorded(recommend)(
        points.source,
        Constraints(**question["constraints"]),
        gpu=question["gpu"],
        objective=question["objective"],
        terms=points.terms,
        today=points.today,
    )
    return _claimed_numbers(advice.to_dict())


RECOMPUTABLE = RecomputableVerb(_claimed_questions, _claimed_numbers, recompute, FROM_SERIES_AND_TIMES)
