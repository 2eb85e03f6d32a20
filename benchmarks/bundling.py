"""A bundle of 1,000 runs: made and verified as a person types it, judged by rocrate and its validator, and verified
again in a fresh environment that has nothing but the built wheel and its plain dependencies.

The runs are real directories, made by the code of a job with the `fake` recipe.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.crate.client import judged
from benchmarks.figures import Figure, estimated, exactly, less_than
from benchmarks.measure import ROOT, Estimate, Spent, Unavailable, in_a_process, median_interval
from fairtrial.core.registry import load_recipe
from fairtrial.core.runs import Status
from fairtrial.core.specs import Job
from fairtrial.jobs.run_session import run_cell
from fairtrial.plan.cells import resolve, spec_of
from fairtrial.record.environment import git_state, machine
from fairtrial.record.store import Store
from fairtrial.record.studies import save_plan

TITLE = "A bundle of 1,000 runs, and who accepts bundles"
RUNS, FEW = 1_000, 6
PROCESSES = 2
ROUNDS = 5
GOAL_S = 60.0
STUDY = "many"
VARIANTS: dict[str, dict[str, Any]] = {"base": {}, "new": {"effect": 0.01}}
OPTIONS = {"steps": 200, "eval_every": 20, "checkpoint_every": 0}
WORDS = ["--id", "many", "--title", "Many runs", "--type", "experiment", "--author", "A. Nobody", "--license", "MIT"]


def measure(folder: Path) -> list[Figure]:
    large, small = make_project(folder / "large", RUNS), make_project(folder / "small", FEW)
    made, verified = [], []
    for _ in range(ROUNDS):
        made.append(in_a_process([*_fairtrial("bundle"), str(large / "artifact.yaml"), "--zip", "--force"]))
        verified.append(in_a_process([*_fairtrial("verify"), str(large / "many-0.1.0.zip")]))
    both = [Spent(a.cpu + b.cpu, a.wall + b.wall) for a, b in zip(made, verified, strict=True)]
    packed = (large / "many-0.1.0.zip").stat().st_size
    in_a_process([*_fairtrial("bundle"), str(small / "artifact.yaml"), "--zip"])
    return [
        Figure("runs in the bundle", _runs_in(large / "many-0.1.0.zip"), "runs", goal=exactly(RUNS)),
        Figure("size of the bundle", packed / 1e6, "MB"),
        estimated("made, wall", _median(made), "s"),
        estimated("verified, wall", _median(verified), "s"),
        estimated("made and verified, wall", _median(both), "s", less_than(GOAL_S)),
        *_accepted(small / "many-0.1.0.zip"),
        _in_a_fresh_environment(folder, small / "many-0.1.0.zip"),
    ]


def _median(spent: list[Spent]) -> Estimate:
    return median_interval(each.wall for each in spent)


def _fairtrial(command: str) -> list[str]:
    return [sys.executable, "-m", "fairtrial", "research", command]


def make_project(root: Path, runs: int) -> Path:
    """An artifact, and a study of two variants with this many runs in its store."""
    root.mkdir(parents=True)
    in_a_process([*_fairtrial("init"), *WORDS, "--output", str(root)])
    seeds = list(range(1, runs // len(VARIANTS) + 1))
    plan = {"schema": 1, "study": STUDY, "recipe": "fake", "options": OPTIONS, "variants": VARIANTS, "seeds": seeds}
    save_plan(Store(root / "runs"), plan)
    shares = [[(name, seed) for name in VARIANTS for seed in seeds[first::PROCESSES]] for first in range(PROCESSES)]
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        list(pool.map(_make_share, [root / "runs"] * PROCESSES, shares))
    return root


def _make_share(store: Path, cells: list[tuple[str, int]]) -> None:
    recipe = load_recipe("fake")
    environment = {**git_state(Path.cwd()), **machine()}
    for variant, seed in cells:
        options = resolve(recipe, {**OPTIONS, **VARIANTS[variant]}, where=STUDY)
        spec = spec_of(recipe, options, study=STUDY, variant=variant, seed=seed)
        outcome = run_cell(Job(spec, store, environment))
        if outcome.status is not Status.COMPLETED:
            raise RuntimeError(f"{spec.name}: {outcome.reason}")


def _runs_in(bundle: Path) -> int:
    argv = [*_fairtrial("verify"), str(bundle), "--format", "json"]
    told = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
    return int(told["about"]["runs"]) if told["intact"] else 0


def _accepted(bundle: Path) -> list[Figure]:
    """What others say about the crate; the validator goes by the profile ro-crate-1.1."""
    name = "requirements of RO-Crate 1.1 that the bundle breaks"
    try:
        told = judged(bundle)
    except Unavailable as why:
        return [Figure(name, None, "", note=str(why))]
    asked = told["recommended"]
    versions = f"rocrate {told['rocrate']} reads it, roc-validator {told['validator']}"
    return [
        Figure(name, len(told["required"]), "", goal=exactly(0), note=versions),
        Figure("recommendations that it does not follow", len(asked), "", note="; ".join(asked)),
    ]


def _in_a_fresh_environment(folder: Path, bundle: Path) -> Figure:
    """The wheel is built, installed without extras into a new environment, and asked to verify the bundle."""
    name = "exit code of verify in a fresh environment, from the wheel without extras"
    try:
        _call(
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--wheel-dir",
            str(folder / "wheel"),
            str(ROOT),
        )
        [wheel] = (folder / "wheel").glob("*.whl")
        venv.create(folder / "fresh", with_pip=True)
        fresh = str(folder / "fresh/bin/python")
        _call(fresh, "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), str(wheel))
    except subprocess.CalledProcessError as error:
        return Figure(name, None, "", note=(error.stderr or "").strip()[-200:])
    done = subprocess.run(
        [fresh, "-I", "-m", "fairtrial", "research", "verify", str(bundle)],
        cwd=folder,
        capture_output=True,
        check=False,
    )
    installed = _call(fresh, "-m", "pip", "list", "--format", "freeze").split()
    return Figure(name, done.returncode, "", goal=exactly(0), note=f"{len(installed)} packages there")


def _call(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout
