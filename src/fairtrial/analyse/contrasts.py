"""What components do together: contrasts of an ablation, one number per seed, judged like any paired difference."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairtrial.analyse.compare import Terms, compare
from fairtrial.analyse.families import holm
from fairtrial.analyse.samples import Array
from fairtrial.core.findings import Comparison, Estimate, Reason

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
            "components": list(self.components), "effect": self.effect.value,
            "ci": self.effect.limits,
            "p": self.p_value, "p_adjusted": self.adjusted_p, "n": self.effect.n, "basis": self.basis,
        }  # fmt: skip


def interactions(layout: Layout, terms: Terms) -> list[Interaction]:
    """Of every set of two or more components all of whose subsets were taken away; p-values are Holm's.

    For two: (full − without a) − (without b − without both), per seed: what a gives beside b, less what it gives
    without b. In a full factorial it is averaged over the settings of the other components.
    """
    sets = [removed for removed in layout if len(removed) >= 2 and set(_subsets(removed)) <= set(layout)]
    found = [_interaction(layout, removed, terms) for removed in sets]
    adjusted = iter(holm([p for _, p, _ in found if p is not None]))
    return [
        Interaction(removed, effect, p, next(adjusted) if p is not None else None, basis)
        for removed, (effect, p, basis) in zip(sets, found, strict=True)
    ]


def _subsets(removed: Removed) -> list[Removed]:
    return [chosen for size in range(len(removed) + 1) for chosen in itertools.combinations(removed, size)]


def _interaction(layout: Layout, removed: Removed, terms: Terms) -> tuple[Estimate, float | None, str]:
    order = list(dict.fromkeys(name for each in layout for name in each))
    others = _other_settings(layout, removed, order)
    less, more = (_half(layout, removed, others, odd=odd) for odd in (True, False))
    basis = "beside all other components" if len(others) == 1 else "averaged over the settings of the others"
    if not np.isfinite(less + more).all():  # what is left without the lost runs may say the opposite
        lost = Estimate(None, None, None, 1 - terms.alpha, "paired t", 0, reason=Reason.ATTRITION.value)
        return lost, None, "unknown: runs were lost"
    judged: Comparison = compare(less, more, terms, names=("apart", "together"))
    return judged.effect, judged.p_value, basis


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
