"""Does the certificate state more than the truth? Its worst figure against fresh simulations.

A run that collapses falls ten standard deviations below the others. The truth is simulated with both arms collapsing,
with one arm collapsing beside one that does not vary, and beside one with plain noise of the same spread.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.figures import Figure, at_least, at_most
from fairtrial.stats import certificate
from fairtrial.stats.certificate import Certificate, certify, coverage
from fairtrial.stats.compare import ComparisonConfig
from fairtrial.stats.noise import DEPTH, SHAPES, collapsed

TITLE = "Does the certificate state more than the truth?"
REPEATS = 20_000
COUNTS = (5, 10, 15, 30)
RATES = (0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.14, 0.2, 0.25, 0.3)
LOG_NORMAL = next(shape for shape in SHAPES if shape.name == "log-normal")
TIMES = 7
SLACK = 2
"""Points by which the stated figure may lie above the truth."""


def measure(folder: Path) -> list[Figure]:  # noqa: ARG001
    return [*_stated(), *_cost()]


def _stated() -> Iterator[Figure]:
    for paired in (True, False):
        for n in COUNTS:
            rng = np.random.default_rng([1, n, paired])
            found = certify(rng.standard_normal(n), rng.standard_normal(n), ComparisonConfig(paired))
            truth = _collapse_truth(n, ComparisonConfig(paired), rng)
            tail = _tail_truth(n, ComparisonConfig(paired), rng)
            design = f"{'paired' if paired else 'unpaired'}, n = {n}"
            yield _points(f"{design}: stated worst of the shapes tried", found.worst)
            yield _points(f"{design}: lowest true coverage, collapse rates 2 to 30 %", min(map(min, truth)))
            above = max(found.worst - min(each) for each in truth)
            yield _points(f"{design}: stated above true, worst collapse rate", above, at_most(SLACK))
            yield _points(f"{design}: stated above true, log-normal", found.worst - min(tail), at_most(SLACK))
            yield _points(
                f"{design}: stated above true, both arms alike", _both_above(found, truth, tail), at_most(SLACK)
            )
            yield _points(
                f"{design}: stated below the lowest true", min(map(min, truth)) - found.worst, at_most(SLACK),
                note="a certificate that always says little is worth little",
            )  # fmt: skip


def _points(name: str, share: float, goal: object = None, note: str | None = None) -> Figure:
    return Figure(name, 100 * share, "points" if goal else "%", samples=REPEATS, goal=goal, note=note)  # type: ignore[arg-type]


def _both_above(found: Certificate, truth: list[tuple[float, ...]], tail: tuple[float, ...]) -> float:
    return found.worst_both_arms - min(each[0] for each in [*truth, tail])


def _collapse_truth(n: int, config: ComparisonConfig, rng: np.random.Generator) -> list[tuple[float, ...]]:
    """Coverage by rate: both arms, one arm beside a still one, one arm beside plain noise."""
    noise, chances = rng.standard_normal((2, REPEATS, n)), rng.random((2, REPEATS, n))
    still = np.zeros((REPEATS, n))
    rows = []
    for rate in RATES:
        first, second = collapsed(noise, chances, rate)
        alone = [coverage(other, second, -DEPTH * rate, config, 0) for other in (still, noise[0])]
        rows.append((coverage(first, second, 0.0, config, 0), *alone))
    return rows


def _tail_truth(n: int, config: ComparisonConfig, rng: np.random.Generator) -> tuple[float, ...]:
    first, second = LOG_NORMAL.draw(rng, (2, REPEATS, n))
    alone = coverage(np.zeros_like(first), second, LOG_NORMAL.mean, config, 0)
    return coverage(first, second, 0.0, config, 0), alone


def _cost() -> Iterator[Figure]:
    """What the scan adds to the fixed panel of shapes, which is all that there was before."""
    for n in (5, 10, 30):
        rng = np.random.default_rng(n)
        arms = rng.standard_normal(n), rng.standard_normal(n)
        whole, panel = [], []
        for _ in range(TIMES):
            began = time.process_time()
            certify(*arms, ComparisonConfig(True))
            whole.append(time.process_time() - began)
            began = time.process_time()
            list(
                certificate._on_panel(
                    *arms, ComparisonConfig(True), 0, certificate.REPEATS, n >= certificate.FITTED_FROM
                )
            )
            panel.append(time.process_time() - began)
        yield Figure(f"certificate at n = {n}, paired t", 1000 * float(np.median(whole)), "ms", samples=TIMES)
        ratio = float(np.median(whole) / np.median(panel))
        yield Figure(f"the same / the fixed panel alone, n = {n}", ratio, "×", samples=TIMES, goal=at_most(2))
    scanned = len([row for row in certify(*arms, ComparisonConfig(True), repeats=100).covered if row.rate is not None])
    yield Figure("collapse rates scanned at n = 30", scanned, "rates", goal=at_least(6))
