"""Charts: functions that take plain data and return a chart object, which `save` writes as PNG, SVG or PDF.

Each chart is one function. It builds rows, draws them as layers on a `Frame`, and puts its finding into the title.
"""

from __future__ import annotations

from fairtrial.report.charts.arms import arms
from fairtrial.report.charts.bootstrap import Resamples, bootstrap_distribution
from fairtrial.report.charts.curves import Band, learning_curves
from fairtrial.report.charts.differences import difference_distribution
from fairtrial.report.charts.families import forest
from fairtrial.report.charts.frame import Axis, Frame, finished, with_note
from fairtrial.report.charts.frontier import frontier
from fairtrial.report.charts.metric_profile import metric_profile
from fairtrial.report.charts.noise import variance_panels
from fairtrial.report.charts.normality import Quantiles, normality
from fairtrial.report.charts.pairs import paired_differences
from fairtrial.report.charts.profiles import performance_profiles
from fairtrial.report.charts.rendering import save
from fairtrial.report.charts.style import SYNTHETIC_NOTE, ArmStyles, arm_styles, chart_note, list_names, style_at
from fairtrial.report.charts.sweeps import sweep_curve

__all__ = [
    "SYNTHETIC_NOTE",
    "ArmStyles",
    "Axis",
    "Band",
    "Frame",
    "Quantiles",
    "Resamples",
    "arm_styles",
    "arms",
    "bootstrap_distribution",
    "chart_note",
    "difference_distribution",
    "finished",
    "forest",
    "frontier",
    "learning_curves",
    "list_names",
    "metric_profile",
    "normality",
    "paired_differences",
    "performance_profiles",
    "save",
    "style_at",
    "sweep_curve",
    "variance_panels",
    "with_note",
]
