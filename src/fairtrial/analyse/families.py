"""Several arms on shared seeds: differences that are judged together.

Each pair alone would be wrong in one of twenty cases; fifteen pairs together would nearly always find something.
Tukey's limit holds for all differences at once. It takes its noise from what is left of the arms × seeds layout
when arms and seeds are accounted for, so that even three seeds give it several degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fairtrial.analyse.compare import Judged, Terms, compare, decide_by, judge, keep_finite, outlook
from fairtrial.analyse.inference import Inference
from fairtrial.analyse.ranges import range_p, range_quantile
from fairtrial.analyse.samples import Array, Seed, frozen_seed, row_order
from fairtrial.analyse.verdicts import Decision, conclude, stand_both
from fairtrial.core.cautions import ARMS_DIFFER, LOST_RUNS, POOLED_NOISE, TOO_FEW_FOR_FAMILY
from fairtrial.core.errors import InvalidOptions, unknown
from fairtrial.core.findings import Attrition, Comparison, Reason, Verdict

ADJUSTMENTS = ("tukey", "holm", "bh")
ENOUGH_FOR_PAIRS = 5

Arms = Mapping[str, Array]
Pair = tuple[str, str]
Judge = Callable[[Arms], list[tuple[Judged, float | None]]]
"""For every pair in turn: what was found, and its adjusted p."""


def residual_variance(layout: Array) -> tuple[Array, int]:
    """Mean square of what arms and seeds do not explain, and its degrees of freedom; layout is (…, arms, seeds)."""
    arms, seeds = layout.shape[-2:]
    left = (
        layout
        - layout.mean(axis=-1, keepdims=True)
        - layout.mean(axis=-2, keepdims=True)
        + layout.mean(axis=(-2, -1), keepdims=True)
    )
    freedom = (arms - 1) * (seeds - 1)
    return np.asarray((left**2).sum(axis=(-2, -1)) / freedom), freedom


tukey_quantile = range_quantile


def infer_tukey(layout: Array, first: int, second: int) -> Inference:
    """second − first, with limits that hold for all pairs of the layout at once."""
    arms, seeds = layout.shape
    variance, freedom = residual_variance(layout)
    error = math.sqrt(float(variance) / seeds)
    value = float(layout[second].mean() - layout[first].mean())

    def reach(tail: float) -> float:
        return tukey_quantile(1 - 2 * tail, arms, freedom) * error

    p = range_p(abs(value) / error, arms, freedom)
    sided = (p / 2, 1 - p / 2) if value > 0 else (1 - p / 2, p / 2)
    return Inference(
        "Tukey, pooled within seeds", value,
        lower=lambda tail: value - reach(tail), upper=lambda tail: value + reach(tail),
        p_greater=sided[0], p_less=sided[1], p_two_sided=p,
        detail={"df": freedom, "standard_error": error * math.sqrt(2)},
    )  # fmt: skip


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down: keeps the chance of any false alarm in the family below α."""
    count = len(p_values)
    adjusted = [0.0] * count
    worst = 0.0
    for rank, index in enumerate(np.argsort(p_values, kind="stable")):
        worst = max(worst, min(1.0, (count - rank) * p_values[index]))
        adjusted[index] = worst
    return adjusted


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Keeps the expected share of false alarms among all alarms below α."""
    count = len(p_values)
    adjusted = [0.0] * count
    best = 1.0
    for rank, index in reversed(list(enumerate(np.argsort(p_values, kind="stable"), 1))):
        best = min(best, p_values[index] * count / rank)
        adjusted[index] = best
    return adjusted


ADJUST = {"holm": holm, "bh": benjamini_hochberg}


def compare_family(arms: Arms, control: str, terms: Terms, adjustment: str, *, seed: Seed = None) -> list[Comparison]:
    """Every other arm against the control, judged together. Paired arms are aligned by seed; NaN is a lost run."""
    pairs = [(control, name) for name in arms if name != control]
    return compare_pairs(arms, pairs, terms, adjustment, seed=seed)


def compare_pairs(
    arms: Arms, pairs: Sequence[Pair], terms: Terms, adjustment: str, *, seed: Seed = None
) -> list[Comparison]:
    """Pairs of arms, as (control, candidate), judged together."""
    check_adjustment(adjustment, terms)
    seed = frozen_seed(seed)
    judged = _tukey_judge(pairs, terms) if adjustment == "tukey" else _stepwise_judge(pairs, terms, adjustment, seed)
    base = complete_seeds(arms) if adjustment == "tukey" else arms
    without = judged(base)
    lossy = any(not np.isfinite(sample).all() for sample in arms.values())
    scored = judged(with_worst(arms, terms.direction)) if lossy else without
    family = len(arms) * (len(arms) - 1) // 2 if adjustment == "tukey" else len(pairs)
    found = []
    for (control, name), (known, p), (worst, _) in zip(pairs, without, scored, strict=True):
        alone = compare(base[control], base[name], terms, names=(control, name), seed=seed)
        alone = _with_attrition(alone, arms[control], arms[name], known, worst)
        decision = stand_both(known.decision, worst.decision) if lossy else known.decision
        found.append(_adjusted(alone, known, p, decision, terms, adjustment, family))
    return found


def _with_attrition(found: Comparison, control: Array, candidate: Array, known: Judged, worst: Judged) -> Comparison:
    """Lost runs of this pair, with what the whole family says without them and with each at its worst."""
    lost = [int((~np.isfinite(sample)).sum()) for sample in (control, candidate)]
    if not any(lost):
        return replace(found, attrition=None)
    value = found.attrition.worst if found.attrition else None
    attrition = Attrition(lost[0], lost[1], value, known.decision.verdict, worst.decision.verdict)
    caution = LOST_RUNS.fill(control=lost[0], candidate=lost[1], first=found.control, second=found.candidate)
    others = tuple(each for each in found.cautions if each["code"] != LOST_RUNS.code)
    return replace(found, attrition=attrition, cautions=(caution, *others))


def check_adjustment(adjustment: str, terms: Terms) -> None:
    if adjustment not in ADJUSTMENTS:
        raise InvalidOptions(unknown("family adjustment", adjustment, ADJUSTMENTS))
    if adjustment == "tukey" and not _fits_tukey(terms):
        raise InvalidOptions(
            "Tukey's limit is for paired runs, the t method and two sides", hint="Use --family holm for anything else."
        )


def default_adjustment(terms: Terms) -> str:
    return "tukey" if _fits_tukey(terms) else "holm"


def _fits_tukey(terms: Terms) -> bool:
    return terms.paired and terms.method == "t" and terms.side == "two-sided"


def complete_seeds(arms: Arms) -> Arms:
    """The seeds that every arm of a layout has."""
    whole = np.all([np.isfinite(sample) for sample in arms.values()], axis=0)
    return {name: sample[whole] for name, sample in arms.items()}


def with_worst(arms: Arms, direction: str) -> Arms:
    """Every lost run at the worst value that any arm has seen."""
    seen = np.concatenate([sample[np.isfinite(sample)] for sample in arms.values()])
    if not len(seen):
        return arms
    worst = seen.min() if direction == "max" else seen.max()
    return {name: np.where(np.isfinite(sample), sample, worst) for name, sample in arms.items()}


def _tukey_judge(pairs: Sequence[Pair], terms: Terms) -> Judge:
    def judged(arms: Arms) -> list[tuple[Judged, float | None]]:
        names = sorted(arms)
        layout = canonical_layout([arms[name] for name in names])
        found: list[tuple[Judged, float | None]] = []
        for control, name in pairs:
            plain = judge(arms[control], arms[name], terms)
            if plain.inference is None:
                found.append((plain, None))
                continue
            inference = infer_tukey(layout, names.index(control), names.index(name))
            found.append((Judged(inference, decide_by(inference, terms)), inference.p_two_sided))
        return found

    return judged


def canonical_layout(arms: Sequence[Array]) -> Array:
    """Arms × seeds, with the seeds in an order that depends on the values alone: it must not reach the last digits."""
    layout = np.array(arms)
    return np.asarray(layout[:, row_order(layout.T)])


def _stepwise_judge(pairs: Sequence[Pair], terms: Terms, adjustment: str, seed: Seed) -> Judge:
    """Per-pair tests with adjusted p; equivalence is judged at Bonferroni's share of α."""

    def judged(arms: Arms) -> list[tuple[Judged, float | None]]:
        share = replace(terms, alpha=terms.alpha / len(pairs))
        kept = [keep_finite(arms[control], arms[name], paired=terms.paired) for control, name in pairs]
        found = [judge(*pair, share, seed) for pair in kept]
        side = terms.on_difference()
        known = [index for index, each in enumerate(found) if each.inference is not None]
        p_values = [float(each.inference.p_value(side)) for each in found if each.inference is not None]
        adjusted = dict(zip(known, ADJUST[adjustment](p_values), strict=True))
        return [(_by_adjusted_p(each, adjusted.get(i), terms), adjusted.get(i)) for i, each in enumerate(found)]

    return judged


def _by_adjusted_p(found: Judged, adjusted: float | None, terms: Terms) -> Judged:
    """A verdict by the adjusted p, not by the pair's own interval."""
    if found.inference is None or adjusted is None or found.decision.significant is None:
        return found
    gain = found.inference.value if terms.direction == "max" else -found.inference.value
    own, significant = found.decision, adjusted <= terms.alpha
    again = conclude(significant, gain > 0, own.equivalent, own.exceeds_sesoi and significant)
    reason = Reason.ADJUSTED.value if again.verdict is Verdict.INCONCLUSIVE else None
    return replace(found, decision=replace(again, reason=reason, not_worse=own.not_worse))


def _adjusted(
    found: Comparison, known: Judged, p: float | None, decision: Decision, terms: Terms, adjustment: str, family: int
) -> Comparison:
    cautions = found.cautions
    runs = min(found.n_control, found.n_candidate)
    if adjustment == "tukey" and any(caution["code"] == ARMS_DIFFER.code for caution in cautions):
        cautions = (*cautions, POOLED_NOISE.fill())
    if adjustment != "tukey" and runs < ENOUGH_FOR_PAIRS:
        cautions = (*cautions, TOO_FEW_FOR_FAMILY.fill(n=runs, method=adjustment))
    changed = replace(
        found, adjusted_p=p, adjustment=adjustment, cautions=cautions, verdict=decision.verdict, reason=decision.reason,
        significant=decision.significant, equivalent=decision.equivalent, exceeds_sesoi=decision.exceeds_sesoi,
        not_worse=decision.not_worse,
    )  # fmt: skip
    if known.inference is None:
        return changed
    error = known.inference.detail.get("standard_error")
    if error is not None:  # planned on Bonferroni's share of α: a little more than Tukey and Holm would ask for
        sd = error * math.sqrt(runs if terms.paired else runs / 2)
        changed = replace(changed, **outlook(changed, sd, runs, replace(terms, alpha=terms.alpha / family)))
    share = {"tukey": 1, "holm": family, "bh": 1}[adjustment]  # Holm's intervals are Bonferroni's: both hold for all
    inference, n, side = known.inference, found.effect.n, terms.on_difference()
    return replace(
        changed, method=inference.method,
        effect=replace(inference.estimate(terms.alpha / share, side, n), samples=found.effect.samples),
        equivalence=replace(inference.estimate(2 * terms.alpha / share, "two-sided", n), samples=found.effect.samples),
    )  # fmt: skip


def adjust_comparisons(found: Sequence[Comparison], adjustment: str, alpha: float) -> list[Comparison]:
    """Comparisons that were judged one by one, as a family: verdicts that do not survive are open again."""
    if len(found) < 2:
        return list(found)
    known = [each.p_value for each in found if each.p_value is not None]
    adjusted = iter(ADJUST[adjustment](known))
    return [
        _as_one_of_many(each, next(adjusted), adjustment, alpha) if each.p_value is not None else each for each in found
    ]


def _as_one_of_many(found: Comparison, p: float, adjustment: str, alpha: float) -> Comparison:
    changed = replace(found, adjusted_p=p, adjustment=adjustment)
    if found.verdict not in (Verdict.BETTER, Verdict.WORSE) or p <= alpha:
        return changed
    return replace(
        changed, verdict=Verdict.INCONCLUSIVE, reason=Reason.ADJUSTED.value, significant=False, exceeds_sesoi=False
    )
