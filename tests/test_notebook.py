"""The notebook in examples/ runs in a real kernel and shows a verdict, a chart and a report."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parent.parent / "examples" / "from_frame.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    folder = tmp_path_factory.mktemp("notebook")
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def shown(notebook: Any, cell: str, kind: str) -> str:
    [found] = [each for each in notebook.cells if each.id == cell]
    texts = [output.data[kind] for output in found.outputs if kind in output.get("data", {})]
    assert len(texts) == 1
    return str(texts[0])


def test_it_has_at_most_six_lines() -> None:
    nbformat = pytest.importorskip("nbformat")
    cells = [cell.source for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.cell_type == "code"]
    assert sum(bool(line.strip()) for source in cells for line in source.splitlines()) <= 6


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::RuntimeWarning")
def test_it_shows_a_verdict_a_report_and_a_chart(executed: Any) -> None:
    assert shown(executed, "verdict", "text/plain").startswith("<Analysis: B is better than A: accuracy +")
    fragment = shown(executed, "verdict", "text/html")
    assert "B is better than A" in fragment and "Full report" in fragment and "<script" not in fragment
    assert not re.search(r"(?<!-)\bcolor: *#|background(?:-color)?: *#", fragment)
    HTMLParser().feed(fragment)
    assert shown(executed, "chart", "image/svg+xml").startswith("<svg")
