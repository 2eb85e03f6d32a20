"""Comparisons over tasks: all that is said about a gap is about gaps."""

from __future__ import annotations

import numpy as np
import pytest

from fairtrial.analyse.aggregate import optimality_gap
from fairtrial.analyse.compare import Terms
from fairtrial.analyse.tasks import TaskTerms, compare_tasks
from fairtrial.core.findings import Verdict


def test_an_optimality_gap_is_judged_by_the_gaps_of_the_runs() -> None:
    """Scores far above γ count for nothing: the candidate is better where it matters, and has the lower mean score."""
    draw = np.random.default_rng(1)
    control = np.column_stack([draw.normal(20, 1, 8), draw.normal(900, 1, 8)])
    candidate = np.column_stack([draw.normal(60, 1, 8), draw.normal(400, 1, 8)])
    how = TaskTerms("optimality_gap", gamma=100.0)
    found = compare_tasks(control, candidate, Terms(True), how, names=("a", "b"))
    assert found.effect.value == pytest.approx(float(optimality_gap(candidate, 100) - optimality_gap(control, 100)))
    assert found.verdict is Verdict.BETTER and found.direction == "min"
    assert found.mean_control == pytest.approx(float(optimality_gap(control, 100)))
    assert found.sd_candidate is not None and found.sd_candidate < 2
    assert found.effect.samples is not None and max(found.effect.samples) < 0, "every pair is won"
