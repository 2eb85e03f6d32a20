"""Does a plan have the power that it promises? Pilots are drawn, plans are made, and the power that they then have is
averaged over the pilots; the same for the detectable difference and the number of seeds that a verdict prints.

Everything here runs the project's own functions on simulated runs whose truth is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
from scipy import special
from tests.stats.task_studies import draw_arms

from benchmarks.figures import Figure, Goal, at_least, within
from fairtrial.stats.compare import ComparisonConfig, compare_samples
from fairtrial.stats.components import same_seed_noise
from fairtrial.stats.families import compare_pairs
from fairtrial.stats.family_power import FamilyPlan
from fairtrial.stats.power import (
    MOST_SEEDS,
    Design,
    pooled_freedom,
    power_of,
    sd_upper,
    seeds_for,
    seeds_for_equivalence,
)
from fairtrial.stats.student import welch_parts
from fairtrial.stats.tasks import TaskConfig, compare_tasks

TITLE = "Does a plan have the power that it promises?"
PILOTS = 600
STUDIES = 1200
FAMILY_STUDIES = 150
FOLLOWED = 40
"""Simulated studies of the planned size, per study that printed a difference, where power has no closed form."""
LAYOUTS = 1500
COUNTS = (3, 5, 8, 15)
EFFECTS = (1.0, 0.5)


def measure(folder: Path) -> list[Figure]:  # noqa: ARG001
    return [*_pilots(), *_other_plans(), *_large_effects(), *_detectable(), *_seeds_needed(), *_same_seed()]


def _mean(name: str, powers: list[float] | np.ndarray, goal: Goal | None = None, note: str | None = None) -> Figure:
    """A mean power in percent; its limits are those of the simulation."""
    values = 100 * np.asarray(powers, dtype=float)
    error = 1.96 * float(values.std(ddof=1)) / math.sqrt(len(values))
    return Figure(
        name, float(values.mean()), "%", values.mean() - error, values.mean() + error, len(values), goal, note
    )


@lru_cache(maxsize=100_000)
def _power(effect: float, n: int, paired: bool) -> float:
    return power_of(effect, n, Design(paired))


KINDS = {"pairs": (True, 1), "runs of two variants": (False, 2), "runs of one variant": (False, 1)}


def _noise(kind: str, runs: int) -> list[tuple[float, float]]:
    """What pilots of unit noise say: standard deviation and degrees of freedom."""
    arms = KINDS[kind][1]
    rng = np.random.default_rng([runs, len(kind)])
    variances = rng.normal(size=(PILOTS, arms, runs)).var(axis=2, ddof=1)
    return [(math.sqrt(float(v.mean())), pooled_freedom(v.tolist(), [runs - 1] * arms)) for v in variances]


def _realised(effect: float, seeds: list[int | None], paired: bool) -> list[float]:
    return [1.0 if n is None else _power(effect, n, paired) for n in seeds]


def _pilots() -> Iterator[Figure]:
    """Planned on the posterior predictive of the noise."""
    for kind, (paired, _) in KINDS.items():
        for runs in COUNTS:
            for power in (0.8, 0.9):
                design = Design(paired, power=power)
                powers: list[float] = []
                for effect in EFFECTS:
                    plans = [seeds_for(effect / sd, design, freedom) for sd, freedom in _noise(kind, runs)]
                    powers += _realised(effect, plans, paired)
                name = f"pilot of {runs} {kind}, {100 * power:g} % asked: realised"
                yield _mean(name, powers, within(100 * power, 4), "effects 1 and 0.5")


def _other_plans() -> Iterator[Figure]:
    """What other ways to plan from the same pilots would have realised, and what they cost."""
    design, effect = Design(True), 0.5
    for runs in (3, 5, 15):
        pilots = _noise("pairs", runs)
        ways = {
            "the posterior predictive": [seeds_for(effect / sd, design, freedom) for sd, freedom in pilots],
            "the pilot's own sd": [seeds_for(effect / sd, design) for sd, _ in pilots],
            "its 80 % upper bound": [seeds_for(effect / sd_upper(sd, f, 0.8), design) for sd, f in pilots],
        }
        for way, seeds in ways.items():
            typical = float(np.median([n for n in seeds if n is not None]))
            yield _mean(
                f"{runs} pairs, planned on {way}", _realised(effect, seeds, True), note=f"median {typical:g} seeds"
            )


def _large_effects() -> Iterator[Figure]:
    """Whole runs: with few of them needed, one more or less is many points of power."""
    seeds = seeds_for(2.0, Design(True)) or 0
    fewer, exact = (100 * _power(2.0, n, True) for n in (seeds - 1, seeds))
    plans = [seeds_for(2.0 / sd, Design(True), freedom) for sd, freedom in _noise("pairs", 5)]
    note = f"with known noise {seeds - 1} pairs have {fewer:.0f} %, {seeds} have {exact:.0f} %"
    yield _mean("pilot of 5 pairs, 80 % asked, an effect of 2: realised", _realised(2.0, plans, True), note=note)


DESIGNS = [
    *((f"{n} pairs", True, n, n, 1.0) for n in COUNTS),
    *((f"{n} against {n}", False, n, n, 1.0) for n in COUNTS),
    ("5 against 5, one arm three times as noisy", False, 5, 5, 3.0),
    ("4 against 12", False, 4, 12, 1.0),
]


def _studies(n: int, m: int, spread: float, paired: bool) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([n, m, int(spread), paired])
    return rng.normal(size=(STUDIES, n)), spread * rng.normal(size=(STUDIES, m))


def _detectable() -> Iterator[Figure]:
    """The printed detectable difference, as the true one of a study of the same design."""
    for name, paired, n, m, spread in DESIGNS:
        sizes = [
            compare_samples(a, b, paired=paired).detectable
            for a, b in zip(*_studies(n, m, spread, paired), strict=True)
        ]
        found = np.array([size for size in sizes if size is not None])
        sd = math.sqrt(2.0)
        powers = [_power(size / sd, n, True) for size in found] if paired else _welch_power(found, n, m, spread)
        yield _mean(f"detectable difference, {name}: realised", powers, within(80, 5))


def _welch_power(differences: np.ndarray, n: int, m: int, spread: float) -> np.ndarray:
    """The share of simulated studies, per true difference, whose Welch interval excludes 0."""
    rng = np.random.default_rng([n, m, 7])
    first = rng.normal(size=(len(differences), FOLLOWED, n))
    second = spread * rng.normal(size=(len(differences), FOLLOWED, m)) + differences[:, None, None]
    mean, error, freedom = welch_parts(first, second)
    seen: np.ndarray = (np.abs(mean) > -special.stdtrit(freedom, 0.025) * error).mean(axis=1)
    return seen


def _seeds_needed() -> Iterator[Figure]:
    """Runs per arm that settle a question, given a smallest difference that matters of half a standard deviation.

    Realised is the smaller of two powers: to see that difference where it is there, and to find equal arms equivalent.
    A verdict prints the number where it is inconclusive, and such studies overestimate the noise, whatever the truth
    is: `printed` are these studies alone, with the number that they print.
    """
    for paired in (True, False):
        kind = "pairs" if paired else "runs per arm"
        for n in COUNTS:
            name = f"seeds needed after {n} {kind}"
            yield _mean(f"{name}, planned by all studies: realised", _by_rule(n, paired), within(80, 5))
            for truth, what in ((0.0, "equal arms"), (0.5, "a difference that matters")):
                yield _printed(f"{name}, {what}", _as_printed(n, paired, truth))
        for n in (5, 15):
            for truth, what in ((0.0, "equal arms"), (0.5, "half an sd apart"), (1.0, "one sd apart")):
                name = f"seeds needed after {n} {kind} for the difference seen, {what}"
                yield _printed(name, _for_what_was_seen(n, paired, truth), WITHIN_5 if truth < 1 else None)
    for kind, pairs in FAMILIES.items():
        for n in (3, 5, 8):
            for truth, what in ((0.0, "equal arms"), (0.5, "a difference that matters")):
                yield _printed(
                    f"seeds needed after {n} seeds of a family of 4, {kind}, {what}", _of_family(n, pairs, truth)
                )
    for paired in (True, False):
        kind = "pairs" if paired else "runs per arm"
        for n in (5, 10):
            for truth, what in ((0.0, "equal arms"), (0.5, "a difference that matters")):
                yield _printed(f"seeds needed after {n} {kind} on 26 tasks, {what}", _of_tasks(n, paired, truth))


WITHIN_5 = within(80, 5)


def _printed(name: str, powers: np.ndarray, goal: Goal | None = WITHIN_5, studies: int = STUDIES) -> Figure:
    note = f"printed in {100 * len(powers) / studies:.0f} % of the studies"
    return _mean(f"{name}, printed: realised", powers, goal, note)


def _by_rule(n: int, paired: bool) -> np.ndarray:
    design = Design(paired)
    plans = []
    for sd, freedom in _noise("pairs" if paired else "runs of two variants", n):
        counts = seeds_for(0.5 / sd, design, freedom), seeds_for_equivalence(0.5 / sd, design, freedom)
        plans.append(max(count or MOST_SEEDS for count in counts))
    return _least(plans, paired)


def _unit(paired: bool) -> float:
    """The standard deviation that a difference is counted in, where that of a run is 1."""
    return math.sqrt(2.0) if paired else 1.0


def _as_printed(n: int, paired: bool, truth: float) -> np.ndarray:
    unit = _unit(paired)
    control, candidate = _studies(n, n, 1.0, paired)
    found = [
        compare_samples(a, b, paired=paired, sesoi=0.5 * unit).seeds_needed
        for a, b in zip(control, candidate + truth * unit, strict=True)
    ]
    return _least([each.per_arm or MOST_SEEDS for each in found if each is not None], paired)


def _for_what_was_seen(n: int, paired: bool, truth: float) -> np.ndarray:
    """Without a smallest difference that matters the number is for the one that was seen, and so is its power."""
    unit = _unit(paired)
    control, candidate = _studies(n, n, 1.0, paired)
    found = [
        compare_samples(a, b, paired=paired).seeds_needed
        for a, b in zip(control, candidate + truth * unit, strict=True)
    ]
    return np.array(
        [
            1.0 if each.per_arm is None else power_of(each.effect / unit, each.per_arm, Design(paired))
            for each in found
            if each is not None and each.effect > 0
        ]
    )


FAMILIES = {"control": ((0, 1), (0, 2), (0, 3)), "all pairs": ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))}


def _of_family(n: int, pairs: tuple[tuple[int, int], ...], truth: float) -> np.ndarray:
    """What the pairs with the first of four arms print, and the power that their test has with so many seeds."""
    plan, unit = FamilyPlan("auto", 4, pairs, 0.05, 0.8), math.sqrt(2.0)
    rng = np.random.default_rng([n, len(pairs), int(10 * truth)])
    config, names = ComparisonConfig(True, sesoi=0.5 * unit), [("abcd"[i], "abcd"[j]) for i, j in pairs]
    counts = []
    for runs in rng.normal(size=(FAMILY_STUDIES, 4, n)):
        arms = {"a": runs[0] - truth * unit, **dict(zip("bcd", runs[1:], strict=True))}
        needed = [each.seeds_needed for each in compare_pairs(arms, names, config, "auto") if each.control == "a"]
        counts += [each.per_arm or MOST_SEEDS for each in needed if each is not None]
    powers = np.array([_family_powers(plan, count) for count in counts])
    return powers[:, int(powers.mean(axis=0).argmin())]


@lru_cache(maxsize=10_000)
def _family_powers(plan: FamilyPlan, n: int) -> tuple[float, float]:
    """To see a difference of half a standard deviation, and to find equal arms equivalent."""
    shift = 0.5 * math.sqrt(n)
    wide, narrow = plan.half_widths(n), plan.half_widths(n, equivalence=True)
    seen = special.ndtr(shift - wide) + special.ndtr(-shift - wide)
    return float(seen.mean()), float(np.maximum(2 * special.ndtr(shift - narrow) - 1, 0).mean())


def _of_tasks(n: int, paired: bool, truth: float) -> np.ndarray:
    """An interquartile mean over 26 tasks whose runs share some luck. Its true noise is that of many studies."""
    control, candidate = draw_arms(np.random.default_rng([n, paired, int(10 * truth)]), STUDIES, n, 26, shared=0.3)
    values = [float(compare_tasks(a, b, ComparisonConfig(False), TaskConfig(), names=("a", "b")).effect.value or 0.0)
              for a, b in zip(control, candidate, strict=True)]  # fmt: skip
    unit = float(np.std(values)) * math.sqrt(n if paired else n / 2)
    config = ComparisonConfig(paired, sesoi=0.5 * unit)
    found = [
        compare_tasks(a, b, config, TaskConfig(), names=("a", "b")).seeds_needed
        for a, b in zip(control, candidate + truth * unit, strict=True)
    ]
    return _least([each.per_arm or MOST_SEEDS for each in found if each is not None], paired)


def _least(plans: list[int], paired: bool) -> np.ndarray:
    powers = np.array([[_power(0.5, n, paired), _equivalent(0.5, n, paired)] for n in plans])
    return powers[:, int(powers.mean(axis=0).argmin())]


@lru_cache(maxsize=100_000)
def _equivalent(margin: float, n: int, paired: bool) -> float:
    """The chance that both one-sided tests reject where nothing differs."""
    design = Design(paired)
    freedom, shift = design.freedom(n), design.noncentrality(margin, n)
    limit = float(-special.stdtrit(freedom, design.alpha))
    shares = np.sqrt(special.chdtri(freedom, (np.arange(2000) + 0.5) / 2000) / freedom)
    return float(np.maximum(2 * special.ndtr(shift - limit * shares) - 1, 0).mean())


def _same_seed() -> Iterator[Figure]:
    """Intervals of what repeats and seeds vary by, with equal and unequal numbers of repeats."""
    for counts in ((2,) * 5, (3,) * 10, (2, 1, 1, 1, 1), (5, 2, 2, 1, 3)):
        covered = np.array(
            [_covers(counts, ratio, number) for ratio in (0.1, 1.0, 10.0) for number in range(LAYOUTS // 3)]
        )
        told = ", ".join(map(str, counts)) if len(set(counts)) > 1 else f"{len(counts)} × {counts[0]}"
        slack = 300 * math.sqrt(0.93 * 0.07 / len(covered))
        for part, share in zip(("same seed", "between seeds", "share"), covered.T, strict=True):
            yield _mean(f"95 % interval, {part}, runs per seed {told}: covers", share, at_least(93 - slack))


def _covers(counts: tuple[int, ...], ratio: float, number: int) -> tuple[bool, bool, bool]:
    rng = np.random.default_rng([number, int(10 * ratio), *counts])
    found = same_seed_noise([rng.normal(rng.normal(0, math.sqrt(ratio)), 1, count).tolist() for count in counts])
    assert found is not None
    truths = 1.0, math.sqrt(ratio), ratio / (1 + ratio)
    parts = found.same_seed, found.between_seeds, found.share
    return tuple(part.low <= truth <= part.high for part, truth in zip(parts, truths, strict=True))  # type: ignore[operator, return-value]
