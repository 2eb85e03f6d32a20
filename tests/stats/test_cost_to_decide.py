"""Predictions of a sequential study are its own rule, played forward."""

from __future__ import annotations

import numpy as np
import pytest

from fairtrial.core.findings import Verdict
from fairtrial.stats.cost_to_decide import predict_from_here, predict_from_pilot, predict_from_truth, settle_paths
from fairtrial.stats.deciding import SequentialPlan, assess
from fairtrial.stats.sequential import MOST_ENUMERATED


@pytest.mark.parametrize("sesoi", [None, 1.0])
def test_many_paths_at_once_end_as_each_of_them_does_alone(sesoi: float | None) -> None:
    plan = SequentialPlan(pairs=12, sesoi=sesoi)
    gains = np.random.default_rng(1).normal(0.6, 1, (60, 12))
    ends, verdicts = settle_paths(gains, plan, plan.alpha, MOST_ENUMERATED)
    alone = [assess(row, plan) for row in gains]
    assert [(each.n, each.verdict) for each in alone] == list(zip(ends, verdicts, strict=True))
    assert len(set(verdicts)) > 1


@pytest.mark.slow
def test_a_large_effect_is_decided_early_and_none_hardly_ever() -> None:
    plan = SequentialPlan(sesoi=1.5)
    rng = np.random.default_rng(2)
    large, none = predict_from_truth(plan, 2.0, 1.0, rng), predict_from_truth(SequentialPlan(), 0.0, 1.0, rng)
    assert large.pairs_for(0.8) == 7 and large.verdicts[Verdict.BETTER] > 0.95
    assert none.pairs_for(0.5) is None and none.decided[-1] < 0.07 and none.expected_pairs > 14
    assert predict_from_truth(plan, 0.0, 1.0, rng).verdicts[Verdict.EQUIVALENT] > 0.9


def test_an_uncertain_spread_promises_less_than_the_same_spread_taken_as_the_truth() -> None:
    plan, rng = SequentialPlan(), np.random.default_rng(3)
    pilot = np.array([-1.0, 0.0, 1.0]) * 0.9
    known, uncertain = predict_from_truth(plan, 1.2, 0.9, rng), predict_from_pilot(plan, 1.2, pilot, rng)
    assert uncertain.decided[-1] < known.decided[-1] - 0.05


def test_what_has_happened_is_kept_while_the_study_runs() -> None:
    plan, rng = SequentialPlan(), np.random.default_rng(4)
    clear = predict_from_here(plan, [1.0, 1.2, 0.9, 1.1, 1.0, 1.05], rng)
    mixed = predict_from_here(plan, [1.0, -1.2, 0.9, -1.1, 1.0, -1.05], rng)
    assert clear.pairs_for(0.9) == 7 and mixed.decided[-1] < 0.3


def test_one_pair_says_nothing_about_the_spread() -> None:
    with pytest.raises(ValueError, match=r"standard deviation of 1 value\(s\) is undefined"):
        predict_from_here(SequentialPlan(), [1.0], np.random.default_rng(0))
