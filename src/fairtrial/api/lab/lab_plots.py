"""Charts of the lab commands: a sweep as a curve, strategies side by side, an ablation as a forest plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairtrial.api.lab.ablation import Ablation, AblationRow
from fairtrial.api.lab.compare import BASELINE, MATCHED, Strategy, StrategyComparison
from fairtrial.api.lab.sweep import Sweep
from fairtrial.core.cautions import is_synthetic
from fairtrial.core.findings import Verdict
from fairtrial.core.formatting import shown_value
from fairtrial.plan.ablations import FULL, variant_of
from fairtrial.report import charts

MOST_NAMED = 5
"""Largest number of removals that a title names. More are counted; the rows name them."""

STANDINGS = {
    Verdict.WORSE: "worse than",
    Verdict.BETTER: "better than",
    Verdict.EQUIVALENT: "equivalent to",
    Verdict.INCONCLUSIVE: "not distinguishable from",
}


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
            "distinct": point.alike is False,
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
    _save(chart, sweep, path)


def _save(chart: Any, result: Sweep | StrategyComparison | Ablation, path: Path) -> None:
    """Write a chart with the note that every chart has."""
    note = charts.chart_note(result.metric, result.direction, synthetic=is_synthetic(result.cautions))
    charts.save(charts.with_note(chart, note), path)


def _sweep_title(sweep: Sweep) -> str:
    best = ", ".join(f"{name} {value}" for name, value in sweep.best.values.items())
    candidates = sweep.alike
    if candidates is None:
        return f"Best {best}; one run each cannot distinguish the values"
    others, total = len(candidates) - 1, len(sweep.points) - 1
    if others == 0:
        return f"Best {best}: better than all {total} others"
    from_which = "any other value" if others == total else f"{others} of {total} other values"
    return f"Best {best}; not distinguishable from {from_which}"


def strategies_chart(strategy_comparison: StrategyComparison, path: Path) -> None:
    """Draw every strategy with its runs, and which strategies are not distinguishable from the best."""
    best, others = strategy_comparison.best, strategy_comparison.alike
    title = (
        f"{best} is ahead, but not distinguishable from {charts.list_names(others)}"
        if others
        else f"{best} is better than every other strategy"
    )
    chart = charts.arms(
        [_strategy_row(strategy_comparison, each) for each in strategy_comparison.strategies],
        metric=strategy_comparison.metric,
        level=strategy_comparison.level,
        title=title,
        styles=charts.arm_styles(strategy_comparison.arms, BASELINE),
    )
    _save(chart, strategy_comparison, path)


def _strategy_row(strategy_comparison: StrategyComparison, each: Strategy) -> dict[str, Any]:
    return {
        "name": each.name,
        "value": each.accuracy.value,
        "low": each.accuracy.low,
        "high": each.accuracy.high,
        "runs": each.accuracy.samples or (),
        "word": _standing(strategy_comparison, each),
    }


def _standing(strategy_comparison: StrategyComparison, each: Strategy) -> str:
    """Return how a strategy compares with the best one, and whether it is a baseline."""
    baseline = ["baseline"] if each.name in (BASELINE, MATCHED) else []
    if each.name == strategy_comparison.best:
        return ", ".join(["best", *baseline])
    if each.name in strategy_comparison.alike:
        return ", ".join([*baseline, f"not distinguishable from {strategy_comparison.best}"])
    worse = each.name in {pair.control for pair in strategy_comparison.significant}
    return ", ".join([*baseline, *([f"worse than {strategy_comparison.best}"] if worse else [])])


def ablation_chart(ablation: Ablation, path: Path) -> None:
    """Draw the effect of removing each set of components, compared with the full model."""
    judged = [(row, row.effect) for row in ablation.rows[1:] if row.effect is not None]
    rows = [
        {
            "name": f"without {' and '.join(row.removed)}",
            "arm": variant_of(row.removed),
            "value": comparison.effect.value,
            "low": comparison.effect.low,
            "high": comparison.effect.high,
            "verdict": "identical" if FULL in row.identical else comparison.verdict.value,
        }
        for row, comparison in judged
    ]
    full = shown_value(ablation.full.accuracy.value)
    chart = charts.forest(
        rows,
        level=ablation.level,
        sesoi=None,
        title=_ablation_title([(row, comparison.verdict) for row, comparison in judged]),
        axis=f"change in {ablation.metric} from the full model ({full})",
        styles=charts.arm_styles((variant_of(row.removed) for row in ablation.rows), FULL),
    )
    _save(chart, ablation, path)


def _ablation_title(judged: Sequence[tuple[AblationRow, Verdict]]) -> str:
    """Say what the removals did: `Worse than the full model without a; not distinguishable from it without b and c`."""
    groups: dict[str, list[str]] = {link: [] for link in STANDINGS.values()}
    for row, verdict in judged:
        groups[STANDINGS[verdict]].append("+".join(row.removed))
    parts: list[str] = []
    for standing, names in groups.items():
        if names:
            many = f"in {len(names)} of {len(judged)} removals"
            where = many if len(judged) > MOST_NAMED else f"without {charts.list_names(names, MOST_NAMED)}"
            parts.append(f"{standing} {'it' if parts else 'the full model'} {where}")
    title = "; ".join(parts) or "no removal was compared with the full model"
    return title[0].upper() + title[1:]
