"""The Pareto frontier of configurations on a card, with probabilities of membership and marginal gains per dollar."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from fairtrial.core.directions import GIVE_ARGUMENT, settle
from fairtrial.core.errors import InvalidOptions, UserError, unknown
from fairtrial.core.specs import split_and_quantity
from fairtrial.costs.cost import CostModel, Priced
from fairtrial.costs.pareto import Array, dominator, draw_means, hypervolume, membership, on_frontier
from fairtrial.costs.points import CostPoint, Reading, levelled

DIRECTIONS = {"cost": "min", "accuracy": "max", "hours": "min", "memory": "min"}
BOUNDED = ("accuracy", "precision", "recall", "f1", "auc", "iou", "dice", "success_rate", "win_rate")
"""Quantities that cannot be negative, so that their ratio to a price is meaningful."""
FULL = re.compile(r"full\b", re.IGNORECASE)


@dataclass(frozen=True)
class OptimizationTarget:
    """What is optimized: the metric with its direction (by default inferred from its name), and the objectives."""

    metric: str = "accuracy"
    direction: str = ""
    objectives: Sequence[str] = ("cost", "accuracy")

    def __post_init__(self) -> None:
        problems = [unknown("objective", name, DIRECTIONS) for name in self.objectives if name not in DIRECTIONS]
        if len(set(self.objectives)) < max(2, len(self.objectives)):
            problems.append("a frontier needs at least two different objectives")
        if self.direction not in ("", "max", "min"):
            problems.append(f"direction: must be one of max or min, not {self.direction!r}")
        elif not problems:
            object.__setattr__(
                self, "direction", settle(self.metric, stated=self.direction or None).known(GIVE_ARGUMENT)
            )
        if problems:
            raise InvalidOptions(problems[0], problems=problems[1:], hint=f"Objectives: {', '.join(DIRECTIONS)}.")

    @property
    def quantity(self) -> str:
        return split_and_quantity(self.metric)[1]

    @property
    def bounded(self) -> bool:
        return self.direction == "max" and self.quantity in BOUNDED

    def sign(self, objective: str) -> float:
        direction = self.direction if objective == "accuracy" else DIRECTIONS[objective]
        return 1.0 if direction == "max" else -1.0


def reading_of(priced: Priced, objective: str) -> Reading:
    if objective == "memory":
        assert priced.point.memory is not None
        return Reading(priced.point.memory)
    return {"cost": priced.cost, "accuracy": priced.quality, "hours": priced.hours}[objective]


def gains_of(points: Sequence[Priced], judged: OptimizationTarget) -> Array:
    """Return one row per point and one column per objective, signed so that higher is better, without round-off."""
    columns = []
    for name in judged.objectives:
        readings = [reading_of(point, name) for point in points]
        level = levelled([reading.value for reading in readings], [reading.size for reading in readings])
        columns.append([judged.sign(name) * value for value in level])
    return np.array(columns, dtype=float).reshape(len(judged.objectives), len(points)).T


@dataclass(frozen=True)
class Step:
    """The step from one point of the frontier to the next more expensive one: the gain per additional dollar."""

    cheaper: str
    dearer: str
    gain: float
    cost: float

    @property
    def per_dollar(self) -> float:
        return self.gain / self.cost

    def to_dict(self) -> dict[str, Any]:
        return {
            "from": self.cheaper,
            "to": self.dearer,
            "gain": self.gain,
            "cost": self.cost,
            "per_dollar": self.per_dollar,
        }


@dataclass(frozen=True)
class Frontier:
    """Priced points, cheapest first, with their frontier membership. Points that do not fit the card do not compete."""

    points: Sequence[Priced]
    judged: OptimizationTarget
    members: Sequence[bool]
    beaten_by: Sequence[str | None]
    probabilities: Sequence[float | None]
    volume: float | None = None

    @property
    def names(self) -> list[str]:
        return [point.name for point in self.on_it]

    @cached_property
    def on_it(self) -> list[Priced]:
        return [point for point, member in zip(self.points, self.members, strict=True) if member]

    @cached_property
    def usable(self) -> list[Priced]:
        return [point for point in self.points if point.fits is not False]

    @cached_property
    def efficiency_winner(self) -> Priced | None:
        """The point with the highest metric per dollar; None if the metric can be negative (meaningless ratio)."""
        paid = [point for point in self.usable if point.cost.value > 0]
        if not self.judged.bounded or not paid:
            return None
        ratios = [point.quality.value / point.cost.value for point in paid]
        level = levelled(ratios, [abs(ratio) for ratio in ratios])
        return paid[level.index(max(level))]

    @cached_property
    def steps(self) -> list[Step]:
        """Steps along the frontier of cost and metric, from the cheapest point."""
        plain = gains_of(self.usable, OptimizationTarget(self.judged.metric, self.judged.direction))
        members = zip(self.usable, plain.tolist(), on_frontier(plain), strict=True)
        line = [(point.name, gain, -negative_cost) for point, (negative_cost, gain), member in members if member]
        steps = [Step(a, b, gain - before, cost - paid) for (a, before, paid), (b, gain, cost) in pairwise(line)]
        return [step for step in steps if step.cost > 0]

    @property
    def best_step(self) -> Step | None:
        return max(self.steps, key=lambda step: step.per_dollar, default=None)

    @cached_property
    def reference(self) -> Priced:
        """The reference point for savings: full fine-tuning if there is such a point, else the most expensive one."""
        full = [point for point in self.points if FULL.match(point.name)]
        return full[0] if full else max(self.points, key=lambda point: point.cost.value)

    def savings(self, point: Priced) -> float | None:
        return self.reference.cost.value / point.cost.value if point.cost.value > 0 else None


def price_points(points: Sequence[CostPoint], model: CostModel, judged: OptimizationTarget) -> list[Priced]:
    """Return all points priced on the model's card, cheapest first; ties are ordered by better metric, then by name."""
    check_points(points, judged)
    model.check(points)
    sign = judged.sign("accuracy")
    priced = [model.price(point) for point in points]
    return sorted(priced, key=lambda each: (each.cost.value, -sign * each.quality.value, each.name))


def find_frontier(
    priced: Sequence[Priced], judged: OptimizationTarget, reference: Mapping[str, float] | None = None
) -> Frontier:
    """Determine which points are on the frontier. With `reference` (objective → value), adds the hypervolume."""
    unmeasured = [point.name for point in priced if point.point.memory is None]
    if "memory" in judged.objectives and unmeasured:
        raise UserError(f"memory is an objective, but the memory of {', '.join(unmeasured)} is unknown")
    usable = [place for place, point in enumerate(priced) if point.fits is not False]
    chosen = [priced[place] for place in usable]
    gains = gains_of(chosen, judged)
    better = {place: dominator(gains, own) for own, place in enumerate(usable)}
    members = [place in better and better[place] is None for place in range(len(priced))]
    beaten = [None if (by := better.get(place)) is None else chosen[by].name for place in range(len(priced))]
    shares = dict(zip(usable, _probabilities(chosen, judged), strict=True))
    probabilities = [shares.get(place) for place in range(len(priced))]
    volume = None if reference is None else hypervolume(gains, corner_of(reference, judged))
    return Frontier(priced, judged, members, beaten, probabilities, volume)


def _probabilities(priced: Sequence[Priced], judged: OptimizationTarget) -> list[float | None]:
    readings = [[reading_of(point, name) for name in judged.objectives] for point in priced]
    known = [any(reading.error is not None for reading in row) for row in readings]
    if not any(known):
        return [None] * len(priced)
    signs = np.array([judged.sign(name) for name in judged.objectives])
    exact = np.array([[reading.value for reading in row] for row in readings])
    even = gains_of(priced, judged) * signs - exact  # round-off must not separate values without noise
    shares = membership((draw_means(readings) + even) * signs)
    return [float(share) if sure else None for share, sure in zip(shares, known, strict=True)]


def corner_of(given: Mapping[str, float], judged: OptimizationTarget) -> Array:
    names = judged.objectives
    problems = [unknown("objective", name, names) for name in given if name not in names]
    problems += [f"the reference has no value of {name}" for name in names if name not in given]
    problems += [f"the reference's {name} must be a finite number" for name in given if not np.isfinite(given[name])]
    if problems:
        raise InvalidOptions(problems[0], problems=problems[1:], hint="Example: cost=200,accuracy=0.")
    return np.array([judged.sign(name) * given[name] for name in names])


def check_points(points: Sequence[CostPoint], judged: OptimizationTarget) -> None:
    """Raise one error that lists all points that cannot be priced or that share a name."""
    problems = [] if points else ["there are no points"]
    names = [point.name for point in points]
    problems += [f"two points are named '{name}'" for name in dict.fromkeys(names) if names.count(name) > 1]
    for point in points:
        if not (np.isfinite(point.time.value) and point.time.value >= 0):
            problems.append(f"point '{point.name}': hours must be a number of at least 0, not {point.time.value:g}")
        if not np.isfinite(point.quality.value):
            problems.append(f"point '{point.name}': its metric is not a finite number")
        elif judged.quantity == "accuracy" and not 0 <= point.quality.value <= 1:
            problems.append(f"point '{point.name}': accuracy must lie between 0 and 1, not {point.quality.value:g}")
        if point.memory is not None and not (np.isfinite(point.memory) and point.memory >= 0):
            problems.append(f"point '{point.name}': memory must be a number of at least 0, not {point.memory:g}")
    if problems:
        raise UserError(problems[0], problems=problems[1:])
