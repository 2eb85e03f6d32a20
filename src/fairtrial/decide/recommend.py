"""Which configuration to take under a budget, a deadline and a card's memory, and why.

A constraint is judged by the mean, and where seeds are known it comes with the probability that it is met: a mean that
meets it has at least an even chance. `confidence` asks for more than that. Every sentence of a rationale is computed
from the points that are there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from fairtrial.core.errors import InvalidOptions, unknown
from fairtrial.core.words import counted, shown_chance, shown_hours, shown_memory, shown_money, shown_value
from fairtrial.decide.cost import CostModel, Priced
from fairtrial.decide.frontier import Judged, gains_of, price_points
from fairtrial.decide.pareto import on_frontier
from fairtrial.decide.points import CostPoint, Reading
from fairtrial.decide.prices import Card

OBJECTIVES = ("accuracy", "cost", "time", "value")
CARD_MEMORY = "card_memory"
EVEN, LIKELY = 0.5, 0.9
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

    def check(self, judged: Judged) -> None:
        """What can never be met or makes no sense, all at once."""
        problems = [
            f"{name} must be a positive number, not {value:g}"
            for name, value in self.given().items()
            if name != "min_accuracy" and not (math.isfinite(value) and value > 0)
        ]
        bound = self.min_accuracy
        if bound is not None and not math.isfinite(bound):
            problems.append(f"min_accuracy must be a number, not {bound:g}")
        elif bound is not None and judged.quantity == "accuracy" and not 0 <= bound <= 1:
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
class Check:
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
    checks: Sequence[Check]

    @property
    def feasible(self) -> bool:
        return all(check.met for check in self.checks)

    def meets_others(self, constraint: str) -> bool:
        return all(check.met for check in self.checks if check.constraint != constraint)

    def check(self, constraint: str) -> Check:
        return next(each for each in self.checks if each.constraint == constraint)


@dataclass(frozen=True)
class Relaxation:
    """The smallest change of one constraint that would make something feasible; None: no change of it alone does."""

    constraint: str
    limit: float
    needed: float | None
    name: str | None

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


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
            "hours": self.instead.hours.value,
        }  # fmt: skip


@dataclass(frozen=True)
class Recommendation:
    """The candidate to take, or None and what would have to give."""

    candidates: Sequence[Candidate]
    chosen: Candidate | None
    objective: str
    constraints: Constraints
    judged: Judged
    cost_model: CostModel
    binding: Sequence[Binding] = ()
    relaxations: Sequence[Relaxation] = ()

    @cached_property
    def feasible(self) -> list[Candidate]:
        return [each for each in self.candidates if each.feasible]

    @cached_property
    def alternatives(self) -> list[Candidate]:
        """The rest of the frontier of what is feasible, the cheapest first."""
        gains = gains_of([each.priced for each in self.feasible], _all_round(self.judged))
        best = [each for each, member in zip(self.feasible, on_frontier(gains), strict=True) if member]
        return [each for each in best if each is not self.chosen]

    @cached_property
    def fits_on(self) -> list[Priced]:
        """The recommended configuration on every card that has room for it, the cheapest first."""
        if self.chosen is None:
            return []
        point = self.chosen.priced.point
        options = [self.cost_model.on(card).price(point) for card in self.cost_model.table.cards.values()]
        return sorted((each for each in options if each.fits), key=lambda each: each.cost.value)

    @cached_property
    def rationale(self) -> list[str]:
        return _explain(self) if self.chosen else _explain_nothing(self)


def recommend(
    points: Sequence[CostPoint], model: CostModel, judged: Judged, constraints: Constraints,
    objective: str = "accuracy", cards: Sequence[Card] = (),
) -> Recommendation:  # fmt: skip
    """The best feasible configuration by one objective; with several cards, on the card that suits it best."""
    _check_objective(objective, judged)
    constraints.check(judged)
    priced = [each for card in cards or [model.card] for each in price_points(points, model.on(card), judged)]
    candidates = [Candidate(each, _checks(each, constraints, judged)) for each in priced]
    chosen = _best([each for each in candidates if each.feasible], objective, judged)
    found = Recommendation(candidates, chosen, objective, constraints, judged, model)
    if chosen is None:
        return replace(found, relaxations=_relaxations(candidates, judged))
    return replace(found, binding=_bindings(candidates, chosen, objective, judged))


def _check_objective(objective: str, judged: Judged) -> None:
    if objective not in OBJECTIVES:
        raise InvalidOptions(unknown("objective", objective, OBJECTIVES), hint=f"Objectives: {', '.join(OBJECTIVES)}.")
    if objective == "value" and not judged.bounded:
        raise InvalidOptions(f"value: {judged.quantity} can be negative, so {judged.quantity} per dollar means nothing")


def _checks(priced: Priced, constraints: Constraints, judged: Judged) -> list[Check]:
    readings: dict[str, tuple[Reading | None, float]] = {
        "max_cost": (priced.cost, -1.0),
        "min_accuracy": (priced.quality, judged.sign("accuracy")),
        "max_time": (priced.hours, -1.0),
        "max_memory": (None if priced.point.memory is None else Reading(priced.point.memory), -1.0),
    }
    limits = {**constraints.given(), CARD_MEMORY: priced.card.memory_gb}
    readings[CARD_MEMORY] = readings["max_memory"]
    return [_check(name, limit, *readings[name], constraints.confidence) for name, limit in limits.items()]


def _check(name: str, limit: float, reading: Reading | None, sign: float, confidence: float | None) -> Check:
    """`sign` is +1 where the value must be at least the limit, −1 where at most."""
    if reading is None:
        return Check(name, limit, None, None, met=False, needed=None)
    needed, probability = reading.value, None
    if reading.error is not None:
        from scipy import special

        probability = float(special.stdtr(reading.n - 1, sign * (reading.value - limit) / reading.error))
        if confidence is not None:
            needed -= sign * reading.error * float(special.stdtrit(reading.n - 1, confidence))
    met = sign * (needed - limit) >= -SLACK * max(abs(limit), abs(needed))
    return Check(name, limit, reading.value, probability, met, needed)


def _all_round(judged: Judged) -> Judged:
    return replace(judged, objectives=("cost", "accuracy", "hours"))


def _rank(objective: str, judged: Judged) -> Callable[[Candidate], tuple[Any, ...]]:
    """Smaller is better. What the objective leaves open is decided by the others, so that none is wasted."""
    sign = judged.sign("accuracy")

    def rank(candidate: Candidate) -> tuple[Any, ...]:
        priced = candidate.priced
        quality, cost, hours = -sign * priced.quality.value, priced.cost.value, priced.hours.value
        worth = -math.inf if cost == 0 else -priced.quality.value / cost
        first = {"accuracy": quality, "cost": cost, "time": hours, "value": worth}[objective]
        return first, quality, cost, hours, priced.name, priced.card.name

    return rank


def _best(candidates: Sequence[Candidate], objective: str, judged: Judged) -> Candidate | None:
    return min(candidates, key=_rank(objective, judged), default=None)


def _bindings(candidates: Sequence[Candidate], chosen: Candidate, objective: str, judged: Judged) -> list[Binding]:
    found, rank = [], _rank(objective, judged)
    for check in chosen.checks:
        free = [each for each in candidates if each.meets_others(check.constraint)]
        instead = _best(free, objective, judged)
        if instead is not None and rank(instead)[:2] < rank(chosen)[:2]:
            found.append(Binding(check.constraint, instead.check(check.constraint).limit, instead.priced))
    return found


def _relaxations(candidates: Sequence[Candidate], judged: Judged) -> list[Relaxation]:
    """For each constraint, the one that gives least while all others hold; a card's memory cannot give."""
    names = [check.constraint for check in candidates[0].checks] if candidates else []
    found = []
    for name in names:
        rising = name == "min_accuracy" and judged.direction == "max"
        near = [
            (check.needed, each.priced.name)
            for each in candidates
            if each.meets_others(name) and (check := each.check(name)).needed is not None
        ]
        limit = candidates[0].check(name).limit
        if name == CARD_MEMORY and not near:
            continue
        needed, who = (max if rising else min)(near, default=(None, None))
        found.append(Relaxation(name, limit, needed, who))
    return found


def _explain(found: Recommendation) -> list[str]:
    assert found.chosen is not None
    chosen, judged = found.chosen.priced, found.judged
    told = [_why(found)]
    for check in found.chosen.checks:
        if check.value is not None:
            told.append(_margin(check, chosen, judged))
    for bound in found.binding:
        told.append(_missed(bound, chosen, found))
    cheaper = [each.priced for each in found.alternatives if each.priced.cost.value < chosen.cost.value]
    if cheaper:
        near = max(cheaper, key=lambda each: each.cost.value)
        saved, lost = chosen.cost.value - near.cost.value, abs(chosen.quality.value - near.quality.value)
        told.append(
            f"The next cheaper on the frontier, {_label(near, found)}, saves {shown_money(saved)} and gives up "
            f"{shown_value(lost)} of {judged.quantity}."
        )
    return told


def _label(priced: Priced, found: Recommendation) -> str:
    several = len({each.priced.card.name for each in found.candidates}) > 1
    return f"{priced.name} on {priced.card.name}" if several else priced.name


def _why(found: Recommendation) -> str:
    assert found.chosen is not None
    priced, judged = found.chosen.priced, found.judged
    best = "the highest" if judged.direction == "max" else "the lowest"
    reached = {
        "accuracy": f"{best} {judged.quantity} ({shown_value(priced.quality.value)})",
        "cost": f"the lowest cost ({shown_money(priced.cost.value)})",
        "time": f"the shortest time ({shown_hours(priced.hours.value)})",
        "value": f"the most {judged.quantity} per dollar"
        + (f" ({priced.quality.value / priced.cost.value:.3g})" if priced.cost.value else ""),
    }[found.objective]
    count, total = len(found.feasible), counted(len(found.candidates), "configuration")
    name = _label(priced, found)
    if count == 1:
        return f"{name} is the only one of {total} that meets every constraint; it has {reached}."
    return f"{name} has {reached} of the {count} that meet every constraint, out of {total}."


LIMIT_WORDS = {
    "max_cost": "budget", "min_accuracy": "bound", "max_time": "deadline", "max_memory": "memory limit",
    CARD_MEMORY: "memory",
}  # fmt: skip


def shown_limit(constraint: str, value: float) -> str:
    """A value of what a constraint is about, with its unit."""
    if constraint == "max_cost":
        return shown_money(value)
    if constraint == "max_time":
        return shown_hours(value)
    if constraint == "min_accuracy":
        return shown_value(value)
    return shown_memory(value)


def _margin(check: Check, chosen: Priced, judged: Judged) -> str:
    assert check.value is not None
    value, limit = shown_limit(check.constraint, check.value), shown_limit(check.constraint, check.limit)
    sure = "" if check.probability is None else f", with probability {shown_chance(check.probability)}"
    if check.constraint == "min_accuracy":
        return f"Its {judged.quantity} of {value} meets the {LIMIT_WORDS['min_accuracy']} of {limit}{sure}."
    used = 100 * check.value / check.limit
    share = "less than 1 %" if used < 1 else f"{used:.0f} %"
    if check.constraint == CARD_MEMORY:
        return f"It needs {value}, {share} of the {limit} of {chosen.card.name}."
    verb = {"max_cost": "costs", "max_time": "takes", "max_memory": "needs"}[check.constraint]
    return f"It {verb} {value}, {share} of the {LIMIT_WORDS[check.constraint]} of {limit}{sure}."


def _missed(bound: Binding, chosen: Priced, found: Recommendation) -> str:
    """What a binding constraint kept out."""
    instead, judged = bound.instead, found.judged
    missing = next(each.check(bound.constraint) for each in found.candidates if each.priced is instead)
    reach = f"{judged.quantity} {shown_value(instead.quality.value)} for {shown_money(instead.cost.value)}"
    told = "its memory is not known" if missing.value is None else shown_limit(bound.constraint, missing.value)
    also = "" if bound.constraint in ("max_cost", "min_accuracy") else f", {told}"
    name = bound.constraint.replace("_", "-")
    limit = shown_limit(bound.constraint, bound.limit)
    what = f"the {limit} of {chosen.card.name}" if bound.constraint == CARD_MEMORY else f"{name} {limit}"
    return f"Binding: {what}. Without it {_label(instead, found)} would be chosen: {reach}{also}."


def _safe(relaxed: Relaxation, up: bool) -> float:
    """The needed limit as it is printed, never rounded to where it would no longer do."""
    assert relaxed.needed is not None
    size = abs(relaxed.needed)
    digits = 4 if relaxed.constraint == "min_accuracy" and size < 100 else 2 - math.floor(math.log10(size or 1.0))
    unit = 10.0**-digits
    return (math.ceil if up else math.floor)(round(relaxed.needed / unit, 6)) * unit


def _explain_nothing(found: Recommendation) -> list[str]:
    total = counted(len(found.candidates), "configuration")
    told = [f"None of {total} meets every constraint."]
    single = [each for each in found.relaxations if each.needed is not None]
    for each in single:
        assert each.needed is not None
        up = not (each.constraint == "min_accuracy" and found.judged.direction == "max")
        value, limit = shown_limit(each.constraint, _safe(each, up)), shown_limit(each.constraint, each.limit)
        if each.constraint == CARD_MEMORY:
            told.append(f"A card with {value} instead of {limit} would make {each.name} feasible.")
        else:
            name = each.constraint.replace("_", "-")
            told.append(f"{name} {value} instead of {limit} would make {each.name} feasible.")
    if not single:
        told.append("No constraint alone can be relaxed far enough: at least two must give.")
    return told
