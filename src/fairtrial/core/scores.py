"""Scores that can be compared across tasks: 0 is a random policy, `scale` is a person."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fairtrial.core.errors import InvalidOptions
from fairtrial.core.findings import Estimate

NORMALIZED = "human_normalized_score"
SCALE = 100.0


class BenchmarkSettings(BaseModel):
    """The `benchmark:` mapping of a study or of options: what scores are held against, and what selects."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    random_score: float | None = Field(None, description="Score of a random policy: normalized, 0.")
    human_score: float | None = Field(None, description="Score of a person: normalized, the scale.")
    scale: float = Field(SCALE, description="What a person's score becomes.", gt=0)
    best_metric: str | None = Field(None, description="Metric that judges the best checkpoint.")
    best_metric_mode: Literal["max", "min"] | None = Field(None, description="Whether more or less of it is better.")

    @model_validator(mode="after")
    def _references_are_two(self) -> BenchmarkSettings:
        given = {"random_score": self.random_score, "human_score": self.human_score}
        missing = [name for name, value in given.items() if value is None]
        if len(missing) == 1:
            raise ValueError(f"{missing[0]} is missing: scores are normalized by both references")
        if self.random_score is not None and self.random_score == self.human_score:
            raise ValueError(f"human_score: must differ from random_score, and both are {self.human_score:g}")
        return self

    @property
    def references(self) -> References | None:
        if self.random_score is None or self.human_score is None:
            return None
        return References(self.random_score, self.human_score, self.scale, basis="given")


@dataclass(frozen=True)
class References:
    """Two scores that span a scale, and where they come from."""

    random: float
    human: float
    scale: float = SCALE
    basis: str = "given"

    def normalized(self, score: float) -> float:
        return (score - self.random) / (self.human - self.random) * self.scale

    def carry_over(self, estimate: Estimate) -> Estimate:
        """The same finding on the normalized scale: a straight line takes intervals along."""
        value, *ends = (
            None if x is None else self.normalized(x) for x in (estimate.value, estimate.low, estimate.high)
        )
        if self.human < self.random:
            ends.reverse()
        samples = None if estimate.samples is None else tuple(map(self.normalized, estimate.samples))
        return replace(estimate, value=value, low=ends[0], high=ends[1], unit=None, samples=samples)

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Scoring:
    """Adds the normalized score to what an evaluation found of `quantity`."""

    quantity: str
    references: References

    def score(self, values: Mapping[str, float], split: str) -> dict[str, float]:
        raw = values.get(f"{split}_{self.quantity}")
        return {} if raw is None else {f"{split}_{NORMALIZED}": self.references.normalized(raw)}


BOUND = "bound"
Z = 1.6448536269514722
"""Of the 95 % quantile: a bound that holds on one side."""


def bound_name(metric: str) -> str:
    return f"{metric}_{BOUND}"


def confidence_bound(episodes: Sequence[float], mode: str) -> float:
    """The mean of what single episodes gave, less (or, where low is good, plus) what luck may account for."""
    n = len(episodes)
    if n < 2:
        raise InvalidOptions("best_rule: a bound needs at least two episodes per evaluation")
    reach = Z * stdev(episodes) / math.sqrt(n)
    return fmean(episodes) - reach if mode == "max" else fmean(episodes) + reach


def one_option(values: Any) -> Any:
    """`best_metric` may be given by itself or in the mapping, which is one and the same; differently is an error."""
    mapping = values.get("benchmark") if isinstance(values, Mapping) else None
    if not isinstance(mapping, Mapping):
        return values
    merged = dict(values)
    for own, named in (("best_metric", "best_metric"), ("best_mode", "best_metric_mode")):
        inside, outside = mapping.get(named), values.get(own)
        if inside is not None and outside is not None and inside != outside:
            raise ValueError(f"{own}: given as '{outside}' and, in benchmark, as '{inside}'")
        if inside is not None:
            merged[own] = inside
    return merged
