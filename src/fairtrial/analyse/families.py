"""Several arms on shared seeds: differences that are judged together.

Each pair alone would be wrong in one of twenty cases; fifteen pairs together would nearly always find something.
Tukey's limit holds for all differences at once. It takes its noise from what is left of the arms × seeds layout
when arms and seeds are accounted for, so that even three seeds give it several degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from fairtrial.analyse.compare import Judged, Terms, compare, decide_by, judge, outlook
from fairtrial.analyse.inference import Inference
from fairtrial.analyse.samples import Array, Seed
from fairtrial.analyse.verdicts import Decision, conclude, stand_both
from fairtrial.core.cautions import LOST_RUNS, TOO_FEW_FOR_FAMILY
from fairtrial.core.errors import InvalidOptions, unknown
from fairtrial.core.findings import Comparison

ADJUSTMENTS = ("tukey", "holm", "bh")
ENOUGH_FOR_PAIRS = 5

Arms = Mapping[str, Array]
Judge = Callable[[Arms], list[tuple[Judged, float | None]]]
"""For every candidate in turn: what was found, and its adjusted p."""


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


@lru_cache(maxsize=256)
def tukey_quantile(level: float, arms: int, freedom: int) -> float:
    """How far apart, in standard errors of a mean, the two outermost of equal arms come to lie."""
    from scipy import stats

    return float(stats.studentized_range.ppf(level, arms, freedom))


def infer_tukey(layout: Array, first: int, second: int) -> Inference:
    """second − first, with limits that hold for all pairs of the layout at once."""
    from scipy import stats

    arms, seeds = layout.shape
    variance, freedom = residual_variance(layout)
    error = math.sqrt(float(variance) / seeds)
    value = float(layout[second].mean() - layout[first].mean())

    def reach(tail: float) -> float:
        return tukey_quantile(1 - 2 * tail, arms, freedom) * error

    p = float(stats.studentized_range.sf(abs(value) / error, arms, freedom))
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
    check_adjustment(adjustment, terms)
    pairs = [name for name in arms if name != control]
    alone = [_alone(arms, control, name, terms, adjustment, seed) for name in pairs]
    judged = (
        _tukey_judge(control, terms) if adjustment == "tukey" else _stepwise_judge(control, terms, adjustment, seed)
    )
    without = judged(_kept(arms, paired=terms.paired))
    decisions = [found.decision for found, _ in without]
    if any(not np.isfinite(sample).all() for sample in arms.values()):
        filled = judged(_with_worst(arms, terms))
        decisions = [stand_both(a, b.decision) for a, (b, _) in zip(decisions, filled, strict=True)]
    family = len(arms) * len(pairs) // 2 if adjustment == "tukey" else len(pairs)
    return [
        _adjusted(found, known, p, decision, terms, adjustment, family)
        for found, (known, p), decision in zip(alone, without, decisions, strict=True)
    ]


def _alone(arms: Arms, control: str, name: str, terms: Terms, adjustment: str, seed: Seed) -> Comparison:
    """One pair by itself. Under Tukey it stands on the seeds that all arms have, as the family does."""
    found = compare(arms[control], arms[name], terms, names=(control, name), seed=seed)
    kept = _kept(arms, paired=terms.paired)
    if adjustment != "tukey" or len(kept[control]) == found.n_control:
        return found
    shared = compare(kept[control], kept[name], terms, names=(control, name), seed=seed)
    lost = [caution for caution in found.cautions if caution["code"] == LOST_RUNS.code]
    return replace(shared, attrition=found.attrition, cautions=(*lost, *shared.cautions))


def check_adjustment(adjustment: str, terms: Terms) -> None:
    if adjustment not in ADJUSTMENTS:
        raise InvalidOptions(unknown("family adjustment", adjustment, ADJUSTMENTS))
    if adjustment == "tukey" and not (terms.paired and terms.method == "t" and terms.side == "two-sided"):
        raise InvalidOptions(
            "Tukey's limit is for paired runs, the t method and two sides", hint="Use --family holm for anything else."
        )


def default_adjustment(terms: Terms) -> str:
    fits = terms.paired and terms.method == "t" and terms.side == "two-sided"
    return "tukey" if fits else "holm"


def _kept(arms: Arms, *, paired: bool) -> Arms:
    if not paired:
        return {name: sample[np.isfinite(sample)] for name, sample in arms.items()}
    whole = np.all([np.isfinite(sample) for sample in arms.values()], axis=0)
    return {name: sample[whole] for name, sample in arms.items()}


def _with_worst(arms: Arms, terms: Terms) -> Arms:
    seen = np.concatenate([sample[np.isfinite(sample)] for sample in arms.values()])
    if not len(seen):
        return arms
    worst = seen.min() if terms.direction == "max" else seen.max()
    return {name: np.where(np.isfinite(sample), sample, worst) for name, sample in arms.items()}


def _tukey_judge(control: str, terms: Terms) -> Judge:
    def judged(arms: Arms) -> list[tuple[Judged, float | None]]:
        names = sorted(arms)
        first = names.index(control)
        layout = np.array([arms[name] for name in names])
        layout = layout[:, np.lexsort(layout[::-1])]  # canonical: the order of runs must not reach the last digits
        found: list[tuple[Judged, float | None]] = []
        for name in arms:
            if name == control:
                continue
            plain = judge(arms[control], arms[name], terms)
            if plain.inference is None:
                found.append((plain, None))
                continue
            inference = infer_tukey(layout, first, names.index(name))
            found.append((Judged(inference, decide_by(inference, terms)), inference.p_two_sided))
        return found

    return judged


def _stepwise_judge(control: str, terms: Terms, adjustment: str, seed: Seed) -> Judge:
    """Per-pair tests with adjusted p; equivalence is judged at Bonferroni's share of α."""

    def judged(arms: Arms) -> list[tuple[Judged, float | None]]:
        others = [name for name in arms if name != control]
        share = replace(terms, alpha=terms.alpha / len(others))
        found = [judge(arms[control], arms[name], share, seed) for name in others]
        side = terms.on_difference()
        known = [index for index, each in enumerate(found) if each.inference is not None]
        p_values = [float(each.inference.p_value(side)) for each in found if each.inference is not None]
        adjusted = dict(zip(known, ADJUST[adjustment](p_values), strict=True))
        return [(_by_p(each, adjusted.get(i), terms), adjusted.get(i)) for i, each in enumerate(found)]

    return judged


def _by_p(found: Judged, adjusted: float | None, terms: Terms) -> Judged:
    if found.inference is None or adjusted is None or found.decision.significant is None:
        return found
    gain = found.inference.value if terms.direction == "max" else -found.inference.value
    decision = found.decision
    significant = adjusted <= terms.alpha
    return replace(found, decision=conclude(significant, gain > 0, decision.equivalent, decision.exceeds_sesoi))


def _adjusted(
    found: Comparison, known: Judged, p: float | None, decision: Decision, terms: Terms, adjustment: str, family: int
) -> Comparison:
    cautions = found.cautions
    runs = min(found.n_control, found.n_candidate)
    if adjustment != "tukey" and runs < ENOUGH_FOR_PAIRS:
        cautions = (*cautions, TOO_FEW_FOR_FAMILY.fill(n=runs, method=adjustment))
    changed = replace(
        found, adjusted_p=p, adjustment=adjustment, cautions=cautions, verdict=decision.verdict, reason=decision.reason,
        significant=decision.significant, equivalent=decision.equivalent, exceeds_sesoi=decision.exceeds_sesoi,
    )  # fmt: skip
    if known.inference is None:
        return changed
    error = known.inference.detail.get("standard_error")
    if error is not None:  # planned on Bonferroni's share of α: a little more than Tukey and Holm would ask for
        sd = error * math.sqrt(runs if terms.paired else runs / 2)
        changed = replace(changed, **outlook(changed, sd, runs, replace(terms, alpha=terms.alpha / family)))
    if adjustment != "tukey":
        return changed
    inference, n = known.inference, found.effect.n
    return replace(
        changed, method=inference.method,
        effect=replace(inference.estimate(terms.alpha, "two-sided", n), samples=found.effect.samples),
        equivalence=replace(inference.estimate(2 * terms.alpha, "two-sided", n), samples=found.effect.samples),
    )  # fmt: skip
