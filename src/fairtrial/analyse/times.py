"""Times to a threshold, some of which never came: what can be said without pretending that they did."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fairtrial.analyse.compare import Terms
from fairtrial.analyse.effects import unpaired_superiority
from fairtrial.analyse.samples import Array
from fairtrial.analyse.verdicts import conclude
from fairtrial.core.errors import UserError
from fairtrial.core.findings import Comparison, Estimate, Reason


def compare_times(
    control: Array, candidate: Array, horizon: float, terms: Terms, *, names: tuple[str, str]
) -> Comparison:
    """Mann–Whitney with runs that never reached the threshold (infinite) tied last. Sooner is better.

    The difference shown is that of restricted means, up to the common horizon; it has no interval.
    """
    from scipy import stats

    if terms.method not in ("t", "mann-whitney"):
        raise UserError(
            f"method '{terms.method}' needs every run to have reached the threshold, and some have not",
            hint="Leave --method out: runs that never arrived are ranked last.",
        )
    # Whoever arrives after the shortest run has ended arrives too late for a fair race.
    control, candidate = (
        np.where(np.isnan(sample) | (sample > horizon), math.inf, sample) for sample in (control, candidate)
    )
    reached = [float(np.isfinite(sample).mean()) if len(sample) else None for sample in (control, candidate)]
    means = [float(np.minimum(sample, horizon).mean()) if len(sample) else None for sample in (control, candidate)]
    gap = None if means[0] is None or means[1] is None else means[1] - means[0]
    effect = Estimate(
        gap, None, None, 1 - terms.alpha, f"restricted mean up to step {horizon:g}",
        len(control) + len(candidate), unit="steps", reason=Reason.CENSORED.value,
    )  # fmt: skip
    base = Comparison(
        control=names[0], candidate=names[1], pairing="unpaired", method="Mann–Whitney, censored runs last",
        side=terms.side, direction="min", alpha=terms.alpha, sesoi=None,
        n_control=len(control), n_candidate=len(candidate), mean_control=means[0], mean_candidate=means[1],
        sd_control=None, sd_candidate=None, effect=effect, equivalence=effect, p_value=None,
        verdict=conclude(False, False, None, None).verdict, reason=Reason.TOO_FEW.value,
        tests={"reached_control": reached[0], "reached_candidate": reached[1], "horizon": horizon},
    )  # fmt: skip
    ranks = [control, candidate]
    if min(len(control), len(candidate)) < 2:
        return base
    if len(np.unique(np.concatenate(ranks))) < 2:
        return replace(base, reason=Reason.NO_VARIATION.value)
    sooner = {"two-sided": "two-sided", "greater": "less", "less": "greater"}[terms.side]
    p = float(stats.mannwhitneyu(ranks[1], ranks[0], alternative=sooner).pvalue)
    capped = [np.minimum(sample, horizon + 1) for sample in ranks]
    superiority = unpaired_superiority(-capped[0], -capped[1], terms.alpha)
    decision = conclude(p <= terms.alpha, (superiority.value or 0) > 0.5, None, None)
    judged = {"p_value": p, "superiority": superiority, "verdict": decision.verdict, "reason": decision.reason}
    return Comparison(**{**vars(base), **judged, "significant": decision.significant})
