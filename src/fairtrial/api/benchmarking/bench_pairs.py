"""Time two variants, or two revisions of the code, alternately on one machine: A B B A, B A A B, …"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fairtrial.api.benchmarking.bench_processes import step_seconds
from fairtrial.api.benchmarking.bench_runs import MARGIN, BenchTerms, HiddenRuns, hidden_runs
from fairtrial.api.running.planning import load_checked_recipe
from fairtrial.api.running.recording import recorded
from fairtrial.core.cautions import CHANGES_LEFT_OUT
from fairtrial.core.errors import UserError
from fairtrial.core.findings import FilledCaution
from fairtrial.core.registry import LoadedRecipe
from fairtrial.core.results import Result
from fairtrial.probe.interleaving import abba
from fairtrial.record.environment import git_output, git_state
from fairtrial.stats.speed import SpeedComparison, compare_rounds

ROUNDS = 8
REVISION_ROUNDS = 4
LEAST_STEPS = 2


@dataclass(frozen=True, repr=False)
class SpeedPair(Result):
    """The comparison, and the seconds per unit of work in each round that it is based on."""

    recipe: str
    compared: SpeedComparison
    unit: str
    seconds: Mapping[str, Sequence[float]]
    cautions: Sequence[FilledCaution] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe,
            **self.compared.to_dict(),
            "unit": f"seconds per {self.unit}",
            "rounds": {name: list(times) for name, times in self.seconds.items()},
            "cautions": list(self.cautions),
        }

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"round": number + 1, **{name: times[number] for name, times in self.seconds.items()}}
            for number in range(len(next(iter(self.seconds.values()))))
        ]


@recorded("bench")
def bench_variants(
    recipe: str,
    variants: Mapping[str, Mapping[str, Any]],
    options: Mapping[str, Any] | None = None,
    terms: BenchTerms | None = None,
    *,
    rounds: int = ROUNDS,
    margin: float = MARGIN,
) -> SpeedPair:
    """Time two sets of options alternately in one process. If batch sizes differ, compare time per example.

    >>> fairtrial.bench_variants("classify", {"as given": {}, "wide": {"width": 64}})  # doctest: +SKIP
    """
    terms = terms or BenchTerms()
    _check(variants, rounds, margin)
    with hidden_runs(recipe, options, terms) as runs:
        _refuse_evaluation(runs, variants)
        steps = max(LEAST_STEPS, terms.steps // (2 * rounds))
        first, second = variants
        rates = runs.interleave(list(variants.values()), steps, rounds, (first, second), margin)
        kept = {first: rates.first.tolist(), second: rates.second.tolist()}
        return SpeedPair(runs.recipe.name, rates.compared, "example" if rates.per_example else "step", kept)


def _check(names: Mapping[str, Any] | Sequence[str], rounds: int, margin: float) -> None:
    if len(names) != 2:
        raise UserError(f"exactly two can be compared, not {len(names)}")
    if rounds < 2:
        raise UserError(f"rounds must be at least 2, not {rounds}")
    if not 0 < margin < 1:
        raise UserError(f"margin must lie between 0 and 1, not {margin:g}")


def _refuse_evaluation(runs: HiddenRuns, variants: Mapping[str, Mapping[str, Any]]) -> None:
    if not runs.terms.validation and any("eval_every" in changes for changes in variants.values()):
        raise UserError("eval_every: bench does not evaluate by default", hint="Add --run-validation.")


@recorded("bench")
def bench_revisions(
    recipe: str,
    revisions: Sequence[str],
    options: Mapping[str, Any] | None = None,
    terms: BenchTerms | None = None,
    *,
    rounds: int = REVISION_ROUNDS,
    margin: float = MARGIN,
) -> SpeedPair:
    """Time the code of two revisions alternately, each time in a separate process.

    >>> fairtrial.bench_revisions("classify", ("main", "HEAD"))  # doctest: +SKIP
    """
    terms = terms or BenchTerms()
    terms.check()
    _check(revisions, rounds, margin)
    loaded = load_checked_recipe(recipe)
    top = _repository()
    with tempfile.TemporaryDirectory(prefix="fairtrial-ab-") as folder:
        trees = [_check_out(top, revision, Path(folder) / side) for side, revision in zip("ab", revisions, strict=True)]
        measured = [_Measured(loaded, options or {}, terms, top, tree) for tree in trees]
        for each, revision in zip(measured, revisions, strict=True):
            each.require_own_code(revision)
        taken = abba([each.step_seconds for each in measured], rounds, lambda done: terms.show("rounds", done, rounds))
    seconds = [np.array(times) / 2 for times in taken]
    names = (revisions[0], revisions[1] if revisions[1] != revisions[0] else f"{revisions[1]} again")
    compared = compare_rounds(seconds[0], seconds[1], names, margin, terms.alpha)
    dirty = [CHANGES_LEFT_OUT.fill()] if git_state(top)["git_dirty"] else []
    kept = {name: each.tolist() for name, each in zip(names, seconds, strict=True)}
    return SpeedPair(loaded.name, compared, "step", kept, dirty)


def _repository() -> Path:
    top = git_output(Path.cwd(), "rev-parse", "--show-toplevel")
    if top is None:
        raise UserError("not in a git repository: there are no revisions to compare")
    return Path(top.strip())


def _check_out(top: Path, revision: str, folder: Path) -> Path:
    """Extract the files of a revision into `folder`; the repository and its working tree do not change."""
    commit = git_output(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        raise UserError(f"'{revision}' is not a revision of this repository", hint="See: git log --oneline")
    packed = subprocess.run(
        ["git", "-C", str(top), "archive", "--format=tar", commit.strip()],  # noqa: S607
        capture_output=True,
        check=True,
    ).stdout
    folder.mkdir()
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        tar.extractall(folder, filter="data")
    return folder


@dataclass(frozen=True)
class _Measured:
    """The code of one revision, and the settings for timing a step of it."""

    recipe: LoadedRecipe
    options: Mapping[str, Any]
    terms: BenchTerms
    top: Path
    tree: Path

    @property
    def file(self) -> Path | None:
        """Path of the recipe in this revision; None for a recipe that is not a file."""
        if self.recipe.file is None:
            return None
        path = Path(self.recipe.file).resolve()
        if not path.is_relative_to(self.top.resolve()):
            raise UserError(f"{path} is outside the repository, so it is the same in every revision")
        return self.tree / path.relative_to(self.top.resolve())

    @property
    def environment(self) -> dict[str, str]:
        paths = [str(self.tree / "src"), str(self.tree), os.environ.get("PYTHONPATH", "")]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}

    def require_own_code(self, revision: str) -> None:
        """Raise UserError if the recipe's code is not part of the revision: both sides would time the same code."""
        if self.file is not None:
            if not self.file.is_file():
                raise UserError(f"revision '{revision}' has no {self.file.relative_to(self.tree)}")
            return
        code = "import importlib.util, sys; print(importlib.util.find_spec(sys.argv[1]).origin)"
        asked = [sys.executable, "-c", code, f"fairtrial.recipes.{self.recipe.name}"]
        completed = subprocess.run(
            asked, cwd=self.tree, env=self.environment, capture_output=True, text=True, check=False
        )
        if not Path(completed.stdout.strip()).is_relative_to(self.tree):
            raise UserError(
                f"recipe '{self.recipe.name}' is installed, not part of this repository: its code is the same in "
                "every revision",
                hint="Compare revisions of a recipe of your own: fairtrial bench ./my_recipe.py --ab A B",
            )

    def step_seconds(self) -> float:
        terms = replace(self.terms, whole_steps=True)
        return step_seconds(self.recipe, self.options, terms, file=self.file, cwd=self.tree, env=self.environment)
