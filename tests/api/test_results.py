"""Results print what their command prints, display in notebooks, and convert to data frames and charts."""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pandas as pd
import pytest

import fairtrial
from fairtrial.cli._results import VIEWS
from fairtrial.core.errors import MissingExtra, UserError
from fairtrial.core.results import Result
from fairtrial.record.store import Store
from tests.conftest import Answer

RESULTS = {
    name: value
    for name in fairtrial.__all__
    if isinstance(value := getattr(fairtrial, name), type) and issubclass(value, Result)
}


def demo(store: Store, *, name: str = "demo") -> Any:
    variants = {"base": {}, "new": {"effect": 0.1}}
    study = fairtrial.Study(study=name, recipe="fake", variants=variants, options={"steps": 20}, seeds=3)
    return fairtrial.launch(study, store=store.root)


def test_print_shows_what_the_command_prints(cli: Callable[..., Answer], store: Store) -> None:
    launched = demo(store)
    analysis = fairtrial.analyze("demo", store=store.root)
    lines = [line.rstrip() for line in cli("analyze", "demo").out.strip().splitlines()]
    assert str(analysis).splitlines() == lines
    runs = fairtrial.list_runs(store=store.root)
    assert str(runs).splitlines() == [line.rstrip() for line in cli("runs", "list").out.strip("\n").splitlines()]
    plan = fairtrial.power(sesoi=0.1, sd=0.1)
    told = cli("power", "--sesoi", "0.1", "--sd", "0.1").out.strip().splitlines()
    assert str(plan).splitlines() == [line.rstrip() for line in told]
    assert "demo: report_accuracy (synthetic)" in str(launched)


def test_the_rows_are_those_of_the_csv(cli: Callable[..., Answer], store: Store) -> None:
    demo(store)
    frame = fairtrial.analyze("demo", store=store.root).to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == cli("analyze", "demo", "--format", "csv").out.splitlines()[0].split(",")
    assert frame["verdict"].tolist() == ["better"] and len(fairtrial.list_runs(store=store.root).to_pandas()) == 6


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_has_one_informative_line_and_a_dictionary(name: str) -> None:
    assert any(each.__name__ in VIEWS for each in RESULTS[name].__mro__), f"{name} has no view"
    assert callable(RESULTS[name].to_dict)  # type: ignore[attr-defined]
    assert RESULTS[name].__repr__ is Result.__repr__
    if name not in ("Comparison", "Estimate"):  # they are one sentence, which is part of other texts
        assert RESULTS[name].__str__ is Result.__str__


@pytest.mark.parametrize("name", VIEWS)
def test_every_view_names_functions_that_exist(name: str) -> None:
    for reference in filter(None, (VIEWS[name].show, VIEWS[name].draw)):
        module, _, function = reference.partition(":")
        assert callable(getattr(importlib.import_module(module), function))


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.balance = 0
        self.attributes: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.opened.append(tag)
        self.balance += 1
        self.attributes += [name for name, _ in attrs]

    def handle_endtag(self, tag: str) -> None:
        self.balance -= 1


def test_a_fragment_is_escaped_and_has_no_script() -> None:
    evil = "<script>alert('x')</script>\x1b[2J"
    comparison = fairtrial.compare([0.8, 0.7, 0.9], [0.9, 0.85, 1.0], paired=True, names=("base", evil))
    fragment = comparison._repr_html_()
    tags = Tags()
    tags.feed(fragment)
    assert set(tags.opened) <= {"div", "p", "strong", "table", "thead", "tbody", "tr", "th", "td", "ul", "li",
                                "details", "summary", "pre"}  # fmt: skip
    assert tags.balance == 0 and not [name for name in tags.attributes if name.startswith("on")]
    assert "&lt;script&gt;" in fragment and "\x1b" not in fragment
    assert not re.search(r"#[0-9a-f]{3,6}\b|\bwhite\b|\bblack\b", fragment)
    assert "\x1b" not in repr(comparison) and "\n" not in repr(comparison)


def test_a_comparison_shows_its_cautions_in_a_notebook() -> None:
    comparison = fairtrial.compare([0.8, 0.7, 0.9], [0.9, 0.85, 1.0], paired=True)
    cautions = [{"code": "x", "text": "Look out.", "remedy": "Look again."}]
    assert "Look out. Look again." in dataclasses.replace(comparison, cautions=cautions)._repr_html_()


def test_a_missing_frame_library_is_named_with_its_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingExtra, match="polars is not installed") as refused:
        fairtrial.power(sesoi=0.1, sd=0.1).to_polars()
    assert "pip install polars" in str(refused.value)


def test_a_chart_is_a_picture_that_can_be_saved(tmp_path: Any) -> None:
    comparison = fairtrial.compare([0.8, 0.7, 0.9], [0.9, 0.85, 1.0], paired=True)
    picture = comparison.chart()
    assert picture._repr_svg_().startswith("<svg") and "<script" not in picture._repr_svg_()
    assert picture.save(tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(UserError, match="has no chart"):
        fairtrial.CostModel.t4().chart()


def test_results_do_not_print_nested_objects() -> None:
    model = fairtrial.CostModel.a100_80gb()
    assert repr(model) == "<CostModel: a100-80gb at $3.00 per hour, 80 GB>"
    assert str(model).startswith("a100-80gb: $3.00 per hour, 80 GB")
    assert model.to_pandas()["name"].tolist()[:1] == ["a100-80gb"]
