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
from fairtrial.decide.pareto import draw_means, on_frontier
from fairtrial.decide.points import CostPoint, Reading
from fairtrial.decide.prices import Card

OBJECTIVES = ("accuracy", "cost", "time", "value")
CARD_MEMORY = "card_memory"
CONVERTED = ("max_cost", "max_time")
"""Constraints on figures that may have been converted from another device."""
EVEN, LIKELY = 0.5, 0.9
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
    needed: float | None = None
    candidate: Candidate | None = None

    def to_dict(self) -> dict[str, Any]:
        who = self.candidate.priced if self.candidate else None
        return {
            "constraint": self.constraint, "limit": self.limit, "needed": self.needed,
            "name": who.name if who else None, "card": who.card.name if who else None,
            "estimated": None if who is None else self.constraint in CONVERTED and who.basis is not None,
        }  # fmt: skip


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
    judged: Judged
    cost_model: CostModel
    binding: Sequence[Binding] = ()
    relaxations: Sequence[Relaxation] = ()

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
        gains = gains_of([each.priced for each in self.feasible], _all_round(self.judged))
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

    @cached_property
    def rationale(self) -> list[str]:
        return _explain(self) if self.chosen else _explain_nothing(self)


def recommend(
    points: Sequence[CostPoint], model: CostModel, judged: Judged, constraints: Constraints,
    objective: str = "accuracy", cards: Sequence[Card] = (),
) -> Recommendation:  # fmt: skip
    """The best feasible configuration by one objective; with several cards, on the card that suits it best."""
    check_objective(objective, judged)
    constraints.check(judged)
    priced = [each for card in cards or [model.card] for each in price_points(points, model.on(card), judged)]
    candidates = [Candidate(each, _checks(each, constraints, judged)) for each in priced]
    chosen = _best([each for each in candidates if each.feasible], objective, judged)
    found = Recommendation(candidates, chosen, objective, constraints, judged, model)
    if chosen is None:
        return replace(found, relaxations=_relaxations(candidates, judged))
    return replace(found, binding=_bindings(candidates, chosen, objective, judged))


def check_objective(objective: str, judged: Judged) -> None:
    if objective not in OBJECTIVES:
        raise InvalidOptions(unknown("objective", objective, OBJECTIVES), hint=f"Objectives: {', '.join(OBJECTIVES)}.")
    if objective == "value" and not judged.bounded:
        why = "can be negative" if judged.direction == "max" else "is to be small"
        raise InvalidOptions(f"value: {judged.quantity} {why}, so {judged.quantity} per dollar means nothing")


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


BY_MERIT = 4
"""So many places of a rank are about merit; names come after them."""


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
        if instead is not None and rank(instead)[:BY_MERIT] < rank(chosen)[:BY_MERIT]:
            found.append(Binding(check.constraint, instead.check(check.constraint).limit, instead.priced))
    return found


def _relaxations(candidates: Sequence[Candidate], judged: Judged) -> list[Relaxation]:
    """For each constraint, the candidate that asks for least while all others hold."""
    found = []
    for check in candidates[0].checks:
        name = check.constraint
        near = [each for each in candidates if each.meets_others(name) and each.check(name).needed is not None]
        sign = 1.0 if _is_upper(name, judged) else -1.0
        least = min(near, key=lambda each, name=name, sign=sign: sign * (each.check(name).needed or 0.0), default=None)  # type: ignore[misc]
        if least is not None:
            found.append(Relaxation(name, least.check(name).limit, least.check(name).needed, least))
        elif name != CARD_MEMORY:
            found.append(Relaxation(name, check.limit))
    return found


def _is_upper(constraint: str, judged: Judged) -> bool:
    """Whether a constraint is relaxed by a larger number."""
    return not (constraint == "min_accuracy" and judged.direction == "max")


# What is told. Every figure that was converted from another device is marked.


def _about(priced: Priced) -> str:
    return "about " if priced.basis else ""


def _label(priced: Priced, found: Recommendation) -> str:
    return f"{priced.name} on {priced.card.name}" if found.cards > 1 else priced.name


def _explain(found: Recommendation) -> list[str]:
    assert found.chosen is not None
    told = [_why(found)]
    told += [_margin(check, found.chosen.priced, found.judged) for check in found.chosen.checks]
    told += [_missed(bound, found) for bound in found.binding]
    told += _unlike(found)
    return told + _cheaper(found)


def _why(found: Recommendation) -> str:
    assert found.chosen is not None
    priced, judged = found.chosen.priced, found.judged
    best = "the highest" if judged.direction == "max" else "the lowest"
    reached = {
        "accuracy": f"{best} {judged.quantity} ({shown_value(priced.quality.value)})",
        "cost": f"the lowest cost ({_about(priced)}{shown_money(priced.cost.value)})",
        "time": f"the shortest time ({_about(priced)}{shown_hours(priced.hours.value)})",
        "value": f"the most {judged.quantity} per dollar",
    }[found.objective]
    count, total = len(found.feasible), counted(len(found.candidates) // found.cards, "configuration")
    places = f"{total} on {found.cards} cards" if found.cards > 1 else total
    name = _label(priced, found)
    if count == 1:
        return f"{name} is the only one of {places} that meets every constraint; it has {reached}."
    return f"{name} has {reached} of the {count} that meet every constraint, out of {places}."


LIMIT_WORDS = {"max_cost": "budget", "max_time": "deadline", "max_memory": "memory limit"}
VERBS = {"max_cost": "costs", "max_time": "takes", "max_memory": "needs"}


def shown_limit(constraint: str, value: float) -> str:
    """A value of what a constraint is about, with its unit."""
    if constraint == "max_cost":
        return shown_money(value)
    if constraint == "max_time":
        return shown_hours(value)
    return shown_value(value) if constraint == "min_accuracy" else shown_memory(value)


def _margin(check: Check, chosen: Priced, judged: Judged) -> str:
    assert check.value is not None
    value, limit = shown_limit(check.constraint, check.value), shown_limit(check.constraint, check.limit)
    sure = "" if check.probability is None else f", with probability {shown_chance(check.probability)}"
    if check.constraint == "min_accuracy":
        return f"Its {judged.quantity} of {value} meets the bound of {limit}{sure}."
    used = 100 * check.value / check.limit
    share = "less than 1 %" if used < 1 else f"{used:.0f} %"
    if check.constraint == CARD_MEMORY:
        return f"It needs {value}, {share} of the {limit} of {chosen.card.name}."
    about = _about(chosen) if check.constraint in CONVERTED else ""
    return (
        f"It {VERBS[check.constraint]} {about}{value}, {share} of the {LIMIT_WORDS[check.constraint]} of {limit}{sure}."
    )


def _missed(bound: Binding, found: Recommendation) -> str:
    """What a binding constraint kept out."""
    instead, judged = bound.instead, found.judged
    limit = shown_limit(bound.constraint, bound.limit)
    name = bound.constraint.replace("_", "-")
    what = f"the {limit} of {instead.card.name}" if bound.constraint == CARD_MEMORY else f"{name} {limit}"
    parts = [
        f"{judged.quantity} {shown_value(instead.quality.value)}",
        f"{_about(instead)}{shown_money(instead.cost.value)}",
    ]
    if bound.constraint == "max_time":
        parts.append(f"{_about(instead)}{shown_hours(instead.hours.value)}")
    if bound.constraint in (CARD_MEMORY, "max_memory"):
        memory = instead.point.memory
        parts.append("memory not known" if memory is None else shown_memory(memory))
    return f"Binding: {what}. Without it {_label(instead, found)} would be chosen ({', '.join(parts)})."


def _unlike(found: Recommendation) -> list[str]:
    """Who else might be the better choice."""
    if not found.alike:
        return []
    told = ", ".join(f"{name} (better in {shown_chance(share)} of draws)" for name, share in found.alike.items())
    return [f"By {found.judged.quantity} it cannot be told apart from {told}."]


def _cheaper(found: Recommendation) -> list[str]:
    assert found.chosen is not None
    chosen, judged = found.chosen.priced, found.judged
    cheaper = [each.priced for each in found.alternatives if each.priced.cost.value < chosen.cost.value]
    if not cheaper:
        return []
    near = max(cheaper, key=lambda each: each.cost.value)
    gain = judged.sign("accuracy") * (near.quality.value - chosen.quality.value)
    apart = f"its {judged.quantity} is {shown_value(abs(gain))} {'better' if gain > 0 else 'worse'}"
    saved = f"{_about(near) or _about(chosen)}{shown_money(chosen.cost.value - near.cost.value)}"
    told = apart if gain else f"its {judged.quantity} is the same"
    return [f"The next cheaper on the frontier, {_label(near, found)}, saves {saved}; {told}."]


def _explain_nothing(found: Recommendation) -> list[str]:
    count = len(found.candidates) // found.cards
    told = [
        "The only configuration misses a constraint."
        if count == 1
        else f"None of {count} configurations meets every constraint."
    ]
    unknown_ = list(dict.fromkeys(each.priced.name for each in found.candidates if each.priced.point.memory is None))
    if unknown_:
        told.append(f"Whether {', '.join(unknown_)} fits is not known: its memory was not measured.")
    single = [each for each in found.relaxations if each.needed is not None]
    told += [_would_do(each, found) for each in single]
    if not single and len(unknown_) < count:
        told.append("No constraint alone can be relaxed far enough: at least two must give.")
    return told


def _would_do(relaxed: Relaxation, found: Recommendation) -> str:
    """A relaxation as it can be typed."""
    assert relaxed.needed is not None and relaxed.candidate is not None
    priced = relaxed.candidate.priced
    number = _typed(relaxed.needed, relaxed.limit, up=_is_upper(relaxed.constraint, found.judged))
    if relaxed.constraint == CARD_MEMORY:
        room = shown_memory(relaxed.limit)
        return f"A card with {number} GB instead of the {room} of {priced.card.name} would make {priced.name} feasible."
    mark = " (an estimate)" if relaxed.constraint in CONVERTED and priced.basis else ""
    option = f"--{relaxed.constraint.replace('_', '-')}"
    return f"{option} {number} instead of {relaxed.limit:g} would make {_label(priced, found)} feasible{mark}."


def _typed(needed: float, limit: float, *, up: bool) -> str:
    """The needed limit in the option's own unit, with as few digits as do, never rounded to where it would not do."""
    for digits in range(3, 17):
        unit = 10.0 ** (math.floor(math.log10(abs(needed) or 1.0)) + 1 - digits)
        steps = needed / unit
        rounded = (math.ceil(steps - SLACK) if up else math.floor(steps + SLACK)) * unit
        text = f"{rounded:.{digits}g}"
        if text != f"{limit:.{digits}g}":
            return text
    return repr(needed)
