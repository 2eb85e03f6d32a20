"""Two revisions of a recipe, checked out beside each other and timed in processes of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Answer
from tests.own_recipe import PLAIN

Cli = Callable[..., Answer]

SLEEPER = """
import time

class Own(Plain):
    def step(self, step, watch):
        with watch.phase("forward"):
            time.sleep(SECONDS)
        return {"loss": 1.0}
"""


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits: the second one is four times as slow."""
    folder = tmp_path / "project with spaces"
    folder.mkdir()
    git(folder, "init", "-q")
    for tag, seconds in (("quick", "0.002"), ("slow", "0.008")):
        (folder / "sleeper.py").write_text(PLAIN + SLEEPER.replace("SECONDS", seconds))
        git(folder, "add", ".")
        git(folder, "commit", "-qm", tag)
        git(folder, "tag", tag)
    return folder


@pytest.mark.slow
def test_a_slower_revision_is_found(cli: Cli, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)
    before = sorted(path.name for path in (repository / ".git").iterdir())
    answer = cli("bench", "./sleeper.py", "--ab", "quick", "slow", "--rounds", "3", "--max-batches", "30",
                 "--format", "json")  # fmt: skip
    assert answer.code == 3, answer.err
    found = answer.json
    assert found["verdict"] == "slower" and 2 < found["ratio"]["value"] < 6 and len(found["rounds"]["quick"]) == 3
    assert sorted(path.name for path in (repository / ".git").iterdir()) == before, "the repository is as it was"


def test_what_cannot_be_compared_is_told(
    cli: Cli, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "not in a git repository" in cli("bench", "fake", "--ab", "a", "b").err
    monkeypatch.chdir(repository)
    assert "'nonsense' is not a revision" in cli("bench", "./sleeper.py", "--ab", "quick", "nonsense").err
    assert "is installed, not part of this repository" in cli("bench", "fake", "--ab", "quick", "slow").err
    (tmp_path / "outside.py").write_text(PLAIN + SLEEPER)
    assert "is outside the repository" in cli("bench", "../outside.py", "--ab", "quick", "slow").err
    (repository / "new.py").write_text(PLAIN + SLEEPER)
    assert "revision 'quick' has no new.py" in cli("bench", "./new.py", "--ab", "quick", "slow").err
