"""What launching adds to the runs themselves.

Overhead per run: cells of a study go through one slot, one after another. From the start of one to the start of the
next passes the time of the run and what launching adds to it: telling the server, forking, claiming the directory,
set-up (data, model, metadata), ending, and noticing the end. The overhead is that time minus the run's own training
time, `timings.wall_s` of its metadata, which is counted from the end of set-up. Since `wall_s` also holds the
columns that are written at the end, a second and stricter figure subtracts only the time of the last logged line.
The first run, which waits for the server, and the last, after which none starts, are left out.

Loss on two slots: 200 cells that sleep for one second each would take 100 s on two slots if launching cost nothing.
The loss is what the whole `launch` call takes beyond that, planning, server start and closing table included; the
figure without the start counts from the moment at which the first run was created.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, estimated, less_than
from benchmarks.measure import median_interval
from fairtrial import ExecutionPolicy, Launched, Study, launch
from fairtrial.core.runs import Run
from fairtrial.launch.schedule import ScheduledRun
from fairtrial.record.series import RESERVED, last_row

TITLE = "Launching"
CELLS = 40
SLOTS = 2
SLEEPERS = 200
GOAL_MS = 50
GOAL_LOSS = 5
_, TIME = RESERVED
ONE_STEP = {"steps": 1, "checkpoint_every": 0, "eval_every": 0}
STUDIES: dict[str, tuple[str, dict[str, Any]]] = {
    "fake": ("fake", {**ONE_STEP, "step_time": 0.0}),
    "torch (classify, linear)": ("classify", {**ONE_STEP, "model": "linear"}),
}


def measure(folder: Path) -> list[Figure]:
    figures = []
    for label, (recipe, options) in STUDIES.items():
        figures += _overhead(label, recipe, options, folder / "overhead")
    return figures + _loss(folder / "loss")


def _overhead(label: str, recipe: str, options: Mapping[str, Any], store: Path) -> list[Figure]:
    study = Study.model_validate({"study": recipe, "recipe": recipe, "options": dict(options), "seeds": CELLS})
    tickets: dict[str, ScheduledRun] = {}
    done = launch(study, store=store, terms=ExecutionPolicy(jobs=1, watch=lambda seen: _remember(seen, tickets)))
    runs = _completed(done)
    gaps = _gaps(list(tickets.values()))
    counted = {name: runs[name] for name in gaps}
    beyond = median_interval(gap - runs[name].metadata["timings"]["wall_s"] for name, gap in gaps.items())
    strict = median_interval(gap - _trained_for(runs[name]) for name, gap in gaps.items())
    setup = median_interval(run.metadata["timings"]["setup_s"] for run in counted.values())
    whole = median_interval(gaps.values())
    return [
        estimated(f"{label}: overhead per run", beyond.scaled(1e3), "ms", less_than(GOAL_MS)),
        estimated(f"{label}: overhead, writing the columns too", strict.scaled(1e3), "ms", less_than(GOAL_MS)),
        estimated(f"{label}: of which set-up", setup.scaled(1e3), "ms"),
        estimated(f"{label}: from start to start", whole.scaled(1e3), "ms"),
    ]


def _remember(seen: Sequence[ScheduledRun], runs: dict[str, ScheduledRun]) -> None:
    runs.update({run.key: run for run in seen})


def _gaps(runs: Sequence[ScheduledRun]) -> dict[str, float]:
    """Time from each cell's start to the next one's, the first cell left out."""
    started = sorted((run.started or 0.0, run.key) for run in runs)
    return {key: after - before for (before, key), (after, _) in pairwise(started[1:])}


def _trained_for(run: Run) -> float:
    """Seconds from the end of set-up to the last line that training logged."""
    row = last_row(run.paths.metrics)
    assert row is not None
    return float(row[TIME])


def _completed(done: Launched) -> dict[str, Run]:
    if done.bad or done.missing:
        raise RuntimeError(f"{len(done.bad)} runs of {done.study} failed, {len(done.missing)} are missing")
    return {run.name: run for run in done.runs}


def _loss(store: Path) -> list[Figure]:
    options = {"steps": 10, "step_time": 0.1, "checkpoint_every": 0, "eval_every": 0}
    study = Study.model_validate({"study": "sleepers", "recipe": "fake", "options": options, "seeds": SLEEPERS})
    begun, clock = time.time(), time.monotonic()
    done = launch(study, store=store, terms=ExecutionPolicy(jobs=SLOTS))
    total = time.monotonic() - clock
    runs = _completed(done).values()
    start = min(run.metadata["timings"]["created"] for run in runs) - begun
    own = sum(run.metadata["timings"]["wall_s"] for run in runs) / SLOTS
    ideal = SLEEPERS / SLOTS
    return [
        Figure(f"{SLEEPERS} one-second cells on two slots", total, "s", note=f"ideal {ideal:g} s"),
        Figure("loss, start included", 100 * (total / ideal - 1), "%", goal=less_than(GOAL_LOSS)),
        Figure("loss, start left out", 100 * ((total - start) / ideal - 1), "%", goal=less_than(GOAL_LOSS)),
        Figure("call of launch to first run created", start, "s", note="planning and server start"),
        Figure("the runs' own time, per slot", own, "s"),
    ]
