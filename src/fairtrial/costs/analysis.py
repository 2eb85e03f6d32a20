"""The entry point for scripts: a cost model with the two analyses of points, frontier and recommendation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fairtrial.costs.choice import Constraints, Recommendation
from fairtrial.costs.cost import CostModel, Priced
from fairtrial.costs.frontier import Frontier, OptimizationTarget, find_frontier, price_points
from fairtrial.costs.points import CostPoint
from fairtrial.costs.prices import Card
from fairtrial.costs.recommend import recommend


@dataclass(frozen=True)
class CostPerformanceAnalysis:
    """Prices configurations on a card, finds the frontier, and recommends under constraints.

    >>> points = [
    ...     fairtrial.CostPoint("small", hours=1, accuracy=0.80, memory=8),
    ...     fairtrial.CostPoint("large", hours=4, accuracy=0.85, memory=8),
    ... ]
    >>> analysis = fairtrial.CostPerformanceAnalysis(fairtrial.CostModel.a100_80gb())
    >>> [each.name for each in analysis.pareto_frontier(points)]
    ['small', 'large']
    """

    cost_model: CostModel
    judged: OptimizationTarget = field(default_factory=OptimizationTarget)

    def frontier(self, points: Sequence[CostPoint], reference: Mapping[str, float] | None = None) -> Frontier:
        """Return the frontier of all points. With `reference` (objective → value), adds the hypervolume above it."""
        return find_frontier(price_points(points, self.cost_model, self.judged), self.judged, reference)

    def pareto_frontier(self, points: Sequence[CostPoint]) -> list[Priced]:
        """Return the points that no other point dominates, cheapest first."""
        return self.frontier(points).on_it

    compute_pareto_frontier = pareto_frontier

    def recommend(
        self,
        points: Sequence[CostPoint],
        constraints: Constraints,
        objective: str = "accuracy",
        cards: Sequence[Card] = (),
    ) -> Recommendation:
        """Return the best feasible point by one objective; with several cards, on the best card."""
        return recommend(points, self.cost_model, self.judged, constraints, objective, cards)


def compute_pareto_frontier(
    points: Sequence[CostPoint], cost_model: CostModel | None = None, judged: OptimizationTarget | None = None
) -> list[Priced]:
    """Return the points that no other point dominates, cheapest first. The default cost model is an A100-80GB.

    >>> points = [
    ...     fairtrial.CostPoint("small", hours=1, accuracy=0.80, memory=8),
    ...     fairtrial.CostPoint("large", hours=4, accuracy=0.85, memory=8),
    ... ]
    >>> [each.name for each in fairtrial.compute_pareto_frontier(points, fairtrial.CostModel.a100_80gb())]
    ['small', 'large']
    """
    analysis = CostPerformanceAnalysis(cost_model or CostModel.a100_80gb(), judged or OptimizationTarget())
    return analysis.pareto_frontier(points)
