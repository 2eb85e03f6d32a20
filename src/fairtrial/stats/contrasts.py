"""What components do together: contrasts of an ablation, one number per seed, judged like any paired difference."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairtrial.core.findings import Comparison, Estimate, Reason
from fairtrial.stats.compare import ComparisonConfig, compare
from fairtrial.stats.families import adjust_comparisons
from fairtrial.stats.samples import Array

Removed = tuple[str, ...]
Layout = Mapping[Removed, Array]
"""What was taken away → one number per seed, the same seeds throughout; NaN is a run that was lost."""


@dataclass(frozen=True)
class Interaction:
    """How much more components add to the metric together than each does by itself; negative: less."""

    components: Removed
    effect: Estimate
    p_value: float | None
    adjusted_p: float | None
    basis: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "components": list(self.components),
            "effect": self.effect.value,
            "ci": self.effect.limits,
            "p": self.p_value,
            "p_adjusted": self.adjusted_p,
            "n": self.effect.n,
            "basis": self.basis,
        }


def interactions(layout: Layout, config: ComparisonConfig) -> list[Interaction]:
    """Of every set of two or more components all of whose subsets were taken away; p-values are Holm's.

    For two: (full − without a) − (without b − without both), per seed: what a gives beside b, less what it gives
    without b. In a full factorial it is averaged over the settings of the other components.
    """
    sets = [removed for removed in layout if len(removed) >= 2 and set(_subsets(removed)) <= set(layout)]
    halves = {removed: _halves(layout, removed) for removed in sets}
    whole = [removed for removed in sets if np.isfinite(halves[removed].less + halves[removed].more).all()]

    def again(index: int, alpha: float) -> Comparison:
        half = halves[whole[index]]
        return compare(half.less, half.more, replace(config, alpha=alpha), names=("apart", "together"))

    judged = dict(zip(whole, adjust_comparisons(again, len(whole), "holm", config.alpha), strict=True))
    return [_interaction(removed, halves[removed].basis, judged.get(removed), config) for removed in sets]


def _subsets(removed: Removed) -> list[Removed]:
    return [chosen for size in range(len(removed) + 1) for chosen in itertools.combinations(removed, size)]


@dataclass(frozen=True)
class _Halves:
    """The two sums whose difference is an interaction, per seed."""

    less: Array
    more: Array
    basis: str


def _halves(layout: Layout, removed: Removed) -> _Halves:
    order = list(dict.fromkeys(name for each in layout for name in each))
    others = _other_settings(layout, removed, order)
    less, more = (_half(layout, removed, others, odd=odd) for odd in (True, False))
    basis = "beside all other components" if len(others) == 1 else "averaged over the settings of the others"
    return _Halves(less, more, basis)


def _interaction(removed: Removed, basis: str, judged: Comparison | None, config: ComparisonConfig) -> Interaction:
    if judged is None:  # what is left without the lost runs may say the opposite
        lost = Estimate(None, None, None, 1 - config.alpha, "paired t", 0, reason=Reason.ATTRITION.value)
        return Interaction(removed, lost, None, None, "unknown: runs were lost")
    adjusted = judged.p_value if judged.adjusted_p is None else judged.adjusted_p  # one alone needs no adjustment
    return Interaction(removed, judged.effect, judged.p_value, adjusted, basis)


def _other_settings(layout: Layout, removed: Removed, order: Sequence[str]) -> list[Removed]:
    """The sets of other components in which every combination of these was tried; only all of them, or none."""
    rest = [name for name in order if name not in removed]
    choices = _subsets(tuple(rest))
    known = {frozenset(each) for each in layout}
    whole = all(frozenset((*part, *choice)) in known for choice in choices for part in _subsets(removed))
    return choices if whole else [()]


def _half(layout: Layout, removed: Removed, others: Sequence[Removed], *, odd: bool) -> Array:
    """Per seed, the settings with an odd (or even) number of these components taken away, averaged over the others."""
    known = {frozenset(each): sample for each, sample in layout.items()}
    parts = [part for part in _subsets(removed) if len(part) % 2 == odd]
    return np.asarray(
        np.mean([np.sum([known[frozenset((*part, *other))] for part in parts], axis=0) for other in others], axis=0)
    )
