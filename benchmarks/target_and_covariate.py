"""One arm against a target, differences adjusted for a covariate, and the line about single runs: calibrated, and what
they gain.

Everything runs the project's own functions on simulated runs whose truth is known. Limits are goals plus three standard
errors of the simulation.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy import special

from benchmarks.figures import Figure, Goal, at_least, at_most
from fairtrial.core.findings import Verdict
from fairtrial.stats.compare import ComparisonConfig, compare_samples
from fairtrial.stats.covariate import regression_parts
from fairtrial.stats.holm import judge_by_holm
from fairtrial.stats.noise import SHAPES, Shape
from fairtrial.stats.robust import robust_estimates
from fairtrial.stats.samples import Array
from fairtrial.stats.student import from_t, paired_parts

TITLE = "Targets, covariates and single runs"
REPEATS = 100_000
FAMILIES = 10_000
LINES = 3_000
ALPHA = 0.05
MARGIN = 0.5
RELATED = 0.7
COLLAPSE = 12.0


def measure(folder: Path) -> list[Figure]:  # noqa: ARG001
    return [*_targets(), *_covariates(), *_single_runs(), *_times()]


def _percent(name: str, share: float, repeats: int, goal: Goal | None = None, note: str | None = None) -> Figure:
    error = 100 * 1.96 * math.sqrt(share * (1 - share) / repeats)
    value = 100 * share
    return Figure(name, value, "%", value - error, value + error, repeats, goal, note)


def _limit(percent: float, repeats: int) -> Goal:
    share = percent / 100
    return at_most(percent + 300 * math.sqrt(share * (1 - share) / repeats))


def _significant(value: Array, error: Array, freedom: float) -> float:
    return float((2 * special.stdtr(freedom, -np.abs(value / error)) <= ALPHA).mean())


def _targets() -> Iterator[Figure]:
    for n in (3, 5, 8, 15, 30):
        sample = np.random.default_rng(n).standard_normal((REPEATS, n))
        mean, error, freedom = paired_parts(sample)
        false = _significant(mean, error, freedom)
        yield _percent(f"target, t, n = {n}: false verdicts", false, REPEATS, _limit(5, REPEATS))
        by_z = float((np.abs(mean) * math.sqrt(n) >= -special.ndtri(ALPHA / 2)).mean())
        yield _percent(f"target, known sd, n = {n}: false verdicts", by_z, REPEATS, _limit(5, REPEATS))
        reach = -special.stdtrit(freedom, ALPHA) * error
        wrong = float((np.abs(mean + MARGIN) + reach < MARGIN).mean())
        yield _percent(f"target, n = {n}: equivalent on the margin", wrong, REPEATS, _limit(5, REPEATS))
        seen = _significant(mean + 1.5, error, freedom)
        note = "power of the t test; no goal: it is what a target allows"
        yield _percent(f"target, n = {n}: better at d = 1.5", seen, REPEATS, note=note)
    for shape in SHAPES:
        for n in (5, 29, 30):
            mean, error, freedom = paired_parts(shape.draw(np.random.default_rng([n, 1]), (20_000, n)))
            covered = 1 - _significant(mean - shape.mean, error, freedom)
            note = "cautioned" if n < 30 else "not cautioned"
            yield _percent(f"target, {shape.name}, n = {n}: coverage", covered, 20_000, note=note)
    yield from _families()


def _families() -> Iterator[Figure]:
    for arms, n in ((3, 5), (6, 8)):
        sample = np.random.default_rng([arms, n]).standard_normal((FAMILIES, arms, n))
        means, errors, freedom = paired_parts(sample)
        wrong = 0
        for mean, error in zip(means, errors, strict=True):
            family = [from_t("t", float(m), float(e), freedom) for m, e in zip(mean, error, strict=True)]
            judged = judge_by_holm(family, ComparisonConfig(True))
            wrong += any(each.decision.verdict is not Verdict.INCONCLUSIVE for each in judged)
        name = f"target, {arms} arms, n = {n}: any false verdict"
        yield _percent(name, wrong / FAMILIES, FAMILIES, _limit(5, FAMILIES))


def _pairs(n: int, correlation: float, seed: int) -> tuple[Array, Array, np.random.Generator]:
    rng = np.random.default_rng([n, round(10 * correlation), seed])
    covariate = rng.standard_normal((REPEATS, n))
    noise = rng.standard_normal((REPEATS, n))
    return correlation * covariate + math.sqrt(1 - correlation**2) * noise, covariate, rng


def _covariates() -> Iterator[Figure]:
    for n in (8, 15):
        for correlation in (0.0, 0.3, RELATED, 0.9):
            differences, covariate, rng = _pairs(n, correlation, 1)
            value, error, *_ = regression_parts(differences, covariate)
            told = f"n = {n}, correlation {correlation:g}"
            wrong = _significant(value, error, n - 2)
            yield _percent(f"adjusted, {told}: false positives", wrong, REPEATS, _limit(5, REPEATS))
            for times in (2, 4):
                every = np.concatenate([covariate, rng.standard_normal((REPEATS, (times - 1) * n))], axis=1)
                known = every.mean(axis=1), every.var(axis=1, ddof=1) / every.shape[1]
                value, error, *_ = regression_parts(differences, covariate, *known)
                wrong = _significant(value, error, n - 2)
                name = f"baseline with {times} times the seeds, {told}: false positives"
                yield _percent(name, wrong, REPEATS, _limit(5, REPEATS))
        yield from _gain(n)
        alarms = {shape.name: _alarms(shape, n) for shape in SHAPES}
        worst = max(alarms, key=lambda name: alarms[name])
        name = f"adjusted, n = {n}, correlation 0.7, worst of all shapes of noise: false positives"
        yield _percent(name, alarms[worst], 40_000, _limit(6, 40_000), worst)


def _alarms(shape: Shape, n: int) -> float:
    """False positives where covariate and noise of both arms have this shape."""
    rng = np.random.default_rng([n, len(shape.name)])
    covariates, noise = (shape.draw(rng, (2, 40_000, n)) for _ in range(2))
    numbers = RELATED * covariates + math.sqrt(1 - RELATED**2) * noise
    value, error, *_ = regression_parts(numbers[1] - numbers[0], covariates[1] - covariates[0])
    return _significant(value, error, n - 2)


def _gain(n: int) -> Iterator[Figure]:
    """What a covariate that explains half of the variance gains, and what one that explains nothing costs."""
    shift = 0.8
    for correlation, goal in ((RELATED, at_least(10)), (0.0, at_least(-8))):
        differences, covariate, rng = _pairs(n, correlation, 2)
        differences = differences + shift
        plain = _significant(differences.mean(axis=1), differences.std(axis=1, ddof=1) / math.sqrt(n), n - 1)
        value, error, *_ = regression_parts(differences, covariate)
        seen = _significant(value, error, n - 2)
        told = f"n = {n}, correlation {correlation:g}"
        yield _percent(f"power without a covariate, {told}", plain, REPEATS, note=f"difference of {shift} sd")
        yield _percent(f"power with a covariate, {told}", seen, REPEATS)
        yield Figure(f"gain of power, {told}", 100 * (seen - plain), "points", samples=REPEATS, goal=goal)
        every = np.concatenate([covariate, rng.standard_normal((REPEATS, 3 * n))], axis=1)
        known = every.mean(axis=1), every.var(axis=1, ddof=1) / every.shape[1]
        value, error, *_ = regression_parts(differences, covariate, *known)
        seen = _significant(value, error, n - 2)
        yield _percent(f"power with a baseline of 4 times the seeds, {told}", seen, REPEATS)
    differences, covariate, _ = _pairs(n, RELATED, 3)
    value, error, *_ = regression_parts(differences, covariate, covariate.mean(axis=1))
    wrong = _significant(value, error, n - 2)
    note = "why it is not offered"
    yield _percent(f"read off at the pairs' own mean, n = {n}: false positives", wrong, REPEATS, note=note)


def _fired(control: Array, candidate: Array, *, paired: bool) -> float:
    found = [
        robust_estimates(a, b, paired=paired, alpha=ALPHA, side="two-sided").disagrees is not None
        for a, b in zip(control, candidate, strict=True)
    ]
    return sum(found) / len(found)


def _single_runs() -> Iterator[Figure]:
    for n in (5, 8, 15):
        for paired in (True, False):
            kind = "paired" if paired else "unpaired"
            for shift in (0.0, 1.5):
                arms = np.random.default_rng([n, round(10 * shift), paired]).standard_normal((2, LINES, n))
                share = _fired(arms[0], arms[1] + shift, paired=paired)
                what = "equal arms" if shift == 0 else f"d = {shift:g}"
                name = f"sensitivity line, normal, {kind}, n = {n}, {what}"
                yield _percent(name, share, LINES, _limit(10, LINES), "a false alarm")
            arms = np.random.default_rng([n, 99, paired]).standard_normal((2, LINES, n))
            arms[1] += 1.5
            arms[1, :, 0] -= COLLAPSE
            share = _fired(arms[0], arms[1], paired=paired)
            goal = at_least(60) if n == 15 else None
            name = f"sensitivity line, one of {n} runs collapsed, {kind}, d = 1.5"
            yield _percent(name, share, LINES, goal, "should speak")


def _times() -> Iterator[Figure]:
    """The estimates are computed only when they are read: what a comparison costs without and with them."""
    rng = np.random.default_rng(0)
    for paired in (True, False):
        arms = [rng.standard_normal((2, 15)) for _ in range(100)]
        compare_samples(*arms[0], paired=paired).to_dict()
        alone, read = [], []
        for _ in range(9):
            start = time.process_time()
            found = [compare_samples(a, b, paired=paired) for a, b in arms]
            middle = time.process_time()
            for each in found:
                assert each.sensitivity is not None
                each.sensitivity.estimates  # noqa: B018
            alone.append((middle - start) / len(arms))
            read.append((time.process_time() - middle) / len(arms))
        kind = "paired" if paired else "unpaired"
        yield Figure(f"comparison of 15 runs, {kind}", 1e3 * min(alone), "ms", note="estimates not read")
        yield Figure(f"its estimates that resist single runs, {kind}", 1e3 * min(read), "ms", goal=at_most(1))
