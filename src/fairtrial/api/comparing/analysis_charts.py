"""The interface of the charts that `analyze --plots` writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from fairtrial.api.comparing.analysis import Analysis
from fairtrial.report import charts

Pictures = Iterable[tuple[str, Callable[[], Any]]]
"""File names without a suffix, each with the function that draws the picture."""


@dataclass(frozen=True)
class AnalysisChart:
    """Pictures of an analysis that `analyze --plots FOLDER` writes.

    `pictures(analysis)` yields a file name without its suffix and a function that draws the picture, for each picture
    that the analysis has numbers for. The function returns an Altair chart with a title; `charts.Frame`, `charts.Axis`
    and `charts.finished` give it the style of the built-in charts.

        def pictures(analysis):
            if len(analysis.comparisons) > 1:
                yield "effects", lambda: draw_effects(analysis)

        EFFECTS = AnalysisChart(pictures)
    """

    pictures: Callable[[Analysis], Pictures]


def arm_styles(analysis: Analysis) -> charts.ArmStyles:
    """Return the style of every arm, the same in all charts of the analysis."""
    sides = [name for each in (*analysis.comparisons, *analysis.secondary) for name in (each.control, each.candidate)]
    return charts.arm_styles([*(arm.variant for arm in analysis.arms), *analysis.curves, *sides], analysis.control)
