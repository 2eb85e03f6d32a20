"""The winner of a sweep and the set that cannot be told apart from it: exact cases, invariances, and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from fairtrial.stats import families
from fairtrial.stats.noise import SHAPES, Shape
from fairtrial.stats.sweeps import Winner, mean_of, pick_winner, space

Array = NDArray[np.float64]
NAN = math.nan
REPEATS = 2_000
VALUES, SEEDS = 15, 3
NAMED = {shape.name: shape for shape in SHAPES}

few = settings(max_examples=12, deadline=None)  # every winner costs two studentized ranges, each an integral


def picked(direction: str = "max", /, **arms: list[float]) -> Winner:
    found = pick_winner({name: np.array(sample) for name, sample in arms.items()}, direction=direction, alpha=0.05)
    assert found is not None
    return found


# Exact cases


def test_the_best_mean_wins_in_either_direction() -> None:
    arms = {"a": [0.1, 0.2, 0.2], "b": [0.9, 0.8, 0.95], "c": [0.5, 0.6, 0.4]}
    best, least = picked(**arms), picked("min", **arms)
    assert (best.best, best.alike) == ("b", ("b",))
    assert (least.best, least.alike) == ("a", ("a",))
    assert best.spacing is not None and best.spacing == least.spacing, "the noise does not know what is good"


def test_the_limit_is_tukeys_and_its_p_that_of_the_range() -> None:
    layout = np.array([[0.1, 0.25, 0.2], [0.3, 0.2, 0.35], [0.2, 0.4, 0.31], [0.15, 0.3, 0.3]])
    found = space(list(layout), 0.05)
    residual = layout - layout.mean(1, keepdims=True) - layout.mean(0, keepdims=True) + layout.mean()
    sd = math.sqrt((residual**2).sum() / 6)
    assert found is not None and found.freedom == 6
    assert found.sd == pytest.approx(sd, rel=1e-12)
    assert found.limit == pytest.approx(stats.studentized_range.ppf(0.95, 4, 6) * sd / math.sqrt(3), rel=1e-9)
    width = np.ptp(layout.mean(1)) / (sd / math.sqrt(3))
    assert found.range_p == pytest.approx(stats.studentized_range.sf(width, 4, 6), abs=1e-9)
    wider = space(list(layout), 0.01)
    assert wider is not None and wider.limit > found.limit


def test_an_arm_is_in_the_set_up_to_the_limit_and_not_beyond() -> None:
    """Whole numbers, so that the layout's noise does not depend on how far the arms are apart."""
    noise = np.array([[1, -1, 0], [-1, 1, 0], [0, 1, -1], [0, -1, 1]], dtype=float)
    spacing = space(list(noise), 0.05)
    assert spacing is not None
    for gap, inside in ((0.999 * spacing.limit, True), (1.001 * spacing.limit, False)):
        arms = dict(zip("abcd", noise + np.array([[gap], [0], [0], [0]]), strict=True))
        found = pick_winner(arms, direction="max", alpha=0.05)
        assert found is not None and found.best == "a"
        assert found.alike == (("a", "b", "c", "d") if inside else ("a",))


@pytest.mark.parametrize("direction", ["max", "min"])
def test_of_equal_means_the_first_wins(direction: str) -> None:
    arms = {"a": [2.0, 4.0, 3.0], "b": [4.0, 2.0, 3.0], "c": [3.0, 3.0, 3.0]}
    for names in (["a", "b", "c"], ["c", "a", "b"], ["b", "c", "a"]):
        found = picked(direction, **{name: arms[name] for name in names})
        assert (found.best, found.alike) == (names[0], tuple(names))
        assert found.spacing is not None and found.spacing.range_p == pytest.approx(1)


def test_of_equal_means_the_first_wins_whatever_the_order_of_its_numbers() -> None:
    """0.3 + 0.2 + 0.1 and 0.1 + 0.2 + 0.3 differ in the last digit: accuracies are often such numbers."""
    assert picked(first=[0.3, 0.2, 0.1], second=[0.1, 0.2, 0.3]).best == "first"
    assert picked(first=[0.1, 0.2, 0.3], second=[0.3, 0.2, 0.1]).best == "first"


def test_one_run_each_gives_a_winner_but_no_set() -> None:
    found = picked(a=[0.1], b=[0.3], c=[0.2])
    assert (found.best, found.alike, found.spacing, found.reason) == ("b", None, None, "too few runs")


def test_one_value_is_its_own_set() -> None:
    assert picked(a=[0.1, 0.2]) == Winner("a", ("a",), None)
    assert picked(a=[0.1]) == Winner("a", ("a",), None)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6])
def test_where_all_is_equal_nothing_can_tell(value: float) -> None:
    found = picked(a=[value] * 3, b=[value] * 3, c=[value] * 3)
    assert (found.best, found.alike, found.spacing, found.reason) == ("a", None, None, "no variation")


def test_arms_that_differ_by_a_constant_have_no_noise_to_judge_by() -> None:
    found = picked(a=[0.1, 0.4, 0.3], b=[0.2, 0.5, 0.4], c=[0.3, 0.6, 0.5])
    assert (found.best, found.alike, found.reason) == ("c", None, "no variation")


def test_no_number_at_all_is_no_winner() -> None:
    assert pick_winner({}, direction="max", alpha=0.05) is None
    assert pick_winner({"a": np.array([NAN, math.inf]), "b": np.array([])}, direction="max", alpha=0.05) is None


# Lost runs


def test_an_arm_does_not_win_by_losing_its_bad_runs() -> None:
    """What is left of `lossy` has the best mean by far; with the lost run at the worst value it has not."""
    full = {"good": [0.80, 0.82, 0.81], "bad": [0.3, 0.32, 0.31]}
    assert picked(**full, lossy=[0.9, NAN, 0.9]).best == "good"
    assert picked(**full, lossy=[0.9, math.inf, 0.9]).best == "good"
    assert picked("min", good=[0.2, 0.21, 0.2], bad=[0.9, 0.8, 0.9], lossy=[0.1, NAN, 0.1]).best == "good"


def test_an_arm_that_is_best_even_at_its_worst_wins() -> None:
    found = picked(lossy=[5.0, NAN, 5.1, 5.2], other=[0.1, 0.3, 0.2, 0.25], third=[0.2, 0.1, 0.2, 0.15])
    assert found.best == "lossy"


def test_arms_without_any_number_are_left_out_of_choice_and_noise() -> None:
    arms = {"a": [0.1, 0.3, 0.2], "b": [0.4, 0.3, 0.5]}
    alone, found = picked(**arms), picked(gone=[NAN] * 3, **arms, infinite=[math.inf] * 3)
    assert found == alone
    assert picked(gone=[NAN, NAN], a=[0.1, 0.2]) == Winner("a", ("a",), None)


def test_the_set_keeps_whom_only_a_lost_run_sets_apart() -> None:
    """With its lost run at the worst, `lossy` is far behind; without that seed it is level with the best."""
    rng = np.random.default_rng(0)
    arms = {name: (0.9 + 0.001 * rng.standard_normal(8)).tolist() for name in ("best", "lossy", "third", "fourth")}
    arms["far"] = (0.1 + 0.001 * rng.standard_normal(8)).tolist()
    arms["lossy"][3] = NAN
    found = picked(**arms)
    assert found.alike is not None and "lossy" in found.alike and "far" not in found.alike
    assert found.best != "lossy"


@few
@given(data=st.data())
def test_making_a_run_of_an_arm_lost_never_makes_it_the_winner(data: st.DataObject) -> None:
    layout = data.draw(layouts())
    before = pick_winner(layout, direction="max", alpha=0.05)
    assert before is not None
    name = data.draw(st.sampled_from([each for each in layout if each != before.best]))
    worst = min(float(sample.min()) for sample in layout.values())
    place = data.draw(st.sampled_from([i for i, value in enumerate(layout[name]) if value > worst] or [-1]))
    if place >= 0:
        lossy = layout[name].copy()
        lossy[place] = NAN
        after = pick_winner({**layout, name: lossy}, direction="max", alpha=0.05)
        assert after is not None and after.best == before.best


# What must not matter


@st.composite
def layouts(draw: st.DrawFn) -> dict[str, Array]:
    """Arms on shared seeds, whole numbers with few ties; few shapes, as every new one costs a quantile."""
    arms, seeds = draw(st.sampled_from([(2, 2), (3, 3), (5, 3)]))
    numbers = st.lists(st.integers(-1000, 1000), min_size=seeds, max_size=seeds)
    return {f"v{n}": np.array(draw(numbers), dtype=float) for n in range(arms)}


@few
@given(data=st.data(), direction=st.sampled_from(["max", "min"]))
def test_the_order_of_seeds_does_not_matter(data: st.DataObject, direction: str) -> None:
    layout = data.draw(layouts())
    order = data.draw(st.permutations(range(len(layout["v0"]))))
    turned = {name: sample[list(order)] for name, sample in layout.items()}
    here = pick_winner(layout, direction=direction, alpha=0.05)
    assert here == pick_winner(turned, direction=direction, alpha=0.05), "to the last digit"


@few
@given(data=st.data(), direction=st.sampled_from(["max", "min"]))
def test_the_order_of_arms_matters_for_ties_alone(data: st.DataObject, direction: str) -> None:
    layout = data.draw(layouts())
    order = data.draw(st.permutations(list(layout)))
    here = pick_winner(layout, direction=direction, alpha=0.05)
    there = pick_winner({name: layout[name] for name in order}, direction=direction, alpha=0.05)
    assert here is not None and there is not None
    sums = {name: float(sample.sum()) for name, sample in layout.items()}
    assert sums[here.best] == sums[there.best]
    assert there.best == next(name for name in order if sums[name] == sums[here.best])
    assert (here.alike is None) == (there.alike is None) and here.reason == there.reason
    if here.alike is not None and there.alike is not None:
        assert set(here.alike) == set(there.alike)
        assert there.alike == tuple(name for name in order if name in there.alike), "told in the order of the arms"


@few
@given(data=st.data(), shift=st.integers(-5000, 5000), power=st.integers(-6, 6))
def test_shift_and_scale_carry_over(data: st.DataObject, shift: int, power: int) -> None:
    """By powers of two, so that nothing is rounded."""
    layout, scale = data.draw(layouts()), 2.0**power
    here = pick_winner(layout, direction="max", alpha=0.05)
    moved = {name: scale * (sample + shift) for name, sample in layout.items()}
    there = pick_winner(moved, direction="max", alpha=0.05)
    assert here is not None and there is not None
    assert (there.best, there.alike, there.reason) == (here.best, here.alike, here.reason)
    if here.spacing is not None and there.spacing is not None:
        assert there.spacing.limit == pytest.approx(scale * here.spacing.limit, rel=1e-9)
        assert there.spacing.sd == pytest.approx(scale * here.spacing.sd, rel=1e-9)
        assert there.spacing.range_p == pytest.approx(here.spacing.range_p, abs=1e-6)


@few
@given(data=st.data())
def test_the_least_is_the_best_of_the_negative(data: st.DataObject) -> None:
    layout = data.draw(layouts())
    least = pick_winner(layout, direction="min", alpha=0.05)
    best = pick_winner({name: -sample for name, sample in layout.items()}, direction="max", alpha=0.05)
    assert least is not None and best is not None
    assert (least.best, least.alike, least.reason) == (best.best, best.alike, best.reason)


# One arm by itself


@pytest.mark.parametrize("n", [2, 3, 10])
def test_the_mean_of_one_arm_has_students_interval(n: int) -> None:
    sample = np.random.default_rng(n).normal(0.5, 0.1, n)
    found = mean_of(sample, 0.05)
    low, high = stats.t.interval(0.95, n - 1, sample.mean(), stats.sem(sample))
    assert found.value == pytest.approx(sample.mean(), rel=1e-12) and found.n == n
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-10)
    assert mean_of(sample[::-1], 0.05) == found


def test_the_mean_of_one_arm_leaves_lost_runs_out_and_says_what_it_lacks() -> None:
    assert mean_of(np.array([0.1, NAN, 0.3]), 0.05) == mean_of(np.array([0.3, 0.1]), 0.05)
    nothing, single, still = (mean_of(np.array(values), 0.05) for values in ([NAN], [0.5, NAN], [0.5, 0.5, 0.5]))
    assert (nothing.value, nothing.n, nothing.reason) == (None, 0, "too few runs")
    assert (single.value, single.low, single.n, single.reason) == (0.5, None, 1, "too few runs")
    assert (still.value, still.low, still.n, still.reason) == (0.5, None, 3, "no variation")


# By simulation

# In units of the noise's own standard deviation; the best is always the last.
TRUTHS = {
    "all equal": np.zeros(VALUES),
    "one best, near": np.append(np.zeros(VALUES - 1), 1.0),
    "one best, far": np.append(np.zeros(VALUES - 1), 5.0),
    "rising": np.linspace(0, 3, VALUES),
    "rising, then flat": np.minimum(np.linspace(0, 6, VALUES), 3.0),
}


def draws(shape: Shape, truth: Array, *, key: int, repeats: int = REPEATS, luck: float = 5) -> Array:
    """Settings × seeds; the luck of a seed moves all settings, and the noise has standard deviation 1."""
    rng = np.random.default_rng([key, len(shape.name), int(100 * truth.sum())])
    raw = shape.draw(rng, (repeats, len(truth), SEEDS))
    noise = (raw - shape.mean) / shape.draw(np.random.default_rng(0), (100_000,)).std()
    return np.asarray(noise + truth[:, None] + luck * rng.standard_normal((repeats, 1, SEEDS)))


def sets_of(layout: Array) -> NDArray[np.bool_]:
    """For many layouts at once: whose gap to the best mean is within Tukey's limit."""
    residual, freedom = families.residual_variance(layout)
    means = layout.mean(axis=-1)
    limit = families.tukey_quantile(0.95, layout.shape[-2], freedom) * np.sqrt(residual / layout.shape[-1])
    return np.asarray(means.max(axis=-1, keepdims=True) - means <= limit[:, None])


@pytest.mark.parametrize("shape", SHAPES, ids=list(NAMED))
@pytest.mark.parametrize("truth", TRUTHS)
def test_the_set_of_fifteen_values_at_three_seeds_contains_the_true_best(truth: str, shape: Shape) -> None:
    """One chosen true best, where there are several. The specification says 98 to 100 %."""
    kept = sets_of(draws(shape, TRUTHS[truth], key=1))
    assert float(kept[:, -1].mean()) >= 0.98 - 3 * math.sqrt(0.98 * 0.02 / REPEATS)


@pytest.mark.parametrize("shape", SHAPES, ids=list(NAMED))
def test_equal_settings_are_rarely_told_apart(shape: Shape) -> None:
    """Families of 4 and 6 keep to 6 % on all shapes; fifteen do so too, but for heavy tails, which err in 8 to 9 %."""
    kept = sets_of(draws(shape, TRUTHS["all equal"], key=2))
    bound = 0.09 if shape.name == "heavy tails" else 0.06
    assert 1 - float(kept.all(axis=1).mean()) <= bound + 3 * math.sqrt(bound * (1 - bound) / REPEATS)


def test_the_set_says_something_where_there_is_something_to_say() -> None:
    far = sets_of(draws(NAMED["normal"], TRUTHS["one best, far"], key=3))
    assert float(far.sum(axis=1).mean()) < 2, "a value that is far better is nearly alone"
    rising = sets_of(draws(NAMED["normal"], 3 * TRUTHS["rising"], key=3))
    assert float(rising.sum(axis=1).mean()) < VALUES / 2
    assert float(rising[:, 0].mean()) < 0.01


def test_a_winner_is_picked_by_the_rule_that_was_simulated() -> None:
    layouts_ = np.concatenate([draws(NAMED["log-normal"], truth, key=4, repeats=5) for truth in TRUTHS.values()])
    kept = sets_of(layouts_)
    assert 0.2 < kept.mean() < 0.95
    names = [f"v{n}" for n in range(VALUES)]
    for layout, alike in zip(layouts_, kept, strict=True):
        found = pick_winner(dict(zip(names, layout, strict=True)), direction="max", alpha=0.05)
        assert found is not None
        assert found.best == names[int(layout.mean(axis=1).argmax())]
        assert found.alike == tuple(name for name, inside in zip(names, alike, strict=True) if inside)


@pytest.mark.parametrize("shape", SHAPES, ids=list(NAMED))
def test_the_best_of_equal_settings_looks_too_good_and_fresh_seeds_do_not(shape: Shape) -> None:
    """The truth is 0, in units of the noise: its own three runs say 0.7 to 1.3, three fresh ones 0."""
    chosen_by, fresh = (draws(shape, TRUTHS["all equal"], key=key, luck=0) for key in (5, 6))
    own = chosen_by.mean(axis=-1).max(axis=-1)
    best = chosen_by.mean(axis=-1).argmax(axis=-1)
    again = fresh[np.arange(REPEATS), best].mean(axis=-1)
    assert float(own.mean()) > 0.6
    assert abs(float(again.mean())) <= 3 * float(again.std(ddof=1)) / math.sqrt(REPEATS)
