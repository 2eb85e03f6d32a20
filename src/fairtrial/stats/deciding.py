"""The stopping rule of a sequential paired study, which `decide` applies after each pair.

The rule says when the study may stop, and with which verdict. It depends only on the plan, which is fixed before the
first run: the maximum number of pairs, the confidence level, the SESOI, and the schedule of interim looks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np

from fairtrial.core.errors import UserError
from fairtrial.core.findings import Verdict
from fairtrial.stats.samples import Array
from fairtrial.stats.sequential import GREATER, LESS, TWO_SIDED, Look, earliest_rejection, rational, sign_flip_looks

DEFAULT_PAIRS, DEFAULT_LEVEL = 15, 0.95


@dataclass(frozen=True)
class SequentialPlan:
    """The plan of a sequential paired test. It must not change once any result has been seen."""

    pairs: int = DEFAULT_PAIRS
    """N, the maximum number of pairs."""
    level: float = DEFAULT_LEVEL
    sesoi: float | None = None
    """The smallest effect of interest. Without one, the test cannot end in `equivalent`."""
    every: int = 1
    """The number of pairs between interim looks; the last look is always at N."""
    arms: int = 1
    """The number of candidates that are compared with the control. They share α by Holm's step-down procedure."""

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise UserError(f"--level {self.level:g} must lie between 0 and 1", hint="Pass 0.95 for 95 % confidence.")
        if self.sesoi is not None and not (math.isfinite(self.sesoi) and self.sesoi > 0):
            raise UserError(f"a smallest effect of interest of {self.sesoi:g} must be positive and finite")
        if self.every < 1 or self.arms < 1:
            raise UserError("the number of pairs between looks and the number of candidates must each be at least 1")
        if earliest_rejection(self.pairs, self.alpha / self.arms, two_sided=True) is None:
            raise UserError(
                f"{self.pairs} pairs are too few to reach a verdict at --level {self.level:g}"
                + (f" with {self.arms} candidates" if self.arms > 1 else ""),
                hint=f"Plan {self.smallest_pairs} or more pairs.",
            )

    @property
    def smallest_pairs(self) -> int:
        """The smallest N that can reach a verdict at this level: 2^(1 − N) ≤ α / arms."""
        return math.ceil(1 - math.log2(self.alpha / self.arms))

    @cached_property
    def alpha(self) -> Fraction:
        return rational(self.level)

    @property
    def first_look(self) -> int:
        """The smallest number of pairs that can reach a verdict. This many pairs are started at once."""
        share = self.alpha / self.arms
        earliest = [earliest_rejection(self.pairs, share, two_sided=True)]
        earliest += [earliest_rejection(self.pairs, share, two_sided=False)] if self.sesoi is not None else []
        return min(each for each in earliest if each is not None)

    @cached_property
    def looks(self) -> tuple[int, ...]:
        return (*range(self.first_look, self.pairs, self.every), self.pairs)


@dataclass(frozen=True)
class Assessment:
    """The result of the sequential test for one candidate after the pairs so far.

    `verdict` is None while more pairs are needed. `n` is the number of pairs that the verdict is based on: pairs that
    finished after the boundary was crossed do not count.
    """

    verdict: Verdict | None
    n: int
    looks: Sequence[Look] = ()
    """Interim looks of the test for a difference."""
    equivalence: Mapping[str, Sequence[Look]] = field(default_factory=dict)
    """Interim looks of the two one-sided tests against ± SESOI, by side."""
    alpha: Fraction = Fraction(1, 20)
    """The share of α at which the candidate was tested."""


def assess(gains: Sequence[float] | Array, plan: SequentialPlan, *, alpha: Fraction | None = None) -> Assessment:
    """Test one candidate by its gains over the control (positive is good), in seed order.

    If both tests end at the same look, the verdict is `equivalent`, as in every other comparison: the difference is
    real but too small to matter.
    """
    alpha = plan.alpha / plan.arms if alpha is None else alpha
    values = np.asarray(gains, dtype=np.float64)
    if not np.isfinite(values).all():
        raise UserError("gains must be finite numbers", hint="Leave out pairs with a lost run.")

    def looks_of(sample: Array, side: str) -> list[Look]:
        return list(sign_flip_looks(sample, planned=plan.pairs, alpha=alpha, looks=plan.looks, side=side))

    difference = looks_of(values, TWO_SIDED)
    equivalence: dict[str, list[Look]] = {}
    ends: list[tuple[int, int, Verdict]] = []
    if difference and difference[-1].rejected:
        last = difference[-1]
        ends.append((last.n, 1, Verdict.BETTER if last.sum > 0 else Verdict.WORSE))
    if plan.sesoi is not None:
        equivalence = {GREATER: looks_of(values + plan.sesoi, GREATER), LESS: looks_of(values - plan.sesoi, LESS)}
        if all(looks and looks[-1].rejected for looks in equivalence.values()):
            ends.append((max(looks[-1].n for looks in equivalence.values()), 0, Verdict.EQUIVALENT))
    if ends:
        n, _, verdict = min(ends)
        return Assessment(verdict, n, difference, equivalence, alpha=alpha)
    exhausted = len(values) >= plan.pairs
    return Assessment(Verdict.INCONCLUSIVE if exhausted else None, len(values), difference, equivalence, alpha=alpha)


def assess_family(gains: Mapping[str, Sequence[float]], plan: SequentialPlan) -> dict[str, Assessment]:
    """Test several candidates by Holm's step-down: each at α/m, where m is the number not yet shown to be different.

    Only a candidate that is better or worse passes on its share of α; one that ended as equivalent, or ran out of
    pairs, keeps it. When a candidate's share grows, its test is recomputed from the first look. The boundary may then
    turn out to have been crossed earlier, which is valid because the closed test of the remaining hypotheses would
    have rejected at that look.
    """
    assessed: dict[str, Assessment] = {}
    left = dict(gains)
    while left:
        alpha = plan.alpha / (plan.arms - len(gains) + len(left))
        judged = {name: assess(values, plan, alpha=alpha) for name, values in left.items()}
        shown = {name: each for name, each in judged.items() if each.verdict in (Verdict.BETTER, Verdict.WORSE)}
        if not shown:
            return {name: (assessed | judged)[name] for name in gains}
        assessed |= shown
        left = {name: values for name, values in left.items() if name not in shown}
    return {name: assessed[name] for name in gains}
