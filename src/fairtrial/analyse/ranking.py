"""Who comes first: by one protocol for all, over distinct seeds, so that more seeds are no advantage.

The best of the seeds would favour whoever had more of them; the mean over them favours nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairtrial.analyse.aggregate import statistic_named
from fairtrial.analyse.samples import Array


@dataclass(frozen=True)
class Rank:
    """An arm by its aggregate over complete seeds; `incomplete` ones, which lost a task, are counted, not scored."""

    arm: str
    place: int | None
    value: float | None
    seeds: int
    incomplete: int

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def rank_arms(tables: Mapping[str, Array], statistic: str, direction: str, gamma: float = 1.0) -> list[Rank]:
    """From tables of seeds × tasks. Arms without a complete seed come last and have no place."""
    of, sign = statistic_named(statistic, gamma), 1 if direction == "max" and statistic != "optimality_gap" else -1
    whole = {arm: table[np.isfinite(table).all(axis=1)] for arm, table in tables.items()}
    values = {arm: float(of(table)) for arm, table in whole.items() if len(table)}
    order = sorted(values, key=lambda arm: -sign * values[arm])
    places = {arm: 1 + sum(sign * other > sign * values[arm] for other in values.values()) for arm in values}
    return [
        Rank(arm, places.get(arm), values.get(arm), len(whole[arm]), len(tables[arm]) - len(whole[arm]))
        for arm in [*order, *(arm for arm in tables if arm not in values)]
    ]
