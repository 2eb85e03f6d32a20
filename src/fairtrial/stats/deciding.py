"""When may a study of paired seeds stop, and with which verdict? The rule that `decide` asks after each pair.

Everything that the rule depends on is in the plan, which is fixed before the first run: the number of pairs at most,
the level, the smallest effect of interest, and the numbers of pairs at which it is looked at.
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
    """A paired sequential test as it is registered: nothing of it may change once a result was seen."""

    pairs: int = DEFAULT_PAIRS
    """N, the most pairs that are run."""
    level: float = DEFAULT_LEVEL
    sesoi: float | None = None
    """Without a smallest effect of interest the test cannot end in `equivalent`."""
    every: int = 1
    """A look after so many further pairs; the last look is at N."""
    arms: int = 1
    """How many candidates are compared with the control: they share α by Holm's steps."""

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise UserError(f"--level {self.level:g} must lie between 0 and 1", hint="95 % confidence is --level 0.95.")
        if self.sesoi is not None and not (math.isfinite(self.sesoi) and self.sesoi > 0):
            raise UserError(f"a smallest effect of interest of {self.sesoi:g} must be positive and finite")
        if self.every < 1 or self.arms < 1:
            raise UserError("looks are after one pair or more, and there is one candidate or more")
        if earliest_rejection(self.pairs, self.alpha / self.arms, two_sided=True) is None:
            raise UserError(
                f"{self.pairs} pairs can never decide at --level {self.level:g}"
                + (f" with {self.arms} candidates" if self.arms > 1 else ""),
                hint=f"Plan {self.smallest_pairs} pairs or more.",
            )

    @property
    def smallest_pairs(self) -> int:
        """The smallest N that can decide anything at this level: 2^(1 − N) ≤ α."""
        return math.ceil(1 - math.log2(self.alpha / self.arms))

    @cached_property
    def alpha(self) -> Fraction:
        return rational(self.level)

    @property
    def first_look(self) -> int:
        """Nothing can be decided with fewer pairs, so that many are started at once."""
        share = self.alpha / self.arms
        earliest = [earliest_rejection(self.pairs, share, two_sided=True)]
        earliest += [earliest_rejection(self.pairs, share, two_sided=False)] if self.sesoi is not None else []
        return min(each for each in earliest if each is not None)

    @cached_property
    def looks(self) -> tuple[int, ...]:
        return (*range(self.first_look, self.pairs, self.every), self.pairs)


@dataclass(frozen=True)
class Assessment:
    """What the pairs so far allow to say about one candidate.

    `verdict` is None while the question is open. `n` is the number of pairs that the verdict rests on: pairs that
    finished after the boundary was crossed do not count.
    """

    verdict: Verdict | None
    n: int
    looks: Sequence[Look] = ()
    """Of the test of a difference."""
    equivalence: Mapping[str, Sequence[Look]] = field(default_factory=dict)
    """Of the two one-sided tests against ± SESOI, by their side."""
    alpha: Fraction = Fraction(1, 20)
    """The share of α that the candidate was judged at."""


def assess(gains: Sequence[float] | Array, plan: SequentialPlan, *, alpha: Fraction | None = None) -> Assessment:
    """Judge one candidate by its gains over the control (positive is good), in seed order.

    A look at which both tests end says `equivalent`, as everywhere: the difference is real, and too small to matter.
    """
    alpha = plan.alpha / plan.arms if alpha is None else alpha
    values = np.asarray(gains, dtype=np.float64)
    if not np.isfinite(values).all():
        raise UserError("a gain that is not finite cannot be judged", hint="Lost runs are judged as lost runs.")

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
    """Judge several candidates by Holm's steps: each at α/m, where m counts those whose difference is not shown yet.

    Only a candidate that is better or worse hands its share on; one that ended as equivalent, or out of pairs, keeps
    it. With a larger share the test is computed anew from the first look, which may show that it was crossed before:
    the closed test of the hypotheses that are left would have rejected it then.
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
