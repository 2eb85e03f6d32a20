"""cost-performance: price every configuration on a card, and find the frontier of cost against the metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import numpy as np

from fairtrial.api.lab.arms import LabConfig, check_terms
from fairtrial.api.pricing.points import Points, RecordedPoints, Source, can_be_priced_again, gather_points
from fairtrial.api.running.recomputing import FROM_SERIES_AND_TIMES, RecomputableVerb
from fairtrial.api.running.recording import recorded, unrecorded
from fairtrial.core.cautions import CONVERTED_HOURS, NOT_FITTING
from fairtrial.core.findings import Estimate, FilledCaution
from fairtrial.core.results import Result
from fairtrial.costs.analysis import CostPerformanceAnalysis
from fairtrial.costs.cost import CostModel, Priced
from fairtrial.costs.frontier import Frontier, OptimizationTarget, corner_of
from fairtrial.costs.points import Reading
from fairtrial.costs.prices import REFERENCE, PriceTable
from fairtrial.record.store import Store
from fairtrial.stats.sweeps import mean_of


@dataclass(frozen=True, repr=False)
class CostPerformance(Result):
    """Every configuration priced on one card, with the Pareto frontier of the objectives.

    >>> import pathlib
    >>> points = pathlib.Path("points.json")
    >>> _ = points.write_text(
    ...     '[{"name": "small", "hours": 1, "accuracy": 0.8, "memory": 4, "device": "t4"}]')
    >>> fairtrial.cost_performance(fairtrial.Source(configs="points.json"), gpu="t4").model.card.name
    't4'
    """

    model: CostModel
    frontier: Frontier
    gathered: Points
    level: float
    cautions: Sequence[FilledCaution] = ()

    @property
    def failed(self) -> bool:
        return self.gathered.failed

    def estimate(self, reading: Reading) -> Estimate:
        return estimated(reading, self.level)

    def to_dict(self) -> dict[str, Any]:
        frontier, judged = self.frontier, self.frontier.judged
        winner, step = frontier.efficiency_winner, frontier.best_step
        local = self.gathered.local
        return {
            "source": self.gathered.source, "study": self.gathered.study, "trained": self.gathered.trained,
            "gpu": self.model.card.to_dict(), "prices": self.model.table.source,
            "metric": judged.metric, "direction": judged.direction,
            "direction_source": self.gathered.direction_source, "objectives": list(judged.objectives),
            "calibration": None if local is None else local.to_dict(),
            "points": self.rows(), "frontier": frontier.names,
            "efficiency_winner": None if winner is None else winner.name,
            "marginal": None if step is None else step.to_dict(),
            "savings_against": frontier.reference.name, "hypervolume": frontier.volume,
            "cautions": list(self.cautions),
        }  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        frontier = self.frontier
        standing = zip(frontier.points, frontier.members, frontier.beaten_by, frontier.probabilities, strict=True)
        return [
            {
                **point_row(point, self.level),
                "pareto": member,
                "dominated_by": beaten,
                "frontier_probability": probability,
                "savings": frontier.savings(point),
            }
            for point, member, beaten, probability in standing
        ]


def point_row(priced: Priced, level: float) -> dict[str, Any]:
    """Return a point as it appears in documents: its cost, its metric, and the basis of each figure."""
    point = priced.point
    return {
        "name": point.name, "card": priced.card.name,
        "hours": priced.hours.value, "hours_ci": estimated(priced.hours, level).limits,
        "cost": priced.cost.value, "cost_ci": estimated(priced.cost, level).limits,
        "accuracy": point.quality.value, "ci": estimated(point.quality, level).limits, "runs": point.quality.n or None,
        "lost": point.lost, "memory": point.memory, "memory_basis": point.memory_basis, "fits": priced.fits,
        "device": point.device, "measured_hours": point.time.value, "estimated": priced.basis is not None,
        "basis": priced.basis or f"measured on {point.device}", "settings": dict(point.settings),
    }  # fmt: skip


def estimated(reading: Reading, level: float) -> Estimate:
    """Return a reading with its interval, if its seeds are known."""
    return mean_of(np.array(list(reading.by_seed.values()) or [reading.value]), round(1 - level, 12))


@recorded("cost-performance")
def cost_performance(
    source: Source | None = None,
    *,
    gpu: str = REFERENCE,
    objectives: Sequence[str] = ("cost", "accuracy"),
    reference: Mapping[str, float] | None = None,
    terms: LabConfig | None = None,
    today: date | None = None,
) -> CostPerformance:
    """Price the configurations of a source on a card; `reference` is the reference point for the hypervolume.

    >>> import pathlib
    >>> points = pathlib.Path("points.json")
    >>> _ = points.write_text(
    ...     '[{"name": "small", "hours": 1, "accuracy": 0.8, "memory": 4, "device": "t4"}]')
    >>> fairtrial.cost_performance(fairtrial.Source(configs="points.json"), gpu="t4").rows()[0]["cost"]
    0.5
    """
    terms, today = terms or LabConfig(), today or date.today()
    check_terms(terms)
    gathered = gather_points(source or Source(), terms, today, gpu, lambda: _check_asked(objectives, reference))
    model = CostModel.of(gpu, gathered.table, gathered.local)
    judged = replace(gathered.judged, objectives=tuple(objectives))
    frontier = CostPerformanceAnalysis(model, judged).frontier(gathered.points, reference)
    priced = frontier.points
    cautions = [*gathered.cautions, *price_cautions(priced, gathered.table, today), *conversion_cautions(priced)]
    large = [point.name for point in frontier.points if point.fits is False]
    if large:
        cautions.append(NOT_FITTING.fill(names=", ".join(large), card=gpu, memory=f"{model.card.memory_gb:g}"))
    return CostPerformance(model, frontier, gathered, terms.level, cautions)


def _check_asked(objectives: Sequence[str], reference: Mapping[str, float] | None) -> None:
    """Reject invalid objectives and reference points before anything is trained."""
    asked = OptimizationTarget(objectives=tuple(objectives))
    if reference is not None:
        corner_of(reference, asked)


def price_cautions(points: Sequence[Priced], table: PriceTable, today: date) -> list[FilledCaution]:
    """Return the cautions about the prices of the cards that these points use, once per card."""
    cards = {point.card.name: point.card for point in points}
    return [caution for card in cards.values() for caution in table.cautions(card, today)]


def conversion_cautions(points: Sequence[Priced]) -> list[FilledCaution]:
    """Return a caution for each basis on which hours were converted."""
    bases = {(point.card.name, point.basis) for point in points if point.basis}
    return [CONVERTED_HOURS.fill(card=card, basis=basis) for card, basis in sorted(bases)]


# A recorded result as a claim


def _claimed_questions(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    if not can_be_priced_again(result) or result.get("hypervolume") is not None:
        return []
    return [
        {
            "gpu": result["gpu"]["name"],
            "objectives": result["objectives"],
            "calibration": result["calibration"],
        }
    ]


def _claimed_numbers(result: Mapping[str, Any]) -> dict[str, Any]:
    names = ("points", "frontier", "efficiency_winner", "marginal", "savings_against")
    return {name: result.get(name) for name in names}


def recompute(store: Store, question: Mapping[str, Any]) -> dict[str, Any]:
    """Recompute the priced points of a study and their frontier from its runs."""
    points = RecordedPoints.of(store, question)
    priced = unrecorded(cost_performance)(
        points.source, gpu=question["gpu"], objectives=question["objectives"], terms=points.terms, today=points.today
    )
    return _claimed_numbers(priced.to_dict())


RECOMPUTABLE = RecomputableVerb(_claimed_questions, _claimed_numbers, recompute, FROM_SERIES_AND_TIMES)
