"""Recommend a configuration under a budget, a deadline and a card's memory.

A constraint is judged by the mean; if values per seed are known, the probability that it is met is added. A mean that
meets the limit has a probability of at least 0.5. `confidence` requires a higher one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fairtrial.core.errors import InvalidOptions, unknown
from fairtrial.costs.choice import (
    CARD_MEMORY,
    OBJECTIVES,
    SLACK,
    Binding,
    Candidate,
    ConstraintCheck,
    Constraints,
    JointRelaxation,
    Recommendation,
    Relaxation,
    is_upper,
)
from fairtrial.costs.cost import CostModel, Priced
from fairtrial.costs.frontier import OptimizationTarget, price_points
from fairtrial.costs.points import CostPoint, Reading, levelled
from fairtrial.costs.prices import Card
from fairtrial.costs.rationale import explain


def recommend(
    points: Sequence[CostPoint],
    model: CostModel,
    judged: OptimizationTarget,
    constraints: Constraints,
    objective: str = "accuracy",
    cards: Sequence[Card] = (),
) -> Recommendation:
    """Return the best feasible configuration by one objective; with several cards, on the best card."""
    check_objective(objective, judged)
    constraints.check(judged)
    priced = [each for card in cards or [model.card] for each in price_points(points, model.on(card), judged)]
    candidates = [Candidate(each, _checks(each, constraints, judged)) for each in priced]
    rank = _rank(candidates, objective, judged)
    chosen = _best([each for each in candidates if each.feasible], rank)
    recommendation = Recommendation(candidates, chosen, objective, constraints, judged, model)
    if chosen is None:
        recommendation = replace(
            recommendation, relaxations=_relaxations(candidates, judged), joint=_joint(candidates, rank)
        )
    else:
        better = [each for each in candidates if rank(each)[:BY_MERIT] < rank(chosen)[:BY_MERIT]]
        recommendation = replace(
            recommendation, binding=_bindings(candidates, chosen, rank), joint=_joint(better, rank)
        )
    return replace(recommendation, rationale=explain(recommendation))


def check_objective(objective: str, judged: OptimizationTarget) -> None:
    if objective not in OBJECTIVES:
        raise InvalidOptions(unknown("objective", objective, OBJECTIVES), hint=f"Objectives: {', '.join(OBJECTIVES)}.")
    if objective == "value" and not judged.bounded:
        why = "can be negative" if judged.direction == "max" else "is better when lower"
        raise InvalidOptions(f"value: {judged.quantity} {why}, so {judged.quantity} per dollar is meaningless")


def _checks(priced: Priced, constraints: Constraints, judged: OptimizationTarget) -> list[ConstraintCheck]:
    readings: dict[str, tuple[Reading | None, float]] = {
        "max_cost": (priced.cost, -1.0),
        "min_accuracy": (priced.quality, judged.sign("accuracy")),
        "max_time": (priced.hours, -1.0),
        "max_memory": (None if priced.point.memory is None else Reading(priced.point.memory), -1.0),
    }
    limits = {**constraints.given(), CARD_MEMORY: priced.card.memory_gb}
    readings[CARD_MEMORY] = readings["max_memory"]
    return [_check(name, limit, *readings[name], constraints.confidence) for name, limit in limits.items()]


def _check(name: str, limit: float, reading: Reading | None, sign: float, confidence: float | None) -> ConstraintCheck:
    """Check one constraint. `sign` is +1 if the value must be at least the limit, −1 if at most."""
    if reading is None:
        return ConstraintCheck(name, limit, None, None, met=False, needed=None)
    needed, probability = reading.value, None
    if reading.error is not None:
        from scipy import special

        probability = float(special.stdtr(reading.n - 1, sign * (reading.value - limit) / reading.error))
        if confidence is not None:
            needed -= sign * reading.error * float(special.stdtrit(reading.n - 1, confidence))
    met = sign * (needed - limit) >= -SLACK * max(abs(limit), abs(needed))
    return ConstraintCheck(name, limit, reading.value, probability, met, needed)


BY_MERIT = 4
"""Number of leading entries of a rank that measure merit; names follow as tie-breakers."""


def _rank(
    candidates: Sequence[Candidate], objective: str, judged: OptimizationTarget
) -> Callable[[Candidate], tuple[Any, ...]]:
    """Return a sort key; smaller is better. Ties in the objective are decided by metric, cost and hours.

    Values that differ only by rounding are ties: see `levelled`.
    """
    sign = judged.sign("accuracy")
    priced = [candidate.priced for candidate in candidates]
    columns = [[each.quality for each in priced], [each.cost for each in priced], [each.hours for each in priced]]
    level = [levelled([r.value for r in column], [r.size for r in column]) for column in columns]
    worth = [-math.inf if not c.value else -q.value / c.value for q, c in zip(columns[0], columns[1], strict=True)]
    even = levelled(worth, [abs(each) if math.isfinite(each) else 0.0 for each in worth])
    ranks = {}
    for place, candidate in enumerate(candidates):
        quality, cost, hours = -sign * level[0][place], level[1][place], level[2][place]
        first = {"accuracy": quality, "cost": cost, "time": hours, "value": even[place]}[objective]
        ranks[id(candidate)] = (first, quality, cost, hours, priced[place].name, priced[place].card.name)
    return lambda candidate: ranks[id(candidate)]


def _best(candidates: Sequence[Candidate], rank: Callable[[Candidate], tuple[Any, ...]]) -> Candidate | None:
    return min(candidates, key=rank, default=None)


def _bindings(
    candidates: Sequence[Candidate], chosen: Candidate, rank: Callable[[Candidate], tuple[Any, ...]]
) -> list[Binding]:
    bindings = []
    for check in chosen.checks:
        free = [each for each in candidates if each.meets_others(check.constraint)]
        instead = _best(free, rank)
        if instead is not None and rank(instead)[:BY_MERIT] < rank(chosen)[:BY_MERIT]:
            bindings.append(Binding(check.constraint, instead.check(check.constraint).limit, instead.priced))
    return bindings


def _relaxations(candidates: Sequence[Candidate], judged: OptimizationTarget) -> list[Relaxation]:
    """For each constraint, find the candidate with the smallest relaxation that meets all other constraints."""
    relaxations = []
    for check in candidates[0].checks:
        name = check.constraint
        near = [each for each in candidates if each.meets_others(name) and each.check(name).needed is not None]
        sign = 1.0 if is_upper(name, judged) else -1.0
        least = min(near, key=lambda each, name=name, sign=sign: sign * (each.check(name).needed or 0.0), default=None)  # type: ignore[misc]
        if least is not None:
            relaxations.append(Relaxation(name, least.check(name).limit, least.check(name).needed, least))
        elif name != CARD_MEMORY:
            relaxations.append(Relaxation(name, check.limit))
    return relaxations


def _joint(candidates: Sequence[Candidate], rank: Callable[[Candidate], tuple[Any, ...]]) -> JointRelaxation | None:
    """Return the candidate with the smallest joint change of limits: by the largest relative change, then by their sum.

    The card's memory is not a limit that the user can change, so candidates that fit their card come first.
    """
    joint_relaxations = []
    for candidate in candidates:
        missed = [check for check in candidate.checks if not check.met]
        if all(check.needed is not None for check in missed):
            changes = [Relaxation(check.constraint, check.limit, check.needed, candidate) for check in missed]
            joint_relaxations.append(JointRelaxation(candidate, changes))

    def size(joint: JointRelaxation) -> tuple[Any, ...]:
        return not joint.candidate.check(CARD_MEMORY).met, joint.largest, joint.total, rank(joint.candidate)

    return min(joint_relaxations, key=size, default=None)
