"""The house has rooms, and rooms do not import each other."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def lint_imports(source: Path) -> subprocess.CompletedProcess[str]:
    """import-linter over a source tree, with the contracts of pyproject.toml."""
    code = "from importlinter.cli import lint_imports_command as lint; lint(['--no-cache'])"
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=source.parent,
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "src"


def test_rooms_keep_to_themselves() -> None:
    found = lint_imports(ROOT / "src")
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("record/store.py", "from fairtrial.launch.local import LocalLauncher"),
        ("core/paths.py", "import fairtrial.record.store"),
        ("recipes/fake.py", "def f():\n    from fairtrial.train.loop import train"),
        ("train/loop.py", "from fairtrial.job import run_cell"),
        ("job.py", "import rich"),
    ],
)
def test_an_import_across_rooms_is_noticed(copy: Path, file: str, line: str) -> None:
    path = copy / "fairtrial" / file
    path.write_text(path.read_text() + "\n" + line + "\n")
    found = lint_imports(copy)
    assert found.returncode != 0
    assert "BROKEN" in found.stdout


def test_no_module_has_a_name_that_says_nothing() -> None:
    names = {path.stem for path in (ROOT / "src").rglob("*.py")}
    assert not names & {"utils", "util", "helpers", "misc", "common"}


def test_no_constant_of_a_module_is_set_twice() -> None:
    """The second would silently take the place of the first, wherever that one is used."""
    for path in (ROOT / "src").rglob("*.py"):
        assigned = [
            target.id
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name) and target.id.isupper()
        ]
        twice = {name for name in assigned if assigned.count(name) > 1}
        assert not twice, f"{path.relative_to(ROOT)}: {', '.join(sorted(twice))}"
