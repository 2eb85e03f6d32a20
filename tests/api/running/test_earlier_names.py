"""Names of variants became shorter; a study that an earlier version began still finds its runs."""

from __future__ import annotations

import pytest

from fairtrial import LabConfig, train
from fairtrial.api.lab.ablation import plan_ablation
from fairtrial.core.registry import load_recipe
from fairtrial.plan.cells import earlier_label, resolve
from fairtrial.record.store import Store

OPTIONS = {"steps": 3, "benchmark": {"random_score": 0.1, "human_score": 0.9}}


def test_a_run_with_the_earlier_name_is_found(store: Store) -> None:
    recipe = load_recipe("fake")
    earlier = earlier_label(recipe, resolve(recipe, OPTIONS, where="test"))
    assert "benchmark=random_score" in earlier
    train("fake", OPTIONS, variant=earlier)
    again = train("fake", OPTIONS)
    assert again.already_done and again.run.variant == earlier


def test_a_new_run_has_the_short_name(store: Store) -> None:
    assert train("fake", OPTIONS).run.name == "adhoc/steps=3,random_score=0.1,human_score=0.9.seed1072"


@pytest.mark.parametrize(("begun", "name"), [(False, "without-temperature"), (True, "without temperature")])
def test_an_ablation_that_was_begun_keeps_its_names(store: Store, begun: bool, name: str) -> None:
    if begun:
        store.paths.run("s", "without temperature.seed1072").root.mkdir(parents=True)
    study = plan_ablation(["temperature"], terms=LabConfig(study="s", store=store.root))
    assert list(study.variants) == ["full", name]
