"""Exact permutation tests and the confidence intervals that invert them.

The sign-flip test swaps the runs of each pair; the permutation test reassigns the runs to the arms. If there are too
many rearrangements to enumerate, a random sample is used. The test stays valid because it includes the observed one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from itertools import combinations

import numpy as np
from scipy import special

from fairtrial.stats.inference import Inference, Method, from_thresholds
from fairtrial.stats.samples import DUST, Arms, Array

MOST_FLIPS = 18
MOST_DEALS = 200_000
MOST_RANKS = 10_000
MOST_TIED = 13
"""The largest number of pairs with an exact signed-rank test despite ties; above it, as in SciPy, it is asymptotic."""
MOST_QUICK_RANKS = 2_500
"""The largest n × m for which the exact distribution of rank sums takes only milliseconds."""


def infer_sign_flip(arms: Arms, count: int, rng: np.random.Generator) -> Inference:
    """Infer by the sign-flip test.

    Flipping some pairs matches the observed mean at the shift that equals the mean of the flipped differences.
    """
    differences = arms.differences
    n = len(differences)
    if n <= MOST_FLIPS:
        sums, sizes = np.zeros(1), np.zeros(1)
        for difference in differences:
            sums, sizes = np.concatenate([sums, sums + difference]), np.concatenate([sizes, sizes + 1])
        return from_thresholds("exact sign-flip", float(differences.mean()), sums[1:] / sizes[1:], 2**n)
    flipped = rng.random((count, n)) < 0.5
    chosen = flipped[flipped.any(axis=1)]
    thresholds = (chosen @ differences) / chosen.sum(axis=1)
    return from_thresholds("sampled sign-flip", float(differences.mean()), thresholds, len(thresholds) + 1)


def infer_permutation(arms: Arms, count: int, rng: np.random.Generator) -> Inference:
    """Infer by the permutation test.

    A rearrangement that swaps k runs matches the observed difference at the shift (sum lost − sum gained) / k.
    """
    value = float(arms.second.mean() - arms.first.mean())
    n, m = arms.runs
    exact = math.comb(n + m, m) <= MOST_DEALS
    deals = _all_deals(n, m) if exact else _some_deals(n, m, count, rng)
    pooled = np.concatenate([arms.first, arms.second])
    swapped = (deals < n).sum(axis=1)
    moved = swapped > 0
    thresholds = (arms.second.sum() - pooled[deals[moved]].sum(axis=1)) / swapped[moved]
    return from_thresholds(f"{'exact' if exact else 'sampled'} permutation", value, thresholds, len(thresholds) + 1)


@lru_cache(maxsize=4)
def _all_deals(n: int, m: int) -> np.ndarray[tuple[int, int], np.dtype[np.intp]]:
    """Return every way to choose the runs of the second arm; indices below n are runs of the first arm."""
    chosen = np.fromiter((i for deal in combinations(range(n + m), m) for i in deal), dtype=np.intp)
    return chosen.reshape(-1, m)


def _some_deals(n: int, m: int, count: int, rng: np.random.Generator) -> np.ndarray[tuple[int, int], np.dtype[np.intp]]:
    return np.argpartition(rng.random((count, n + m)), m - 1, axis=1)[:, :m]


def infer_wilcoxon(arms: Arms) -> Inference:
    """Infer by the Wilcoxon signed-rank test: the Hodges–Lehmann shift with the exact interval that inverts it."""
    from scipy import stats

    differences = arms.differences
    n = len(differences)
    rows, columns = np.triu_indices(n)
    walsh = (differences[rows] + differences[columns]) / 2
    if n <= MOST_TIED and _has_ties(differences):
        tests = _tied_signed_ranks(differences)
    else:
        tests = {side: float(stats.wilcoxon(differences, alternative=side).pvalue) for side in _SIDES}
    return _from_ranks("Wilcoxon signed rank", walsh, np.cumsum(_signed_rank_masses(range(1, n + 1))), tests)


def _has_ties(differences: Array) -> bool:
    return len(np.unique(np.abs(differences))) < len(differences) or not differences.all()


def _tied_signed_ranks(differences: Array) -> dict[str, float]:
    """Return exact p-values on mid-ranks, without zeros, by convolution; SciPy enumerates the signs one by one."""
    from scipy import stats

    moved = differences[differences != 0]
    doubled = np.rint(2 * stats.rankdata(np.abs(moved))).astype(int)
    masses, observed = _signed_rank_masses(doubled), int(doubled[moved > 0].sum())
    greater, less = float(masses[observed:].sum()), float(masses[: observed + 1].sum())
    return {"greater": min(1.0, greater), "less": min(1.0, less), "two-sided": min(1.0, 2 * min(greater, less))}


def infer_mann_whitney(arms: Arms) -> Inference:
    """Infer by Mann–Whitney: the median of all differences between runs, with the exact interval that inverts it."""
    from scipy import stats

    shifts = np.subtract.outer(arms.second, arms.first).ravel()
    pooled = np.concatenate([arms.first, arms.second])
    exact = len(shifts) <= MOST_RANKS and len(np.unique(pooled)) == len(pooled)
    how = "exact" if exact else "asymptotic"
    tests = {
        side: float(stats.mannwhitneyu(arms.second, arms.first, alternative=side, method=how).pvalue) for side in _SIDES
    }
    return _from_ranks("Mann–Whitney", shifts, np.cumsum(_rank_sum_masses(*arms.runs)), tests)


_SIDES = ("greater", "less", "two-sided")


def _from_ranks(method: str, shifts: Array, below: Array, tests: dict[str, float]) -> Inference:
    """Build an inference from shifts. `below[k]` is P(at most k shifts lie on one side of zero) under the null."""
    ordered = np.sort(shifts)

    def rank(tail: float) -> int:
        """Return how many shifts may lie beyond the limit."""
        return int(np.searchsorted(below, tail * (1 + 1e-12), "right"))

    def lower(tail: float) -> float:
        return float(ordered[rank(tail) - 1]) if rank(tail) else -math.inf

    def upper(tail: float) -> float:
        return float(ordered[len(ordered) - rank(tail)]) if rank(tail) else math.inf

    return Inference(
        method, float(np.median(ordered)), lower, upper, tests["greater"], tests["less"], tests["two-sided"]
    ).agreeing()


def _signed_rank_masses(ranks: Iterable[int]) -> Array:
    """Return P(W = w) for these ranks if every sign is a coin toss."""
    masses = np.ones(1)
    for rank in ranks:
        masses = (np.concatenate([masses, np.zeros(rank)]) + np.concatenate([np.zeros(rank), masses])) / 2
    return masses


def _rank_sum_masses(n: int, m: int, most: int = MOST_RANKS) -> Array:
    """Return P(U = u) if all rearrangements are equally likely; a normal approximation if n × m is above `most`."""
    if n * m > most:
        spread = math.sqrt(n * m * (n + m + 1) / 12)
        return np.diff(special.ndtr((np.arange(n * m + 2) - 0.5 - n * m / 2) / spread))
    masses = np.zeros((m + 1, n * m + 1))
    masses[0, 0] = 1.0
    for seen in range(1, n + m + 1):
        for second in range(min(seen, m), 0, -1):
            first_before = seen - second
            if first_before <= n:
                masses[second, first_before:] += masses[second - 1, : n * m + 1 - first_before]
    return np.asarray(masses[m] / math.comb(n + m, m))


def infer_shift(arms: Arms) -> Inference:
    """Infer the Hodges–Lehmann shift with its exact interval, and p-values from the same counts.

    This avoids SciPy's slower tests. Zeros and ties count against both sides, so with them it is slightly
    conservative.
    """
    if arms.paired:
        values = arms.differences
        shifts = (values[:, None] + values)[np.triu_indices(len(values))] / 2
    else:
        shifts = np.subtract.outer(arms.second, arms.first).ravel()
    scale = max(float(np.abs(arms.first).max()), float(np.abs(arms.second).max()))
    shifts[np.abs(shifts) <= DUST * scale] = 0.0
    below = _shift_distribution(arms.paired, *arms.runs)
    p_greater, p_less = (float(below[int(side.sum())]) for side in (shifts <= 0, shifts >= 0))
    tests = {"greater": p_greater, "less": p_less, "two-sided": min(1.0, 2 * min(p_greater, p_less))}
    return _from_ranks("Hodges–Lehmann", shifts, below, tests)


@lru_cache(maxsize=64)
def _shift_distribution(paired: bool, n: int, m: int) -> Array:
    """Return P(at most k shifts lie on one side of zero) under the null hypothesis."""
    masses = _signed_rank_masses(range(1, n + 1)) if paired else _rank_sum_masses(n, m, MOST_QUICK_RANKS)
    return np.cumsum(masses)


SIGN_FLIP = Method(infer_sign_flip, designs=("paired",))
WILCOXON = Method(lambda arms, _resamples, _generator: infer_wilcoxon(arms), designs=("paired",))
PERMUTATION = Method(infer_permutation, designs=("unpaired",))
MANN_WHITNEY = Method(lambda arms, _resamples, _generator: infer_mann_whitney(arms), designs=("unpaired",))
