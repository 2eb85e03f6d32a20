"""Holm's step-down for several inferences, with intervals that agree with the verdicts.

The smallest p-value is tested at α/m, the next at α/(m − 1), and so on until the first failure; all later ones fail at
the same error rate. Each interval is at the error rate at which its verdict was decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fairtrial.core.findings import Reason, Verdict
from fairtrial.stats.adjustments import holm, holm_levels
from fairtrial.stats.compare import ComparisonConfig, decide_by
from fairtrial.stats.inference import Inference
from fairtrial.stats.verdicts import Decision, conclude


@dataclass(frozen=True)
class HolmVerdict:
    """One member of the family: its decision, its adjusted p-value, and the error rate `alpha` of its interval.

    `share` is α/m, the error rate for equivalence and `not_worse`.
    """

    decision: Decision
    adjusted_p: float
    alpha: float
    share: float


def judge_by_holm(inferences: Sequence[Inference], config: ComparisonConfig) -> list[HolmVerdict]:
    """Return verdicts on several differences with a family-wise error rate of at most α."""
    p_values = [each.p_value(config.on_difference()) for each in inferences]
    limits = holm_levels(p_values, config.alpha)
    share = config.alpha / len(p_values)
    return [
        HolmVerdict(_decided(inference, replace(config, alpha=limit), replace(config, alpha=share)), p, limit, share)
        for inference, limit, p in zip(inferences, limits, holm(p_values), strict=True)
    ]


def _decided(inference: Inference, at_limit: ComparisonConfig, at_share: ComparisonConfig) -> Decision:
    """Decide better and worse at the error rate of the step; equivalence, margins and `not_worse` at Bonferroni's."""
    ordered, margin = decide_by(inference, at_limit), decide_by(inference, at_share)
    if ordered.significant is None:
        return ordered
    good = (inference.value > 0) == (at_limit.direction == "max")
    decision = conclude(ordered.significant, good, margin.equivalent, margin.exceeds_sesoi)
    not_worse = bool(margin.not_worse) or decision.verdict is Verdict.BETTER
    alone = at_limit.alpha == at_share.alpha
    reason = Reason.ADJUSTED.value if decision.verdict is Verdict.INCONCLUSIVE and not alone else decision.reason
    return replace(decision, reason=reason, not_worse=not_worse)
