"""`best` and `time_to` do not depend on how often a run was logged; windows that are off by one count."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fairtrial.stats.certificate import t_intervals
from fairtrial.stats.compare import compare_samples
from fairtrial.stats.logged_steps import SharedSteps, share_steps
from fairtrial.stats.summaries import Curve, SummaryRule, Window, describe, summarise, tidy, windows_of

Array = NDArray[np.float64]
BEST, TIME = SummaryRule("best"), SummaryRule("time_to", threshold=2.0)
few = settings(max_examples=40, deadline=None)


def curve(steps: Any, seed: int = 0) -> Curve:
    steps = np.asarray(steps, dtype=float)
    return steps, np.random.default_rng([seed, len(steps)]).standard_normal(len(steps))


def shared(**arms: Sequence[Curve]) -> SharedSteps:
    return share_steps(arms, windows_of(arms, BEST))


def kept(found: SharedSteps, arm: str) -> list[list[float] | None]:
    return [None if each is None else each[0].tolist() for each in found.curves[arm]]


def numbers_of(arms: Mapping[str, Sequence[Curve]], rule: SummaryRule) -> dict[str, Array]:
    windows = windows_of(arms, rule)
    curves = share_steps(arms, windows).curves
    return {
        name: np.array([summarise(each, rule, windows[name], "max").number for each in curves[name]]) for name in arms
    }


# Runs that log alike


@few
@given(
    steps=st.sets(st.integers(0, 500), min_size=1, max_size=40).map(sorted),
    stops=st.lists(st.integers(1, 40), min_size=2, max_size=6),
)
def test_runs_that_log_the_same_steps_keep_all_of_them(steps: list[int], stops: list[int]) -> None:
    together = [curve(steps, seed) for seed in range(4)]
    found = shared(base=together[:2], new=together[2:])
    assert not found.thinned and not found.too_few
    assert kept(found, "base") == kept(found, "new") == [[float(step) for step in steps]] * 2
    for rule in (BEST, TIME):
        alone = [summarise(each, rule, windows_of({"x": together}, rule)["x"], "max").number for each in together]
        both = numbers_of({"base": together[:2], "new": together[2:]}, rule)
        assert np.array_equal([*both["base"], *both["new"]], alone, equal_nan=True)


def test_runs_that_stop_early_keep_all_steps_up_to_their_end() -> None:
    """Each at its own step, some with an extra point when they stopped."""
    stopped = [curve([*range(0, end, 10), end]) for end in (200, 333, 410, 1000)]
    found = shared(base=stopped[:2], new=stopped[2:])
    assert not found.thinned and sum(len(each[0]) for each in stopped) == sum(found.kept.values())


def test_a_run_that_lost_a_few_lines_costs_the_others_nothing() -> None:
    whole = np.arange(0, 1000, 10)
    runs = [curve(np.delete(whole, [3 + seed, 50 + seed]), seed) for seed in range(30)]
    found = shared(base=runs[:15], new=[*runs[15:], curve(whole)])
    assert found.intervals == 100 and not found.thinned
    assert all(each is not None and each[0].size >= 98 for arm in found.curves.values() for each in arm)


def test_a_hole_in_one_run_is_a_hole_in_all() -> None:
    whole = np.arange(0, 1000, 10)
    found = shared(base=[curve(whole), curve(whole)], new=[curve(whole), curve(np.delete(whole, slice(20, 60)))])
    expected = [*range(0, 200, 10), *range(600, 1000, 10)]
    assert kept(found, "base") == kept(found, "new") == [expected, expected]
    assert found.thinned == {"base": 80, "new": 40}


# Runs that log differently


@few
@given(data=st.data(), every=st.integers(2, 20))
def test_more_points_in_a_run_change_no_number(data: st.DataObject, every: int) -> None:
    grid = np.arange(0, 20 * every + 1, every)
    base = [curve(grid, 1), curve(grid, 2)]
    plain = [curve(grid, 3), curve(grid, 4)]
    denser = []
    for steps, values in plain:
        extra = np.array(sorted(data.draw(st.sets(st.integers(1, 20 * every - 1))) - set(grid.tolist())), dtype=float)
        denser.append(tidy([*steps, *extra], [*values, *np.full(len(extra), 99.0)]))
    for rule in (BEST, TIME):
        here, there = (numbers_of({"base": base, "new": new}, rule) for new in (plain, denser))
        assert all(np.array_equal(here[arm], there[arm], equal_nan=True) for arm in here)


@few
@given(data=st.data())
def test_neither_order_nor_roles_nor_units_of_steps_matter(data: st.DataObject) -> None:
    logs = st.sets(st.integers(0, 60), min_size=1, max_size=30).map(sorted)
    runs = [curve(data.draw(logs), seed) for seed in range(5)]
    here = share_steps({"base": runs[:2], "new": runs[2:]}, dict.fromkeys(("base", "new")))
    order = data.draw(st.permutations(range(3)))
    there = share_steps({"new": [runs[2 + at] for at in order], "base": runs[:2]}, dict.fromkeys(("base", "new")))
    assert kept(here, "base") == kept(there, "base")
    assert [kept(here, "new")[at] for at in order] == kept(there, "new")
    scaled = [(8 * steps + 64, values) for steps, values in runs]
    large = share_steps({"base": scaled[:2], "new": scaled[2:]}, dict.fromkeys(("base", "new")))
    assert kept(large, "new") == [None if s is None else [8 * x + 64 for x in s] for s in kept(here, "new")]


@few
@given(data=st.data())
def test_no_run_has_more_values_than_there_are_intervals_and_its_last_is_among_them(data: st.DataObject) -> None:
    logs = st.sets(st.integers(0, 200), min_size=1, max_size=80).map(sorted)
    runs = [curve(data.draw(logs), seed) for seed in range(4)]
    found = share_steps({"base": runs[:2], "new": runs[2:]}, dict.fromkeys(("base", "new")))
    for before, after in zip(runs, [*found.curves["base"], *found.curves["new"]], strict=True):
        assert after is None or (len(after[0]) <= found.intervals and after[0][-1] == before[0][-1])
        assert after is None or set(after[0]) <= set(before[0])


@pytest.mark.parametrize(
    ("sparse", "dense", "steps"),
    [
        (np.arange(0, 1001, 10), np.arange(0, 1001), 101),
        (np.arange(10, 1001, 10), np.arange(1, 1001), 100),
        (np.arange(0, 1000, 10), np.arange(0, 1000), 100),  # the dense one also has steps 991 to 999
        (np.arange(800, 1001, 20), np.arange(0, 1001), 11),  # logged late in training only
        (np.arange(0, 1001, 10), np.arange(5, 1001, 10), 101),  # as often, but never at the same step
    ],
)
def test_two_arms_end_up_with_equally_many_values(sparse: Array, dense: Array, steps: int) -> None:
    arms = {"base": [curve(sparse)] * 3, "new": [curve(dense)] * 3}
    windows = windows_of(arms, BEST)
    found = share_steps(arms, windows)
    inside = {
        name: [sum(w[0] <= s <= w[1] for s in each) for each in kept(found, name) if each is not None]
        for name, w in windows.items()
        if w is not None
    }
    assert all(abs(count - steps) <= 1 for counts in inside.values() for count in counts) and len(inside) == 2


def test_a_sparse_run_among_thirty_is_followed_while_enough_is_left_and_set_aside_beyond() -> None:
    usual = [curve(np.arange(0, 1000), seed) for seed in range(29)]
    followed = shared(base=[*usual, curve(np.arange(0, 1000, 10))], new=usual)
    assert followed.intervals == 101 and all(each is not None for each in followed.curves["base"])
    aside = shared(base=[*usual, curve([0, 500, 999])], new=usual)
    assert aside.curves["base"][-1] is None and aside.intervals == 1000 and not aside.thinned
    found = summarise(aside.curves["base"][-1], BEST, None, "max")
    assert (found.value, found.reason) == (None, "logged at far fewer steps than the other runs")


def test_a_run_without_its_first_lines_does_not_hold_up_the_others() -> None:
    whole = np.arange(0, 1000, 10)
    found = shared(base=[curve(whole)] * 2, new=[curve(whole), curve(whole), curve(whole[40:])])
    assert found.intervals == 100 and not found.thinned


@pytest.mark.parametrize("steps", [[1000], [0, 1000], [0, 500, 1000]])
def test_a_handful_of_shared_steps_is_too_few_where_others_logged_many(steps: list[int]) -> None:
    dense = [curve(np.arange(0, 1001, 10))] * 3
    assert shared(base=[curve(steps)] * 3, new=dense).too_few
    assert not shared(base=[curve(steps)] * 3, new=[curve(steps)] * 3).too_few
    shorter = [curve(steps), curve(steps), curve(steps[-1:])]
    assert not shared(base=shorter, new=shorter).too_few


def test_logs_of_any_kind_are_shared_in_little_time() -> None:
    rng = np.random.default_rng(1)
    lossy = [curve(np.flatnonzero(np.append(rng.random(2000) > 0.2, True))) for _ in range(60)]
    irregular = [curve(np.unique(rng.integers(0, 10**6, 2000))) for _ in range(60)]
    began = time.process_time()
    for runs in (lossy, irregular):
        assert share_steps({"a": runs[:30], "b": runs[30:]}, dict.fromkeys("ab")).intervals > 100
    assert time.process_time() - began < 3


# Verdicts


def simulated(every: Sequence[int], n: int, rule: SummaryRule, seed: int, repeats: int = 300) -> float:
    """How often two arms of one process are told apart, logged every so many steps."""
    rng = np.random.default_rng(seed)
    studies = []
    for _ in range(repeats):
        arms = {}
        for name, each in zip(("base", "new"), every, strict=True):
            steps = np.arange(0, 401, each, dtype=float)
            heights = rng.normal(3 if rule is TIME else 0, 0.3, (n, 1)) * (1 - np.exp(-steps / 100))
            arms[name] = [(steps, values) for values in heights + rng.standard_normal((n, len(steps)))]
        found = numbers_of(arms, rule)
        studies.append((found["base"], found["new"]))
    base, new = np.array(studies).transpose(1, 0, 2)
    low, high = t_intervals(base, new, paired=False, alpha=0.05)
    return float(((low > 0) | (high < 0)).mean())


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("rule", [BEST, TIME], ids=["best", "time_to"])
def test_ten_times_denser_logging_makes_no_arm_better(n: int, rule: SummaryRule) -> None:
    """It used to in 42, 84 and 97 % of the studies."""
    assert simulated((20, 2), n, rule, seed=n) <= 0.06 + 3 * math.sqrt(0.06 * 0.94 / 300)


def test_a_real_difference_is_still_seen() -> None:
    rng = np.random.default_rng(9)
    sparse, dense = np.arange(0, 401, 20.0), np.arange(0, 401, 2.0)
    seen = 0
    for _ in range(30):
        base = [(sparse, rng.normal(0, 0.3, 1) + rng.standard_normal(len(sparse))) for _ in range(8)]
        new = [(dense, 2 + rng.normal(0, 0.3, 1) + rng.standard_normal(len(dense))) for _ in range(8)]
        found = numbers_of({"base": base, "new": new}, BEST)
        seen += compare_samples(found["base"], found["new"], paired=False).verdict == "better"
    assert seen >= 28


# Windows that are off by one


def windowed(window: Window, *ranges: Any, kind: str = "auc") -> list[float | str | None]:
    """The numbers of runs with these steps, or why they have none. The value at a step is the step."""
    arms = {f"arm {at}": [(np.asarray(s, float),) * 2 for s in each] for at, each in enumerate(ranges)}
    rule = SummaryRule(kind, window=window)
    windows = windows_of(arms, rule)
    found = [summarise(each, rule, windows[name], "max") for name, curves in arms.items() for each in curves]
    return [each.reason if each.value is None else each.value for each in found]


@pytest.mark.parametrize("kind", ["auc", "last", "best", "slope"])
@pytest.mark.parametrize(
    ("window", "steps"),
    [
        ((0, 1000), np.arange(0, 1000)),
        ((0, 1000), np.arange(1, 1001)),
        ((0, 1000), np.arange(0, 1000, 10)),
        ((0, 1000), np.arange(10, 1001, 10)),
        ((1, 1000), np.arange(0, 1000)),
    ],
)
def test_steps_counted_from_zero_or_one_make_no_run_too_short(kind: str, window: Window, steps: Array) -> None:
    assert all(isinstance(number, float) for number in windowed(window, [steps] * 3, [steps] * 3, kind=kind))


def test_the_window_is_the_same_for_arms_that_count_differently() -> None:
    from_zero, from_one = np.arange(0, 1000), np.arange(1, 1001)
    assert windowed((0, 1000), [from_zero] * 3, [from_one] * 3) == [500.0] * 6
    rule = SummaryRule("auc", window=(0.0, 1000.0))
    windows = windows_of({"a": [curve(from_zero)], "b": [curve(from_one)]}, rule)
    assert windows == {"a": (1.0, 999.0), "b": (1.0, 999.0)}
    assert describe(rule, windows)["text"] == "mean height of the curve over steps 1 to 999"


def test_a_run_that_is_truly_short_is_lost_as_before() -> None:
    whole, short = np.arange(0, 1000), np.arange(0, 998)
    told = windowed((0, 1000), [whole, whole, short], [whole] * 3)
    assert told[2] == "too short: ends at step 997, the window at 999" and told[:2] + told[3:] == [499.5] * 5
    late = windowed((0, 1000), [whole + 1, whole + 1, whole[5:] + 1], [whole + 1] * 3)
    assert late[2] == "too short: begins at step 6, the window at 1"


def test_a_window_that_most_runs_cover_stays_as_it_is() -> None:
    whole, lost_line = np.arange(0, 1001, 10), np.arange(0, 991, 10)
    told = windowed((0, 1000), [whole, whole, lost_line], [whole] * 3)
    assert told[2] == "too short: ends at step 990, the window at 1000"
    assert told[:2] + told[3:] == [500.0] * 5


def test_a_window_beyond_one_interval_still_loses_every_run() -> None:
    assert windowed((0, 1000), [np.arange(0, 998)] * 3) == ["too short: ends at step 997, the window at 1000"] * 3
    assert windowed((0, 2000), [np.arange(0, 1000)] * 3) == ["too short: ends at step 999, the window at 2000"] * 3
    assert windowed((995, 1000), [np.arange(0, 991, 10)] * 3) == ["too short: ends at step 990, the window at 1000"] * 3


def test_runs_that_end_each_at_its_own_step_just_before_the_window_share_the_earliest_of_their_ends() -> None:
    told = windowed((0, 1000), [np.arange(at, 1000, 10) for at in range(9)])
    assert told == [pytest.approx((8 + 990) / 2, abs=1.0)] * 9


def test_horizons_of_times_follow_the_window() -> None:
    steps = np.arange(0.0, 1000.0)
    rule = SummaryRule("time_to", window=(0.0, 1000.0), threshold=2000.0)
    arms = {"a": [(steps, steps)] * 2}
    found = summarise(arms["a"][0], rule, windows_of(arms, rule)["a"], "max")
    assert found.censored and found.horizon == 999.0
