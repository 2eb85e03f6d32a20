"""The pages of Start here and How to: every command on them is run, and what it prints is compared with the page."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tools.shown_commands import ShownCommand, ShownFile, expanded, refreshed, shown, tidy

from fairtrial.record.store import Store
from tests.conftest import link_data
from tests.documents.desk import Desk

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGES = [DOCS / "start.md", *(page for page in sorted((DOCS / "howto").glob("*.md")) if page.name != "index.md")]


@pytest.fixture
def folder(tmp_path: Path, data_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, with the store that people have by default and the program `python` that runs this test."""
    monkeypatch.delenv("FAIRTRIAL_STORE")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    link_data(Store(tmp_path / "runs"), data_cache)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_page_shows_what_its_commands_print(page: Path, desk: Desk, folder: Path) -> None:
    commands = 0
    for each in shown(page.read_text()):
        if isinstance(each, ShownFile):
            (folder / each.name).write_text(each.text)
            continue
        answer = desk.call(expanded(each.test_words))
        assert answer.code in each.exit_codes, f"{each.typed}: exit code {answer.code}\n{answer.shortened}"
        printed = tidy(answer.out, folder)
        assert each.agrees(printed), f"{each.typed}\n{printed}\nThe page has:\n{each.printed}"
        commands += 1
    assert commands


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_output_on_a_page_was_run(page: Path) -> None:
    assert all(
        each.printed.strip()
        for each in shown(page.read_text())
        if isinstance(each, ShownCommand) and "--output" not in each.words
    )


def test_every_how_to_page_is_listed() -> None:
    listed = (DOCS / "howto" / "index.md").read_text()
    assert all(f"({page.name})" in listed for page in PAGES[1:])


def page_with(comment: str, printed: str) -> ShownCommand:
    [command] = shown(f"{comment}\n\n```console\n$ fairtrial runs list\n{printed}```\n")
    assert isinstance(command, ShownCommand)
    return command


def test_a_changed_word_or_number_is_noticed() -> None:
    assert page_with("", "3 runs\n").agrees("3 runs\n") and not page_with("", "3 runs\n").agrees("4 runs\n")
    some = page_with("<!-- numbers vary -->", "mean  0.93 [+0.1, 1e-04]\n")
    assert some.agrees("mean 0.5 [−0.02, 0.3]\n") and not some.agrees("median 0.93 [+0.1, 1e-04]\n")


def test_a_page_is_refreshed_in_place(tmp_path: Path) -> None:
    text = 'A\n\n```text title="a.txt"\nhi\n```\n\n```console\n$ fairtrial x \\\n    y\nold\n```\n\nB\n'
    new = refreshed(text, tmp_path, lambda words: (0, f"{' '.join(words)} in {tmp_path} \n", ""))
    assert new == text.replace("old", "x y in /home/you/work") and (tmp_path / "a.txt").read_text() == "hi\n"
    assert refreshed(new, tmp_path, lambda words: (0, f"{' '.join(words)} in {tmp_path} \n", "")) == new
