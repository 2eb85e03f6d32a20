"""Every documented command line, option, field, file and exit code, one by one."""

from __future__ import annotations

import re

import pytest

from tests.documents.desk import Desk
from tests.documents.records import Item, line, option, printed
from tests.documents.reference import FOLDER, found_in, written_down
from tests.documents.table import ITEMS

FLAG = re.compile(r"--[a-z][a-z0-9_.-]*[a-z0-9]")


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name[:90])
def test_a_documented_item_holds(item: Item, desk: Desk) -> None:
    item.check(desk)


def test_every_command_line_of_the_documents_is_tried() -> None:
    tried: dict[str, list[str]] = {}
    for item in ITEMS:
        if item.is_command_line:
            tried.setdefault(item.document, []).append(item.theirs)
    for document, lines in written_down().items():
        assert set(tried[document]) == set(lines), document


def test_the_list_of_command_lines_is_complete() -> None:
    if not FOLDER.is_dir():
        pytest.skip("the reference documents are not beside this checkout")
    assert found_in(FOLDER) == written_down()


def test_every_flag_of_the_documents_and_the_specification_has_an_item() -> None:
    if not FOLDER.is_dir():
        pytest.skip("the reference documents are not beside this checkout")
    texts = [*FOLDER.glob("[0-9]*.txt"), FOLDER.parent / "spec" / "commands.md"]
    promised = {flag for path in texts for flag in FLAG.findall(path.read_text())} - {"--option-name"}
    covered = {flag for item in ITEMS for flag in FLAG.findall(f"{item.theirs} {item.ours}")}
    assert promised <= covered


def test_no_two_items_are_the_same_and_each_has_a_counterpart() -> None:
    assert len({item.name for item in ITEMS}) == len(ITEMS)
    assert all(item.ours and item.theirs for item in ITEMS)


def test_an_option_that_changes_nothing_fails(desk: Desk) -> None:
    """So does a documented default that is another one, and a line that ends with another exit code."""
    same = option("000", "s", "--quiet", "power --sesoi 0.01 --sd 0.02", "--quiet", printed, at="empty")
    other = option("000", "s", "--alpha", "power --sesoi 0.01 --sd 0.02 --format json", "--alpha 0.01", "seeds", at="empty",
                   default="0.1")  # fmt: skip
    for wrong in (same, other, line("000", "s", "x", "power --sesoi 0.01", at="empty")):
        with pytest.raises(AssertionError):
            wrong.check(desk)
