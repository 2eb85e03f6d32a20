"""Cautions come where simulations show that they are needed, and stay away from clean data."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fairtrial.stats.certificate import t_intervals
from fairtrial.stats.compare import compare_samples
from fairtrial.stats.diagnostics import ENOUGH_FOR_ONE_ARM, one_arm_cautions, too_unequal
from fairtrial.stats.noise import SHAPES, Shape
from fairtrial.stats.seed_effect import seed_effect_cautions
from fairtrial.stats.variance import spread

Array = NDArray[np.float64]
NAMED = {shape.name: shape for shape in SHAPES}
PROMISED = [shape for shape in SHAPES if shape.name != "collapsing"]
REPEATS = 20_000


def errors(share: float, repeats: int = REPEATS) -> float:
    """Three standard errors of a simulated share."""
    return 3 * math.sqrt(share * (1 - share) / repeats)


def false_verdicts(first: Array, second: Array, *, paired: bool = False) -> float:
    low, high = t_intervals(first, second, paired=paired, alpha=0.05)
    return float(((low > 0) | (high < 0)).mean())


def worst_at(n: int, m: int, repeats: int = REPEATS) -> float:
    rng = np.random.default_rng([n, m])
    return max(false_verdicts(shape.draw(rng, (repeats, n)), shape.draw(rng, (repeats, m))) for shape in PROMISED)


# Unequal numbers of runs.


@pytest.mark.parametrize(
    ("n", "m"), [(3, 4), (4, 6), (5, 8), (6, 9), (7, 17), (8, 19), (10, 24), (12, 29), (15, 17), (15, 37), (30, 74)]
)
def test_arms_that_are_not_called_too_unequal_keep_the_error_rate(n: int, m: int) -> None:
    """The most unequal arms without a caution, and the case of the audit, 17 against 15."""
    assert not too_unequal(n, m)
    assert worst_at(n, m) <= 0.06 + errors(0.06)


@pytest.mark.parametrize(("n", "m"), [(2, 5), (3, 6), (3, 15), (4, 8), (5, 15), (7, 30), (10, 30), (15, 60), (20, 100)])
def test_arms_that_are_called_too_unequal_break_it(n: int, m: int) -> None:
    assert too_unequal(n, m)
    assert worst_at(n, m) > 0.06


@given(st.integers(2, 300), st.integers(2, 300))
def test_the_rule_about_unequal_arms_is_symmetric_and_never_about_equal_ones(n: int, m: int) -> None:
    assert too_unequal(n, m) == too_unequal(m, n)
    assert not too_unequal(n, n) and (n < 3 or not too_unequal(n, n + 1))
    assert too_unequal(n, m + 1) or not too_unequal(n, m) or m < n, "more of the larger arm never removes it"


def test_only_unpaired_runs_can_be_too_unequal() -> None:
    """D: `unequal n` came at 17 against 15."""
    rng = np.random.default_rng(1)
    near = compare_samples(rng.normal(size=17), rng.normal(size=15), paired=False)
    far = compare_samples(rng.normal(size=3), rng.normal(size=15), paired=False)
    assert "unequal n" not in codes(near.cautions) and "unequal n" in codes(far.cautions)


# One arm alone.


def one_arm_coverage(n: int, repeats: int) -> float:
    shape = NAMED["log-normal"]
    sample = shape.draw(np.random.default_rng([n, 4]), (repeats, n))
    low, high = t_intervals(np.zeros((repeats, n)), sample, paired=True, alpha=0.05)
    return float(((low <= shape.mean) & (shape.mean <= high)).mean())


@pytest.mark.parametrize("n", [5, 15, 30, 60])
def test_one_arm_alone_is_cautioned_about_where_skewed_noise_breaks_its_interval(n: int) -> None:
    assert codes(one_arm_cautions(n)) == ["one-arm interval"]
    assert one_arm_coverage(n, REPEATS) < 0.93 + errors(0.93)


def test_one_arm_alone_is_not_cautioned_about_where_its_interval_holds() -> None:
    """D: `one-arm interval` came at n = 98."""
    assert one_arm_cautions(ENOUGH_FOR_ONE_ARM) == [] == one_arm_cautions(98)
    assert one_arm_coverage(98, 40_000) >= 0.93 - errors(0.93, 40_000)
    many = spread(np.random.default_rng(3).normal(1, 0.1, 98), threshold=0.05)
    few = spread(np.random.default_rng(3).normal(1, 0.1, 15), threshold=0.05)
    assert codes(many.cautions) == [] and codes(few.cautions) == ["one-arm interval"]


# Arms of different spread.


@pytest.mark.parametrize(("n", "ratio"), [(3, 14.1), (5, 4.6), (8, 2.6), (15, 1.9)])
def test_false_verdicts_are_as_the_caution_says_where_it_begins_to_come(n: int, ratio: float) -> None:
    """At these ratios of standard deviations it comes in every second comparison of normal arms."""
    rates = {}
    for name in ("normal", "log-normal", "collapsing"):
        rates[name] = [_with_noisy_arm(NAMED[name], n, ratio, paired=paired) for paired in (True, False)]
    assert max(rates["normal"]) <= 0.06
    assert max(rates["log-normal"]) <= 0.135 + errors(0.13) and min(rates["log-normal"]) >= 0.065 - errors(0.07)
    assert max(rates["collapsing"]) <= 0.285 + errors(0.28) and min(rates["collapsing"]) >= 0.065 - errors(0.07)


def _with_noisy_arm(shape: Shape, n: int, ratio: float, *, paired: bool) -> float:
    rng = np.random.default_rng([n, 11])
    control, candidate = shape.draw(rng, (2, REPEATS, n)) - shape.mean
    return false_verdicts(control, ratio * candidate, paired=paired)


# Clean data.


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 5, 8, 15])
@pytest.mark.parametrize("paired", [True, False], ids=["paired", "unpaired"])
def test_clean_data_carry_hardly_any_caution(n: int, paired: bool) -> None:
    """Equal normal arms: each caution in at most one comparison of ten."""
    repeats, rng, seen = 300, np.random.default_rng([n, 12]), Counter[str]()
    for _ in range(repeats):
        seen.update(codes(compare_samples(*rng.normal(size=(2, n)), paired=paired).cautions))
    assert all(count / repeats <= 0.1 for count in seen.values()), seen
    assert set(seen) <= {"arms differ in shape"}


# A metric that does not vary over seeds.


def test_five_equal_runs_make_one_wonder_whether_the_seed_arrives() -> None:
    """D: five runs with a standard deviation of 0.0000 carried no caution."""
    [told] = seed_effect_cautions("base", "accuracy", [0.5] * 5)
    assert told["text"] == "The metric is identical for all seeds of base: does your program use the seed?"
    assert "accuracy" in told["remedy"]


@pytest.mark.parametrize("values", [[], [0.5], [0.5, 0.5000001], [0.5, math.nan], [1.0, 1.0, 2.0]])
def test_too_few_runs_or_any_variation_make_nobody_wonder(values: list[float]) -> None:
    assert seed_effect_cautions("base", "accuracy", values) == []


def test_rounding_is_no_variation_and_lost_runs_do_not_count() -> None:
    assert seed_effect_cautions("base", "accuracy", [0.3, 0.1 + 0.2, math.nan])
    assert seed_effect_cautions("base", "loss", [0.0, 0.0])


def test_a_metric_that_cannot_vary_is_known_by_the_others() -> None:
    """Counts, and accuracies that are as good as they get: the loss shows that the seed has an effect."""
    varied = [{"report_episodes": 100, "train_loss": 0.1 * seed, "seconds": 3.0} for seed in range(3)]
    assert seed_effect_cautions("base", "report_episodes", [100.0] * 3, finals=varied) == []
    timed = [{"report_episodes": 100, "train_loss": 0.1, "seconds": 1.0 * seed, "gpu_load": seed} for seed in range(3)]
    assert seed_effect_cautions("base", "report_episodes", [100.0] * 3, finals=timed), "the clock shows nothing"


def test_a_metric_that_varied_on_its_way_shows_that_the_seed_arrives() -> None:
    ways = [np.array([0.1, 0.5, 1.0]), np.array([0.2, 0.6, 1.0])]
    assert seed_effect_cautions("base", "accuracy", [1.0, 1.0], curves=ways) == []
    assert seed_effect_cautions("base", "accuracy", [1.0, 1.0], curves=[ways[0], ways[0][:2]])


@given(st.permutations([0.2, 0.2, 0.2, 0.4]), st.floats(-5, 5), st.floats(0.1, 10))
def test_variation_does_not_depend_on_order_shift_or_scale(values: list[float], shift: float, scale: float) -> None:
    assert seed_effect_cautions("v", "m", [shift + scale * value for value in values]) == []
    assert seed_effect_cautions("v", "m", [shift + scale * 0.2] * 4)


def codes(cautions: object) -> list[str]:
    return [caution["code"] for caution in cautions]  # type: ignore[attr-defined]
