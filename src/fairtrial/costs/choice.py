"""The parts of a recommendation: constraints, candidates checked against them, and relaxations of the limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from fairtrial.core.errors import InvalidOptions
from fairtrial.costs.cost import CostModel, Priced
from fairtrial.costs.frontier import OptimizationTarget, gains_of
from fairtrial.costs.pareto import draw_means, on_frontier

OBJECTIVES = ("accuracy", "cost", "time", "value")
CARD_MEMORY = "card_memory"
CONVERTED = ("max_cost", "max_time")
"""Constraints on figures that may have been converted from another device."""
EVEN, LIKELY = 0.5, 0.9
ALL_ROUND = ("cost", "accuracy", "hours")
UNSURE = 0.05
"""If another configuration is better than the recommended one in this share of draws, the two are indistinguishable."""
SLACK = 1e-9
"""Relative rounding error that is tolerated: 10.4 hours at $3.00 are within a budget of $31.20."""


@dataclass(frozen=True)
class Constraints:
    """Limits for a configuration. `min_accuracy` bounds the metric: a minimum, or a maximum if lower is better.

    >>> points = [
    ...     fairtrial.CostPoint("small", hours=1, accuracy=0.80, memory=8),
    ...     fairtrial.CostPoint("large", hours=4, accuracy=0.85, memory=8),
    ... ]
    >>> analysis = fairtrial.CostPerformanceAnalysis(fairtrial.CostModel.a100_80gb())
    >>> analysis.recommend(points, fairtrial.Constraints(max_cost=5)).chosen.priced.name
    'small'
    """

    max_cost: float | None = None
    min_accuracy: float | None = None
    max_time: float | None = None
    max_memory: float | None = None
    confidence: float | None = None

    def check(self, judged: OptimizationTarget | None) -> None:
        """Raise one error that lists all invalid limits. Without `judged`, skips the range check of `min_accuracy`."""
        problems = [
            f"{name} must be a positive number, not {value:g}"
            for name, value in self.given().items()
            if name != "min_accuracy" and not (math.isfinite(value) and value > 0)
        ]
        bound = self.min_accuracy
        if bound is not None and not math.isfinite(bound):
            problems.append(f"min_accuracy must be a number, not {bound:g}")
        elif bound is not None and judged and judged.quantity == "accuracy" and not 0 <= bound <= 1:
            problems.append(f"min_accuracy must lie between 0 and 1, not {bound:g}")
        if self.confidence is not None and not EVEN <= self.confidence < 1:
            problems.append(f"confidence must be at least {EVEN} and below 1, not {self.confidence:g}")
        if problems:
            raise InvalidOptions(problems[0], problems=problems[1:])

    def given(self) -> dict[str, float]:
        """Return the limits that are set."""
        limits = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "confidence"}
        return {name: value for name, value in limits.items() if value is not None}


@dataclass(frozen=True)
class ConstraintCheck:
    """One constraint on one candidate. `probability` is None if values per seed are unknown."""

    constraint: str
    limit: float
    value: float | None
    probability: float | None
    met: bool
    needed: float | None
    """The limit that this candidate would just meet; None if its value is unknown."""

    def to_dict(self) -> dict[str, Any]:
        return {word: value for word, value in vars(self).items() if word != "needed"}


@dataclass(frozen=True)
class Candidate:
    """A configuration on a card, checked against every constraint."""

    priced: Priced
    checks: Sequence[ConstraintCheck]

    @property
    def feasible(self) -> bool:
        return all(check.met for check in self.checks)

    def meets_others(self, constraint: str) -> bool:
        return all(check.met for check in self.checks if check.constraint != constraint)

    def check(self, constraint: str) -> ConstraintCheck:
        return next(each for each in self.checks if each.constraint == constraint)


@dataclass(frozen=True)
class Relaxation:
    """The smallest change of one limit that makes a candidate feasible; `needed` is None if no such change exists."""

    constraint: str
    limit: float
    needed: float | None = None
    candidate: Candidate | None = None

    @property
    def relative(self) -> float:
        """The relative change of the limit; any change of a limit of 0 counts as 1."""
        assert self.needed is not None
        return abs(self.needed - self.limit) / (abs(self.limit) or abs(self.needed))

    def to_dict(self) -> dict[str, Any]:
        who = self.candidate.priced if self.candidate else None
        return {
            "constraint": self.constraint,
            "limit": self.limit,
            "needed": self.needed,
            "name": who.name if who else None,
            "card": who.card.name if who else None,
            "estimated": None if who is None else self.constraint in CONVERTED and who.basis is not None,
        }


@dataclass(frozen=True)
class JointRelaxation:
    """Changes of several limits that together make one candidate feasible."""

    candidate: Candidate
    changes: Sequence[Relaxation]

    @property
    def largest(self) -> float:
        """The largest relative change among the limits."""
        return max(each.relative for each in self.changes)

    @property
    def total(self) -> float:
        return sum(each.relative for each in self.changes)

    def to_dict(self) -> dict[str, Any]:
        priced = self.candidate.priced
        changes = [{**each.to_dict(), "relative_change": each.relative} for each in self.changes]
        return {
            "name": priced.name,
            "card": priced.card.name,
            "accuracy": priced.quality.value,
            "cost": priced.cost.value,
            "hours": priced.hours.value,
            "largest_relative_change": self.largest,
            "changes": [{key: row[key] for key in row if key not in ("name", "card")} for row in changes],
        }


@dataclass(frozen=True)
class Binding:
    """A constraint without which the recommendation would be better."""

    constraint: str
    limit: float
    instead: Priced

    def to_dict(self) -> dict[str, Any]:
        return {
            "constraint": self.constraint, "limit": self.limit, "without_it": self.instead.name,
            "card": self.instead.card.name, "accuracy": self.instead.quality.value, "cost": self.instead.cost.value,
            "hours": self.instead.hours.value, "estimated": self.instead.basis is not None,
        }  # fmt: skip


@dataclass(frozen=True)
class Recommendation:
    """The recommended candidate, or None and the relaxations that would make one feasible."""

    candidates: Sequence[Candidate]
    chosen: Candidate | None
    objective: str
    constraints: Constraints
    judged: OptimizationTarget
    cost_model: CostModel
    binding: Sequence[Binding] = ()
    relaxations: Sequence[Relaxation] = ()
    joint: JointRelaxation | None = None
    """The smallest change of limits that allows a better candidate than `chosen`, or any candidate if it is None."""
    rationale: Sequence[str] = ()

    @property
    def cards(self) -> int:
        return len({each.priced.card.name for each in self.candidates})

    @cached_property
    def feasible(self) -> list[Candidate]:
        return [each for each in self.candidates if each.feasible]

    @cached_property
    def alternatives(self) -> list[Candidate]:
        """The other feasible candidates on the frontier, cheapest first."""
        if not self.feasible:
            return []
        gains = gains_of([each.priced for each in self.feasible], replace(self.judged, objectives=ALL_ROUND))
        best = [each for each, member in zip(self.feasible, on_frontier(gains), strict=True) if member]
        return sorted((each for each in best if each is not self.chosen), key=lambda each: each.priced.cost.value)

    @cached_property
    def alike(self) -> dict[str, float]:
        """Feasible configurations indistinguishable from the chosen one: name → share of draws in which it wins."""
        if self.chosen is None or self.chosen.priced.quality.error is None:
            return {}
        own = self.chosen.priced
        others = {each.priced.name: each.priced for each in self.feasible if each.priced.quality.error is not None}
        others.pop(own.name, None)
        if not others:
            return {}
        drawn = draw_means([[own.quality], *([each.quality] for each in others.values())])[..., 0]
        ahead = (self.judged.sign("accuracy") * (drawn[:, 1:] - drawn[:, :1]) > 0).mean(0)
        shares = sorted(zip(others, ahead.tolist(), strict=True), key=lambda each: -each[1])
        return {name: share for name, share in shares if share >= UNSURE}

    @cached_property
    def fits_on(self) -> list[Priced]:
        """The recommended configuration on every card with enough memory for it, cheapest first."""
        if self.chosen is None:
            return []
        point = self.chosen.priced.point
        options = [self.cost_model.on(card).price(point) for card in self.cost_model.table.cards.values()]
        return sorted((each for each in options if each.fits), key=lambda each: each.cost.value)


def is_upper(constraint: str, judged: OptimizationTarget) -> bool:
    """Return whether a larger limit relaxes the constraint."""
    return not (constraint == "min_accuracy" and judged.direction == "max")
