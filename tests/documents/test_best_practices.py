"""The page on best practices: every command on it is run, in order, in one repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents.desk import Desk
from tests.documents.pipeline import SMALL

PAGE = Path(__file__).parent.parent.parent / "docs" / "best-practices.md"
SHORT = {
    "launch ppo": SMALL, "sweep ppo": SMALL.replace("--seeds 2", "--runs 2") + " --confirm 2", "launch memory.yaml": "--dry-run",
}  # fmt: skip
"""What the test appends to lines that begin so: later flags win."""


def commands() -> Iterator[str]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for row in "".join(blocks).replace("\\\n", " ").splitlines():
        yield row.removeprefix("fairtrial ")


def test_every_command_of_the_page_runs_in_order(desk: Desk) -> None:
    ran = 0
    for typed in commands():
        add = next((each for start, each in SHORT.items() if typed.startswith(start)), "")
        answer = desk.run("practices", desk.sized(typed, add))
        assert answer.code == 0, f"{typed}: exit code {answer.code}\n{answer.shortened}"
        ran += 1
    assert ran >= 14
    for name in ("variance.png", "results.csv", "charts", "artifact.yaml"):
        assert (desk.folder("practices") / name).exists(), name


def test_the_page_promises_no_percentage_for_pairing() -> None:
    told = PAGE.read_text().split("## What we do not repeat")[0]
    assert not re.search(r"(?i)pair[^.|]*\d+ ?(–\d+ )?%", told)


@pytest.mark.parametrize("name", ["docs/index.md", "README.md"])
def test_the_page_is_linked(name: str) -> None:
    assert "best-practices.md" in (PAGE.parent.parent / name).read_text()
