"""Candidate against control from what a table prints: a mean, a standard deviation and a number of runs per arm.

Welch's t needs nothing else, so intervals, p-values, equivalence and verdicts are those that the runs themselves would
give unpaired. What only the runs could tell (shared seeds, shapes, lost runs, who wins how often) stays unknown.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scipy import special

from fairtrial.core.cautions import FEW_RUNS_IN_TABLE, UNEQUAL_N
from fairtrial.core.errors import InvalidOptions
from fairtrial.core.findings import Comparison, Estimate, FilledCaution, Reason, Verdict
from fairtrial.core.printed import PrintedArm
from fairtrial.stats import effects
from fairtrial.stats.adjustments import benjamini_hochberg, holm, holm_levels
from fairtrial.stats.compare import ComparisonConfig, outlook
from fairtrial.stats.diagnostics import too_unequal
from fairtrial.stats.inference import Inference
from fairtrial.stats.power import (
    Design,
    detectable,
    pooled_freedom,
    sd_interval,
    seeds_for,
    seeds_for_equivalence,
    welch_error,
)
from fairtrial.stats.samples import DUST
from fairtrial.stats.student import from_t, t_quantile
from fairtrial.stats.verdicts import Decision, decide

ADJUSTMENTS = ("holm", "bh")
FEW_RUNS = 5
FALSE_VERDICTS = {2: 25, 3: 12}
"""Runs per arm → percent of tables of 6 equal arms with a false verdict by Holm, on equal mixtures of N(±10, 1).

From 4 runs on it is below 6 %, as it is on normal, log-normal, heavy-tailed and nearer two-peaked noise at any n.
"""


@dataclass(frozen=True)
class ArmSummary:
    """All that a table says about one arm."""

    name: str
    n: int
    mean: float
    sd: float

    @property
    def _key(self) -> tuple[float, ...]:
        return self.n, self.mean, self.sd


Pair = tuple[ArmSummary, ArmSummary]
"""Control and candidate."""


def summary_of(arm: PrintedArm, level: float) -> ArmSummary:
    """The arm with its standard deviation, computed from what the table has."""
    return ArmSummary(arm.variant, arm.n, arm.mean.value, sd_from(arm, level))


def sd_from(arm: PrintedArm, level: float) -> float:
    """The standard deviation over runs: as printed, √n times the standard error, or from a t interval of the mean."""
    printed = arm.sd or arm.se
    return (half_width_of(arm) if printed is None else printed.value) * sd_per_spread(arm, level)


def half_width_of(arm: PrintedArm) -> float:
    if arm.limits is not None:
        return (arm.limits[1].value - arm.limits[0].value) / 2
    return arm.half_width.value if arm.half_width is not None else math.nan


def infer_summaries(control: ArmSummary, candidate: ArmSummary) -> Inference | None:
    """Welch's t about candidate − control; None where neither arm varies.

    Computed in an order that only the numbers decide, so that A against B is exactly minus B against A.
    """
    scale = max(abs(control.mean), abs(candidate.mean), control.sd, candidate.sd)
    if max(control.sd, candidate.sd) <= DUST * scale:
        return None
    swapped = candidate._key < control._key
    first, second = (candidate, control) if swapped else (control, candidate)
    error, freedom = welch_error((first.sd**2, second.sd**2), (first.n, second.n))
    inference = from_t("Welch t", second.mean - first.mean, error, freedom)
    if first._key == second._key:
        return inference.symmetric()
    return inference.negated() if swapped else inference


def compare_summaries(
    pairs: Sequence[Pair], config: ComparisonConfig, adjustment: str | None = None
) -> list[Comparison]:
    """Each pair by itself, or all of them as one family: verdicts by adjusted p, with intervals that agree with them.

    In a family an interval is at the error rate that decided the pair: its step of Holm's procedure, or the share of
    α that Benjamini and Hochberg's leaves. Equivalence, `not worse` and `exceeds` are judged at α over the number of
    pairs, because the steps are ordered for differences from zero alone.
    """
    inferences = [infer_summaries(*pair) for pair in pairs]
    if adjustment is None:
        return [
            _comparison(pair, known, config, _Rates(config.alpha, config.alpha))
            for pair, known in zip(pairs, inferences, strict=True)
        ]
    side = config.on_difference()
    p_values = [known.p_value(side) for known in inferences if known is not None]
    adjusted = iter(zip(*_adjust(p_values, adjustment, config.alpha), strict=True))
    comparisons = []
    for pair, known in zip(pairs, inferences, strict=True):
        p, rate = next(adjusted) if known is not None else (None, config.alpha / len(pairs))
        rates = _Rates(rate, config.alpha / len(pairs), p, adjustment)
        comparisons.append(_comparison(pair, known, config, rates))
    return comparisons


def check_adjustment(adjustment: str) -> str:
    if adjustment not in ADJUSTMENTS:
        raise InvalidOptions(
            f"the family adjustment '{adjustment}' needs runs on shared seeds, which a table of means does not have",
            hint="Use --family holm or --family bh.",
        )
    return adjustment


@dataclass(frozen=True)
class _Rates:
    """Error rates of one comparison: of its test, and of what is judged against the smallest difference of interest."""

    test: float
    margin: float
    adjusted_p: float | None = None
    adjustment: str | None = None


def _adjust(p_values: Sequence[float], adjustment: str, alpha: float) -> tuple[list[float], list[float]]:
    """Adjusted p-values, and for each the error rate at which its own interval agrees with the verdict."""
    count = len(p_values)
    if adjustment == "bh":
        adjusted = benjamini_hochberg(p_values)
        rejected = sum(p <= alpha for p in adjusted)
        rates = [alpha * min(count, rejected + (p > alpha)) / count for p in adjusted]
        return adjusted, rates
    return holm(p_values), holm_levels(p_values, alpha)


def _comparison(pair: Pair, known: Inference | None, config: ComparisonConfig, rates: _Rates) -> Comparison:
    control, candidate = pair
    decision = _decide(known, config, rates)
    side, n = config.on_difference(), control.n + candidate.n
    value = candidate.mean - control.mean
    blank = Estimate(value, None, None, 1 - rates.test, config.method, n, reason=decision.reason)
    comparison = Comparison(
        control=control.name,
        candidate=candidate.name,
        pairing="unpaired",
        method=known.method if known else config.method,
        side=config.side,
        direction=config.direction,
        alpha=config.alpha,
        sesoi=config.sesoi,
        n_control=control.n,
        n_candidate=candidate.n,
        mean_control=control.mean,
        mean_candidate=candidate.mean,
        sd_control=control.sd,
        sd_candidate=candidate.sd,
        effect=known.estimate(rates.test, side, n) if known else blank,
        equivalence=known.estimate(2 * rates.margin, "two-sided", n)
        if known
        else replace(blank, level=1 - 2 * rates.margin),
        p_value=known.p_value(side) if known else None,
        verdict=decision.verdict,
        reason=decision.reason,
        significant=decision.significant,
        equivalent=decision.equivalent,
        exceeds_sesoi=decision.exceeds_sesoi,
        not_worse=decision.not_worse,
        adjusted_p=rates.adjusted_p,
        adjustment=rates.adjustment,
        tests=dict(known.detail) if known else {},
        cautions=_cautions(control, candidate),
    )
    if known is None:
        return comparison
    sd, freedom = noise_of(control, candidate)
    error = known.detail["standard_error"], known.detail["df"]
    seen = outlook(comparison, sd, min(control.n, candidate.n), replace(config, alpha=rates.margin), freedom, error)
    if config.sesoi is None:  # a table is never planned on its own difference, which luck helped to print
        seen["seeds_needed"] = None
    return replace(comparison, hedges_g=_hedges_g(control, candidate, config.alpha), **seen)


def _hedges_g(control: ArmSummary, candidate: ArmSummary, alpha: float) -> Estimate:
    """Computed for the size of the difference and then signed, so that it turns round exactly with the arms."""
    difference = candidate.mean - control.mean
    g = effects.unpaired_g(
        abs(difference) / ((control.sd + candidate.sd) / 2),
        (min(control.n, candidate.n), max(control.n, candidate.n)),
        alpha,
    )
    if difference == 0 and g.high is not None:
        return replace(g, low=-g.high)
    return g if difference > 0 else g.negated()


def _decide(known: Inference | None, config: ComparisonConfig, rates: _Rates) -> Decision:
    """The verdict at the rate of the test; what refers to the margin at the rate of the margin."""
    if known is None:
        return Decision(Verdict.INCONCLUSIVE, None, None, None, Reason.NO_VARIATION.value)
    side, sesoi = config.on_difference(), config.sesoi
    tested, cautious = (_signed(known.interval(rate, side), config.direction) for rate in (rates.test, rates.margin))
    narrow = _signed(known.interval(2 * rates.margin), config.direction)
    decision, strict = decide(tested, narrow, sesoi), decide(cautious, narrow, sesoi)
    adjusted = rates.adjustment is not None and decision.verdict is Verdict.INCONCLUSIVE
    return replace(
        decision,
        exceeds_sesoi=strict.exceeds_sesoi,
        not_worse=decision.not_worse if sesoi is None else strict.not_worse or decision.verdict is Verdict.BETTER,
        reason=Reason.ADJUSTED.value if adjusted else decision.reason,
    )


def _signed(interval: tuple[float, float], direction: str) -> tuple[float, float]:
    """An interval of the difference as one of the gain, of which more is better."""
    return interval if direction == "max" else (-interval[1], -interval[0])


def _cautions(control: ArmSummary, candidate: ArmSummary) -> tuple[FilledCaution, ...]:
    few, many = sorted((control.n, candidate.n))
    cautions: list[FilledCaution] = []
    if too_unequal(few, many):
        cautions.append(UNEQUAL_N.fill(control=control.n, candidate=candidate.n))
    if few < FEW_RUNS:
        cautions.append(_few_runs(few))
    return tuple(cautions)


def _few_runs(n: int) -> FilledCaution:
    """What so few runs per arm mean, in numbers."""
    low, high = sd_interval(1.0, n - 1, 0.05)
    wrong = FALSE_VERDICTS.get(n)
    error = f" With noise of two far peaks up to {wrong} % of simulated tables gave a false verdict." if wrong else ""
    size = detectable(n, 1.0, Design(paired=False))
    return FEW_RUNS_IN_TABLE.fill(n=n, low=f"{low:.2g}", high=f"{high:.2g}", size=f"{size:.2g}", error=error)


# What so many runs can see


def noise_of(control: ArmSummary, candidate: ArmSummary) -> tuple[float, float]:
    """The standard deviation of a run, pooled over both arms, and its degrees of freedom."""
    arms = sorted((control, candidate), key=lambda arm: arm._key)
    variances = [arm.sd**2 for arm in arms]
    return math.sqrt(sum(variances) / 2), pooled_freedom(variances, [arm.n - 1 for arm in arms])


@dataclass(frozen=True)
class RunsNeeded:
    """Runs per arm to detect a true difference of `margin`, and to find two equal arms equivalent within it."""

    margin: float
    power: float
    alpha: float
    to_detect: int | None
    to_equate: int | None


def runs_needed(pair: Pair, margin: float, config: ComparisonConfig, comparisons: int) -> RunsNeeded | None:
    """Planned on the margin, with the wanted power on average over what the printed noise leaves open.

    Never on the printed difference, which luck helped to print.
    """
    sd, freedom = noise_of(*pair)
    if sd == 0:
        return None
    design = replace(config.design, alpha=config.alpha / comparisons)
    return RunsNeeded(
        margin,
        design.power,
        design.alpha,
        seeds_for(margin / sd, design, freedom),
        seeds_for_equivalence(margin / sd, design, freedom),
    )


# What rounding and assumptions leave open


def verdicts_within_rounding(
    pair: Pair, mean_unit: float, sd_units: tuple[float, float], config: ComparisonConfig, rate: float
) -> list[Verdict]:
    """The verdicts that the numbers before rounding may have given, at the corners of what was rounded.

    The units are those of the last digits: a printed number is within half a unit of the one that was rounded.
    """
    control, candidate = pair
    verdicts: set[Verdict] = set()
    ends = (-0.5, 0.0, 0.5)
    for shift, first, second in itertools.product(ends, ends, ends):
        known = infer_summaries(
            replace(control, mean=control.mean - shift * mean_unit, sd=max(0.0, control.sd + first * sd_units[0])),
            replace(
                candidate, mean=candidate.mean + shift * mean_unit, sd=max(0.0, candidate.sd + second * sd_units[1])
            ),
        )
        if known is not None:
            verdicts.add(_decide(known, config, _Rates(rate, rate)).verdict)
    return [verdict for verdict in Verdict if verdict in verdicts]


def sd_per_spread(arm: PrintedArm, level: float) -> float:
    """How much the standard deviation of an arm changes with the measure of spread that the table prints."""
    root = math.sqrt(arm.n)
    return {"sd": 1.0, "se": root}.get(arm.spread) or root / t_quantile(1 - (1 - level) / 2, arm.n - 1)


def normal_factor(n: int, level: float) -> float:
    """How many times larger a standard deviation is if its interval was made with the normal quantile, not with t."""
    share = 1 - (1 - level) / 2
    return t_quantile(share, n - 1) / float(special.ndtri(share))
