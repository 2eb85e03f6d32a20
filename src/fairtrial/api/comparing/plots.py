"""Charts of an analysis: select the numbers for each chart and write the files."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fairtrial.api.comparing.analysis import Analysis
from fairtrial.api.comparing.analysis_charts import AnalysisChart, Pictures, arm_styles
from fairtrial.api.comparing.gather import is_scored
from fairtrial.api.comparing.variance import Variance
from fairtrial.core.cautions import is_synthetic
from fairtrial.core.errors import NothingToDraw, UserError
from fairtrial.core.findings import Comparison
from fairtrial.core.formatting import shown_value
from fairtrial.core.plugin_registry import CHARTS, SUMMARIES, blame_plugin, load_others, load_plugin, note_ignored
from fairtrial.core.traces import Trace, curve_metric
from fairtrial.report import charts
from fairtrial.stats.aggregate import mean_curve, profile_of_tables
from fairtrial.stats.summaries import tidy

POINTS = 200
MOST_TAU = 0.95
"""Quantile at which performance profiles end: the few largest scores would compress the rest of the chart."""
LEARNING_CURVES = "learning_curves"
SUFFIX = ".png"
MOST_SINGLE = 4
"""Largest number of comparisons in a family that get separate charts."""
PANELS = {"auc": "AUC", "derivative": "derivative", "last": "value"}


def main_chart(analysis: Analysis, path: Path) -> None:
    """Write the main chart of an analysis: the differences of a pair, or a forest plot of several comparisons."""
    first, *others = analysis.comparisons
    chart = _forest(analysis) if others or not first.effect.samples else _differences(first, arm_styles(analysis))
    charts.save(charts.with_note(chart, _note(analysis)), path)


def comparison_chart(comparison: Comparison, path: Path) -> None:
    """Write the chart of one comparison: the paired differences, or the interval if runs are not paired."""
    if not comparison.effect.samples:
        raise NothingToDraw(
            "an unpaired comparison has no differences to draw", hint="Use analyze(), whose chart shows the interval."
        )
    chart = _differences(comparison, charts.arm_styles([comparison.candidate], comparison.control))
    note = charts.chart_note(comparison.metric or "", comparison.direction, synthetic=is_synthetic(comparison.cautions))
    charts.save(charts.with_note(chart, note), path)


def write_plots(analysis: Analysis, folder: Path) -> list[Path]:
    """Write every chart that the analysis has numbers for, as PNG, and return the paths."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write charts to {folder}: {error.strerror}", hint="Choose another --plots.") from None
    written: list[Path] = []
    for name in CHARTS.built_in:
        written += _write(load_plugin(CHARTS, name), analysis, folder, written)
    for name, chart in load_others(CHARTS):
        try:
            with blame_plugin(CHARTS, name):
                written += _write(chart, analysis, folder, written)
        except UserError as error:
            note_ignored(f"{error.message}; it is skipped")
    return written


def _write(chart: AnalysisChart, analysis: Analysis, folder: Path, taken: Sequence[Path]) -> list[Path]:
    written: list[Path] = []
    for name, draw in chart.pictures(analysis):
        path = _free(folder, name, [*taken, *written])
        note = _note(analysis, _drawn_metric(analysis) if name == LEARNING_CURVES else None)
        with contextlib.suppress(NothingToDraw):
            charts.save(charts.with_note(draw(), note), path)
            written.append(path)
    return written


def _note(analysis: Analysis, drawn: str | None = None) -> str:
    """Return the note of every chart: the direction of the metric, and whether the numbers are synthetic.

    `drawn` is the metric of learning curves that are shown in place of the judged metric.
    """
    first = analysis.comparisons[0]
    metric = first.metric or analysis.metric
    carried = [*analysis.cautions, *(caution for comparison in analysis.comparisons for caution in comparison.cautions)]
    note = charts.chart_note(metric, first.direction, synthetic=is_synthetic(carried))
    if drawn in (None, analysis.metric):
        return note
    return f"The verdict is about {metric}, which has one value per run. {note}"


def _free(folder: Path, name: str, taken: Sequence[Path]) -> Path:
    """Return an unused path: the names of two variants may map to the same file name, which is then numbered."""
    candidates = (folder / f"{name}{'' if n == 1 else f'-{n}'}{SUFFIX}" for n in itertools.count(1))
    return next(path for path in candidates if path not in taken)


def _curves(analysis: Analysis) -> Pictures:
    metric = _drawn_metric(analysis)
    if metric is not None:
        yield LEARNING_CURVES, partial(_learning_curves, analysis, metric)


def _single(analysis: Analysis) -> Pictures:
    for comparison in _most_settled(analysis.comparisons):
        suffix = "" if len(analysis.comparisons) == 1 else "-" + re.sub(r"[^\w.=+-]+", "_", comparison.candidate)
        if comparison.pairing == "paired" and not analysis.tasks and comparison.effect.samples:
            yield f"paired_differences{suffix}", partial(_pairs, analysis, comparison)
        if comparison.effect.samples:
            yield f"difference_distribution{suffix}", partial(_differences, comparison, arm_styles(analysis))


def _family(analysis: Analysis) -> Pictures:
    if len(analysis.comparisons) > 1 or not analysis.comparisons[0].effect.samples:
        yield "forest", partial(_forest, analysis)


def _radial(analysis: Analysis) -> Pictures:
    if len({comparison.metric for comparison in [*analysis.comparisons, *analysis.secondary]}) >= 3:
        yield "radial_profile", partial(_metric_profile, analysis)


def _profiles(analysis: Analysis) -> Pictures:
    if analysis.tasks:
        yield "performance_profiles", partial(_performance_profiles, analysis)


CURVES, DIFFERENCES, FOREST = AnalysisChart(_curves), AnalysisChart(_single), AnalysisChart(_family)
RADIAL_PROFILE, PERFORMANCE_PROFILES = AnalysisChart(_radial), AnalysisChart(_profiles)


def _most_settled(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons that get separate charts: all if they are few, else those with the smallest p-values."""
    known = [each for each in comparisons if each.p_value is not None]
    first = {id(each) for each in sorted(known, key=lambda each: each.p_value or 0.0)[:MOST_SINGLE]}
    return [each for each in comparisons if len(comparisons) <= MOST_SINGLE or id(each) in first]


def _drawn_metric(analysis: Analysis) -> str | None:
    """Return the metric of the learning curves: the judged one, or a related one if that has one value per run."""
    points: Counter[str] = Counter()
    for trace in (trace for traces in analysis.curves.values() for trace in traces):
        for name, (steps, _) in trace.curves.items():
            points[name] = max(points[name], len(steps))
    return None if analysis.tasks else curve_metric(analysis.metric, points)


def _learning_curves(analysis: Analysis, metric: str) -> Any:
    bands = [_band(name, traces, metric, analysis) for name, traces in analysis.curves.items()]
    judged = metric == analysis.metric
    over_steps = judged and load_plugin(SUMMARIES, analysis.summary["type"]).over_steps
    window = analysis.summary["window"] if over_steps else None
    level = analysis.comparisons[0].effect.level
    return charts.learning_curves(
        [band for band in bands if band is not None],
        metric=metric,
        level=level,
        window=tuple(window) if window else None,
        judged=None if judged else analysis.metric,
        styles=arm_styles(analysis),
    )


def _band(name: str, traces: Sequence[Trace], metric: str, analysis: Analysis) -> charts.Band | None:
    """Return the mean curve with its interval, over the steps that all runs cover."""
    level = analysis.comparisons[0].effect.level
    curves = [tidy(*t.curves[metric]) for t in traces if metric in t.curves and is_scored(t)]
    curves = [(s[np.isfinite(v)], v[np.isfinite(v)]) for s, v in curves]
    curves = [(s, v) for s, v in curves if len(s) > 1]
    if not curves:
        return None
    first, last = max(s[0] for s, _ in curves), min(s[-1] for s, _ in curves)
    steps = np.unique(np.concatenate([s for s, _ in curves]))
    steps = steps[(steps >= first) & (steps <= last)]
    steps = steps if len(steps) <= POINTS else np.linspace(first, last, POINTS)
    table = np.array([np.interp(steps, s, v) for s, v in curves])
    middle, low, high = mean_curve(table, level=level)
    runs = [(s.tolist(), v.tolist()) for s, v in curves]
    return charts.Band(name, steps.tolist(), middle.tolist(), low.tolist(), high.tolist(), runs)


def _pairs(analysis: Analysis, comparison: Comparison) -> Any:
    arms = {arm.variant: arm.values for arm in analysis.arms}
    sides = arms[comparison.control], arms[comparison.candidate]
    seeds = [s for s in sides[0] if sides[0][s] is not None and sides[1].get(s) is not None]
    values = [[float(side[seed] or 0.0) for seed in seeds] for side in sides]
    styles = arm_styles(analysis)
    return charts.paired_differences(
        seeds,
        values[0],
        values[1],
        names=(comparison.control, comparison.candidate),
        metric=comparison.metric or analysis.metric,
        title=_title(comparison),
        direction=comparison.direction,
        styles=(styles[comparison.control], styles[comparison.candidate]),
    )


def _differences(comparison: Comparison, styles: charts.ArmStyles) -> Any:
    return charts.difference_distribution(
        list(comparison.effect.samples or ()),
        value=comparison.effect.value,
        low=comparison.effect.low,
        high=comparison.effect.high,
        level=comparison.effect.level,
        sesoi=comparison.sesoi,
        metric=comparison.metric or "",
        names=(comparison.control, comparison.candidate),
        title=_title(comparison),
        style=styles[comparison.candidate],
    )


def _title(comparison: Comparison) -> str:
    if comparison.verdict != "inconclusive":
        return str(comparison).partition(":")[0]
    why = f" ({comparison.reason})" if comparison.reason in ("attrition", "reliability") else ""
    return f"Inconclusive{why}: {comparison.candidate} against {comparison.control}"


def _forest(analysis: Analysis) -> Any:
    first = analysis.comparisons[0]
    rows = [
        {"name": c.candidate, "value": c.effect.value, "low": c.effect.low, "high": c.effect.high,
         "verdict": c.verdict.value}
        for c in analysis.comparisons
    ]  # fmt: skip
    settled = sum(c.verdict != "inconclusive" for c in analysis.comparisons)
    title = f"{settled} of {len(rows)} comparisons with {analysis.control} are conclusive"
    return charts.forest(
        rows,
        level=first.effect.level,
        sesoi=first.sesoi,
        title=title,
        axis=f"difference in {first.metric or ''}: each named arm − {analysis.control}",
        styles=arm_styles(analysis),
    )


def _metric_profile(analysis: Analysis) -> Any:
    every = [*analysis.comparisons, *analysis.secondary]
    rows = [
        {"arm": each.candidate, "metric": each.metric or "", "direction": each.direction,
         "control_mean": shown_value(each.mean_control), "value": each.effect.value, "low": each.effect.low,
         "high": each.effect.high, "verdict": each.verdict.value}
        for each in every
    ]  # fmt: skip
    levels = {each.effect.level for each in every}
    return charts.metric_profile(
        rows,
        control=analysis.control,
        level=levels.pop() if len(levels) == 1 else None,
        styles=arm_styles(analysis),
    )


def _performance_profiles(analysis: Analysis) -> Any:
    return charts.performance_profiles(_profile_rows(analysis), score=analysis.metric, styles=arm_styles(analysis))


def _profile_rows(analysis: Analysis) -> list[dict[str, Any]]:
    assert analysis.tasks is not None
    tables = _whole_tables(analysis.tasks)
    every = np.concatenate([table.ravel() for each in tables.values() for table in each])
    taus = np.unique(np.quantile(every, np.linspace(0, MOST_TAU, 101)))
    level = analysis.comparisons[0].effect.level
    rows = []
    for name, each in tables.items():
        for tau, value, low, high in zip(taus, *profile_of_tables(each, taus, level=level), strict=True):
            rows.append(
                {"variant": name, "tau": float(tau), "value": float(value), "low": float(low), "high": float(high)}
            )
    return rows


def _whole_tables(tasks: Mapping[str, Any]) -> dict[str, list[np.ndarray[Any, np.dtype[np.float64]]]]:
    """Return, per arm, the scores of runs that completed all tasks; one table per task if tasks have separate seeds."""
    if tasks["scores"] is not None:
        given = {name: [np.array(scores, dtype=float)] for name, scores in tasks["scores"].items()}
    else:
        given = {
            name: [np.array(scores, dtype=float)[:, None] for scores in each.values()]
            for name, each in tasks["scores_by_task"].items()
        }
    whole = {name: [table[np.isfinite(table).all(axis=1)] for table in each] for name, each in given.items()}
    return {name: each for name, each in whole.items() if min(map(len, each))}


def variance_chart(variance: Variance, path: Path) -> None:
    """Write a chart of the half-width over the number of seeds, with one panel per summary."""
    panels = {
        PANELS[name]: [vars(point) for point in each.curve] for name, each in variance.spreads.items() if each.curve
    }
    if not panels:
        reason = next(iter(variance.spreads.values())).reason
        raise UserError(f"no curve to draw: {reason}")
    chart = charts.variance_panels(
        panels,
        threshold=variance.threshold,
        relative=variance.relative,
        metric=variance.metric,
        n=variance.n,
        n_min={PANELS[name]: each.n_min for name, each in variance.spreads.items()},
        arm=variance.variant,
    )
    note = charts.SYNTHETIC_NOTE if is_synthetic(variance.cautions) else ""
    charts.save(charts.with_note(chart, note), path)
