"""What GitHub runs is what a person runs: targets of the Makefile, without secrets, on pinned actions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from benchmarks.registry import BENCHMARKS

from fairtrial.version import __version__

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


JOBS = ["tests", "site", "coverage", "benchmarks"]


def test_there_is_a_job_for_each_kind_of_check() -> None:
    assert set(WORKFLOW["jobs"]) == set(JOBS)
    assert set(WORKFLOW[True]) == {"push", "pull_request"}  # YAML takes the word `on` for a yes


@pytest.mark.parametrize("job", JOBS)
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
    assert versions == {"3.11", "${{ matrix.python }}"}
    assert WORKFLOW["jobs"]["tests"]["strategy"]["matrix"] == {"python": ["3.11", "3.12", "3.13"]}


def test_a_release_is_built_and_tested_before_it_is_published_and_has_no_password() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text()
    release = yaml.safe_load(text)
    assert release[True] == {"push": {"tags": ["v*"]}} and release["permissions"] == {"contents": "read"}
    assert "secrets" not in text and "password:" not in text
    publish = release["jobs"]["publish"]
    assert publish["needs"] == ["build", "tests"] and publish["permissions"] == {"id-token": "write"}
    assert not any("run" in step for step in publish["steps"])
    for job in publish["needs"]:
        [command] = [step["run"] for step in release["jobs"][job]["steps"] if "run" in step]
        assert recipe_of(command.removeprefix("make "))


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")))
def test_an_issue_form_has_what_github_requires(name: str) -> None:
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE" / name).read_text())
    if name == "config.yml":
        return
    assert form["name"] and form["description"]
    assert all(part["type"] in ("markdown", "textarea") and part["attributes"] for part in form["body"])
    assert all("id" in part for part in form["body"] if part["type"] != "markdown")


def test_the_citation_names_the_version_of_the_source() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__
