"""The chart of cost-performance: the cost of each configuration against its metric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairtrial.api.pricing.cost_performance import CostPerformance
from fairtrial.core.cautions import is_synthetic
from fairtrial.core.formatting import counted
from fairtrial.costs.cost import Priced
from fairtrial.report import charts


def frontier_chart(cost_performance: CostPerformance, path: Path) -> None:
    """Draw cost against the metric, with intervals and the frontier."""
    frontier, judged = cost_performance.frontier, cost_performance.frontier.judged
    rows = [
        _point_row(cost_performance, point, member)
        for point, member in zip(frontier.points, frontier.members, strict=True)
    ]
    names = [judged.quantity if name == "accuracy" else name for name in judged.objectives]
    total = counted(len(frontier.points), "configuration")
    title = f"{len(frontier.on_it)} of {total} on the frontier of {', '.join(names[:-1])} and {names[-1]}"
    chart = charts.frontier(
        rows,
        metric=judged.metric,
        level=cost_performance.level,
        title=title,
        card=cost_performance.model.card.name,
        better="higher" if judged.direction == "max" else "lower",
        estimated=any(p.basis for p in frontier.points),
    )
    note = charts.chart_note(judged.metric, judged.direction, synthetic=is_synthetic(cost_performance.cautions))
    charts.save(charts.with_note(chart, f"{note} Lower cost is better."), path)


def _point_row(cost_performance: CostPerformance, point: Priced, member: bool) -> dict[str, Any]:
    cost, quality = cost_performance.estimate(point.cost), cost_performance.estimate(point.quality)
    return {
        "name": point.name, "cost": cost.value, "cost_low": cost.low, "cost_high": cost.high, "value": quality.value,
        "low": quality.low, "high": quality.high, "member": member,
    }  # fmt: skip
