"""Two variants, or two revisions of the code, timed in turns on one machine: A B B A, B A A B, …"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fairtrial.analyse.speed import SpeedComparison, compare_rounds
from fairtrial.api.bench_runs import BATCHES, MARGIN, STOPPED, BenchTerms, HiddenRuns, hidden_runs
from fairtrial.api.cells import load_checked_recipe
from fairtrial.api.launch import option_words
from fairtrial.core.cautions import DIRTY_TREE
from fairtrial.core.errors import EXIT_CHECK, Interrupted, RunsFailed, UserError
from fairtrial.core.findings import FilledCaution
from fairtrial.core.paths import default_store
from fairtrial.core.registry import LoadedRecipe
from fairtrial.probe.turns import abba
from fairtrial.record.environment import git_output, git_state

ROUNDS = 8
REVISION_ROUNDS = 4
LEAST_STEPS = 2


@dataclass(frozen=True)
class SpeedPair:
    """The comparison, and the seconds per unit of work that it rests on, round by round."""

    recipe: str
    compared: SpeedComparison
    unit: str
    seconds: Mapping[str, Sequence[float]]
    cautions: Sequence[FilledCaution] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe, **self.compared.to_dict(), "unit": f"seconds per {self.unit}",
            "rounds": {name: list(times) for name, times in self.seconds.items()}, "cautions": list(self.cautions),
        }  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"round": number + 1, **{name: times[number] for name, times in self.seconds.items()}}
            for number in range(len(next(iter(self.seconds.values()))))
        ]


def bench_variants(
    recipe: str, variants: Mapping[str, Mapping[str, Any]], options: Mapping[str, Any] | None = None,
    terms: BenchTerms | None = None, *, rounds: int = ROUNDS, margin: float = MARGIN,
) -> SpeedPair:  # fmt: skip
    """Two sets of options, in turns in one process. Where batches differ in size, time per example is compared."""
    terms = terms or BenchTerms()
    _check(variants, rounds, margin)
    with hidden_runs(recipe, options, terms) as runs:
        steps = max(LEAST_STEPS, (terms.batches or BATCHES) // (2 * rounds))
        return _in_turns(runs, variants, steps, rounds, margin)


def _check(names: Mapping[str, Any] | Sequence[str], rounds: int, margin: float) -> None:
    if len(names) != 2:
        raise UserError(f"two are compared in turns, not {len(names)}")
    if rounds < 2:
        raise UserError(f"rounds must be at least 2, not {rounds}")
    if not 0 < margin < 1:
        raise UserError(f"margin must lie between 0 and 1, not {margin:g}")


def _in_turns(
    runs: HiddenRuns, variants: Mapping[str, Mapping[str, Any]], steps: int, rounds: int, margin: float
) -> SpeedPair:
    long_enough = {"steps": max(getattr(runs.resolved, "steps", 0), (2 * rounds + 1) * steps + 1)}
    opened = [runs.open({**long_enough, **changes}) for changes in variants.values()]
    for run in opened:
        runs.require(run.ended)
    blocks = [runs.block(run, steps) for run in opened]
    for block in blocks:  # the first steps of a run are slower
        block()
    examples = [run.resources.get("examples_per_step") for run in opened]
    per_example = None not in examples and examples[0] != examples[1]
    work = [2 * steps * (each or 1 if per_example else 1) for each in examples]
    taken = abba(blocks, rounds, lambda done: runs.terms.show("rounds", done, rounds))
    seconds = [np.array(times) / each for times, each in zip(taken, work, strict=True)]
    first, second = variants
    compared = compare_rounds(seconds[0], seconds[1], (first, second), margin, runs.terms.alpha)
    kept = {name: each.tolist() for name, each in zip(variants, seconds, strict=True)}
    return SpeedPair(runs.recipe.name, compared, "example" if per_example else "step", kept)


def bench_revisions(
    recipe: str, revisions: Sequence[str], options: Mapping[str, Any] | None = None, terms: BenchTerms | None = None,
    *, rounds: int = REVISION_ROUNDS, margin: float = MARGIN,
) -> SpeedPair:  # fmt: skip
    """The same measurement with the code of two revisions, each time in a process of its own."""
    terms = terms or BenchTerms()
    _check(revisions, rounds, margin)
    loaded = load_checked_recipe(recipe)
    top = _repository()
    with tempfile.TemporaryDirectory(prefix="fairtrial-ab-") as folder:
        trees = [_check_out(top, revision, Path(folder) / side) for side, revision in zip("ab", revisions, strict=True)]
        measured = [_Measured(loaded, options or {}, terms, top, tree) for tree in trees]
        for each, revision in zip(measured, revisions, strict=True):
            each.require_own_code(revision)
        taken = abba(
            [each.step_seconds for each in measured], rounds, lambda done: terms.show("rounds", done, rounds)
        )  # fmt: skip
    seconds = [np.array(times) / 2 for times in taken]
    names = (revisions[0], revisions[1] if revisions[1] != revisions[0] else f"{revisions[1]} again")
    compared = compare_rounds(seconds[0], seconds[1], names, margin, terms.alpha)
    dirty = [DIRTY_TREE.fill()] if git_state(top)["git_dirty"] else []
    kept = {name: each.tolist() for name, each in zip(names, seconds, strict=True)}
    return SpeedPair(loaded.name, compared, "step", kept, dirty)


def _repository() -> Path:
    top = git_output(Path.cwd(), "rev-parse", "--show-toplevel")
    if top is None:
        raise UserError("not in a git repository: there are no revisions to compare")
    return Path(top.strip())


def _check_out(top: Path, revision: str, folder: Path) -> Path:
    """The files of a revision, beside the working tree; nothing in the repository changes."""
    commit = git_output(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        raise UserError(f"'{revision}' is no revision of this repository", hint="See: git log --oneline")
    packed = subprocess.run(
        ["git", "-C", str(top), "archive", "--format=tar", commit.strip()],  # noqa: S607
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    folder.mkdir()
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        tar.extractall(folder, filter="data")
    return folder


@dataclass(frozen=True)
class _Measured:
    """The code of one revision, and how to time a step of it."""

    recipe: LoadedRecipe
    options: Mapping[str, Any]
    terms: BenchTerms
    top: Path
    tree: Path

    @property
    def file(self) -> Path | None:
        """Where this revision has the recipe, for one that is a file."""
        if self.recipe.file is None:
            return None
        path = Path(self.recipe.file).resolve()
        if not path.is_relative_to(self.top.resolve()):
            raise UserError(f"{path} lies outside of the repository, so revisions of it do not differ")
        return self.tree / path.relative_to(self.top.resolve())

    @property
    def environment(self) -> dict[str, str]:
        paths = [str(self.tree / "src"), str(self.tree), os.environ.get("PYTHONPATH", "")]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}

    def require_own_code(self, revision: str) -> None:
        """Refuse to time one and the same code under two names."""
        if self.file is not None:
            if not self.file.is_file():
                raise UserError(f"revision '{revision}' has no {self.file.relative_to(self.tree)}")
            return
        code = "import importlib.util, sys; print(importlib.util.find_spec(sys.argv[1]).origin)"
        told = self._run([sys.executable, "-c", code, f"fairtrial.recipes.{self.recipe.name}"]).stdout.strip()
        if not Path(told).is_relative_to(self.tree):
            raise UserError(
                f"recipe '{self.recipe.name}' is installed, not part of this repository: its code is the same in "
                "every revision",
                hint="Compare revisions of a recipe of your own: fairtrial bench ./my_recipe.py --ab A B",
            )

    def step_seconds(self) -> float:
        """Mean time of a steady step, in a process of its own."""
        done = self._run(self._command())
        if self.terms.should_stop():  # Ctrl-C reaches the process that measures as well
            raise Interrupted(STOPPED)
        if done.returncode not in (0, EXIT_CHECK):
            last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[0]
            raise RunsFailed(f"{self.recipe.name} could not be measured: {last.removeprefix('Error: ')}")
        value = json.loads(done.stdout)["step_time"]["mean"]["value"]
        if value is None:
            raise RunsFailed(
                f"{self.recipe.name} could not be measured: no steady step", hint="Give more --max-batches."
            )
        return float(value)

    def _command(self) -> list[str]:
        terms = self.terms
        words, _ = option_words(self.options, self.recipe)
        own = [
            "--max-batches",
            str(terms.batches or BATCHES),
            "--seed",
            str(terms.seed),
            "--no-trials",
            "--whole-steps",
        ]
        place = ["--store", str(Path(default_store(terms.store)).resolve())]
        recipe = str(self.file or self.recipe.name)
        return [sys.executable, "-m", "fairtrial", "bench", recipe, *words, *own, *place, "--format", "json", "--quiet"]

    def _run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.tree, env=self.environment, capture_output=True, text=True, check=False
        )  # fmt: skip
