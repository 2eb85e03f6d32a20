"""Report code changes since the last benchmark, for `doctor --since` and `launch --since-benchmark`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairtrial.core.errors import UserError
from fairtrial.core.formatting import counted
from fairtrial.core.paths import check_name
from fairtrial.core.runs import Run, Status
from fairtrial.record.environment import CodeChanges, code_changes, find_commit, git_state, has_files
from fairtrial.record.store import open_store

SHORT = 12
MOST_FILES = 20
MOST_COMMITS = 5


@dataclass(frozen=True)
class CodeSince:
    """Code changes since an earlier benchmark. `unknown` lists commits that are not in this repository."""

    since: str
    study: str | None
    paths: Sequence[str]
    head: str
    dirty: bool
    changes: Sequence[CodeChanges]
    unknown: Sequence[str] = ()
    runs: int | None = None
    without_commit: int = 0
    dirty_then: int = 0

    @property
    def changed(self) -> bool | None:
        """Whether the code changed; None if commits are unknown or the benchmark ran with uncommitted changes."""
        if any(each.any for each in self.changes):
            return True
        return None if self.unknown or self.without_commit or self.dirty_then or not self.changes else False

    def to_dict(self) -> dict[str, Any]:
        return {
            "since": self.since, "study": self.study, "paths": list(self.paths), "commit": self.head,
            "dirty": self.dirty, "changed": self.changed,
            "commits": [
                {"commit": each.commit, "files": list(each.files), "untracked": list(each.untracked), "stat": each.stat}
                for each in self.changes
            ],
            "unknown_commits": list(self.unknown), "runs": self.runs, "runs_without_commit": self.without_commit,
            "runs_with_uncommitted_changes": self.dirty_then,
        }  # fmt: skip

    def lines(self) -> list[str]:
        """Return lines to print: what was compared, and what changed."""
        what = f"under {', '.join(self.paths)}" if self.paths else "in the repository"
        own = f"study {self.study}" if self.study else f"commit {self.since}"
        lines = [] if not self.study else self._about_study()
        for each in self.changes:
            if not each.any:
                lines.append(f"Code {what}: unchanged since {each.commit[:SHORT]}{self._named(own)}.")
                continue
            lines.append(f"Code {what}: changed since {each.commit[:SHORT]}{self._named(own)}:")
            lines += each.stat.splitlines()
            lines += [f" {name} (new, not tracked by git)" for name in each.untracked[:MOST_FILES]]
            left = len(each.untracked) - MOST_FILES
            lines += [f" … and {left} more new files"] if left > 0 else []
        lines += [
            f"Commit {commit[:SHORT]} is not in this repository, so git cannot compare with it."
            for commit in self.unknown
        ]
        return lines

    def _named(self, own: str) -> str:
        return f" ({own})" if self.study or self.since != self.changes[0].commit else ""

    def _about_study(self) -> list[str]:
        assert self.runs is not None
        about_study = []
        commits = len(self.changes) + len(self.unknown)
        if commits > 1:
            about_study.append(f"The runs of {self.study} come from {commits} commits; each of them is compared.")
        if self.without_commit:
            about_study.append(
                f"{counted(self.without_commit, 'run')} of {self.study} recorded no commit, so the code is unknown."
            )
        if self.dirty_then:
            about_study.append(
                f"{counted(self.dirty_then, 'run')} of {self.study} had uncommitted changes, so the commit alone "
                "does not identify the code."
            )
        return about_study


def code_since(
    reference: str,
    *,
    paths: Sequence[str] = (),
    store: str | os.PathLike[str] | None = None,
    study_only: bool = False,
    folder: Path | None = None,
) -> CodeSince:
    """Compare the working tree with the code of a study's runs or, unless `study_only`, of a commit, branch or tag.

    If `reference` names both a study in the store and a commit, the study takes precedence.
    """
    here = folder or Path.cwd()
    now = git_state(here)
    if now["git_commit"] is None:
        raise UserError(
            "this is not a git repository, so changes are unknown", hint="Run it in the trainer's directory."
        )
    runs = _runs_of(reference, store)
    if runs:
        known = _of_study(runs)
    else:
        commit = None if study_only else find_commit(here, reference)
        if commit is None:
            what = f"the store has no runs of study '{reference}'"
            what = what if study_only else f"'{reference}' is neither a study in the store nor a commit"
            raise UserError(what, hint="List the runs in the store: fairtrial runs list")
        known = {"commits": [commit]}
    here_as = {commit: find_commit(here, commit) for commit in known.pop("commits")}
    _refuse_empty_paths(here, [commit for commit in here_as.values() if commit], paths)
    changes = [each for commit in here_as.values() if commit and (each := code_changes(here, commit, paths))]
    return CodeSince(
        since=reference, study=reference if runs else None, paths=list(paths), head=now["git_commit"],
        dirty=now["git_dirty"], changes=changes, unknown=[name for name, commit in here_as.items() if commit is None],
        **known,
    )  # fmt: skip


def _runs_of(reference: str, given: str | os.PathLike[str] | None) -> list[Run]:
    """Return the undamaged runs of a study, oldest first; an empty list if the store has no such study."""
    try:
        study = check_name("study", reference)
    except UserError:  # not a study name: a branch such as feature/x, or HEAD~3
        return []
    store = open_store(given, study)
    if study not in store.studies():
        return []
    runs = (store.look_at(study, entry.name) for _, entry in store.directories(study))
    whole = [run for run in runs if run is not None and run.status is not Status.DAMAGED]
    return sorted(whole, key=lambda run: run.metadata.timings.created)


def _of_study(runs: Sequence[Run]) -> dict[str, Any]:
    environments = [run.metadata.environment for run in runs]
    commits = [environment.git_commit for environment in environments]
    return {
        "commits": list(dict.fromkeys(commit for commit in commits if commit))[-MOST_COMMITS:],
        "runs": len(runs),
        "without_commit": sum(commit is None for commit in commits),
        "dirty_then": sum(bool(environment.git_dirty) for environment in environments),
    }


def _refuse_empty_paths(folder: Path, commits: Sequence[str], paths: Sequence[str]) -> None:
    empty = [path for path in paths if not any(has_files(folder, commit, path) for commit in commits or ["HEAD"])]
    if empty:
        first, *rest = [f"--paths: the repository has no file under '{path}'" for path in empty]
        raise UserError(first, problems=rest, hint="Give paths relative to the current directory.")
