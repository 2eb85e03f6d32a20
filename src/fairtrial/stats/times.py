"""Compare times to a threshold when some runs never reached it (censored times)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fairtrial.core.errors import UserError
from fairtrial.core.findings import Comparison, Estimate, Reason, Verdict
from fairtrial.stats.compare import ComparisonConfig
from fairtrial.stats.effects import unpaired_superiority
from fairtrial.stats.samples import Arms, Array, canonical
from fairtrial.stats.verdicts import Decision, conclude

MOST_WORK = 100_000_000
"""The largest number of additions for exact counting (about 59 runs per arm); above it, rearrangements are sampled."""
DEALS = 99_999
DEALS_AT_ONCE = 5_000_000
"""The maximum number of random numbers in memory while rearrangements are sampled."""


def compare_times(
    control: Array,
    candidate: Array,
    horizon: float,
    config: ComparisonConfig,
    *,
    names: tuple[str, str],
    threshold: float | None = None,
) -> Comparison:
    """Compare times by Mann–Whitney, with runs that never reached the threshold (infinite) tied last. Sooner is better.

    The reported effect is the difference of restricted means up to the common horizon, candidate − control: negative
    if the candidate needs fewer steps. It has no interval. A few censored runs can make its sign contradict the ranks;
    the verdict is then inconclusive.
    """
    if config.method not in ("t", "mann-whitney"):
        raise UserError(
            f"method '{config.method}' needs every run to reach the threshold, but some runs did not",
            hint="Omit --method: the default ranks runs that never reached the threshold last.",
        )
    # Censor at the horizon: shorter runs had no chance to reach the threshold after it.
    control, candidate = (
        np.sort(np.where(np.isnan(sample) | (sample > horizon), math.inf, sample)) for sample in (control, candidate)
    )
    reached = [float(np.isfinite(sample).mean()) if len(sample) else None for sample in (control, candidate)]
    means = [float(np.minimum(sample, horizon).mean()) if len(sample) else None for sample in (control, candidate)]
    gap = None if means[0] is None or means[1] is None else means[1] - means[0]
    effect = Estimate(
        gap,
        None,
        None,
        1 - config.alpha,
        f"restricted mean up to step {horizon:g}",
        len(control) + len(candidate),
        unit="steps",
        reason=Reason.CENSORED.value,
    )
    comparison = Comparison(
        control=names[0],
        candidate=names[1],
        pairing="unpaired",
        method="Mann–Whitney, censored runs last",
        side=config.side,
        direction="min",
        alpha=config.alpha,
        sesoi=None,
        n_control=len(control),
        n_candidate=len(candidate),
        mean_control=means[0],
        mean_candidate=means[1],
        sd_control=None,
        sd_candidate=None,
        effect=effect,
        equivalence=effect,
        p_value=None,
        verdict=Verdict.INCONCLUSIVE,
        reason=Reason.TOO_FEW.value,
        tests={
            "reached_control": reached[0],
            "reached_candidate": reached[1],
            "horizon": horizon,
            "threshold": threshold,
        },
    )
    if min(len(control), len(candidate)) < 2:
        return comparison
    if len(np.unique(np.concatenate([control, candidate]))) < 2:
        return replace(comparison, reason=Reason.NO_VARIATION.value)
    ranked = rank_test(control, candidate)
    p = {"two-sided": ranked.two_sided, "greater": ranked.sooner, "less": ranked.later}[config.side]
    capped = [np.minimum(sample, horizon + 1) for sample in (control, candidate)]
    superiority = unpaired_superiority(-capped[0], -capped[1], config.alpha)
    decision = _decide(p <= config.alpha, (superiority.value or 0.0) > 0.5, gap or 0.0)
    return replace(
        comparison,
        method=f"Mann–Whitney ({'exact' if ranked.exact else 'sampled'}, censored runs last)",
        p_value=p,
        superiority=superiority,
        verdict=decision.verdict,
        reason=decision.reason,
        significant=decision.significant,
        tests={**comparison.tests, "exact": ranked.exact},
    )


def _decide(significant: bool, sooner: bool, gap: float) -> Decision:
    """Decide by ranks; inconclusive if the restricted means have the opposite sign."""
    decision = conclude(significant, sooner, None, None)
    if significant and (gap > 0 if sooner else gap < 0):
        return Decision(Verdict.INCONCLUSIVE, False, None, None, Reason.DISAGREE.value)
    return decision


@dataclass(frozen=True)
class RankTest:
    """P-values of a rank test, for the alternatives that the candidate is sooner, later, or either."""

    sooner: float
    later: float
    exact: bool

    @property
    def two_sided(self) -> float:
        return min(1.0, 2 * min(self.sooner, self.later))


def rank_test(control: Array, candidate: Array) -> RankTest:
    """Return the rank-sum test on mid-ranks. Infinite values are one tie; only the order of the values matters."""
    from scipy import stats

    doubled = np.rint(2 * stats.rankdata(np.concatenate([control, candidate])))  # mid-ranks as whole numbers
    arms = canonical(doubled[: len(control)], doubled[len(control) :], paired=False)
    low, high, exact = _tails(arms)
    # Low ranks of the first arm mean that it is sooner; if `swapped`, the first arm is the candidate.
    return RankTest(low, high, exact) if arms.swapped else RankTest(high, low, exact)


def _tails(arms: Arms) -> tuple[float, float, bool]:
    """Return the probabilities that the first (smaller) arm's rank sum is at most, and at least, the observed one."""
    ranks = np.concatenate([arms.first, arms.second]).astype(np.int64)
    n, seen = len(arms.first), int(arms.first.sum())
    largest = int(np.sort(ranks)[-n:].sum())
    if len(ranks) * n * largest <= MOST_WORK:
        counts = _rank_sum_counts(ranks, n, largest)
        deals = math.comb(len(ranks), n)
        return float(counts[: seen + 1].sum()) / deals, float(counts[seen:].sum()) / deals, True
    sums = _drawn_sums(ranks, n, arms.stream(0))
    return (1 + float((sums <= seen).sum())) / (DEALS + 1), (1 + float((sums >= seen).sum())) / (DEALS + 1), False


def _rank_sum_counts(ranks: np.ndarray[tuple[int], np.dtype[np.int64]], n: int, largest: int) -> Array:
    """Count the subsets of n ranks with each sum, by dynamic programming; ties are allowed."""
    ways = np.zeros((n + 1, largest + 1))
    ways[0, 0] = 1.0
    for count, rank in enumerate(np.sort(ranks).tolist(), start=1):
        most = min(count, n)
        ways[1 : most + 1, rank:] += ways[:most, : largest + 1 - rank].copy()
    return np.asarray(ways[n])


def _drawn_sums(ranks: np.ndarray[tuple[int], np.dtype[np.int64]], n: int, rng: np.random.Generator) -> Array:
    """Return rank sums of random rearrangements. The random stream depends only on the ranks."""
    rows = max(1, DEALS_AT_ONCE // len(ranks))
    sums = []
    for begin in range(0, DEALS, rows):
        keys = rng.random((min(rows, DEALS - begin), len(ranks)))
        sums.append(ranks[np.argpartition(keys, n - 1, axis=1)[:, :n]].sum(axis=1))
    return np.concatenate(sums).astype(np.float64)
