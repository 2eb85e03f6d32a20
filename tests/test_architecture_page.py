"""docs/architecture.md draws the way of a run with names that exist, and a run has four carriers and no other."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
NAMES = sorted(set(re.findall(r"\b(?:cli|api|plan|launch|train|jobs|core)(?:\.\w+)+", PAGE)))
CARRIERS = {"RunSpec", "Job", "ScheduledRun", "RunSession"}


def resolve(name: str) -> Any:
    """What a dotted name below `fairtrial` stands for: the longest part that is a module, then attributes."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        path = ROOT / "src" / "fairtrial" / Path(*parts[:length])
        if path.with_suffix(".py").exists() or path.is_dir():
            value: Any = importlib.import_module(".".join(["fairtrial", *parts[:length]]))
            for attribute in parts[length:]:
                value = getattr(value, attribute)
            return value
    raise AttributeError(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_on_the_page_exists(name: str) -> None:
    assert resolve(name) is not None


def test_the_drawing_goes_from_the_command_to_the_first_step() -> None:
    drawing = PAGE.split("```text\n")[1].split("```")[0]
    first, *_, last = re.findall(r"\b(?:cli|api|plan|launch|train|jobs|core)(?:\.\w+)+", drawing)
    assert (first, last) == ("cli.launch.command", "core.training.Trainable.step")
    assert set(re.findall(r"\b(RunSpec|Job|ScheduledRun|RunSession)\b", drawing)) == CARRIERS


def test_the_page_names_the_four_carriers() -> None:
    assert [resolve(name).__name__ for name in re.findall(r"^\| `([\w.]+)`", PAGE, flags=re.MULTILINE)] == [
        "RunSpec", "Job", "ScheduledRun", "RunSession",
    ]  # fmt: skip


def holders() -> dict[str, set[str]]:
    """Classes that hold one run: those with a field that is a carrier, or that are made of one."""
    holders: dict[str, set[str]] = {}
    for path in (ROOT / "src" / "fairtrial").rglob("*.py"):
        for each in ast.walk(ast.parse(path.read_text())):
            if isinstance(each, ast.ClassDef):
                made_of = [line.annotation for line in each.body if isinstance(line, ast.AnnAssign)]
                for method in each.body:
                    if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                        arguments = [*method.args.args, *method.args.kwonlyargs]
                        made_of += [argument.annotation for argument in arguments if argument.annotation]
                for annotation in made_of:
                    if isinstance(annotation, ast.Name) and annotation.id in CARRIERS:
                        holders.setdefault(annotation.id, set()).add(each.name)
    return holders


@pytest.mark.slow
def test_no_other_class_carries_a_run() -> None:
    """A carrier is held by the next one. Besides them: a row of a dry run, and a bar of the progress display."""
    assert holders() == {
        "RunSpec": {"Job", "PlannedRun", "TrainProgress"},
        "Job": {"ScheduledRun", "RunSession", "SteppableRun"},
    }
