"""Do intervals cover what they say? The deep version of the simulations in the test suite, and the limits in figures.

Everything here runs the project's own functions on simulated runs whose truth is known. Shapes of noise are those of
`stats/noise.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
from scipy import special

from benchmarks.figures import Figure, at_least, at_most
from fairtrial.stats.aggregate import aggregate, default_statistic
from fairtrial.stats.certificate import certify, t_intervals
from fairtrial.stats.compare import ComparisonConfig
from fairtrial.stats.families import residual_variance, tukey_quantile
from fairtrial.stats.noise import SHAPES, Shape
from fairtrial.stats.student import paired_parts

TITLE = "Do intervals cover what they say?"
REPEATS = 100_000
PROMISED = tuple(shape for shape in SHAPES if shape.name != "collapsing")
COUNTS = (3, 5, 10, 15)
ALPHA = 0.05


def measure(folder: Path) -> list[Figure]:  # noqa: ARG001
    return [*_pairs(), *_outside(), *_families(), *_tasks(), *_certificates()]


def _percent(name: str, share: float, repeats: int, goal: object = None, note: str | None = None) -> Figure:
    """A simulated share in percent; its limits are those of the simulation."""
    error = 100 * 1.96 * float(np.sqrt(share * (1 - share) / repeats))
    value = 100 * share
    return Figure(name, value, "%", value - error, value + error, repeats, goal, note)  # type: ignore[arg-type]


def _slack(share: float, repeats: int) -> float:
    """Three standard errors of a simulated share, in percent."""
    return 300 * float(np.sqrt(share * (1 - share) / repeats))


def _arms(
    shape: Shape, n: int, m: int, rng: np.random.Generator, repeats: int = REPEATS
) -> tuple[np.ndarray, np.ndarray]:
    return shape.draw(rng, (repeats, n)), shape.draw(rng, (repeats, m))


def _pairs() -> Iterator[Figure]:
    """Differences of exchangeable arms: the promise."""
    for paired in (True, False):
        alarms: dict[tuple[str, int, int], float] = {}
        for shape in PROMISED:
            for n in COUNTS:
                for m in (n,) if paired else (n, n + 1):
                    rng = np.random.default_rng([n, m, len(shape.name)])
                    low, high = t_intervals(*_arms(shape, n, m, rng), paired=paired, alpha=ALPHA)
                    alarms[shape.name, n, m] = float(((low > 0) | (high < 0)).mean())
        kind = "paired t" if paired else "Welch, n equal or one apart"
        worst, least = max(alarms.values()), min(alarms[key] for key in alarms if key[0] == "normal")
        where = max(alarms, key=lambda key: alarms[key])
        cells = f"{where[0]}, {where[1]} against {where[2]}; {len(alarms)} cells"
        slack = _slack(0.06, REPEATS)
        yield _percent(f"{kind}: most false positives", worst, REPEATS, at_most(6 + slack), cells)
        yield _percent(f"{kind}: least coverage", 1 - worst, REPEATS, at_least(93 - slack))
        yield _percent(f"{kind}: fewest false positives on normal noise", least, REPEATS, at_least(3 - slack))


def _outside() -> Iterator[Figure]:
    """What the cautions are about: coverage where nothing is promised."""
    for name in ("log-normal", "collapsing"):
        shape = next(shape for shape in SHAPES if shape.name == name)
        for n in (3, 5, 10, 15):
            rng = np.random.default_rng([n, len(name)])
            mean, error, freedom = paired_parts(shape.draw(rng, (REPEATS, n)))
            reach = -special.stdtrit(freedom, ALPHA / 2) * error
            covered = float((np.abs(mean - shape.mean) <= reach).mean())
            yield _percent(f"one-arm interval, {name}, n = {n}", covered, REPEATS)
        for n in (5, 15):
            rng = np.random.default_rng([n, len(name), 1])
            arms = np.random.default_rng(n).standard_normal((REPEATS, n)), shape.draw(rng, (REPEATS, n))
            low, high = t_intervals(*arms, paired=False, alpha=ALPHA)
            covered = float(((low <= shape.mean) & (shape.mean <= high)).mean())
            yield _percent(f"arms differ in shape, normal against {name}, n = {n}", covered, REPEATS)
    worst = {}
    for shape in PROMISED:
        low, high = t_intervals(*_arms(shape, 3, 15, np.random.default_rng(3)), paired=False, alpha=ALPHA)
        worst[shape.name] = float(((low > 0) | (high < 0)).mean())
    where = max(worst, key=lambda key: worst[key])
    yield _percent("unequal n, 3 against 15: most false positives", worst[where], REPEATS, note=where)


def _families() -> Iterator[Figure]:
    repeats = REPEATS
    alarms = {}
    for shape in SHAPES:
        for arms in (4, 6):
            for n in (3, 5):
                rng = np.random.default_rng([arms, n, len(shape.name)])
                layout = shape.draw(rng, (repeats, arms, n))
                variance, freedom = residual_variance(layout)
                means = layout.mean(axis=-1)
                widest = means.max(axis=-1) - means.min(axis=-1)
                limit = tukey_quantile(1 - ALPHA, arms, freedom) * np.sqrt(variance / n)
                alarms[shape.name, arms, n] = float((widest > limit).mean())
    where = max(alarms, key=lambda key: alarms[key])
    told = f"{where[0]}, {where[1]} arms, {where[2]} seeds; {len(alarms)} cells"
    yield _percent("family-wise error, Tukey, most", alarms[where], repeats, at_most(6 + _slack(0.06, repeats)), told)
    yield _percent("family-wise error, Tukey, least", min(alarms.values()), repeats)
    errors = {
        key: _holm_errors(shape, *key[1:]) for shape in SHAPES for key in [(shape.name, 4, 3), (shape.name, 4, 5)]
    }
    where = max(errors, key=lambda key: errors[key])
    told = f"{where[0]}, {where[1]} arms, {where[2]} seeds"
    yield _percent("family-wise error, Holm over all pairs, most", errors[where], repeats, note=told)


def _holm_errors(shape: Shape, arms: int, n: int) -> float:
    """Holm rejects something exactly when the smallest p is below α over the number of pairs."""
    repeats = REPEATS
    layout = shape.draw(np.random.default_rng([arms, n, 7]), (repeats, arms, n))
    pairs = list(combinations(range(arms), 2))
    smallest = np.ones(repeats)
    for a, b in pairs:
        mean, error, freedom = paired_parts(layout[:, b] - layout[:, a])
        smallest = np.minimum(smallest, 2 * special.stdtr(freedom, -np.abs(mean / error)))
    return float((smallest <= ALPHA / len(pairs)).mean())


def _tasks() -> Iterator[Figure]:
    """The default aggregate over tasks of different level and noise."""
    repeats = 1_000
    for tasks in (3, 6, 26):
        for runs in (3, 5, 10):
            yield _task_cell(tasks, runs, repeats)


def _task_cell(tasks: int, runs: int, repeats: int) -> Figure:
    statistic = default_statistic(tasks)
    rng = np.random.default_rng([tasks, runs])
    levels, spreads = rng.normal(1.0, 0.5, tasks), rng.gamma(4.0, 0.05, tasks)
    truth = _true_aggregate(levels, spreads, runs, statistic, rng)
    hits = 0
    for _ in range(repeats):
        found = aggregate(levels + spreads * rng.standard_normal((runs, tasks)), statistic=statistic)
        hits += found.low is not None and found.high is not None and found.low <= truth <= found.high
    name = f"{statistic} over {tasks} tasks × {runs} seeds: coverage"
    return _percent(name, hits / repeats, repeats, at_least(92 - _slack(0.95, repeats)))


def _true_aggregate(
    levels: np.ndarray, spreads: np.ndarray, runs: int, statistic: str, rng: np.random.Generator
) -> float:
    """What the statistic of very many runs comes to."""
    del runs
    table = levels + spreads * rng.standard_normal((20_001, len(levels)))
    return float(table.mean()) if statistic == "mean" else float(_middle_half(table))


def _middle_half(table: np.ndarray) -> float:
    flat = np.sort(table.ravel())
    cut = len(flat) // 4
    return float(flat[cut : len(flat) - cut].mean())


def _certificates() -> Iterator[Figure]:
    """At n = 5 the certificate's worst figure against the true coverage, on the shapes that hurt."""
    for name in ("log-normal", "collapsing"):
        shape = next(shape for shape in SHAPES if shape.name == name)
        rng = np.random.default_rng([5, len(name)])
        control, candidate = shape.draw(rng, (5,)), shape.draw(rng, (5,))
        worst = certify(control, candidate, ComparisonConfig(paired=True)).worst
        mean, error, freedom = paired_parts(shape.draw(rng, (REPEATS, 5)))
        reach = -special.stdtrit(freedom, ALPHA / 2) * error
        true = float((np.abs(mean - shape.mean) <= reach).mean())
        yield _percent(f"certificate at n = 5: true coverage, only one arm {name}", true, REPEATS)
        yield _percent(f"certificate at n = 5: stated worst case, {name}", worst, 20_000, at_most(100 * true + 2))
