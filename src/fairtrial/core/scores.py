"""Normalized scores that are comparable across tasks: 0 is a random policy, `scale` is human performance."""

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
    """The `benchmark:` mapping of a study or of options: reference scores, and the metric for the best checkpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    random_score: float | None = Field(None, description="Score of a random policy; its normalized score is 0.")
    human_score: float | None = Field(None, description="Score of a human; its normalized score is the scale.")
    scale: float = Field(SCALE, description="Normalized score of a human.", gt=0)
    best_metric: str | None = Field(None, description="Metric that selects the best checkpoint.")
    best_metric_mode: Literal["max", "min"] | None = Field(None, description="Whether high or low values are better.")

    @model_validator(mode="after")
    def _references_are_two(self) -> BenchmarkSettings:
        given = {"random_score": self.random_score, "human_score": self.human_score}
        missing = [name for name, value in given.items() if value is None]
        if len(missing) == 1:
            raise ValueError(f"{missing[0]} is missing: normalization needs both reference scores")
        if self.random_score is not None and self.random_score == self.human_score:
            raise ValueError(f"human_score: must differ from random_score, but both are {self.human_score:g}")
        return self

    @property
    def references(self) -> References | None:
        if self.random_score is None or self.human_score is None:
            return None
        return References(self.random_score, self.human_score, self.scale, basis="given")


@dataclass(frozen=True)
class References:
    """The two reference scores that define the normalized scale, and their origin."""

    random: float
    human: float
    scale: float = SCALE
    basis: str = "given"

    def normalized(self, score: float) -> float:
        return (score - self.random) / (self.human - self.random) * self.scale

    def carry_over(self, estimate: Estimate) -> Estimate:
        """Return the estimate on the normalized scale; the map is linear, so it applies to the interval too."""
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
    """Computes the normalized score from an evaluation's value of `quantity`."""

    quantity: str
    references: References

    def score(self, values: Mapping[str, float], split: str) -> dict[str, float]:
        raw = values.get(f"{split}_{self.quantity}")
        return {} if raw is None else {f"{split}_{NORMALIZED}": self.references.normalized(raw)}


BOUND = "bound"
Z = 1.6448536269514722
"""The 95 % quantile of the normal distribution, for a one-sided bound."""


def bound_name(metric: str) -> str:
    return f"{metric}_{BOUND}"


def confidence_bound(episodes: Sequence[float], mode: str) -> float:
    """Return the one-sided 95 % confidence bound of the mean over episodes: lower for `max`, upper for `min`."""
    n = len(episodes)
    if n < 2:
        raise InvalidOptions("best_rule: a bound needs at least two episodes per evaluation")
    reach = Z * stdev(episodes) / math.sqrt(n)
    return fmean(episodes) - reach if mode == "max" else fmean(episodes) + reach


def one_option(values: Any) -> Any:
    """Copy `best_metric` and its mode from the `benchmark` mapping to the options; conflicting values are an error."""
    mapping = values.get("benchmark") if isinstance(values, Mapping) else None
    if not isinstance(mapping, Mapping):
        return values
    merged = dict(values)
    for own, named in (("best_metric", "best_metric"), ("best_mode", "best_metric_mode")):
        inside, outside = mapping.get(named), values.get(own)
        if inside is not None and outside is not None and inside != outside:
            raise ValueError(f"{own}: set to '{outside}', but to '{inside}' in benchmark")
        if inside is not None:
            merged[own] = inside
    return merged
