"""Rank arms by one statistic over distinct seeds, so that having more seeds is not an advantage.

The best value over seeds would favor arms with more seeds; an aggregate over all seeds does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairtrial.stats.aggregate import as_means
from fairtrial.stats.jackknife import Tables, aggregate_value
from fairtrial.stats.samples import Array


@dataclass(frozen=True)
class Rank:
    """The rank of an arm by its aggregate over complete seeds. Seeds that lost a task are counted in `incomplete`."""

    arm: str
    place: int | None
    value: float | None
    seeds: int
    incomplete: int

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def rank_arms(tables: Mapping[str, Array | Tables], statistic: str, direction: str, gamma: float = 1.0) -> list[Rank]:
    """Rank arms from one table of seeds × tasks per arm, or several tables if tasks have separate seeds.

    Arms without a complete seed come last and have no rank.
    """
    sign = 1 if direction == "max" and statistic != "optimality_gap" else -1
    every = {arm: [each] if isinstance(each, np.ndarray) else list(each) for arm, each in tables.items()}
    whole = {arm: [table[np.isfinite(table).all(axis=1)] for table in each] for arm, each in every.items()}
    values = {
        arm: aggregate_value(*as_means(each, statistic, gamma))
        for arm, each in whole.items()
        if min(len(table) for table in each)
    }
    order = sorted(values, key=lambda arm: -sign * values[arm])
    places = {arm: 1 + sum(sign * other > sign * values[arm] for other in values.values()) for arm in values}
    return [
        Rank(
            arm,
            places.get(arm),
            values.get(arm),
            min(len(table) for table in whole[arm]),
            sum(map(len, every[arm])) - sum(map(len, whole[arm])),
        )
        for arm in [*order, *(arm for arm in tables if arm not in values)]
    ]
