"""Charts of the distributions behind a comparison: resampled mean differences, and normal Q–Q plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fairtrial.api.comparing.analysis import Analysis
from fairtrial.api.comparing.analysis_charts import AnalysisChart, Pictures, arm_styles
from fairtrial.core.errors import NothingToDraw
from fairtrial.core.findings import Comparison
from fairtrial.report import charts
from fairtrial.stats.compare import RESAMPLES, ComparisonConfig, keep_finite
from fairtrial.stats.distribution import normal_quantiles, resample_difference
from fairtrial.stats.samples import Array

MOST_PANELS = 12
"""Largest number of panels in one chart: more would be too small to read or too long to print."""
METHODS = {"BCa bootstrap": "bca", "percentile bootstrap": "percentile", "studentized bootstrap": "studentized"}


def bootstrap_chart(analysis: Analysis) -> Any:
    """Draw the bootstrap distribution of every difference, with its interval and that of the verdict."""
    judged = [comparison for comparison in analysis.comparisons if comparison.p_value is not None]
    if not judged:
        raise NothingToDraw("no difference was resampled")
    shown = [_resampled(analysis, comparison) for comparison in judged[:MOST_PANELS]]
    first = judged[0]
    levels = {comparison.effect.level for comparison in judged}
    title = (
        f"Bootstrap of the difference {first.candidate} − {first.control}"
        if len(judged) == 1
        else f"Bootstrap of the differences from {analysis.control}{_first_of(judged)}"
    )
    return charts.bootstrap_distribution(
        shown,
        metric=first.metric or analysis.metric,
        control=analysis.control if len(judged) > 1 else first.control,
        level=levels.pop() if len(levels) == 1 else None,
        sesoi=first.sesoi,
        title=title,
    )


def _first_of(judged: Sequence[Comparison]) -> str:
    return f", the first {MOST_PANELS} of {len(judged)}" if len(judged) > MOST_PANELS else ""


def _resampled(analysis: Analysis, comparison: Comparison) -> charts.Resamples:
    asked = comparison.bootstrap.method if comparison.bootstrap else comparison.method
    detail = comparison.tests.get("bootstrap", comparison.tests)
    config = ComparisonConfig(
        paired=comparison.pairing == "paired",
        alpha=1 - comparison.effect.level,
        side=comparison.side,
        direction=comparison.direction,
        method=METHODS.get(asked, "bca"),
        resamples=int(detail.get("resamples", RESAMPLES)),
    )
    drawn = resample_difference(*_samples(analysis, comparison), config, analysis.resampling_seed)
    interval = comparison.bootstrap or drawn.estimate
    intervals = [(interval.method, interval.low, interval.high)]
    if comparison.method not in METHODS:
        intervals.append((comparison.method, comparison.effect.low, comparison.effect.high))
    return charts.Resamples(
        comparison.candidate,
        drawn.draws.tolist(),
        float(drawn.estimate.value or 0.0),
        intervals,
        arm_styles(analysis)[comparison.candidate].colour,
    )


def _samples(analysis: Analysis, comparison: Comparison) -> tuple[Array, Array]:
    """Return the numbers of both arms as the comparison used them."""
    values = {arm.variant: arm.values for arm in analysis.arms}
    sides = values[comparison.control], values[comparison.candidate]
    paired = comparison.pairing == "paired"
    if paired:
        seeds = [seed for seed in sides[0] if seed in sides[1]]
        sides = tuple({seed: side[seed] for seed in seeds} for side in sides)  # type: ignore[assignment]
    control, candidate = (_numbers(side, comparison.failure_value) for side in sides)
    return keep_finite(control, candidate, paired=paired)


def _numbers(side: Mapping[str, float | None], failure_value: float | None) -> Array:
    lost = np.nan if failure_value is None else failure_value
    return np.array([lost if value is None else value for value in side.values()], dtype=np.float64)


def normality_chart(analysis: Analysis) -> Any:
    """Draw a normal Q–Q plot of what the test assumes to be normal: the paired differences, or each arm."""
    judged = [comparison for comparison in analysis.comparisons if comparison.diagnostics]
    paired = all(comparison.pairing == "paired" for comparison in judged)
    panels = _of_differences(analysis, judged) if paired else _of_arms(analysis, judged)
    title = f"The first {MOST_PANELS} of {len(panels)} samples" if len(panels) > MOST_PANELS else None
    alone = len(judged) == 1
    what = ("differences" if alone else f"differences from {analysis.control}") if paired else "values"
    metric = judged[0].metric if judged else None
    return charts.normality(panels[:MOST_PANELS], what=what, metric=metric or analysis.metric, title=title)


def _of_differences(analysis: Analysis, judged: Sequence[Comparison]) -> list[charts.Quantiles]:
    panels, styles = [], arm_styles(analysis)
    for comparison in judged:
        control, candidate = _samples(analysis, comparison)
        p = comparison.diagnostics["shapiro_wilk_p"]["differences"]
        name = f"{comparison.candidate} − {comparison.control}" if len(judged) == 1 else comparison.candidate
        panels.append(_quantiles(name, candidate - control, p, styles[comparison.candidate].colour))
    return panels


def _of_arms(analysis: Analysis, judged: Sequence[Comparison]) -> list[charts.Quantiles]:
    panels: dict[str, charts.Quantiles] = {}
    styles = arm_styles(analysis)
    for comparison in judged:
        p_values = comparison.diagnostics["shapiro_wilk_p"]
        sides = zip(
            (comparison.control, comparison.candidate), _samples(analysis, comparison), p_values.values(), strict=True
        )
        panels |= {name: _quantiles(name, values, p, styles[name].colour) for name, values, p in sides}
    return list(panels.values())


def _quantiles(name: str, values: Array, p_value: float | None, colour: str) -> charts.Quantiles:
    return charts.Quantiles(name, np.sort(values).tolist(), normal_quantiles(len(values)).tolist(), p_value, colour)


def _distributions(analysis: Analysis) -> Pictures:
    """Yield no picture for ranked times or a fixed target: there are no two arms to resample."""
    of_ranks = any("horizon" in each.tests or each.target is not None for each in analysis.comparisons)
    if not analysis.tasks and not of_ranks:
        yield "bootstrap_distribution", partial(bootstrap_chart, analysis)
        yield "normality", partial(normality_chart, analysis)


DISTRIBUTIONS = AnalysisChart(_distributions)
