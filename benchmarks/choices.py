"""What to choose: the documented table, and the default family trained from an empty store.

Costs on the card are estimates by the calibration of this machine; accuracies and hours here are measured.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.figures import Figure, at_most, exactly
from benchmarks.lab import percent
from benchmarks.measure import in_a_process
from fairtrial import Constraints, CostModel, CostPerformanceAnalysis, CostPoint, LabConfig, Source, cost_performance

TITLE = "Choosing"
FAMILY_S = 300
DOCUMENTED = (
    ("r8", 6.30, 0.845),
    ("r16", 9.60, 0.862),
    ("r32", 17.40, 0.871),
    ("r64", 31.20, 0.878),
    ("full", 144.60, 0.882),
)


def measure(folder: Path) -> list[Figure]:
    return [*_documented(), *_family(folder / "store")]


def _documented() -> list[Figure]:
    """The five points of the documentation, as hours at $3.00."""
    points = [CostPoint(name, cost / 3, accuracy, memory=12) for name, cost, accuracy in DOCUMENTED]
    analysis = CostPerformanceAnalysis(CostModel.a100_80gb())
    frontier = analysis.frontier(points)
    chosen = analysis.recommend(points, Constraints(max_cost=50, min_accuracy=0.85)).chosen
    on_t4 = CostModel.t4().price(points[0]).hours.value / analysis.cost_model.price(points[0]).hours.value
    assert chosen is not None
    savings = [
        Figure(f"documented table, savings of {point.name}", frontier.savings(point), "×", note=f"144.60 / {cost:.2f}")
        for point, (_, cost, _) in zip(frontier.points, DOCUMENTED, strict=True)
    ]
    return [
        Figure("documented table, points on the frontier", float(len(frontier.names)), "of 5", goal=exactly(5)),
        Figure(
            "documented table, cost of what is recommended", round(chosen.priced.cost.value, 2), "$", goal=exactly(31.2)
        ),
        *savings,
        Figure("hours on a T4 / hours on an A100", round(on_t4, 6), "×", goal=exactly(round(1 / 0.3, 6))),
    ]


def _family(store: Path) -> list[Figure]:
    argv = [sys.executable, "-m", "fairtrial", "cost-performance", "--quiet", "--store", str(store)]
    spent = in_a_process(argv)
    found = cost_performance(Source(), terms=LabConfig(store=store))
    figures = [
        Figure(
            "fairtrial cost-performance, wall",
            spent.wall,
            "s",
            goal=at_most(FAMILY_S),
            note="15 trainings and the base",
        )
    ]
    for point, row in zip(found.frontier.points, found.rows(), strict=True):
        low, high = row["ci"] or (None, None)
        seconds = 3600 * point.point.time.value
        standing = "on the frontier" if row["pareto"] else f"beaten by {row['dominated_by']}"
        note = f"{seconds:.1f} s here, {1000 * (row['memory'] or 0):.2f} MB; {standing}"
        figures += [
            Figure(
                f"{point.name}, report accuracy",
                100 * row["accuracy"],
                "%",
                percent(low),
                percent(high),
                row["runs"],
                note=note,
            ),
            Figure(f"{point.name}, time of a run here", seconds, "s"),
            Figure(f"{point.name}, probability of being on the frontier", 100 * row["frontier_probability"], "%"),
        ]
    return figures
