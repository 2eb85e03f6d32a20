"""Do cautions come where they are needed, and stay away where they are not?

Rates on clean data are those of equal normal arms. Where a caution follows a rule about the number of runs, the figures
show what happens on both sides of that rule: false verdicts, or coverage, on the shapes of `stats/noise.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain, takewhile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.figures import Figure, Goal, at_least, at_most, exactly
from fairtrial.stats.certificate import t_intervals
from fairtrial.stats.compare import compare_samples
from fairtrial.stats.diagnostics import ENOUGH_FOR_ONE_ARM, diagnose, differ_in_shape, one_arm_cautions, too_unequal
from fairtrial.stats.noise import SHAPES, Shape
from fairtrial.stats.seed_effect import seed_effect_cautions

TITLE = "Cautions: where they are needed, and where they are not"
Array = npt.NDArray[np.float64]
NAMED = {shape.name: shape for shape in SHAPES}
PROMISED = tuple(shape for shape in SHAPES if shape.name != "collapsing")
COUNTS = (3, 5, 8, 15)
REPEATS = 40_000
COMPARED = 2_000
FALSE, COVERED = 0.06, 0.93


def measure(folder: Path) -> list[Figure]:  # noqa: ARG001
    return [*_on_clean_data(), *_unequal(), *_one_arm(), *_noisy_arm(), *_constant()]


def _percent(name: str, share: float, repeats: int, goal: Goal | None = None, note: str | None = None) -> Figure:
    """A simulated share in percent; its limits are those of the simulation."""
    error = 196 * float(np.sqrt(share * (1 - share) / repeats))
    return Figure(name, 100 * share, "%", 100 * share - error, 100 * share + error, repeats, goal, note)


def _slack(share: float, repeats: int = REPEATS) -> float:
    """Three standard errors of a simulated share, in percent."""
    return 300 * float(np.sqrt(share * (1 - share) / repeats))


def _false_verdicts(first: Array, second: Array, *, paired: bool) -> float:
    low, high = t_intervals(first, second, paired=paired, alpha=0.05)
    return float(((low > 0) | (high < 0)).mean())


def _on_clean_data() -> Iterator[Figure]:
    """Every caution of a comparison of equal normal arms."""
    for n in COUNTS:
        for paired in (True, False):
            rng, seen = np.random.default_rng([n, paired]), Counter[str]()
            for control, candidate in rng.normal(size=(COMPARED, 2, n)):
                seen.update(each["code"] for each in compare_samples(control, candidate, paired=paired).cautions)
            which, count = max(seen.items(), key=lambda each: each[1], default=("none", 0))
            name = f"clean data, {'paired' if paired else 'unpaired'}, n = {n}: the most frequent caution"
            yield _percent(name, count / COMPARED, COMPARED, at_most(10), which)


# Unequal numbers of runs


def _unequal() -> Iterator[Figure]:
    """On both sides of the rule: the most unequal arms without the caution, and those that are clearly beyond it."""
    silent = {(n, m): _worst(n, m) for n, m in _edge()}
    where = max(silent, key=lambda each: silent[each])
    yield _percent(
        "no 'unequal n': most false verdicts", silent[where], REPEATS, at_most(100 * FALSE + _slack(FALSE)),
        f"{where[0]} against {where[1]}; {len(silent)} pairs of sizes at the edge of the rule",
    )  # fmt: skip
    yield _percent("no 'unequal n': 15 against 17", _worst(15, 17), REPEATS, at_most(100 * FALSE + _slack(FALSE)))
    for n, m in ((3, 5), (3, 15), (4, 8), (5, 10), (7, 20), (10, 30), (15, 50), (30, 100)):
        assert too_unequal(n, m)
        yield _percent(f"'unequal n': most false verdicts at {n} against {m}", _worst(n, m), REPEATS, at_least(6))


def _edge() -> Iterator[tuple[int, int]]:
    """For each smaller arm the largest partner that the rule says nothing about."""
    for n in (3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 50):
        yield n, max(takewhile(lambda m, n=n: not too_unequal(n, m), range(n, 10 * n)))  # type: ignore[misc]


def _worst(n: int, m: int) -> float:
    rng = np.random.default_rng([n, m])
    return max(
        _false_verdicts(shape.draw(rng, (REPEATS, n)), shape.draw(rng, (REPEATS, m)), paired=False)
        for shape in PROMISED
    )


# One arm alone


def _one_arm() -> Iterator[Figure]:
    for n in (3, 5, 15, 30, 60, ENOUGH_FOR_ONE_ARM, 98):
        covered = _coverage(n)
        warned = bool(one_arm_cautions(n))
        goal = at_most(100 * COVERED) if warned else at_least(100 * COVERED - _slack(COVERED, REPEATS))
        name = f"one arm, log-normal, n = {n}: coverage {'with' if warned else 'without'} the caution"
        yield _percent(name, covered, REPEATS, goal)


def _coverage(n: int) -> float:
    shape, rng, hits, parts = NAMED["log-normal"], np.random.default_rng([n, 1]), 0, 8
    for _ in range(parts):
        sample = shape.draw(rng, (REPEATS // parts, n))
        low, high = t_intervals(np.zeros_like(sample), sample, paired=True, alpha=0.05)
        hits += int(((low <= shape.mean) & (shape.mean <= high)).sum())
    return hits / REPEATS


# One arm that is far noisier


def _noisy_arm() -> Iterator[Figure]:
    """False verdicts at the ratio of spreads at which the caution comes in every second comparison of normal arms."""
    ratios = {n: _ratio_at_half(n) for n in COUNTS}
    told = ", ".join(f"{ratio:.1f} at n = {n}" for n, ratio in ratios.items())
    limits = {"normal": (None, 6), "log-normal": (at_least(6), 14), "collapsing": (at_least(6), 29)}
    for name, (least, most) in limits.items():
        rates = [_with_noisy_arm(NAMED[name], n, ratios[n], paired=paired) for n in COUNTS for paired in (True, False)]
        yield _percent(f"one noisy arm, {name}: fewest false verdicts", min(rates), REPEATS, least)
        yield _percent(f"one noisy arm, {name}: most false verdicts", max(rates), REPEATS, at_most(most), told)
    for n in COUNTS:
        comes = _comes(n, 5.0 if n > 3 else 30.0)
        about = "spreads 5 times apart" if n > 3 else "spreads 30 times apart"
        yield _percent(f"'arms differ in shape' comes, n = {n}", comes, COMPARED, at_least(50), about)


def _ratio_at_half(n: int) -> float:
    low, high = 1.0, 60.0
    for _ in range(10):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if _comes(n, middle, 1_000) < 0.5 else (low, middle)
    return middle


def _comes(n: int, ratio: float, repeats: int = COMPARED) -> float:
    control, candidate = np.random.default_rng([n, 2]).normal(size=(2, repeats, n))
    pairs = zip(control, ratio * candidate, strict=True)
    return float(np.mean([differ_in_shape(diagnose(a, b, paired=False), a, b) for a, b in pairs]))


def _with_noisy_arm(shape: Shape, n: int, ratio: float, *, paired: bool) -> float:
    control, candidate = shape.draw(np.random.default_rng([n, 3]), (2, REPEATS, n)) - shape.mean
    return _false_verdicts(control, ratio * candidate, paired=paired)


# A metric that does not vary


def _constant() -> Iterator[Figure]:
    rng = np.random.default_rng(4)
    clean = chain.from_iterable(rng.normal(size=(COMPARED, n)) for n in COUNTS)
    alarms = sum(bool(seed_effect_cautions("base", "accuracy", values)) for values in clean)
    yield Figure("'same over seeds' on runs that vary", alarms, "alarms", samples=4 * COMPARED, goal=exactly(0))
    told = sum(bool(seed_effect_cautions("base", "accuracy", [0.5] * n)) for n in range(2, 101))
    yield Figure("'same over seeds' on 2 to 100 equal runs", told, "alarms", samples=99, goal=exactly(99))
    finals = [{"accuracy": 1.0, "train_loss": float(value)} for value in rng.normal(size=5)]
    perfect = len(seed_effect_cautions("base", "accuracy", [1.0] * 5, finals=finals))
    yield Figure("'same over seeds' where another metric varies", perfect, "alarms", samples=1, goal=exactly(0))
