"""Answers one question with rliable, inside rliable's own environment: an oracle for tests, a peer for benchmarks.

Reads one JSON request on stdin and writes one JSON answer on stdout. Floats are written so that they read back exactly.
Scores are a list of runs, each a list with one score per task.

{"do": "points", "cases": [{"scores", "other", "gamma", "taus"}, …]}    → {"versions", "answers": [{"mean", …}, …]}
{"do": "time_iqm", "scores", "resamples", "seed"}                      → {"cpu_s", "wall_s", "low", "high", "value"}
{"do": "time_poi", "scores", "other", "resamples", "seed": optional}   → the same

The directory of this file has the name of the package, so start it as a script (python -I worker.py).
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy
from numpy.typing import NDArray
from rliable import library, metrics

Scores = NDArray[numpy.float64]
PACKAGES = ("rliable", "numpy", "scipy")


def main() -> int:
    request = json.load(sys.stdin)
    answer = ANSWERS.get(request["do"])
    if answer is None:
        print(f"Error: unknown request {request['do']!r}. Known: {', '.join(ANSWERS)}.", file=sys.stderr)
        return 2
    json.dump(answer(request), sys.stdout, allow_nan=False)
    return 0


def points(request: Mapping[str, Any]) -> dict[str, Any]:
    """Point values of every case, and the versions that gave them."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"versions": versions, "answers": [points_of(case) for case in request["cases"]]}


def points_of(case: Mapping[str, Any]) -> dict[str, Any]:
    scores, other = matrix(case["scores"]), matrix(case["other"])
    return {
        "mean": float(metrics.aggregate_mean(scores)),
        "median": float(metrics.aggregate_median(scores)),
        "iqm": float(metrics.aggregate_iqm(scores)),
        "optimality_gap": float(metrics.aggregate_optimality_gap(scores, case["gamma"])),
        "probability_of_improvement": float(metrics.probability_of_improvement(scores, other)),
        "profile": profile(scores, case["taus"]),
    }


def profile(scores: Scores, taus: list[float]) -> list[float]:
    """The profile that create_performance_profile returns as its points, without the bootstrap around it."""
    return [float(value) for value in library.score_distributions(scores, taus)]


def time_iqm(request: Mapping[str, Any]) -> dict[str, float]:
    """Stratified bootstrap of the interquartile mean of one algorithm."""
    return timed_interval(
        matrix(request["scores"]),
        lambda scores: numpy.array([metrics.aggregate_iqm(scores)]),
        resamples=request["resamples"],
        seed=request["seed"],
    )


def time_poi(request: Mapping[str, Any]) -> dict[str, float]:
    """Stratified bootstrap of the probability that scores are better than the other's, resampled independently."""
    return timed_interval(
        [matrix(request["scores"]), matrix(request["other"])],  # a list: rliable resamples each by itself
        lambda scores, other: numpy.array([metrics.probability_of_improvement(scores, other)]),
        resamples=request["resamples"],
        seed=request.get("seed", 0),
    )


def timed_interval(
    data: Scores | list[Scores], function: Callable[..., Scores], *, resamples: int, seed: int
) -> dict[str, float]:
    """The 95 % percentile interval of a function, and what only the call of rliable took."""
    # rliable takes a random_state and passes it to arch, but draws its indices with numpy.random.choice: only the
    # global seed decides. A random_state would change nothing, and arch would warn of it.
    numpy.random.seed(seed)
    wall, cpu = time.perf_counter(), time.process_time()
    values, intervals = library.get_interval_estimates({"it": data}, function, reps=resamples)
    cpu_s, wall_s = time.process_time() - cpu, time.perf_counter() - wall
    low, high = intervals["it"][:, 0]
    return {
        "cpu_s": cpu_s,
        "wall_s": wall_s,
        "low": float(low),
        "high": float(high),
        "value": float(values["it"][0]),
    }


def matrix(rows: list[list[float]]) -> Scores:
    """Scores as rliable wants them: runs × tasks."""
    scores = numpy.asarray(rows, dtype=numpy.float64)
    assert scores.ndim == 2, f"runs × tasks are wanted, not {scores.ndim} dimensions"
    return scores


ANSWERS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "points": points,
    "time_iqm": time_iqm,
    "time_poi": time_poi,
}

if __name__ == "__main__":
    sys.exit(main())
