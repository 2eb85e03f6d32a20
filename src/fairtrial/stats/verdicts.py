"""Decide the verdict of a comparison from two confidence intervals and a smallest effect of interest (SESOI)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fairtrial.core.findings import Reason, Verdict

Interval = tuple[float, float] | None


@dataclass(frozen=True)
class Decision:
    verdict: Verdict
    significant: bool | None
    equivalent: bool | None
    exceeds_sesoi: bool | None
    reason: str | None = None
    not_worse: bool | None = None


def decide(wide: Interval, narrow: Interval, sesoi: float | None) -> Decision:
    """Return the verdict for a gain (positive is good), given its 1 − α interval and its 1 − 2α interval.

    The verdict is `equivalent` if the 1 − 2α interval lies inside ± SESOI. Otherwise it is `better` or `worse` if the
    1 − α interval excludes zero, and `inconclusive` if it does not.
    """
    if wide is None:
        return Decision(Verdict.INCONCLUSIVE, None, None, None)
    low, high = wide
    significant = low > 0 or high < 0
    equivalent = None if sesoi is None or narrow is None else -sesoi < narrow[0] and narrow[1] < sesoi
    exceeds = None if sesoi is None else low > sesoi or high < -sesoi
    not_worse = low > 0 if sesoi is None else low > -sesoi
    return replace(conclude(significant, low > 0, equivalent, exceeds), not_worse=not_worse)


def conclude(significant: bool, good: bool, equivalent: bool | None, exceeds: bool | None) -> Decision:
    """Map test results to a verdict. `good` says whether a significant gain is positive."""
    if equivalent:
        return Decision(Verdict.EQUIVALENT, significant, equivalent, exceeds)
    if significant:
        return Decision(Verdict.BETTER if good else Verdict.WORSE, significant, equivalent, exceeds)
    return Decision(Verdict.INCONCLUSIVE, significant, equivalent, exceeds, Reason.NOT_COVERED.value)


def capped(decision: Decision) -> Decision:
    """Rule out `better`, `equivalent` and `not_worse` for a candidate that loses more runs than the control."""
    below = replace(decision, equivalent=None if decision.equivalent is None else False, not_worse=False)
    if decision.verdict in (Verdict.BETTER, Verdict.EQUIVALENT):
        return replace(below, verdict=Verdict.INCONCLUSIVE, reason=Reason.ATTRITION.value)
    return below
