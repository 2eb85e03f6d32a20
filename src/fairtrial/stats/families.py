"""Compare several arms as one family, with multiple-testing adjustment.

Tested separately, each pair of equal arms has a false-positive rate of 5 %, so fifteen such pairs often give at least
one false positive. With fewer than twelve seeds, paired differences are tested with one joint limit for all pairs,
based on the largest of three estimates of the spread: pooled noise gives power with few seeds, and the larger estimate
keeps the error rate if the arms are not equally noisy. With twelve or more seeds, each pair is tested on its own noise,
and its t test is adjusted by Holm's step-down. Unpaired runs, other methods and one-sided tests always use Holm's
step-down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fairtrial.core.cautions import ARMS_DIFFER, POOLED_NOISE, TOO_FEW_FOR_FAMILY
from fairtrial.core.errors import InvalidOptions, unknown
from fairtrial.core.findings import Comparison, Estimate, Reason, SeedsNeeded, Verdict
from fairtrial.core.plugin_registry import ADJUSTMENTS, load_plugin, plugin_names
from fairtrial.stats.adjustments import LARGEST_SPREAD, TUKEY_POOLED, Adjustment
from fairtrial.stats.compare import ComparisonConfig, ComparisonResult, compare, decide_from, judge, keep_finite
from fairtrial.stats.family_power import FamilyPlan, plan_pairs
from fairtrial.stats.inference import Inference
from fairtrial.stats.ranges import range_quantile
from fairtrial.stats.reliability import Losses, count_losses, with_losses
from fairtrial.stats.samples import Array, Mask, Seed, frozen_seed, row_order
from fairtrial.stats.spreads import (
    AUTO,
    HOLM,
    MAX_SPREAD,
    TUKEY,
    FamilyLimit,
    JointNoise,
    incomplete_residual,
    largest_spreads,
    settled,
    student_limit,
)
from fairtrial.stats.spreads import residual_variance as residual_variance
from fairtrial.stats.verdicts import Decision, conclude

POOLED = {MAX_SPREAD: LARGEST_SPREAD.method, TUKEY: TUKEY_POOLED.method}
"""Adjustments that estimate noise from the whole layout → the method name of their intervals."""
ENOUGH_FOR_PAIRS = 5

Arms = Mapping[str, Array]
Pair = tuple[str, str]
Again = Callable[[int, float], Comparison]
"""Return the comparison with this index, tested at this error rate."""

tukey_quantile = range_quantile


def infer_tukey(layout: Array, first: int, second: int) -> Inference:
    """Infer second − first, with limits that hold simultaneously for all pairs of the layout."""
    arms, seeds = layout.shape
    variance, freedom = residual_variance(layout)
    limit = FamilyLimit(arms, arms * (arms - 1) // 2, freedom, narrower=False)
    value = float(layout[second].mean() - layout[first].mean())
    return JointNoise(limit, seeds, 2 * float(variance), None).infer(value, POOLED[TUKEY])


def stepwise(family: str | None) -> str:
    """Return the adjustment for comparisons without a common layout: the one requested, or Holm's by default."""
    if family in POOLED:
        raise InvalidOptions(f"--family {family} needs one number per run and does not apply here", hint=_STEPWISE)
    return HOLM if family in (None, AUTO) else family


_STEPWISE = "Use --family holm or bh, or leave it out."


# Families


def compare_family(
    arms: Arms,
    control: str,
    config: ComparisonConfig,
    adjustment: str,
    *,
    seed: Seed = None,
    losses: Mapping[str, Losses] | None = None,
    ended: Mapping[str, Mask] | None = None,
) -> list[Comparison]:
    """Compare every other arm with the control, as one family. Paired arms are aligned by seed; NaN is a lost run.

    Pass `losses` by candidate if the arrays do not contain every run that ended. Pass `ended` by arm if the arrays
    contain cells that were never run.
    """
    pairs = [(control, name) for name in arms if name != control]
    counted = {(control, name): each for name, each in losses.items()} if losses else None
    return compare_pairs(arms, pairs, config, adjustment, seed=seed, losses=counted, ended=ended)


def compare_pairs(
    arms: Arms,
    pairs: Sequence[Pair],
    config: ComparisonConfig,
    adjustment: str,
    *,
    seed: Seed = None,
    losses: Mapping[Pair, Losses] | None = None,
    ended: Mapping[str, Mask] | None = None,
) -> list[Comparison]:
    """Compare pairs of arms, given as (control, candidate), as one family. Each pair uses the seeds that both have."""
    check_adjustment(adjustment, config)
    if not pairs:
        return []
    seed = frozen_seed(seed)
    ended = ended or {name: np.ones(len(sample), dtype=bool) for name, sample in arms.items()}
    if losses is None:
        outcomes = {name: sample[ended[name]] for name, sample in arms.items()}
        losses = {pair: count_losses(outcomes[pair[0]], outcomes[pair[1]]) for pair in pairs}
    if config.failure_value is not None:
        arms = {
            name: np.where(ended[name] & ~np.isfinite(sample), config.failure_value, sample)
            for name, sample in arms.items()
        }
    rule = settle_adjustment(adjustment, config, min(len(sample) for sample in arms.values()))
    if rule in POOLED:
        comparisons = _judged_jointly(arms, pairs, config, rule, seed)
    else:
        comparisons = _judged_stepwise(arms, pairs, config, rule, seed)
    comparisons = _with_outlooks(comparisons, config, adjustment)
    comparisons = [replace(each, cautions=(*each.cautions, *_cautions(each, rule))) for each in comparisons]
    # Losses are tested once per pair at an equal share of α, independently of the adjustment for quality.
    share = config.alpha / len(pairs)
    return [with_losses(each, losses[pair], share) for each, pair in zip(comparisons, pairs, strict=True)]


def _compare_finished(arms: Arms, pair: Pair, config: ComparisonConfig, seed: int) -> Comparison:
    """Compare the quality of a pair on the runs that finished."""
    kept = keep_finite(arms[pair[0]], arms[pair[1]], paired=config.paired)
    return compare(*kept, config, names=pair, seed=seed)


def check_adjustment(adjustment: str, config: ComparisonConfig) -> None:
    if adjustment not in plugin_names(ADJUSTMENTS):
        raise InvalidOptions(unknown("family adjustment", adjustment, plugin_names(ADJUSTMENTS)))
    rule = load_plugin(ADJUSTMENTS, adjustment)
    if adjustment in POOLED and not _fits_layout(config):
        raise InvalidOptions(
            f"{rule.name} applies only to two-sided paired t tests", hint="Use --family holm for other tests."
        )


def default_adjustment(config: ComparisonConfig) -> str:
    return AUTO if _fits_layout(config) else HOLM


def settle_adjustment(adjustment: str, config: ComparisonConfig, seeds: int) -> str:
    """Return the adjustment to use. It depends on the design and the number of seeds, never on the values."""
    return settled(adjustment, seeds) if _fits_layout(config) else HOLM if adjustment == AUTO else adjustment


def _fits_layout(config: ComparisonConfig) -> bool:
    return config.paired and config.method == "t" and config.side == "two-sided"


def _cautions(comparison: Comparison, rule: str) -> list[Mapping[str, str]]:
    runs = min(comparison.n_control, comparison.n_candidate)
    if rule == TUKEY and any(caution["code"] == ARMS_DIFFER.code for caution in comparison.cautions):
        return [POOLED_NOISE.fill()]
    return [TOO_FEW_FOR_FAMILY.fill(n=runs, method=rule)] if rule not in POOLED and runs < ENOUGH_FOR_PAIRS else []


# One limit for all pairs


@dataclass(frozen=True)
class JointlyJudged:
    """The joint result for one pair. `noise` is None if the pair does not allow an inference."""

    judged: ComparisonResult
    noise: JointNoise | None = None


def _judged_jointly(
    arms: Arms, pairs: Sequence[Pair], config: ComparisonConfig, rule: str, seed: int
) -> list[Comparison]:
    return [
        _joint_comparison(_compare_finished(arms, pair, config, seed), here, here.judged.decision, config, rule)
        for pair, here in zip(pairs, _joint_verdicts(arms, pairs, config, rule), strict=True)
    ]


def _joint_verdicts(arms: Arms, pairs: Sequence[Pair], config: ComparisonConfig, rule: str) -> list[JointlyJudged]:
    """Judge each pair: its difference uses its own seeds, its noise those of the whole layout."""
    plain = [judge(*keep_finite(arms[first], arms[second], paired=True), config) for first, second in pairs]
    order = sorted(range(len(pairs)), key=lambda index: sorted(pairs[index]))  # independent of roles and order
    order = [index for index in order if plain[index].inference is not None]
    noises = _joint_noises(arms, [pairs[i] for i in order], [_inference(plain[i]) for i in order], rule)
    if noises is None:
        too_few = Decision(Verdict.INCONCLUSIVE, None, None, None, Reason.TOO_FEW.value)
        return [JointlyJudged(each if each.inference is None else ComparisonResult(None, too_few)) for each in plain]
    by_pair = dict(zip(order, noises, strict=True))
    return [
        JointlyJudged(each) if (noise := by_pair.get(i)) is None else _judged_by(noise, _inference(each), config, rule)
        for i, each in enumerate(plain)
    ]


def _inference(judged: ComparisonResult) -> Inference:
    assert judged.inference is not None
    return judged.inference


def _joint_noises(arms: Arms, pairs: Sequence[Pair], plain: Sequence[Inference], rule: str) -> list[JointNoise] | None:
    """Return the noise that each pair is tested against; None if the layout has no residual degrees of freedom."""
    if not pairs:
        return []
    names = sorted(name for name, sample in arms.items() if np.isfinite(sample).any())
    left = incomplete_residual(canonical_layout([arms[name] for name in names]))
    if left is None:
        return None
    residual, freedom = left
    counts = np.array([each.detail["df"] + 1 for each in plain])
    own = np.array([each.detail["standard_error"] for each in plain]) ** 2 * counts
    limit = FamilyLimit(len(names), len(pairs), freedom, narrower=rule == MAX_SPREAD)
    if rule == TUKEY:
        return [JointNoise(limit, int(n), 2 * residual, None) for n in counts]
    places = [(names.index(first), names.index(second)) for first, second in pairs]
    largest, least = largest_spreads(own, np.asarray(residual), places, counts - 1)
    return [JointNoise(limit, int(n), float(a), float(b)) for n, a, b in zip(counts, largest, least, strict=True)]


def _judged_by(noise: JointNoise, plain: Inference, config: ComparisonConfig, rule: str) -> JointlyJudged:
    inference = noise.infer(plain.value, POOLED[rule])
    decision = decide_from(inference.interval(config.alpha), _equivalence_limits(noise, plain.value, config), config)
    raw = plain.p_two_sided <= config.alpha
    if decision.reason == Reason.NOT_COVERED and raw:
        decision = replace(decision, reason=Reason.ADJUSTED.value)
    return JointlyJudged(ComparisonResult(inference, decision), noise)


def _equivalence_limits(noise: JointNoise, value: float, config: ComparisonConfig) -> tuple[float, float]:
    reach = noise.equivalence_reach(config.alpha)
    return value - reach, value + reach


def _joint_comparison(
    alone: Comparison, jointly_judged: JointlyJudged, decision: Decision, config: ComparisonConfig, rule: str
) -> Comparison:
    changed = replace(
        alone,
        adjustment=rule,
        verdict=decision.verdict,
        reason=decision.reason,
        significant=decision.significant,
        equivalent=decision.equivalent,
        exceeds_sesoi=decision.exceeds_sesoi,
        not_worse=decision.not_worse,
    )
    noise, inference = jointly_judged.noise, jointly_judged.judged.inference
    if noise is None or inference is None:
        return changed
    effect = replace(inference.estimate(config.alpha, "two-sided", noise.n), samples=alone.effect.samples)
    low, high = _equivalence_limits(noise, inference.value, config)
    level = 1 - 2 * config.alpha / noise.limit.pairs
    equivalence = Estimate(inference.value, low, high, level, inference.method, noise.n, samples=alone.effect.samples)
    return replace(
        changed, adjusted_p=inference.p_two_sided, method=inference.method, effect=effect, equivalence=equivalence
    )


# Pair by pair, with adjusted p-values


def _judged_stepwise(
    arms: Arms, pairs: Sequence[Pair], config: ComparisonConfig, rule: str, seed: int
) -> list[Comparison]:
    def again(index: int, alpha: float) -> Comparison:
        return _compare_finished(arms, pairs[index], replace(config, alpha=alpha), seed)

    return adjust_comparisons(again, len(pairs), rule, config.alpha)


def adjust_comparisons(again: Again, count: int, adjustment: str, alpha: float) -> list[Comparison]:
    """Adjust separately tested comparisons as a family: p-values, intervals, equivalence and `not_worse`.

    Each comparison is repeated twice: at the error rate of its own step, which tests for a difference and gives the
    interval, and at α over the number of comparisons, which tests for equivalence and `not_worse`.
    """
    comparisons = [again(index, alpha) for index in range(count)]
    known = {index: each.p_value for index, each in enumerate(comparisons) if each.p_value is not None}
    if count < 2 or not known:
        return comparisons
    p_values = list(known.values())
    rule: Adjustment = load_plugin(ADJUSTMENTS, adjustment)
    adjusted = dict(zip(known, rule.adjust(p_values), strict=True))
    levels = dict(zip(known, rule.levels(p_values, alpha), strict=True))
    return [
        _one_of_family(each, again(i, levels[i]), again(i, alpha / len(known)), adjusted[i], adjustment)
        if i in known
        else replace(each, adjustment=adjustment)
        for i, each in enumerate(comparisons)
    ]


def _one_of_family(own: Comparison, step: Comparison, share: Comparison, p: float, adjustment: str) -> Comparison:
    """Combine the results at α (`own`), at the error rate of the step (`step`) and at α over their number (`share`)."""
    decided = share if share.verdict is Verdict.EQUIVALENT else step
    verdict, reason = decided.verdict, decided.reason
    if decided is step and verdict is Verdict.EQUIVALENT:  # equivalent at its step, but not at its share of α
        again = conclude(bool(step.significant), (step.gain or 0.0) > 0, equivalent=False, exceeds=step.exceeds_sesoi)
        verdict, reason = again.verdict, again.reason
    if reason == Reason.NOT_COVERED and own.significant:
        reason = Reason.ADJUSTED.value
    better = verdict is Verdict.BETTER
    return replace(
        own,
        adjusted_p=p,
        adjustment=adjustment,
        verdict=verdict,
        reason=reason,
        effect=step.effect,
        significant=step.significant,
        exceeds_sesoi=step.exceeds_sesoi,
        equivalence=share.equivalence,
        equivalent=share.equivalent,
        not_worse=None if share.not_worse is None else share.not_worse or better,
        detectable=share.detectable,
        seeds_needed=share.seeds_needed if verdict is Verdict.INCONCLUSIVE else None,
    )


# Power of the family


def _with_outlooks(comparisons: Sequence[Comparison], config: ComparisonConfig, adjustment: str) -> list[Comparison]:
    """Add the detectable difference and the seeds that inconclusive comparisons need, by the family's own test.

    This applies to paired t. For other methods, `adjust_comparisons` has already planned by t at α over the number of
    comparisons.
    """
    judged = [each for each in comparisons if each.adjusted_p is not None]
    if not judged or not _fits_layout(config):
        return list(comparisons)
    pairs = plan_pairs([(each.control, each.candidate) for each in judged])
    plan = FamilyPlan(adjustment, 1 + max(max(pair) for pair in pairs), pairs, config.alpha, config.power)
    return [each if each.adjusted_p is None else _with_outlook(each, plan) for each in comparisons]


def _with_outlook(comparison: Comparison, plan: FamilyPlan) -> Comparison:
    n = comparison.n_control
    if comparison.adjustment in POOLED:
        half_width = ((comparison.effect.high or 0.0) - (comparison.effect.low or 0.0)) / 2
    else:  # Holm's interval is at its own step; planning uses the first step, the strictest
        half_width = student_limit(plan.alpha / 2 / len(plan.pairs), n - 1) * comparison.tests["standard_error"]
    needed = _seeds_needed(comparison, half_width, n, plan)
    return replace(comparison, detectable=plan.detectable(half_width, n), seeds_needed=needed)


def _seeds_needed(comparison: Comparison, half_width: float, n: int, plan: FamilyPlan) -> SeedsNeeded | None:
    open_question = comparison.reason in (Reason.NOT_COVERED, Reason.ADJUSTED)
    if comparison.verdict is not Verdict.INCONCLUSIVE or not open_question or not half_width > 0:
        return None
    margin = comparison.sesoi is not None
    effect = comparison.sesoi if comparison.sesoi is not None else abs(comparison.effect.value or 0.0)
    half_width = plan.half_width_of_truth(effect, half_width, n, margin=margin)
    per_arm = plan.seeds_for(effect, half_width, n)
    if margin:
        counts = (per_arm, plan.seeds_for_equivalence(effect, half_width, n))
        per_arm = None if None in counts else max(count for count in counts if count is not None)
    basis = "sesoi" if margin else "observed difference"
    more = None if per_arm is None else max(1, per_arm - n)
    return SeedsNeeded(per_arm, more, effect, plan.power, None, basis)


# Lost runs


def complete_seeds(arms: Arms) -> Arms:
    """Return the arms restricted to the seeds for which every arm has a finite value."""
    whole = np.all([np.isfinite(sample) for sample in arms.values()], axis=0)
    return {name: sample[whole] for name, sample in arms.items()}


def with_worst(arms: Arms, direction: str) -> Arms:
    """Replace every lost run with the worst value observed in any arm."""
    seen = np.concatenate([sample[np.isfinite(sample)] for sample in arms.values()])
    if not len(seen):
        return arms
    worst = seen.min() if direction == "max" else seen.max()
    return {name: np.where(np.isfinite(sample), sample, worst) for name, sample in arms.items()}


def canonical_layout(arms: Sequence[Array]) -> Array:
    """Return arms × seeds with the seeds ordered by value, so that the input order does not change rounding."""
    layout = np.array(arms)
    return np.asarray(layout[:, row_order(layout.T)])
