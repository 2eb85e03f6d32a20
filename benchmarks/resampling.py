"""What intervals by resampling cost, beside rliable and SciPy doing the same work.

rliable runs in an environment of its own and times its call alone, without starting and importing. All are given the
same scores; CPU time is compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.figures import NOISE, Figure, Goal, at_least, estimated, unavailable
from benchmarks.measure import OURS, OURS_AGAIN, Spent, Unavailable, interleave, median_interval, ratio_interval
from benchmarks.oracle.client import spent
from fairtrial.stats.aggregate import aggregate, probability_of_improvement
from fairtrial.stats.bootstrap import infer_bca
from fairtrial.stats.samples import canonical

TITLE = "Intervals by resampling"
RUNS, TASKS = 5, 26
IQM_RESAMPLES, POI_RESAMPLES, BCA_RESAMPLES, BCA_RUNS = 50_000, 2_000, 10_000, 15
PEER_ROUNDS, BCA_ROUNDS = 6, 31


def measure(folder: Path) -> list[Figure]:  # noqa: ARG001
    rng = np.random.default_rng(1)
    scores, other = rng.gamma(2.0, 1.0, (RUNS, TASKS)), rng.gamma(2.2, 1.0, (RUNS, TASKS))
    return [*_iqm(scores), *_improvement(scores, other), *_bca(rng.normal(size=BCA_RUNS))]


def _iqm(scores: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> list[Figure]:
    request = {"do": "time_iqm", "scores": scores.tolist(), "resamples": IQM_RESAMPLES, "seed": 1}
    ours = partial(_cpu, lambda: aggregate(scores, statistic="iqm", method="bootstrap", resamples=IQM_RESAMPLES, rng=1))
    return _beside(
        f"IQM {RUNS} × {TASKS}, {IQM_RESAMPLES:,} resamples", "rliable", ours, partial(spent, request), at_least(40)
    )


def _improvement(
    scores: np.ndarray[tuple[int, int], np.dtype[np.float64]], other: np.ndarray[tuple[int, int], np.dtype[np.float64]]
) -> list[Figure]:
    request = {"do": "time_poi", "scores": scores.tolist(), "other": other.tolist(), "resamples": POI_RESAMPLES}
    ours = partial(
        _cpu, lambda: probability_of_improvement(scores, other, method="bootstrap", resamples=POI_RESAMPLES, rng=1)
    )
    name = f"probability of improvement, {POI_RESAMPLES:,} resamples"
    return _beside(name, "rliable", ours, partial(spent, request), at_least(500))


def _bca(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[Figure]:
    from scipy import stats

    arms = canonical(np.zeros(BCA_RUNS), values, paired=True)

    def ours() -> object:
        return infer_bca(arms, BCA_RESAMPLES, np.random.default_rng(1)).interval(0.05)

    def peer() -> object:
        return stats.bootstrap((values,), np.mean, n_resamples=BCA_RESAMPLES, rng=np.random.default_rng(1))

    name = f"paired BCa, n = {BCA_RUNS}, {BCA_RESAMPLES:,} resamples"
    return _beside(name, "SciPy", partial(_cpu, ours), partial(_cpu, peer), at_least(1), rounds=BCA_ROUNDS)


def _cpu(work: Callable[[], object]) -> Spent:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Spent(time.process_time() - cpu, time.perf_counter() - wall)


def _beside(
    name: str, peer: str, ours: Callable[[], Spent], theirs: Callable[[], Spent], goal: Goal, rounds: int = PEER_ROUNDS
) -> list[Figure]:
    """CPU seconds of both in turns, and the ratio within each round."""
    ours()  # the first call pays for imports and caches
    try:
        results = interleave({OURS: ours, OURS_AGAIN: ours, peer: theirs}, rounds)
    except Unavailable as error:
        return unavailable({f"{peer}, {name}": str(error)}, "s")
    cpu = {who: [each.cpu for each in times] for who, times in results.items()}
    return [
        estimated(f"{name}: fairtrial", median_interval(cpu[OURS]).scaled(1000), "ms"),
        estimated(f"{name}: {peer}", median_interval(cpu[peer]).scaled(1000), "ms"),
        estimated(f"{name}: {peer} / fairtrial", ratio_interval(cpu[peer], cpu[OURS]), "×", goal),
        estimated(f"{name}: {NOISE}", ratio_interval(cpu[OURS_AGAIN], cpu[OURS]), "×"),
    ]
