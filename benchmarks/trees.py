"""Copies of this repository in which tests are run: the source of another commit, or the source with one change."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import ROOT

TEST_TIMEOUT_S = 300
_TEMPORARY = re.compile(re.escape(tempfile.gettempdir()) + r"/[^\s'\":,)]*")
"""What went wrong is published, and where the copy of the tree happened to lie says nothing."""


def copy_tree(target: Path) -> None:
    """Every file that git knows or would take, as it is in the working tree."""
    listed = _git("ls-files", "--cached", "--others", "--exclude-standard", "-z")
    for name in filter(None, listed.split("\0")):
        source, copy = ROOT / name, target / name
        if source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)


def check_out(commit: str, target: Path) -> None:
    """Every file of a commit."""
    target.mkdir(parents=True)
    _unpack(commit, target)


def take_source_of(commit: str, target: Path, *folders: str) -> None:
    """Replace `src`, or other folders, of a copy by those of a commit."""
    names = folders or ("src",)
    for name in names:
        shutil.rmtree(target / name)
    _unpack(commit, target, *names)


def _unpack(commit: str, target: Path, *names: str) -> None:
    packed = subprocess.run(["git", "archive", commit, *names], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(target)], input=packed, check=True)


def run_tests(tree: Path, tests: Sequence[str], *, nohup: bool = False) -> dict[str, str | None]:
    """Test → None where it passed, else the first line of what went wrong, for every test that was run.

    Tests are named without their parameters: one that fails for any of them has failed. `nohup`: below a process that
    ignores the end of its terminal.
    """
    report = tree / "report.xml"
    report.unlink(missing_ok=True)
    words = [
        *(["nohup"] if nohup else []), sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
        "--continue-on-collection-errors", f"--junitxml={report}", *tests,
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            words, cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return dict.fromkeys(tests, f"no answer within {TEST_TIMEOUT_S} s")
    if not report.exists():
        return dict.fromkeys(tests, (done.stdout or done.stderr).strip().splitlines()[-1])
    return _outcomes(report, tests)


def _outcomes(report: Path, tests: Sequence[str]) -> dict[str, str | None]:
    outcomes: dict[str, str | None] = {}
    broken: list[str] = []
    for case in ET.parse(report).iter("testcase"):
        problem = next((child for child in case if child.tag in ("failure", "error")), None)
        said = None
        if problem is not None:
            said = _TEMPORARY.sub("a temporary path", (problem.get("message") or "failed").splitlines()[0])
        file = case.get("classname", "").replace(".", "/") + ".py"
        name = f"{file}::{case.get('name', '').partition('[')[0]}"
        if name in tests:
            outcomes[name] = outcomes.get(name) or said
        elif said is not None:
            broken.append(f"{case.get('name')}: {said}")
    return {test: outcomes[test] if test in outcomes else "; ".join(broken) or "not run" for test in tests}


def commit_of(test: str) -> str:
    """The commit that brought a test; empty while it is not committed."""
    file, _, name = test.partition("::")
    return _git("log", "--format=%h", "--reverse", f"-Sdef {name}(", "--", file).partition("\n")[0]


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout
