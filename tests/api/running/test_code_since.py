"""doctor --since and launch --since-benchmark: has the trainer changed since the last benchmark?"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fairtrial.api.running.code_since import code_since
from fairtrial.core.errors import UserError
from fairtrial.jobs.run_session import run_cell
from fairtrial.record.environment import find_commit, git_state
from fairtrial.record.store import Store
from tests.conftest import Answer
from tests.harness import edit_metadata, request_for

Cli = Callable[..., Answer]


def git(folder: Path, *words: str) -> str:
    own = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", str(folder), *own, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, **files: str) -> str:
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True)
        path.with_suffix(".py").write_text(content)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "c")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / ".git" / "info" / "exclude").write_text("store\n")
    commit(tmp_path, src__train="a = 1\n", docs__page="b = 1\n")
    return tmp_path


@pytest.fixture
def benchmark(project: Path, store: Store) -> Path:
    """A study that was made at the first commit."""
    for seed in (1, 2):
        job = request_for(store, "fake", study="bench", seed=seed, steps=2)
        run_cell(replace(job, environment=git_state(project)))
    return project


def test_unchanged_code_is_called_that(benchmark: Path, cli: Cli) -> None:
    told = cli("doctor", "--since", "bench")
    assert told.code == 0 and told.out.startswith("Code in the repository: unchanged since ")
    assert told.out.rstrip().endswith("(study bench).")
    found = cli("doctor", "--since", "bench", "--format", "json").json
    assert found["changed"] is False and found["runs"] == 2 and found["study"] == "bench"
    assert [each["commit"] for each in found["commits"]] == [found["commit"]]


def test_changes_are_listed_committed_or_not(benchmark: Path, cli: Cli) -> None:
    commit(benchmark, src__train="a = 2\n")
    (benchmark / "src" / "new.py").write_text("c = 1\n")
    told = cli("doctor", "--since", "bench")
    assert "changed since" in told.out and " src/train.py | 2 +-" in told.out
    assert " src/new.py (new, not tracked by git)" in told.out
    found = code_since("bench")
    assert found.changed and found.changes[0].files == ["src/train.py"] and found.changes[0].untracked == ["src/new.py"]


def test_paths_narrow_it_and_a_misspelled_one_is_refused(benchmark: Path, cli: Cli) -> None:
    commit(benchmark, src__train="a = 2\n")
    assert "Code under docs/: unchanged" in cli("doctor", "--since", "bench", "--paths", "docs/").out
    several = cli("doctor", "--since", "bench", "--paths", "docs/", "src/")
    assert "Code under docs/, src/: changed" in several.out and several.code == 0
    told = cli("doctor", "--since", "bench", "--paths", "scr/", "--paths", "doc/")
    assert told.code == 1 and "no file under 'scr/'" in told.err and "no file under 'doc/'" in told.err
    git(benchmark, "rm", "-q", "docs/page.py")
    assert "Code under docs/: changed" in cli("doctor", "--since", "bench", "--paths", "docs/").out


def test_a_commit_a_branch_and_a_tag_will_do(benchmark: Path, cli: Cli) -> None:
    git(benchmark, "tag", "v1")
    commit(benchmark, src__train="a = 2\n")
    for name in ("v1", "main~1", git(benchmark, "rev-parse", "v1")[:10]):
        assert "changed since" in cli("doctor", "--since", name).out
    assert "unchanged since" in cli("doctor", "--since", "main").out


@pytest.mark.parametrize("name", ["--output=stolen", "-h", "nobody", "", "main:src", "a\0b", "HEAD --output=stolen"])
def test_no_name_is_taken_for_an_option_of_git(benchmark: Path, name: str) -> None:
    assert find_commit(benchmark, name) is None
    with pytest.raises(UserError, match="neither a study in the store nor a commit"):
        code_since(name)
    assert not list(benchmark.glob("stolen*"))


def test_several_unknown_and_dirty_commits_are_said(benchmark: Path, store: Store, cli: Cli) -> None:
    newer = commit(benchmark, src__train="a = 2\n")
    runs = sorted(run.path.name for run in store.match(["bench/*"]))
    for run, known in zip(runs, ({"git_commit": newer, "git_dirty": True}, {"git_commit": "f" * 40}), strict=True):
        edit_metadata(store.paths.run("bench", run), environment=known)
    told = cli("doctor", "--since", "bench").out
    assert "The runs of bench come from 2 commits; each of them is compared." in told
    assert "1 run of bench had uncommitted changes" in told
    assert "Commit ffffffffffff is not in this repository" in told
    assert code_since("bench").changed is None  # nobody can know
    edit_metadata(store.paths.run("bench", runs[1]), environment={"git_commit": None})
    assert "1 run of bench recorded no commit" in cli("doctor", "--since", "bench").out


def test_launch_shows_it_before_the_first_run(benchmark: Path, cli: Cli) -> None:
    commit(benchmark, src__train="a = 2\n")
    words = ("launch", "fake", "--seeds", "2", "--steps", "2", "--base-run-name", "next", "--since-benchmark", "bench")
    dry = cli(*words, "--dry-run", "--format", "json")
    assert dry.json["since_benchmark"]["changed"] is True and "src/train.py" in dry.err
    told = cli(*words, "--paths", "docs/", "--format", "json")
    assert told.json["since_benchmark"]["changed"] is False
    assert told.err.index("Code under docs/: unchanged since") < told.err.index("To do: 2 runs")
    assert cli("launch", "fake", "--dry-run", "--format", "json").json["since_benchmark"] is None


def test_what_cannot_be_meant_is_refused(benchmark: Path, cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert "the store has no runs of study 'main'" in cli("launch", "fake", "--since-benchmark", "main").err
    assert cli("doctor", "--paths", "src/").code == 2 and cli("launch", "fake", "--paths", "src/").code == 2
    assert cli("doctor", "src/").code == 2 and cli("doctor", "--since", "bench", "--aa").code == 2
    with pytest.raises(UserError, match="not a git repository"):
        code_since("bench", folder=tmp_path_factory.mktemp("elsewhere"))
