"""Reliability: how often each arm loses a run, judged separately from the quality of the runs that finish.

A diverged run has no value, and none is imputed: if all surviving runs are good, even the worst observed value is good.
A verdict therefore combines quality and reliability. Losses are counted per arm, not paired by seed, because a seed
does not predict which run diverges next time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import special

from fairtrial.core.cautions import LOST_RUNS
from fairtrial.core.findings import Comparison, Estimate, FilledCaution, Reason, Reliability, Verdict
from fairtrial.stats.samples import Array
from fairtrial.stats.verdicts import Decision, capped

LARGEST_EXACT = 150
"""The largest number of runs per arm for Boschloo's test; above it, Fisher's is used (its p-value is never smaller)."""


@dataclass(frozen=True)
class Losses:
    """The number of runs that ended without a valid value, and of all runs that ended, in both arms."""

    lost_control: int
    control: int
    lost_candidate: int
    candidate: int
    how: str = "were lost"

    @property
    def any(self) -> bool:
        return bool(self.lost_control or self.lost_candidate)

    @property
    def more_in_candidate(self) -> bool:
        """Whether the candidate loses a larger share of its runs; computed in integers to avoid rounding."""
        return self.lost_candidate * self.control > self.lost_control * self.candidate


def count_losses(control: Array, candidate: Array) -> Losses:
    """Count losses from one number per run; a non-finite number is a lost run."""
    lost = [int((~np.isfinite(sample)).sum()) for sample in (control, candidate)]
    return Losses(lost[0], len(control), lost[1], len(candidate))


def judge_reliability(losses: Losses, alpha: float, share: float | None = None) -> Reliability:
    """Compare the failure rates of both arms: their difference with Newcombe's interval, and an exact test.

    `share` is the error rate of the test if it is one of a family; by default α.
    """
    p_value, method = _exact_p(losses)
    significant = p_value is not None and p_value <= (alpha if share is None else share)
    return Reliability(
        lost_control=losses.lost_control,
        runs_control=losses.control,
        lost_candidate=losses.lost_candidate,
        runs_candidate=losses.candidate,
        difference=_newcombe_difference(losses, alpha),
        p_value=p_value,
        method=method,
        worse=significant and losses.more_in_candidate,
        capped=losses.more_in_candidate,
        upper_control=upper_rate(losses.lost_control, losses.control, alpha),
        upper_candidate=upper_rate(losses.lost_candidate, losses.candidate, alpha),
        how=losses.how,
    )


def with_reliability(quality: Decision, reliability: Reliability) -> Decision:
    """Combine quality and reliability: `better`, `equivalent` and `not_worse` need both."""
    if reliability.worse:
        return replace(capped(quality), verdict=Verdict.WORSE, reason=Reason.RELIABILITY.value)
    return capped(quality) if reliability.capped else quality


def with_losses(comparison: Comparison, losses: Losses, share: float) -> Comparison:
    """Add the losses of both arms, tested at `share`, to a comparison of the runs that finished."""
    reliability = judge_reliability(losses, comparison.alpha, share)
    decision = Decision(
        comparison.verdict,
        comparison.significant,
        comparison.equivalent,
        comparison.exceeds_sesoi,
        comparison.reason,
        comparison.not_worse,
    )
    if comparison.failure_value is None:
        decision = with_reliability(decision, reliability)
    return replace(
        comparison,
        reliability=reliability,
        verdict=decision.verdict,
        reason=decision.reason,
        equivalent=decision.equivalent,
        not_worse=decision.not_worse,
        cautions=(*lost_cautions(reliability, (comparison.control, comparison.candidate)), *comparison.cautions),
    )


def lost_cautions(reliability: Reliability, names: tuple[str, str]) -> list[FilledCaution]:
    if not reliability.any:
        return []
    lost = {"control": reliability.lost_control, "candidate": reliability.lost_candidate}
    return [LOST_RUNS.fill(**lost, first=names[0], second=names[1])]


def upper_rate(lost: int, runs: int, alpha: float) -> float | None:
    """Return the one-sided upper Clopper–Pearson limit of the failure rate at 1 − α.

    Without a loss it is 1 − α^(1/n): 45 % after five runs.
    """
    if runs == 0:
        return None
    return 1.0 if lost == runs else float(special.betaincinv(lost + 1, runs - lost, 1 - alpha))


def _exact_p(losses: Losses) -> tuple[float | None, str]:
    """Return the two-sided p-value of equal failure rates; None if no or all runs were lost, or an arm is empty."""
    arms = (losses.lost_control, losses.control), (losses.lost_candidate, losses.candidate)
    lost, runs = sum(arm[0] for arm in arms), sum(arm[1] for arm in arms)
    exact = max(arm[1] for arm in arms) <= LARGEST_EXACT
    method = "Boschloo" if exact else "Fisher"
    if lost in (0, runs) or 0 in (losses.control, losses.candidate):
        return None, method
    return _exact_p_of(*sorted(arms), exact=exact), method


@lru_cache(maxsize=4096)
def _exact_p_of(first: tuple[int, int], second: tuple[int, int], *, exact: bool) -> float:
    """Return the p-value for arms given as (lost, runs), sorted because SciPy's last digit depends on their order."""
    from scipy import stats

    table = [[first[0], second[0]], [first[1] - first[0], second[1] - second[0]]]
    result = stats.boschloo_exact(table) if exact else stats.fisher_exact(table)
    return min(1.0, float(result.pvalue))


def _newcombe_difference(losses: Losses, alpha: float) -> Estimate:
    """Return the candidate's failure rate minus the control's, with Newcombe's interval from two Wilson intervals."""
    n = losses.control + losses.candidate
    if not losses.control or not losses.candidate:
        return Estimate(None, None, None, 1 - alpha, "Newcombe", n, reason=Reason.TOO_FEW.value)
    first, second = losses.lost_control / losses.control, losses.lost_candidate / losses.candidate
    low_first, high_first = _wilson(first, losses.control, alpha)
    low_second, high_second = _wilson(second, losses.candidate, alpha)
    low = second - first - math.hypot(second - low_second, high_first - first)
    high = second - first + math.hypot(high_second - second, first - low_first)
    return Estimate(second - first, low, high, 1 - alpha, "Newcombe", n)


def _wilson(share: float, runs: int, alpha: float) -> tuple[float, float]:
    z = float(special.ndtri(1 - alpha / 2))
    middle = (share + z**2 / (2 * runs)) / (1 + z**2 / runs)
    reach = z / (1 + z**2 / runs) * math.sqrt(share * (1 - share) / runs + z**2 / (4 * runs**2))
    return max(0.0, middle - reach), min(1.0, middle + reach)
