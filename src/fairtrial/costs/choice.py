"""What a recommendation is made of: constraints, candidates held against them, and what would have to give."""

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
"""A configuration that is better than the recommended one in as many draws is not told apart from it."""
SLACK = 1e-9
"""Relative rounding that does not count: 10.4 hours at $3.00 are within a budget of $31.20."""


@dataclass(frozen=True)
class Constraints:
    """What a configuration must meet. `min_accuracy` is about the metric: at least, or at most where less is better."""

    max_cost: float | None = None
    min_accuracy: float | None = None
    max_time: float | None = None
    max_memory: float | None = None
    confidence: float | None = None

    def check(self, judged: OptimizationTarget | None) -> None:
        """What can never be met or makes no sense, all at once; without a metric, but for the bound on it."""
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
        """The limits that were set."""
        limits = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "confidence"}
        return {name: value for name, value in limits.items() if value is not None}


@dataclass(frozen=True)
class ConstraintCheck:
    """One constraint on one candidate. `probability` is None where no seeds are known."""

    constraint: str
    limit: float
    value: float | None
    probability: float | None
    met: bool
    needed: float | None
    """The limit that this candidate would just meet; None where nothing is known about it."""

    def to_dict(self) -> dict[str, Any]:
        return {word: value for word, value in vars(self).items() if word != "needed"}


@dataclass(frozen=True)
class Candidate:
    """A configuration on a card, held against every constraint."""

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
    """The smallest change of one constraint that would make something feasible; None: no change of it alone does."""

    constraint: str
    limit: float
    needed: float | None = None
    candidate: Candidate | None = None

    @property
    def relative(self) -> float:
        """How far the limit moves, as a share of itself; a limit of 0 that has to move at all counts as 1."""
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
    """Limits that, all moved together, make one candidate feasible."""

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
    """A constraint without which the recommendation would be a better one."""

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
    """The candidate to take, or None and what would have to give."""

    candidates: Sequence[Candidate]
    chosen: Candidate | None
    objective: str
    constraints: Constraints
    judged: OptimizationTarget
    cost_model: CostModel
    binding: Sequence[Binding] = ()
    relaxations: Sequence[Relaxation] = ()
    joint: JointRelaxation | None = None
    """The smallest change of limits that allows something better than `chosen`, or anything at all without one."""
    rationale: Sequence[str] = ()

    @property
    def cards(self) -> int:
        return len({each.priced.card.name for each in self.candidates})

    @cached_property
    def feasible(self) -> list[Candidate]:
        return [each for each in self.candidates if each.feasible]

    @cached_property
    def alternatives(self) -> list[Candidate]:
        """The rest of the frontier of what is feasible, the cheapest first."""
        if not self.feasible:
            return []
        gains = gains_of([each.priced for each in self.feasible], replace(self.judged, objectives=ALL_ROUND))
        best = [each for each, member in zip(self.feasible, on_frontier(gains), strict=True) if member]
        return sorted((each for each in best if each is not self.chosen), key=lambda each: each.priced.cost.value)

    @cached_property
    def alike(self) -> dict[str, float]:
        """Feasible configurations that may well be the better ones: name → share of draws in which their metric is."""
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
        """The recommended configuration on every card that has room for it, the cheapest first."""
        if self.chosen is None:
            return []
        point = self.chosen.priced.point
        options = [self.cost_model.on(card).price(point) for card in self.cost_model.table.cards.values()]
        return sorted((each for each in options if each.fits), key=lambda each: each.cost.value)


def is_upper(constraint: str, judged: OptimizationTarget) -> bool:
    """Whether a constraint is relaxed by a larger number."""
    return not (constraint == "min_accuracy" and judged.direction == "max")
