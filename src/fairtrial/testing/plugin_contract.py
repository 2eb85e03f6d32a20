"""The contracts of readers, summaries, methods, family adjustments, charts and formats, checked by using them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairtrial.api.comparing.analysis import Analysis
from fairtrial.api.comparing.analysis_charts import AnalysisChart
from fairtrial.core.readers import Columns, ImportedRun, Reader
from fairtrial.report.charts.rendering import rendered
from fairtrial.report.formats import OutputFormat
from fairtrial.stats.adjustments import Adjustment
from fairtrial.stats.inference import Method
from fairtrial.stats.samples import canonical
from fairtrial.stats.summaries import SummaryRule, SummaryType

TAILS = (0.1, 0.025, 0.005)
P_VALUES = (0.001, 0.004, 0.0126, 0.02, 0.03, 0.049, 0.2, 0.9)


def check_reader(reader: Reader, own: Path, foreign: Path, columns: Columns | None = None) -> list[ImportedRun]:
    """Check that a reader reads its own file and rejects a foreign one. Return the runs, for further checks."""
    assert reader.recognize(own), f"the reader does not recognize {own.name}"
    assert not reader.recognize(foreign), f"the reader recognizes {foreign.name}, which is not its own"
    runs, again = list(reader.read(own)), list(reader.read(own))
    assert runs, f"{own.name} has no runs"
    assert [run.id for run in runs] == [run.id for run in again], "a run has another id when it is read again"
    assert len({run.id for run in runs}) == len(runs), "two runs have the same id"
    for run in runs:
        assert run.series, f"run {run.id} has no metric"
        for metric, (steps, values) in run.series.items():
            assert len(steps) == len(values) > 0, f"run {run.id}: {metric} does not have one value per step"
            assert np.isfinite(np.asarray(steps, dtype=np.float64)).all(), f"run {run.id}: a step is not finite"
    source = reader.open([own], columns or Columns())
    traces = source.traces(source.metrics())
    assert len(traces) == len(runs), "open() gives other runs than read()"
    return runs


def check_summary(kind: SummaryType) -> None:
    """Check that a summary depends only on the curve, and has a label and a description."""
    steps, values = np.arange(1.0, 21.0), np.sqrt(np.arange(1.0, 21.0))
    before = values.copy()
    first = kind.number(steps, values, SummaryRule(), "max")
    assert isinstance(first, float), "the number must be a float"
    assert first == kind.number(steps, values, SummaryRule(), "max"), "the same curve gave two different numbers"
    assert (values == before).all(), "the curve was changed"
    assert "{metric}" in kind.label and kind.label.format(metric="loss"), "the label must contain {metric}"
    assert kind.text, "the text must describe what the summary computes"


def check_method(method: Method) -> None:
    """Check that a method is deterministic, and that its limits contain the value, agree with the p-values and nest."""
    draw = np.random.default_rng(1)
    for design in method.designs:
        for shift in (0.0, 0.5, 3.0):
            control, candidate = draw.normal(size=12), draw.normal(size=12) + shift
            arms = canonical(control, candidate, paired=design == "paired")
            inference = method.infer(arms, 1000, np.random.default_rng(2))
            again = method.infer(arms, 1000, np.random.default_rng(2))
            assert inference.lower(0.025) == again.lower(0.025), "the same numbers gave two different intervals"
            if shift == 3.0:
                assert inference.value * (arms.second.mean() - arms.first.mean()) > 0, (
                    "the value must have the sign of second − first"
                )
            lower, upper = [inference.lower(tail) for tail in TAILS], [inference.upper(tail) for tail in TAILS]
            assert lower == sorted(lower, reverse=True) and upper == sorted(upper), (
                "an interval with higher confidence is narrower"
            )
            for tail, low, high in zip(TAILS, lower, upper, strict=True):
                assert not low > inference.value and not high < inference.value, (
                    "the interval does not contain the value"
                )
                assert (low > 0) <= (inference.p_greater <= tail * (1 + 1e-9)), "limit and p-value disagree"
                assert (high < 0) <= (inference.p_less <= tail * (1 + 1e-9)), "limit and p-value disagree"
            for p in (inference.p_greater, inference.p_less, inference.p_two_sided):
                assert 0 <= p <= 1 and not math.isnan(p), "a p-value must be between 0 and 1"


def check_adjustment(rule: Adjustment, alpha: float = 0.05) -> None:
    """Check that adjusted p-values are at least the p-values, and that the levels lead to the same decisions."""
    for count in range(1, len(P_VALUES) + 1):
        p_values = list(P_VALUES[-count:])
        adjusted, levels = rule.adjust(p_values), rule.levels(p_values, alpha)
        assert len(adjusted) == len(levels) == count, "there must be one adjusted p-value and one level per comparison"
        for own, after, level in zip(p_values, adjusted, levels, strict=True):
            assert own * (1 - 1e-12) <= after <= 1, "an adjusted p-value must be at least the p-value, and at most 1"
            assert (own <= level * (1 + 1e-9)) == (after <= alpha * (1 + 1e-9)), "level and adjusted p-value disagree"
        assert rule.adjust(p_values[::-1]) == adjusted[::-1], "the order of the comparisons changed a number"


def check_chart(chart: AnalysisChart, analysis: Analysis) -> list[str]:
    """Check that every picture can be drawn and has a unique name. Return the names."""
    names = []
    for name, draw in chart.pictures(analysis):
        assert name and "/" not in name and "." not in name, f"{name!r} is not a file name without its suffix"
        assert rendered(draw(), ".svg").startswith(b"<svg"), f"{name} is not a chart"
        names.append(name)
    assert len(set(names)) == len(names), "two pictures have the same name"
    return names


def check_format(chosen: OutputFormat, document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Check that a format gives the same text every time, and a text for a table without rows. Return the text."""
    text = chosen.render(document, rows)
    assert isinstance(text, str) and text == chosen.render(document, rows), "the same result gave two different texts"
    assert isinstance(chosen.render({}, []), str), "a table without rows must have a text, too"
    assert chosen.suffix is None or chosen.suffix.startswith("."), "a suffix must start with a dot"
    return text
