"""Every ordering of the two intervals, zero and ±SESOI, and the words for what follows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest

from fairtrial.core.findings import Comparison, Verdict
from fairtrial.stats.compare import ComparisonConfig, compare_samples, decide_by
from fairtrial.stats.families import compare_family
from fairtrial.stats.inference import Inference
from fairtrial.stats.verdicts import Decision, decide

SESOI = 1.0
ALPHA = 0.05
PLACES = [-math.inf, -3.0, -2.0, -SESOI, -0.6, -0.3, 0.0, 0.3, 0.6, SESOI, 2.0, 3.0, math.inf]
"""Each region that −SESOI, 0 and SESOI cut the line into, twice, and the cuts themselves."""

ORDERINGS = [
    (low, inner_low, inner_high, high)
    for low, inner_low, inner_high, high in combinations_with_replacement(PLACES, 4)
    if inner_low < inner_high and (low, high) != (-math.inf, math.inf)
]
"""Every placement of I = (low, high) around J = (inner_low, inner_high)."""


def oracle(wide: tuple[float, float], narrow: tuple[float, float], sesoi: float | None) -> str:
    """The specification's sentence, word by word."""
    if sesoi is not None and all(-sesoi < limit < sesoi for limit in narrow):
        return "equivalent"
    if min(wide) > 0:
        return "better"
    if max(wide) < 0:
        return "worse"
    return "inconclusive"


def excludes(interval: tuple[float, float], low: float, high: float) -> bool:
    """Whether the interval has no point between low and high."""
    return interval[0] > high or interval[1] < low


def test_all_regions_are_met() -> None:
    """The table is complete: all four verdicts, and each end of each interval in each of the seven places."""
    cuts = [-SESOI, 0.0, SESOI]
    places = {tuple(np.sign(end - cut) for cut in cuts) for ordering in ORDERINGS for end in ordering}
    assert len(places) == 7
    assert {oracle((a, d), (b, c), SESOI) for a, b, c, d in ORDERINGS} == {str(verdict) for verdict in Verdict}
    assert len(ORDERINGS) > 1000


@pytest.mark.parametrize("sesoi", [SESOI, None])
def test_every_ordering_has_the_verdict_that_the_specification_names(sesoi: float | None) -> None:
    for low, inner_low, inner_high, high in ORDERINGS:
        wide, narrow = (low, high), (inner_low, inner_high)
        found = decide(wide, narrow, sesoi)
        assert found.verdict == oracle(wide, narrow, sesoi), (wide, narrow)
        assert found.significant is excludes(wide, 0.0, 0.0)
        assert found.equivalent is (None if sesoi is None else oracle(wide, narrow, sesoi) == "equivalent")
        assert found.exceeds_sesoi is (None if sesoi is None else excludes(wide, -sesoi, sesoi))
        assert (found.reason is None) == (found.verdict is not Verdict.INCONCLUSIVE)


@pytest.mark.parametrize("sesoi", [SESOI, None])
def test_the_verdict_from_the_other_arm_is_the_mirrored_one(sesoi: float | None) -> None:
    mirrored = {"better": "worse", "worse": "better"}
    for low, inner_low, inner_high, high in ORDERINGS:
        here = decide((low, high), (inner_low, inner_high), sesoi)
        there = decide((-high, -low), (-inner_high, -inner_low), sesoi)
        assert there.verdict == mirrored.get(here.verdict, here.verdict)
        assert (there.significant, there.equivalent, there.exceeds_sesoi) == (
            here.significant, here.equivalent, here.exceeds_sesoi,
        )  # fmt: skip


def limits(lower: dict[float, float], upper: dict[float, float]) -> Inference:
    """An inference with these limits at these tails."""
    return Inference("test", 0.0, lower.__getitem__, upper.__getitem__, 0.5, 0.5, 1.0)


@pytest.mark.parametrize("direction", ["max", "min"])
@pytest.mark.parametrize("sesoi", [SESOI, None])
def test_terms_turn_an_inference_into_the_intervals_that_are_judged(direction: str, sesoi: float | None) -> None:
    """I at 1 − α and J at 1 − 2α of candidate − control, turned round where less is better."""
    for low, inner_low, inner_high, high in ORDERINGS:
        inference = limits({ALPHA / 2: low, ALPHA: inner_low}, {ALPHA / 2: high, ALPHA: inner_high})
        found = decide_by(inference, ComparisonConfig(True, ALPHA, "two-sided", sesoi, direction=direction))
        wide, narrow = (low, high), (inner_low, inner_high)
        if direction == "min":
            wide, narrow = (-high, -low), (-inner_high, -inner_low)
        assert found.verdict == oracle(wide, narrow, sesoi), (wide, narrow)


@pytest.mark.parametrize("direction", ["max", "min"])
@pytest.mark.parametrize("sesoi", [SESOI, None])
@pytest.mark.parametrize("side", ["greater", "less"])
def test_one_sided_questions_have_one_sided_answers(direction: str, sesoi: float | None, side: str) -> None:
    """Whether the candidate is better (greater) or worse (less), whatever the metric's direction."""
    for low, high in {(b, c) for _, b, c, _ in ORDERINGS}:
        gain_low, gain_high = (low, high) if direction == "max" else (-high, -low)
        wide = (gain_low, math.inf) if side == "greater" else (-math.inf, gain_high)
        found = decide_by(
            limits({ALPHA: low}, {ALPHA: high}), ComparisonConfig(True, ALPHA, side, sesoi, direction=direction)
        )
        if wide == (-math.inf, math.inf):
            assert (found.verdict, found.reason) == ("inconclusive", "method needs more runs")
            continue
        assert found.verdict == oracle(wide, (gain_low, gain_high), sesoi)
        assert found.verdict != ("worse" if side == "greater" else "better")


@pytest.mark.parametrize("wide", [(-math.inf, math.inf), (math.nan, 1.0), (-1.0, math.nan)])
def test_limits_that_say_nothing_are_no_verdict(wide: tuple[float, float]) -> None:
    inference = limits({ALPHA / 2: wide[0], ALPHA: wide[0]}, {ALPHA / 2: wide[1], ALPHA: wide[1]})
    found = decide_by(inference, ComparisonConfig(True, ALPHA, sesoi=SESOI))
    assert found == Decision(Verdict.INCONCLUSIVE, None, None, None, "method needs more runs")


# Whole comparisons

CONTROL = np.array([0.50, 0.52, 0.49, 0.51, 0.53, 0.50])
NOISE = np.array([0.001, -0.002, 0.002, 0.0, -0.001, 0.001])
WIDE = np.array([0.05, -0.09, 0.1, 0.02, -0.06, 0.04])


def found_with(
    shift: float, noise: np.ndarray, *, sesoi: float | None = None, direction: str = "max", side: str = "two-sided"
) -> Comparison:
    return compare_samples(
        CONTROL, CONTROL + shift + noise, paired=True, sesoi=sesoi, direction=direction, side=side, names=("ce", "kd")
    )


@pytest.mark.parametrize(
    ("shift", "noise", "sesoi", "direction", "verdict"),
    [
        (0.05, NOISE, None, "max", "better"),
        (0.05, NOISE, None, "min", "worse"),
        (-0.05, NOISE, None, "max", "worse"),
        (-0.05, NOISE, None, "min", "better"),
        (0.0, WIDE, None, "max", "inconclusive"),
        (0.0, WIDE, 0.01, "max", "inconclusive"),
        (0.0, NOISE, 0.01, "max", "equivalent"),
        (0.005, NOISE, 0.01, "max", "equivalent"),
        (0.005, NOISE, 0.01, "min", "equivalent"),
        (0.05, NOISE, 0.01, "max", "better"),
        (0.05, NOISE, 0.01, "min", "worse"),
        (0.01, NOISE, 0.01, "max", "better"),
    ],
)
def test_a_comparison_says_what_its_intervals_say(
    shift: float, noise: np.ndarray, sesoi: float | None, direction: str, verdict: str
) -> None:
    found = found_with(shift, noise, sesoi=sesoi, direction=direction)
    assert found.verdict == verdict
    assert found.gain is not None and math.copysign(1, found.gain) == (
        math.copysign(1, (shift + noise.mean()) * (1 if direction == "max" else -1))
    )
    told = found.to_dict()
    assert {"significant", "equivalent", "exceeds_sesoi"} <= told.keys()
    assert told["effect"]["level"] == 0.95 and told["equivalence"]["level"] == 0.9
    assert None not in (told["effect"]["low"], told["effect"]["high"])
    assert told["effect"]["low"] < told["equivalence"]["low"] < told["equivalence"]["high"] < told["effect"]["high"]
    assert told["detectable"] > 0


@pytest.mark.parametrize(
    ("found", "begins", "holds"),
    [
        (lambda: found_with(0.05, NOISE), "kd is better than ce: +0.0", ["95 % interval", "over 6 pairs", "p "]),
        (lambda: found_with(0.05, NOISE, direction="min"), "kd is worse than ce: +0.0", []),
        (
            lambda: found_with(0.05, NOISE, sesoi=0.01),
            "kd is better",
            ["exceeds ±0.01, the smallest difference of interest"],
        ),
        (lambda: found_with(0.01, NOISE, sesoi=0.01), "kd is better", []),
        (lambda: found_with(0.005, NOISE, sesoi=0.01), "kd and ce are equivalent", ["real but too small to matter"]),
        (lambda: found_with(0.0, NOISE, sesoi=0.01), "kd and ce are equivalent", ["lies within ±0.01"]),
        (
            lambda: found_with(0.0, WIDE),
            "Inconclusive: kd − ce",
            ["This design detects differences of", "fresh seeds per arm; if not, set --sesoi"],
        ),
        (
            lambda: found_with(0.0, WIDE, sesoi=0.02),
            "Inconclusive: kd − ce",
            ["To settle it against ±0.02, plan", "fresh seeds per arm"],
        ),
        (lambda: compare_samples([1.0], [2.0], paired=True), "Inconclusive", ["fewer than two usable runs"]),
        (lambda: compare_samples([1, 2], [2, 3], paired=True), "Inconclusive", ["no variation"]),
        (
            lambda: compare_samples([1, 2, 3], [2, 3.5, 5], paired=True, method="sign-flip"),
            "Inconclusive",
            ["no interval for so few runs"],
        ),
    ],
)
def test_sentences(found: Callable[[], Comparison], begins: str, holds: list[str]) -> None:
    said = str(found())
    assert said.startswith(begins)
    assert all(part in said for part in holds), said
    assert said.endswith(".") and "nan" not in said and "None" not in said


def test_only_a_real_difference_is_called_real_but_too_small() -> None:
    small, none = found_with(0.005, NOISE, sesoi=0.01), found_with(0.0, NOISE, sesoi=0.01)
    assert (small.significant, none.significant) == (True, False)
    assert "real but too small to matter" in str(small)
    assert "real but" not in str(none)
    bare = found_with(0.01, NOISE, sesoi=0.01)
    assert bare.exceeds_sesoi is False and "exceeds" not in str(bare)


@pytest.mark.parametrize("shift", [0.0, 0.005, 0.05])
def test_a_comparison_with_seeds_added_after_looking_says_so(shift: float) -> None:
    label = "exploratory: seeds added after looking"
    found = replace(found_with(shift, NOISE, sesoi=0.01), label=label)
    assert str(found).endswith(" Exploratory: seeds added after looking.")
    assert found.to_dict()["label"] == label


NAN = math.nan


@pytest.mark.parametrize("adjustment", ["auto", "tukey", "holm"])
def test_a_family_states_the_seeds_that_its_effects_rest_on(adjustment: str) -> None:
    """A pair rests on the seeds that it has itself: what another arm lost takes nothing from it."""
    rng = np.random.default_rng(1)
    arms = {name: rng.normal(size=6) for name in "abcd"}
    arms["d"][:3] = NAN
    found_by = {each.candidate: each for each in compare_family(arms, "a", ComparisonConfig(True), adjustment)}
    for name, found in found_by.items():
        assert found.effect.n == found.n_control == (3 if name == "d" else 6)
        assert found.effect.samples is not None and found.effect.value == pytest.approx(np.mean(found.effect.samples))
