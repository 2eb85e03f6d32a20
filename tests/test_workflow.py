"""What GitHub runs is what a person runs: targets of the Makefile, without secrets, on pinned actions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from benchmarks.registry import BENCHMARKS

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / ".github/workflows/ci.yml").read_text()
WORKFLOW: dict[Any, Any] = yaml.safe_load(TEXT)
MAKEFILE = (ROOT / "Makefile").read_text()


def commands(job: str) -> list[str]:
    return [step["run"] for step in WORKFLOW["jobs"][job]["steps"] if "run" in step]


def recipe_of(target: str) -> list[str]:
    found = re.search(rf"^{re.escape(target)}:[^\n]*\n((?:\t[^\n]*\n)+)", MAKEFILE, re.MULTILINE)
    assert found, f"the Makefile has no target '{target}'"
    return [line.strip() for line in found[1].splitlines()]


def test_there_is_a_job_for_tests_and_one_for_benchmarks() -> None:
    assert set(WORKFLOW["jobs"]) == {"tests", "benchmarks"}
    assert set(WORKFLOW[True]) == {"push", "pull_request"}  # YAML takes the word `on` for a yes


@pytest.mark.parametrize("job", ["tests", "benchmarks"])
def test_a_job_runs_targets_of_the_makefile_and_nothing_else(job: str) -> None:
    assert commands(job)
    for command in commands(job):
        program, target = command.split()
        assert program == "make" and recipe_of(target)
        phony = next(line for line in MAKEFILE.splitlines() if line.startswith(".PHONY:"))
        assert target in phony.split()


def test_the_tests_are_those_that_check_a_submission() -> None:
    lines = (ROOT / ".ci/run").read_text().splitlines()
    assert commands("tests") == [line for line in lines if line.startswith("make ")]


def test_the_benchmarks_that_are_tried_exist_and_are_not_slow() -> None:
    [line] = [line for line in recipe_of("benchmarks-smoke") if "-m benchmarks" in line]
    names = line.split("-m benchmarks")[1].split()
    assert names and all(name in BENCHMARKS and not BENCHMARKS[name].slow for name in names)


def test_nothing_is_secret_or_writable_and_versions_are_pinned() -> None:
    assert "secrets" not in TEXT and WORKFLOW["permissions"] == {"contents": "read"}
    steps = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]
    assert not any("permissions" in job for job in WORKFLOW["jobs"].values())
    used = [step["uses"] for step in steps if "uses" in step]
    assert used and all(re.fullmatch(r"actions/[a-z-]+@v\d+", name) for name in used)
    versions = {
        step["with"]["python-version"] for step in steps if step.get("uses", "").startswith("actions/setup-python")
    }
    assert versions == {"3.11"}
