"""Charts of the lab commands: a sweep as a curve, strategies side by side, an ablation as a forest plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairtrial.api.lab.ablation import Ablation
from fairtrial.api.lab.compare import BASELINE, MATCHED, Strategy, StrategyComparison
from fairtrial.api.lab.sweep import Sweep
from fairtrial.core.formatting import counted, shown_value
from fairtrial.report import charts


def sweep_chart(sweep: Sweep, path: Path) -> None:
    """Draw the metric over the swept values; with several options, each setting is a category."""
    one = len(sweep.params) == 1
    rows = [
        {
            "value": point.value if one else ", ".join(map(str, point.values.values())),
            "mean": point.accuracy.value,
            "low": point.accuracy.low,
            "high": point.accuracy.high,
            "runs": point.accuracy.samples or (),
            "best": point is sweep.best,
            "alike": bool(point.alike),
        }
        for point in sweep.points
    ]
    chart = charts.sweep_curve(
        rows,
        param=", ".join(sweep.params),
        metric=sweep.metric,
        level=sweep.level,
        title=_sweep_title(sweep),
        log=one and sweep.axes[0].log,
    )
    charts.save(chart, path)


def _sweep_title(sweep: Sweep) -> str:
    best = ", ".join(f"{name} {value}" for name, value in sweep.best.values.items())
    alike = sweep.alike
    if alike is None:
        return f"Best {best}; one run each cannot distinguish the values"
    others = len(alike) - 1
    if others == 0:
        return f"Best {best}: better than all {len(sweep.points) - 1} others"
    return f"Best {best}; {others} of {counted(len(sweep.points) - 1, 'other value')} cannot be distinguished from it"


def strategies_chart(strategy_comparison: StrategyComparison, path: Path) -> None:
    rows = [{**_row(each), "group": _group(strategy_comparison, each.name)} for each in strategy_comparison.strategies]
    message = (
        f"; statistically indistinguishable from it: {', '.join(strategy_comparison.alike)}"
        if strategy_comparison.alike
        else ": better than every other strategy"
    )
    title = f"{strategy_comparison.best} is {'ahead' if strategy_comparison.alike else 'best'}{message}"
    better = "higher" if strategy_comparison.direction == "max" else "lower"
    chart = charts.arms(
        rows, metric=strategy_comparison.metric, level=strategy_comparison.level, title=title, better=better
    )
    charts.save(chart, path)


def _row(each: Strategy) -> dict[str, Any]:
    time = f", {each.time_s:.1f} s" if each.time_s is not None else ""
    return {
        "name": f"{each.name}{time}",
        "value": each.accuracy.value,
        "low": each.accuracy.low,
        "high": each.accuracy.high,
        "runs": each.accuracy.samples or (),
    }


def _group(strategy_comparison: StrategyComparison, name: str) -> str:
    if name == strategy_comparison.best:
        return "best"
    if name in (BASELINE, MATCHED):
        return "baseline"
    return "alike" if name in strategy_comparison.alike else "other"


def ablation_chart(ablation: Ablation, path: Path) -> None:
    """Draw the effect of removing each set of components, compared with the full model."""
    rows = [
        {
            "name": f"without {' and '.join(row.removed)}",
            "value": row.effect.effect.value,
            "low": row.effect.effect.low,
            "high": row.effect.effect.high,
            "verdict": row.effect.verdict.value,
        }
        for row in ablation.rows[1:]
        if row.effect is not None
    ]
    title = f"What the model loses without a component; the full model has {shown_value(ablation.full.accuracy.value)}"
    charts.save(charts.forest(rows, metric=ablation.metric, level=ablation.level, sesoi=None, title=title), path)
