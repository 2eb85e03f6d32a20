"""Tools to measure fairly: contestants in turns, medians with intervals, ratios within a round, a noise floor.

Machines are shared, and their speed drifts. So every round runs every contestant once, in an order drawn anew, and
ratios are taken within a round, where the drift is the same on both sides. Ours runs twice under two names: the
ratio of the two would be 1 on a quiet machine, and its interval says how much of any other ratio is noise.
"""

from __future__ import annotations

import json
import math
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy

OURS = "fairtrial"
OURS_AGAIN = "fairtrial again"
ROOT = Path(__file__).resolve().parent.parent
CONFIDENCE = 0.95
T = TypeVar("T")


@dataclass(frozen=True)
class Spent:
    """What one piece of work took, in seconds."""

    cpu: float
    wall: float

    def per(self, calls: int) -> Spent:
        return Spent(self.cpu / calls, self.wall / calls)


@dataclass(frozen=True)
class Estimate:
    """A median and its interval. Too few values for an interval: it is absent, not zero."""

    median: float
    low: float | None
    high: float | None
    n: int

    def scaled(self, factor: float) -> Estimate:
        low, high = (None if bound is None else bound * factor for bound in (self.low, self.high))
        return Estimate(self.median * factor, low, high, self.n)


class Unavailable(Exception):
    """A contestant that cannot take part here; its text says why."""


def interleave(contestants: Mapping[str, Callable[[], T]], rounds: int, *, seed: int = 1) -> dict[str, list[T]]:
    """Every contestant once per round, in a random order per round; what each returned, in the order of rounds."""
    shuffle = random.Random(seed).shuffle
    results: dict[str, list[T]] = {name: [] for name in contestants}
    for _ in range(rounds):
        order = list(contestants)
        shuffle(order)
        for name in order:
            results[name].append(contestants[name]())
    return results


def in_this_thread(work: Callable[[], object]) -> Spent:
    """Time of work in the calling thread: what background threads do is not charged to it."""
    wall, cpu = time.perf_counter(), time.thread_time()
    work()
    return Spent(time.thread_time() - cpu, time.perf_counter() - wall)


def in_a_process(argv: Sequence[str]) -> Spent:
    """Time of a program from its start to its end. A program that fails is no measurement."""
    wall, before = time.perf_counter(), _children_cpu()
    done = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, env=_with_bytecode())
    spent = Spent(_children_cpu() - before, time.perf_counter() - wall)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise Unavailable(f"{Path(argv[0]).name} ended with status {done.returncode}: {' '.join(last)}")
    return spent


def told_by(module: str, *words: str) -> dict[str, Any]:
    """The document that a module prints when it is run as a program."""
    argv = [sys.executable, "-m", module, *words]
    told: dict[str, Any] = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    return told


def _with_bytecode() -> dict[str, str]:
    """Installed packages have their bytecode beside them; a source tree that may not write its own would not."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # os.times() knows hundredths of a second only
    return used.ru_utime + used.ru_stime


def median_interval(values: Iterable[float]) -> Estimate:
    """The median with the order statistics that enclose the true one with at least 95 % confidence."""
    ordered = numpy.sort(numpy.fromiter(values, dtype=float))
    n = len(ordered)
    rank = _rank(n)
    low, high = (float(ordered[rank - 1]), float(ordered[n - rank])) if rank else (None, None)
    return Estimate(float(numpy.median(ordered)), low, high, n)


def _rank(n: int) -> int:
    """The largest k for which the k-th smallest and k-th largest of n enclose the median surely enough; 0: none."""
    outside, k = 0.0, 0
    while k < n / 2:
        outside += 2 * math.comb(n, k) / 2**n
        if outside > 1 - CONFIDENCE:
            break
        k += 1
    return k


def ratio_interval(theirs: Sequence[float], ours: Sequence[float]) -> Estimate:
    """How many times ours they took, round by round."""
    return median_interval(a / b for a, b in zip(theirs, ours, strict=True))
