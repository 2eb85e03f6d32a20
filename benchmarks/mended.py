"""What a step mended: one file per area in its folder, with a test for every defect and a mutation for every check.

A `[[defect]]` names the tests that fail on the source before the mend. A `[[mutation]]` takes one check, limit or fsync
out of the source and names the test that must then fail.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import ROOT

_NUMBERED = re.compile(r"([A-D])([0-9]+)")


@dataclass(frozen=True)
class Step:
    """A step that mended listed defects. `before` is the last commit before it: every test of a defect fails there."""

    number: int
    before: str
    ids: tuple[str, ...]
    stable_names: bool = False
    """The tests use only names that were there before, so one that cannot even be imported there shows nothing."""

    tests_of: str = "9d70c10"
    """The last commit whose tests use the module names that the source before the step had: they are run on it."""

    def folder(self, tree: Path) -> Path:
        return tree / "benchmarks" / f"step{self.number}"


def _ids(letter: str, first: int, last: int) -> list[str]:
    return [f"{letter}{number}" for number in range(first, last + 1)]


STEP_10 = Step(10, "478cb1d", (*_ids("A", 1, 18), *_ids("B", 19, 23), *_ids("C", 24, 32)))
STEP_11 = Step(11, "12e88d3", (*_ids("D", 1, 12), "wording", "cautions"), stable_names=True)


@dataclass(frozen=True)
class Defect:
    """A defect as numbered in the list of what was found, and what shows it."""

    id: str
    tests: tuple[str, ...]
    mend: str
    in_suite: bool = False
    """The tests themselves were the defect."""


@dataclass(frozen=True)
class Mutation:
    """One check that is taken out of the source."""

    name: str
    file: str
    find: str
    replace: str
    test: str


def defects(step: Step, tree: Path = ROOT) -> list[Defect]:
    """All that a tree lists, in the order of their numbers; what has none, because nobody listed it, comes last."""
    by_id: dict[str, Defect] = {}
    for row in (row for content in _areas(step, tree) for row in content.get("defect", ())):
        tests = (row["test"],) if isinstance(row["test"], str) else tuple(row["test"])
        known = by_id.get(row["id"])  # two areas may each mend a part of it
        by_id[row["id"]] = (
            Defect(row["id"], (*known.tests, *tests), f"{known.mend} {row['mend']}")
            if known else Defect(row["id"], tests, row["mend"], row.get("in_suite", False))
        )  # fmt: skip
    return sorted(by_id.values(), key=_order)


def _order(defect: Defect) -> tuple[bool, str, int]:
    number = _NUMBERED.fullmatch(defect.id)
    return (False, number[1], int(number[2])) if number else (True, defect.id, 0)


def mutations(step: Step) -> list[Mutation]:
    return [Mutation(**row) for content in _areas(step, ROOT) for row in content.get("mutation", ())]


def _areas(step: Step, tree: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(step.folder(tree).glob("*.toml")):
        yield tomllib.loads(path.read_text())
