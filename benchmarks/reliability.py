"""Lost runs: what the rule of reliability and quality says when arms diverge, and what it costs where they do not.

Divergence in one arm or in both, n = 3 to 15. Verdicts come from the project's own rule; quality is judged by the
default method on the pairs that finished. The twin of every bound is a rate of correct verdicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy import special

from benchmarks.figures import Figure, at_least, at_most, exactly
from fairtrial.core.findings import Verdict
from fairtrial.stats.compare import ComparisonConfig, decide_by
from fairtrial.stats.reliability import Losses, judge_reliability, upper_rate, with_reliability
from fairtrial.stats.student import from_t
from fairtrial.stats.verdicts import Decision

TITLE = "Lost runs: reliability and quality"
REPEATS = 4_000
COUNTS = (3, 5, 8, 15)
RATES = (0.05, 0.1, 0.3, 0.5)
ALPHA = 0.05
TERMS = ComparisonConfig(True, sesoi=2.0)
GOOD = (Verdict.BETTER, Verdict.EQUIVALENT)


def measure(folder: Path) -> list[Figure]:  # noqa: ARG001
    return [*_more_losses(), *_no_more_losses(), *_coverage(), *_clear_gain(), *_clean()]


def _quality(differences: np.ndarray) -> Decision:
    n = len(differences)
    if n < 2 or np.ptp(differences) == 0:
        return Decision(Verdict.INCONCLUSIVE, None, None, None, "too few runs")
    error = float(differences.std(ddof=1)) / np.sqrt(n)
    return decide_by(from_t("paired t", float(differences.mean()), error, n - 1), TERMS)


def simulate(n: int, rates: tuple[float, float], shift: float, repeats: int = REPEATS) -> list[tuple[Losses, Decision]]:
    draw = np.random.default_rng([n, int(1000 * rates[0]), int(1000 * rates[1]), int(10 * shift)])
    control, candidate = draw.standard_normal((2, repeats, n))
    gone = [draw.random((repeats, n)) < rate for rate in rates]
    found = []
    for row in range(repeats):
        lost = Losses(int(gone[0][row].sum()), n, int(gone[1][row].sum()), n)
        both = ~(gone[0][row] | gone[1][row])
        quality = _quality((candidate[row] + shift - control[row])[both])
        found.append((lost, with_reliability(quality, judge_reliability(lost, ALPHA))))
    return found


def _share(name: str, hits: int, repeats: int, goal: object = None, note: str | None = None) -> Figure:
    return Figure(name, 100 * hits / max(1, repeats), "%", samples=repeats, goal=goal, note=note)  # type: ignore[arg-type]


def _more_losses() -> Iterator[Figure]:
    """Given at least one more loss in the candidate, no good word, whatever the rate and the size of the study."""
    wrong = cases = 0
    for n in COUNTS:
        for rate in RATES:
            for both in (0.0, rate):
                found = [each for each in simulate(n, (both, rate), 1.0) if each[0].more_in_candidate]
                cases += len(found)
                wrong += sum(decision.verdict in GOOD or bool(decision.not_worse) for _, decision in found)
    note = f"{cases:,} studies with more losses in the candidate; 5 to 50 % divergence in one or both arms"
    yield Figure(
        "better, equivalent or not worse in spite of more losses", wrong, "studies", goal=exactly(0), note=note
    )


def _no_more_losses() -> Iterator[Figure]:
    """The unconditional rates of good words for a candidate that diverges and is no better otherwise."""
    for n in COUNTS:
        for rate in (0.1, 0.3):
            found = simulate(n, (0.0, rate), 0.0)
            good = sum(decision.verdict in GOOD for _, decision in found)
            worse = sum(decision.reason == "reliability" for _, decision in found)
            what = f"n = {n}, {100 * rate:g} % diverge"
            yield _share(f"{what}: better or equivalent, because no run happened to be lost", good, REPEATS)
            yield _share(f"{what}: worse (reliability)", worse, REPEATS)


def _coverage() -> Iterator[Figure]:
    """The stated upper limit of a failure rate, exactly, over all rates from 0 to 50 %."""
    worst = 1.0
    for n in COUNTS:
        limits = [upper_rate(lost, n, ALPHA) or 0.0 for lost in range(n + 1)]
        for rate in np.linspace(0.001, 0.5, 500):
            shares = [special.comb(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(n + 1)]
            worst = min(worst, sum(share for share, limit in zip(shares, limits, strict=True) if limit >= rate))
    yield Figure("stated limit covers the failure rate, at worst", 100 * worst, "%", goal=at_least(95))


def _clear_gain() -> Iterator[Figure]:
    for n in (8, 15):
        found = simulate(n, (0.1, 0.1), 2.0)
        hits = sum(decision.verdict is Verdict.BETTER for _, decision in found)
        goal = at_least(45) if n == 15 else None
        yield _share(f"n = {n}, 10 % of both arms lost, d = 2: better", hits, REPEATS, goal)


def _clean() -> Iterator[Figure]:
    """Without losses nothing changed: power of two arms at d = 1.5 against the test without the rule."""
    for n in (5, 8, 15):
        draw = np.random.default_rng([n, 99])
        differences = draw.normal(1.5 * np.sqrt(2), np.sqrt(2), (REPEATS, n))
        ruled = sum(
            with_reliability(_quality(row), judge_reliability(Losses(0, n, 0, n), ALPHA)).verdict is Verdict.BETTER
            for row in differences
        )
        plain = sum(_quality(row).verdict is Verdict.BETTER for row in differences)
        lost = 100 * (plain - ruled) / REPEATS
        yield Figure(f"n = {n}, d = 1.5, no losses: power lost to the rule", lost, "points", goal=at_most(1))
