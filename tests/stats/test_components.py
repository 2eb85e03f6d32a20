"""Where noise comes from: repeats with the same seed, seeds, and single random streams."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fairtrial.stats.components import Repeats, rank_streams, same_seed_noise

LAYOUTS = [(2,) * 5, (3,) * 10, (2, 1, 1, 1, 1), (5, 2, 2, 1, 3)]


def noise_of(groups: list[list[float]]) -> Repeats:
    found = same_seed_noise(groups)
    assert found is not None
    return found


def test_equal_numbers_of_repeats_give_the_analysis_of_variance() -> None:
    groups = [[1.0, 2.0], [4.0, 4.5], [2.0, 3.5], [7.0, 6.0]]
    found = noise_of(groups)
    array = np.array(groups)
    within = array.var(axis=1, ddof=1).mean()
    between = 2 * array.mean(axis=1).var(ddof=1)
    assert found.same_seed.value == pytest.approx(math.sqrt(within))
    assert found.between_seeds.value == pytest.approx(math.sqrt((between - within) / 2))
    assert found.share.value == pytest.approx((between - within) / (between + within))
    ratio = between / within
    limits = [(ratio / stats.f.ppf(q, 3, 4) - 1) / 2 for q in (0.975, 0.025)]
    assert found.share.low == pytest.approx(limits[0] / (1 + limits[0]))
    assert found.share.high == pytest.approx(limits[1] / (1 + limits[1]))
    assert (found.seeds, found.repeated, found.runs, found.identical) == (4, 4, 8, False)


@pytest.mark.parametrize("ratio", [0.0, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("counts", LAYOUTS, ids=str)
def test_intervals_of_repeats_and_seeds_cover(counts: tuple[int, ...], ratio: float) -> None:
    rng = np.random.default_rng([*counts, int(10 * ratio)])
    truths = 1.0, math.sqrt(ratio), ratio / (1 + ratio)
    covered, times = np.zeros(3), 300
    for _ in range(times):
        found = noise_of([rng.normal(rng.normal(0, math.sqrt(ratio)), 1, count).tolist() for count in counts])
        for place, part in enumerate((found.same_seed, found.between_seeds, found.share)):
            assert part.low is not None and part.high is not None and part.value is not None
            assert part.low <= part.value <= part.high
            covered[place] += part.low <= truths[place] <= part.high
    assert covered.min() / times >= 0.93 - 3 * math.sqrt(0.93 * 0.07 / times)


def test_without_repeats_there_is_nothing_to_separate() -> None:
    assert same_seed_noise([[1.0], [2.0], [3.0]]) is None
    assert same_seed_noise([]) is None


def test_repeats_that_agree_to_the_last_bit_are_said_to_be_identical() -> None:
    found = noise_of([[0.1, 0.1], [0.3, 0.3], [0.2]])
    assert found.identical and found.same_seed.value == 0.0 and found.share.value == 1.0
    assert found.between_seeds.value == pytest.approx(0.1)
    assert not noise_of([[0.1, np.nextafter(0.1, 1)], [0.3, 0.3]]).identical


def test_repeats_of_a_single_seed_say_nothing_about_seeds() -> None:
    found = noise_of([[0.1, 0.2, 0.4]])
    assert found.same_seed.value == pytest.approx(float(np.std([0.1, 0.2, 0.4], ddof=1)))
    assert found.between_seeds.value is None and found.share.value is None


def test_seeds_that_vary_no_more_than_repeats_have_no_share() -> None:
    found = noise_of([[0.0, 1.0], [0.1, 0.9], [0.05, 0.95]])
    assert found.between_seeds.value == 0.0 == found.share.value and found.share.low == 0.0
    assert found.share.high is not None and found.share.high < 1


numbers = st.floats(-100, 100).map(lambda x: round(x, 3))


@pytest.mark.slow
@given(
    groups=st.lists(st.lists(numbers, min_size=1, max_size=4), min_size=2, max_size=6), scale=st.floats(0.01, 100),
    shift=st.floats(-50, 50), turn=st.randoms(use_true_random=False),
)  # fmt: skip
@settings(deadline=None)
def test_components_do_not_depend_on_order_and_follow_scale_and_shift(
    groups: list[list[float]], scale: float, shift: float, turn: object
) -> None:
    found = same_seed_noise(groups)
    if found is None or found.identical:
        return
    mixed = [list(group) for group in groups]
    for group in mixed:
        turn.shuffle(group)  # type: ignore[attr-defined]
    turn.shuffle(mixed)  # type: ignore[attr-defined]
    assert same_seed_noise(mixed) == found
    moved = noise_of([[scale * value + shift for value in group] for group in groups])
    assert moved.same_seed.value == pytest.approx(scale * (found.same_seed.value or 0), rel=1e-6, abs=1e-9)
    assert moved.share.value == pytest.approx(found.share.value, rel=1e-5, abs=1e-6)
    assert moved.between_seeds.high == pytest.approx(scale * (found.between_seeds.high or 0), rel=1e-5, abs=1e-6)


def test_the_noisiest_stream_comes_first_and_others_that_may_be_as_noisy_are_named() -> None:
    rng = np.random.default_rng(0)
    alone = {("order",): 10 * rng.normal(size=12), ("init",): rng.normal(size=12), ("subset",): 8 * rng.normal(size=12)}
    found = rank_streams(alone, (("init", "order", "subset"), 13 * rng.normal(size=12)))
    assert [row.name for row in found.rows[1:]][-1] == "init" and found.unclear in (("subset",), ("order",))
    top = found.rows[0]
    assert found.together and top.sd.value and found.together.sd.value
    assert top.share.value == pytest.approx((top.sd.value / found.together.sd.value) ** 2)
    assert found.to_dict()["most"] == top.name


def test_equal_streams_are_rarely_told_apart() -> None:
    rng = np.random.default_rng(2)
    told = 0
    for _ in range(400):
        alone = {(name,): rng.normal(size=5) for name in ("init", "order", "subset")}
        told += len(rank_streams(alone, None).unclear) < 2
    assert told / 400 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)


def test_a_stream_that_changes_nothing_has_no_share_and_one_run_says_nothing() -> None:
    found = rank_streams({("init",): np.array([0.5, 0.5, 0.5]), ("order",): np.array([0.1, 0.2, 0.4])}, None)
    assert [row.sd.value for row in found.rows][1] == 0.0 and found.unclear == ()
    assert rank_streams({("init",): np.array([0.5])}, None).rows[0].sd.value is None
