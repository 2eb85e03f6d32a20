"""The mutations of `make evidence` still apply: each quotes source text that must exist and names a test that must exist."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "benchmarks").glob("step*/*.toml"))


@cache
def source(file: str) -> str:
    return (ROOT / file).read_text()


def mutations(path: Path) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = tomllib.loads(path.read_text()).get("mutation", [])
    return listed


def test_there_are_mutations() -> None:
    assert sum(len(mutations(path)) for path in FILES) > 300


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_mutation_changes_the_source_and_names_its_test(path: Path) -> None:
    for mutation in mutations(path):
        assert mutation["find"] in source(mutation["file"]), f"{mutation['name']}: {mutation['file']} has changed"
        assert mutation["find"] != mutation["replace"], mutation["name"]
        file, _, name = mutation["test"].partition("::")
        assert f"def {name.partition('[')[0]}(" in source(file), (
            f"{mutation['name']}: there is no test {name} in {file}"
        )
