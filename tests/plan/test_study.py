"""Study files: YAML without surprises, seeds, variants, and cells in pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairtrial.core.registry import load_recipe
from fairtrial.plan.cells import label, plan_study, resolve
from fairtrial.plan.study import Study, read_mapping, read_study


def study(**values: Any) -> Study:
    return Study.model_validate({"study": "s", "recipe": "fake", **values})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5:01", "5:01"), ("no", "no"), ("off", "off"), ("1e-3", 0.001), ("007", 7), ("1_000", "1_000"), ("0x10", "0x10"),
        ("true", True), ("1.5", 1.5), (".5", 0.5), ("12", 12), ("null", None), ("~", None), ("'12'", "12"), ("1.", 1.0),
        ("-.inf", float("-inf")), ("2026-01-02x", "2026-01-02x"), ("+3", 3),
    ],
)  # fmt: skip
def test_yaml_values_mean_what_they_look_like(tmp_path: Path, text: str, value: Any) -> None:
    (tmp_path / "x.yaml").write_text(f"key: {text}\n")
    found = read_mapping(tmp_path / "x.yaml")["key"]
    assert found == value and type(found) is type(value)


def test_variants_may_be_called_on_and_off(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("study: s\nrecipe: fake\nvariants:\n  off:\n  on: {effect: 1e-1}\nseeds: 2\n")
    cells = plan_study(read_study(tmp_path / "x.yaml"), load_recipe("fake"))
    assert [(cell.variant, cell.seed) for cell in cells] == [("off", 1072), ("on", 1072), ("off", 2043), ("on", 2043)]
    assert [cell.options["effect"] for cell in cells[:2]] == [0.0, 0.1]


def test_a_variant_wins_over_the_shared_options() -> None:
    cells = plan_study(
        study(options={"effect": 1}, variants={"a": {}, "b": {"effect": 2}}, seeds=[5]), load_recipe("fake")
    )
    assert [cell.options["effect"] for cell in cells] == [1.0, 2.0]


def test_equal_options_give_equal_fingerprints_however_they_are_written() -> None:
    recipe = load_recipe("fake")
    one, two = (plan_study(study(options=o, seeds=[1]), recipe)[0] for o in ({"effect": 1}, {"effect": "1.0"}))
    assert one.fingerprint == two.fingerprint


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, "default"),
        ({"steps": 5, "effect": 0.5}, "steps=5,effect=0.5"),
        ({"checkpoint_every": 7}, "default"),
        ({"label": "a"}, "label=a"),
        (
            {"steps": 3, "benchmark": {"random_score": 0.1, "human_score": 0.9}},
            "steps=3,random_score=0.1,human_score=0.9",
        ),
        ({"stream_seed": {"init": 7}}, "init=7"),
    ],
)
def test_a_variant_is_named_by_what_was_chosen(values: dict[str, Any], expected: str) -> None:
    recipe = load_recipe("fake")
    assert label(recipe, resolve(recipe, values, where="test")) == expected


def test_a_name_that_could_not_be_a_folder_is_shortened_and_stays_unique() -> None:
    recipe = load_recipe("fake")
    names = {
        label(recipe, resolve(recipe, {"label": text}, where="test")) for text in ("a/b", "a:b", "x" * 300, "x" * 301)
    }
    assert len(names) == 4
    assert all("/" not in name and len(name) <= 80 for name in names)
