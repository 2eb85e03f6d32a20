"""Planning jobs: what all seeds of a variant share is computed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from fairtrial.api.running.planning import plan_jobs
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
    plan = plan_jobs(plan_study(study, load_recipe("distill")), store, {})
    specs = [job.spec for job in plan.jobs]
    assert len(specs) == 10 and asked == {"distill": 2, "classify": 1}
    assert len({spec.fingerprint for spec in specs}) == 10
    assert [{need.spec.name for need in plan.needs_of(job)} for job in plan.jobs] == [set(plan.dependencies)] * 10
    assert len(plan.dependencies) == 1
    assert all(spec.data == specs[0].data and spec.data for spec in specs)
