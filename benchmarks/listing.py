"""How long listing and filtering 10,000 runs takes, as a person types it, without and with the index.

Every run directory is a real one, made by the code of a job with the `fake` recipe. Files were just written, so
they are in the system's cache; a listing from a cold disk takes longer.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks.figures import Figure, estimated, exactly, less_than
from benchmarks.measure import Spent, in_a_process, interleave, median_interval
from fairtrial.core.paths import StorePaths
from fairtrial.core.registry import load_recipe
from fairtrial.core.runs import Status
from fairtrial.core.specs import Job
from fairtrial.jobs.run_session import run_cell
from fairtrial.plan.cells import resolve, spec_of
from fairtrial.record.environment import git_state, machine

TITLE = "List and filter 10,000 runs"
RUNS = 10_000
MATCHING = 3_000
PROCESSES = 2
ROUNDS = 7
GOAL_WITHOUT_S = 1.0
GOAL_WITH_S = 0.3
STUDY = "many"
OPTIONS = {"steps": 2, "eval_every": 0, "checkpoint_every": 0}


def measure(folder: Path) -> list[Figure]:
    store = folder / "store"
    begun = time.monotonic()
    make_runs(store)
    made = time.monotonic() - begun
    contestants = {"without": lambda: _without_index(store), "with": lambda: _with_index(store)}
    results = interleave(contestants, ROUNDS)
    return [
        Figure("runs made with the fake recipe", RUNS, "runs", note=f"in {made:.0f} s by {PROCESSES} processes"),
        Figure("runs that match seed<3000", _count(store), "runs", goal=exactly(MATCHING)),
        *_times("without index", results["without"], GOAL_WITHOUT_S),
        *_times("with index", results["with"], GOAL_WITH_S),
    ]


def make_runs(store: Path, count: int = RUNS) -> None:
    shares = [range(first, count, PROCESSES) for first in range(PROCESSES)]
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        list(pool.map(_make_share, [store] * PROCESSES, shares))


def _make_share(store: Path, seeds: range) -> None:
    recipe = load_recipe("fake")
    options = resolve(recipe, OPTIONS, where=STUDY)
    environment = {**git_state(Path.cwd()), **machine()}
    for seed in seeds:
        spec = spec_of(recipe, options, study=STUDY, variant="default", seed=seed)
        outcome = run_cell(Job(spec, store, environment))
        if outcome.status is not Status.COMPLETED:
            raise RuntimeError(f"{spec.name}: {outcome.reason}")


def _argv(store: Path) -> list[str]:
    program = str(Path(sys.executable).parent / "fairtrial")
    where = f"seed<{MATCHING}"
    return [program, "runs", "list", "--study", STUDY, "--where", where, "--format", "json", "--store", str(store)]


def _without_index(store: Path) -> Spent:
    StorePaths(store).index.unlink(missing_ok=True)
    return in_a_process(_argv(store))


def _with_index(store: Path) -> Spent:
    if not StorePaths(store).index.exists():
        in_a_process(_argv(store))
    return in_a_process(_argv(store))


def _count(store: Path) -> int:
    listed = subprocess.run(_argv(store), capture_output=True, check=True)
    return len(json.loads(listed.stdout)["runs"])


def _times(label: str, times: list[Spent], goal: float) -> list[Figure]:
    return [
        estimated(f"{label}, wall", median_interval(t.wall for t in times), "s", less_than(goal)),
        Figure(f"{label}, slowest", max(t.wall for t in times), "s", samples=len(times)),
        estimated(f"{label}, CPU", median_interval(t.cpu for t in times), "s"),
    ]
