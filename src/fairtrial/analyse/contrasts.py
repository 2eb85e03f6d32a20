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
from fairtrial.core.findings import Comparison, Estimate

Removed = tuple[str, ...]
Layout = Mapping[Removed, Array]
"""What was taken away → one number per seed, the same seeds throughout; NaN is a run that was lost."""


@dataclass(frozen=True)
class Interaction:
    """How much more components do together than each does by itself; positive means that they help each other."""

    components: Removed
    effect: Estimate
    p_value: float | None
    adjusted_p: float | None
    basis: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "components": list(self.components), "effect": self.effect.value,
            "ci": None if self.effect.low is None else [self.effect.low, self.effect.high],
            "p": self.p_value, "p_adjusted": self.adjusted_p, "n": self.effect.n, "basis": self.basis,
        }  # fmt: skip


def interactions(layout: Layout, terms: Terms) -> list[Interaction]:
    """Of every set of two or more components all of whose subsets were taken away; p-values are Holm's.

    For two: (full − without a) − (without b − without both), per seed: what a gives beside b, less what it gives
    without b. In a full factorial it is averaged over the settings of the other components.
    """
    sets = [removed for removed in layout if len(removed) >= 2 and _subsets(removed) <= set(layout)]
    found = [_interaction(layout, removed, terms) for removed in sets]
    adjusted = iter(holm([p for _, p, _ in found if p is not None]))
    return [
        Interaction(removed, effect, p, next(adjusted) if p is not None else None, basis)
        for removed, (effect, p, basis) in zip(sets, found, strict=True)
    ]


def _subsets(removed: Removed) -> set[Removed]:
    return {chosen for size in range(len(removed) + 1) for chosen in itertools.combinations(removed, size)}


def _interaction(layout: Layout, removed: Removed, terms: Terms) -> tuple[Estimate, float | None, str]:
    others = _other_settings(layout, removed)
    per_seed = np.mean([_contrast(layout, removed, other) for other in others], axis=0)
    kept = per_seed[np.isfinite(per_seed)]
    basis = "beside all other components" if len(others) == 1 else "averaged over the settings of the others"
    judged: Comparison = compare(np.zeros_like(kept), kept, terms, names=("none", "interaction"))
    return judged.effect, judged.p_value, basis


def _other_settings(layout: Layout, removed: Removed) -> list[Removed]:
    """The sets of other components in which every combination of these was tried."""
    order = [name for each in layout if len(each) == 1 for name in each]
    rest = [name for name in order if name not in removed]
    choices = [chosen for size in range(len(rest) + 1) for chosen in itertools.combinations(rest, size)]
    whole = [c for c in choices if all(_joined(order, part, c) in layout for part in _subsets(removed))]
    return whole if len(whole) == len(choices) else [()]


def _contrast(layout: Layout, removed: Removed, other: Removed) -> Array:
    order = [name for each in layout if len(each) == 1 for name in each]
    total = np.zeros_like(next(iter(layout.values())))
    for part in _subsets(removed):
        total = total + (-1) ** len(part) * layout[_joined(order, part, other)]
    return np.asarray(total)


def _joined(order: Sequence[str], first: Removed, second: Removed) -> Removed:
    return tuple(name for name in order if name in first or name in second)
