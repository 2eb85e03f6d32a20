"""recommend: the configuration that fits the constraints, why it is the one, and what else there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from fairtrial.api.arms import LabTerms, check_terms
from fairtrial.api.cost_performance import estimated, general_cautions, point_row
from fairtrial.api.points import Points, Source, gather_points, parse_metric
from fairtrial.core.cautions import INERT_LIMIT, TIGHT_MEMORY, UNSURE_CONSTRAINT
from fairtrial.core.findings import Estimate, FilledCaution
from fairtrial.decide.analysis import CostPerformanceAnalysis
from fairtrial.decide.cost import CostModel
from fairtrial.decide.frontier import Judged
from fairtrial.decide.points import Reading
from fairtrial.decide.prices import REFERENCE
from fairtrial.decide.recommend import CARD_MEMORY, LIKELY, Candidate, Constraints, Recommendation

ANY = "any"
NEARLY_FULL = 0.9


@dataclass(frozen=True)
class Advice:
    """What was recommended, from which points, and what to be careful about."""

    found: Recommendation
    gathered: Points
    level: float
    cautions: Sequence[FilledCaution] = ()

    @property
    def feasible(self) -> bool:
        return self.found.chosen is not None

    def estimate(self, reading: Reading) -> Estimate:
        return estimated(reading, self.level)

    def to_dict(self) -> dict[str, Any]:
        found, chosen = self.found, self.found.chosen
        return {
            "source": self.gathered.source, "study": self.gathered.study, "trained": self.gathered.trained,
            "objective": found.objective, "metric": found.judged.metric, "direction": found.judged.direction,
            "constraints": {**found.constraints.given(), "confidence": found.constraints.confidence},
            "prices": found.cost_model.table.source,
            "calibration": None if self.gathered.local is None else self.gathered.local.to_dict(),
            "recommended": None if chosen is None else self._recommended(chosen),
            "expected": None if chosen is None else self._expected(chosen),
            "rationale": found.rationale,
            "binding": [each.to_dict() for each in found.binding],
            "alternatives": [self._row(each) for each in found.alternatives],
            "fits_on": [
                {"card": each.card.name, "hours": each.hours.value, "cost": each.cost.value} for each in found.fits_on
            ],
            "feasible": len(found.feasible), "candidates": len(found.candidates),
            "relaxations": [each.to_dict() for each in found.relaxations],
            "cautions": list(self.cautions),
        }  # fmt: skip

    def _recommended(self, chosen: Candidate) -> dict[str, Any]:
        return {"name": chosen.priced.name, "card": chosen.priced.card.name, **chosen.priced.point.settings}

    def _expected(self, chosen: Candidate) -> dict[str, Any]:
        row = point_row(chosen.priced, self.level)
        return {**row, "constraints": [check.to_dict() for check in chosen.checks]}

    def _row(self, candidate: Candidate) -> dict[str, Any]:
        assert self.found.chosen is not None
        chosen, other = self.found.chosen.priced, candidate.priced
        return {
            **point_row(other, self.level), "card": other.card.name,
            "cost_difference": other.cost.value - chosen.cost.value,
            "accuracy_difference": other.quality.value - chosen.quality.value,
        }  # fmt: skip


def recommend(
    source: Source | None = None,
    constraints: Constraints | None = None,
    *,
    gpu: str = REFERENCE,
    objective: str = "accuracy",
    terms: LabTerms | None = None,
    today: date | None = None,
) -> Advice:
    """The best configuration that meets the constraints on a card, or on any card of the table with `gpu="any"`."""
    terms, today, constraints = terms or LabTerms(), today or date.today(), constraints or Constraints()
    check_terms(terms)
    source, several = source or Source(), gpu.lower() == ANY
    metric, direction = parse_metric(source.metric)
    asked = Judged(metric or "accuracy", direction or "max")
    gathered = gather_points(source, terms, today, None if several else gpu, lambda: constraints.check(asked))
    model = CostModel.of(next(iter(gathered.table.cards)) if several else gpu, gathered.table, gathered.local)
    cards = list(gathered.table.cards.values()) if several else [model.card]
    found = CostPerformanceAnalysis(model, gathered.judged).recommend(gathered.points, constraints, objective, cards)
    return Advice(found, gathered, terms.level, _cautions(found, gathered, today))


def _cautions(found: Recommendation, gathered: Points, today: date) -> list[FilledCaution]:
    cautions = list(gathered.cautions)
    limit = found.constraints.max_memory
    largest = max(each.priced.card.memory_gb for each in found.candidates)
    if limit is not None and limit > largest:
        cautions.append(INERT_LIMIT.fill(limit=f"{limit:g}", memory=f"{largest:g}"))
    if found.chosen is None:
        return cautions
    priced = found.chosen.priced
    cautions += general_cautions(found.cost_model.on(priced.card), [priced], gathered, today)
    for check in found.chosen.checks:
        if check.probability is not None and check.probability < LIKELY:
            cautions.append(
                UNSURE_CONSTRAINT.fill(constraint=check.constraint, percent=f"{100 * check.probability:.0f}")
            )
        if check.constraint == CARD_MEMORY and check.value is not None and check.value > NEARLY_FULL * check.limit:
            cautions.append(TIGHT_MEMORY.fill(need=f"{check.value:.3g}", memory=f"{check.limit:g}"))
    return cautions
