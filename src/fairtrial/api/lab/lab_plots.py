"""Charts of the laboratory: a sweep's curve, strategies side by side, an ablation as a forest, a frontier of costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairtrial.api.lab.ablation import Ablation
from fairtrial.api.lab.compare import BASELINE, MATCHED, Strategy, StrategyComparison
from fairtrial.api.lab.sweep import Sweep
from fairtrial.core.formatting import counted, shown_value
from fairtrial.report import charts


def sweep_chart(found: Sweep, path: Path) -> None:
    """The metric over the values that were tried; with several options every setting is a category."""
    one = len(found.params) == 1
    rows = [
        {
            "value": point.value if one else ", ".join(map(str, point.values.values())),
            "mean": point.accuracy.value, "low": point.accuracy.low, "high": point.accuracy.high,
            "runs": point.accuracy.samples or (), "best": point is found.best, "alike": bool(point.alike),
        }
        for point in found.points
    ]  # fmt: skip
    chart = charts.sweep_curve(
        rows, param=", ".join(found.params), metric=found.metric, level=found.level, title=_sweep_title(found),
        log=one and found.axes[0].log,
    )  # fmt: skip
    charts.save(chart, path)


def _sweep_title(found: Sweep) -> str:
    best = ", ".join(f"{name} {value}" for name, value in found.best.values.items())
    alike = found.alike
    if alike is None:
        return f"Best {best}; one run each cannot tell the values apart"
    others = len(alike) - 1
    if others == 0:
        return f"Best {best}: better than all {len(found.points) - 1} others"
    return f"Best {best}; {others} of {counted(len(found.points) - 1, 'other value')} cannot be told apart from it"


def strategies_chart(found: StrategyComparison, path: Path) -> None:
    rows = [{**_row(each), "group": _group(found, each.name)} for each in found.strategies]
    told = (
        f"; not told apart from it: {', '.join(found.alike)}" if found.alike else ": better than every other strategy"
    )
    title = f"{found.best} is {'ahead' if found.alike else 'best'}{told}"
    better = "higher" if found.direction == "max" else "lower"
    chart = charts.arms(rows, metric=found.metric, level=found.level, title=title, better=better)
    charts.save(chart, path)


def _row(each: Strategy) -> dict[str, Any]:
    time = f", {each.time_s:.1f} s" if each.time_s is not None else ""
    return {
        "name": f"{each.name}{time}", "value": each.accuracy.value, "low": each.accuracy.low,
        "high": each.accuracy.high, "runs": each.accuracy.samples or (),
    }  # fmt: skip


def _group(found: StrategyComparison, name: str) -> str:
    if name == found.best:
        return "best"
    if name in (BASELINE, MATCHED):
        return "baseline"
    return "alike" if name in found.alike else "other"


def ablation_chart(found: Ablation, path: Path) -> None:
    """What taking each set away changed, against the full model."""
    rows = [
        {
            "name": f"without {' and '.join(row.removed)}", "value": row.effect.effect.value,
            "low": row.effect.effect.low, "high": row.effect.effect.high, "verdict": row.effect.verdict.value,
        }
        for row in found.rows[1:] if row.effect is not None
    ]  # fmt: skip
    title = f"What the model loses without a component; the full model has {shown_value(found.full.accuracy.value)}"
    charts.save(charts.forest(rows, metric=found.metric, level=found.level, sesoi=None, title=title), path)
