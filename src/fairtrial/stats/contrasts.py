"""Interactions between components of an ablation: contrasts with one number per seed, tested as paired differences."""

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
"""The removed components → one number per seed, with the same seeds in every entry; NaN is a lost run."""


@dataclass(frozen=True)
class Interaction:
    """How much more a set of components adds to the metric together than separately; negative if they add less."""

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
    """Return the interaction of every set of two or more components whose subsets were all removed in some variant.

    For components a and b it is, per seed, (full − without a) − (without b − without both): the contribution of a
    when b is present, minus its contribution when b is absent. In a full factorial design it is averaged over the
    settings of the other components. P-values are adjusted by Holm's step-down.
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
    """The two sums, per seed, whose difference is an interaction."""

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
    if judged is None:  # without the lost runs, the estimate could have the wrong sign
        lost = Estimate(None, None, None, 1 - config.alpha, "paired t", 0, reason=Reason.ATTRITION.value)
        return Interaction(removed, lost, None, None, "unknown: runs were lost")
    adjusted = judged.p_value if judged.adjusted_p is None else judged.adjusted_p  # a single test is not adjusted
    return Interaction(removed, judged.effect, judged.p_value, adjusted, basis)


def _other_settings(layout: Layout, removed: Removed, order: Sequence[str]) -> list[Removed]:
    """Return all subsets of the other components if every combination with these was run, else only the empty set."""
    rest = [name for name in order if name not in removed]
    choices = _subsets(tuple(rest))
    known = {frozenset(each) for each in layout}
    whole = all(frozenset((*part, *choice)) in known for choice in choices for part in _subsets(removed))
    return choices if whole else [()]


def _half(layout: Layout, removed: Removed, others: Sequence[Removed], *, odd: bool) -> Array:
    """Sum, per seed, the settings with an odd (or even) number of these components removed; average over the others."""
    known = {frozenset(each): sample for each, sample in layout.items()}
    parts = [part for part in _subsets(removed) if len(part) % 2 == odd]
    return np.asarray(
        np.mean([np.sum([known[frozenset((*part, *other))] for part in parts], axis=0) for other in others], axis=0)
    )
