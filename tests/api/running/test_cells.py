"""Preparing cells: what all seeds of a variant share is found out once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from fairtrial.api.running.cells import prepare
from fairtrial.core.options import Options
from fairtrial.core.registry import LoadedRecipe, load_recipe
from fairtrial.plan.cells import plan_study
from fairtrial.plan.study import Study
from fairtrial.record.store import Store


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each recipe was asked for its data."""
    counts: Counter[str] = Counter()
    data: Callable[..., Any] = LoadedRecipe.data

    def counted(recipe: LoadedRecipe, options: Options, cache: Any) -> Any:
        counts[recipe.name] += 1
        return data(recipe, options, cache)

    monkeypatch.setattr(LoadedRecipe, "data", counted)
    return counts


def test_a_variant_is_looked_at_once_for_all_its_seeds(store: Store, asked: Counter[str]) -> None:
    """A sweep of 2,000 values with three seeds each would otherwise read the data and the teacher 12,000 times."""
    variants = {"a": {"temperature": 1.0}, "b": {"temperature": 2.0}}
    study = Study(study="s", recipe="distill", variants=variants, seeds=[1, 2, 3, 4, 5], options={"data": "digits"})
    cells = prepare(plan_study(study, load_recipe("distill")), store, {})
    assert len(cells) == 10 and asked == {"distill": 2, "classify": 1}
    assert len({cell.spec.fingerprint for cell in cells}) == 10
    assert len({need.key for cell in cells for need in cell.needs}) == 1
    assert all(cell.spec.data == cells[0].spec.data and cell.spec.data for cell in cells)
