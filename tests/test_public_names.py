"""Names that people's programs use keep working: `public_names.json` lists them as they were when they were released."""

from __future__ import annotations

import importlib
import inspect
import json
import warnings
from pathlib import Path
from typing import Any, cast

import pytest

import fairtrial

PUBLIC: dict[str, dict[str, dict[str, Any]]] = json.loads(Path(__file__).with_name("public_names.json").read_text())
EVERY_NAME = [(module, name) for module, names in PUBLIC.items() for name in names]


def resolve(module: str, name: str) -> Any:
    """The value of a name, which may say that it is deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize(("module", "name"), EVERY_NAME, ids=[f"{module}.{name}" for module, name in EVERY_NAME])
def test_a_public_name_works_as_it_did(module: str, name: str) -> None:
    value, known = resolve(module, name), PUBLIC[module][name]
    assert inspect.isclass(value) == (known["kind"] == "class")
    assert callable(value) == (known["kind"] != "value")
    if parameters := known.get("parameters"):
        now = inspect.signature(value).parameters
        takes_any = any(each.kind is each.VAR_KEYWORD for each in now.values())
        assert takes_any or not set(parameters) - set(now), f"{name}() no longer takes all of its parameters"
    attributes = {*dir(value), *getattr(value, "__annotations__", ()), *getattr(value, "model_fields", ())}
    missing = set(known.get("attributes", ())) - attributes
    assert not missing, f"{name} has lost {', '.join(sorted(missing))}"


def test_a_run_of_a_script_has_what_scripts_use() -> None:
    with fairtrial.run(seed=3, config={"lr": 0.1}, best_metric="eval_loss") as run:
        assert run.seed == 3 and run.resume() is None
        run.log(1, train_loss=0.5)
        run.evaluated(1, {"eval_loss": 0.4})
        run.save(1, {"weights": [1.0]})


def test_every_name_that_is_public_today_is_listed() -> None:
    for module in ("fairtrial", "fairtrial.plugins", "fairtrial.testing"):
        unlisted = set(importlib.import_module(module).__all__) - set(PUBLIC[module])
        assert not unlisted, f"{module}: run tools/list_public_names.py"


RENAMED = [
    *(("fairtrial", old, "fairtrial", new) for old, new in fairtrial._RENAMED.items()),
    ("fairtrial.core.training", "Setting", "fairtrial.core.training", "RunContext"),
    ("fairtrial.core.training", "Journal", "fairtrial.core.training", "RunLogger"),
    ("fairtrial.core.training", "Watch", "fairtrial.core.training", "LoopEvents"),
    ("fairtrial.launch.contract", "Order", "fairtrial.launch.contract", "LaunchRequest"),
]


@pytest.mark.parametrize(("old_module", "old", "new_module", "new"), RENAMED, ids=[each[1] for each in RENAMED])
def test_an_old_name_stands_for_the_new_one_and_warns(old_module: str, old: str, new_module: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old} is now called .*{new}"):
        value = getattr(importlib.import_module(old_module), old)
    assert value is getattr(importlib.import_module(new_module), new)


def test_an_old_attribute_stands_for_the_new_one_and_warns() -> None:
    recommendation = cast("Any", object())
    advice = fairtrial.Advice(recommendation, cast("Any", None), 0.95)
    with pytest.warns(DeprecationWarning, match=r"Advice\.found is now called Advice\.recommendation"):
        assert advice.found is recommendation
