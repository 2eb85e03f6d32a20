"""runs watch: show the progress of a running study, wherever its launcher runs. Reads everything from the store."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from fairtrial.core.errors import StoreError, UserError, unknown
from fairtrial.core.paths import RunPaths, run_id
from fairtrial.core.results import Result
from fairtrial.core.runs import Status
from fairtrial.record.claims import is_launching
from fairtrial.record.heartbeat import read_heartbeat
from fairtrial.record.index import Row, all_rows
from fairtrial.record.recorded import read_events
from fairtrial.record.series import last_step
from fairtrial.record.store import Store, open_store
from fairtrial.record.store_location import StoreLocation
from fairtrial.record.studies import load_plan

QUEUED = "queued"
PLACES = (QUEUED, *(each.value for each in Status))
BAD = (Status.FAILED, Status.DIVERGED, Status.INTERRUPTED, Status.DAMAGED)


@dataclass(frozen=True)
class CellState:
    """One cell of a study.

    For a run in progress, `silent_s` is the time since its last output and `heard_s` the time since its last heartbeat,
    both in seconds. A run with heartbeats but no output is slow or hangs; one without heartbeats is frozen or dead.
    """

    run: str
    variant: str | None
    seed: int | None
    place: str
    step: int | None = None
    steps: int | None = None
    seconds: float | None = None
    silent_s: float | None = None
    heard_s: float | None = None
    host: str | None = None
    reason: str | None = None

    @property
    def share(self) -> float | None:
        """The completed fraction of the steps; None if it is unknown."""
        return self.step / self.steps if self.step is not None and self.steps else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "run": self.run, "variant": self.variant, "seed": self.seed, "place": self.place, "step": self.step,
            "steps": self.steps, "seconds": self.seconds, "silent_s": self.silent_s, "heard_s": self.heard_s,
            "host": self.host, "reason": self.reason,
        }  # fmt: skip


@dataclass(frozen=True, repr=False)
class StudyState(Result):
    """A snapshot of all cells of a study.

    >>> fairtrial.watch_study("demo").counts
    {'completed': 8}
    """

    study: str
    cells: Sequence[CellState]
    launching: bool
    """Whether a launcher is active. Without one, queued cells stay queued."""
    problem: str | None = None
    """Why the planned cells are unknown: `study.json` is damaged."""

    @property
    def counts(self) -> dict[str, int]:
        counts = Counter(cell.place for cell in self.cells)
        return {place: counts[place] for place in PLACES if counts[place]}

    @property
    def over(self) -> bool:
        """Whether no cell is running and no launcher will start the rest: only another launch continues the study."""
        places = {cell.place for cell in self.cells}
        return Status.RUNNING not in places and not (self.launching and places & {QUEUED, Status.INTERRUPTED})

    @property
    def bad(self) -> list[CellState]:
        return [cell for cell in self.cells if cell.place in BAD]

    @property
    def left_s(self) -> float | None:
        """Estimated seconds until the study is complete at the current pace; None while there is too little data."""
        running = [cell for cell in self.cells if cell.place == Status.RUNNING]
        ended = [cell for cell in self.cells if cell.place == Status.COMPLETED and cell.seconds]
        whole = [cell.seconds for cell in ended if cell.seconds] or [
            cell.seconds / cell.share for cell in running if cell.seconds and cell.share
        ]
        if self.over or not whole or not running:
            return None
        typical = fmean(whole)
        begun = sum(_left(cell, typical) for cell in running)
        waiting = typical * sum(cell.place == QUEUED for cell in self.cells)
        return (begun + waiting) / len(running)

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": 1, "study": self.study, "over": self.over, "launching": self.launching, "counts": self.counts,
            "left_s": self.left_s, "problem": self.problem, "cells": [cell.to_dict() for cell in self.cells],
        }  # fmt: skip


def _left(cell: CellState, typical: float) -> float:
    if cell.seconds and cell.share:
        return cell.seconds * (1 / cell.share - 1)
    return max(0.0, typical - (cell.seconds or 0.0))


def watch_study(study: str, *, store: StoreLocation = None) -> StudyState:
    """Return the current state of a study: its planned cells and any other runs in the store.

    >>> fairtrial.watch_study("demo").over
    True
    """
    place = open_store(store, study)
    try:
        plan, problem = load_plan(place, study), None
    except StoreError as error:  # the runs are still readable
        plan, problem = None, f"{error.message}; cells that have not started are not shown"
    rows = {row["run"]: row for row in all_rows(place, study) if row["attempt"] == 1}
    if plan is None and not rows and not problem and study not in (known := place.studies()):
        raise UserError(
            unknown("study", study, known) if known else f"{place.address} has no studies yet",
            hint="List runs with: fairtrial runs list",
        )
    planned = _planned(plan or {})
    cells = [_cell(place, study, name, *who, rows.get(name)) for name, who in planned.items()]
    others = [row for name, row in rows.items() if name not in planned]
    cells += [_cell(place, study, row["run"], row["variant"], row["seed"], row) for row in others]
    return StudyState(study, cells, is_launching(place.paths, study), problem)


def _planned(plan: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    return {
        run_id(variant, seed): (variant, seed) for seed in plan.get("seeds", ()) for variant in plan.get("variants", ())
    }


def _cell(store: Store, study: str, name: str, variant: str | None, seed: int | None, row: Row | None) -> CellState:
    if row is None:
        return CellState(name, variant, seed, QUEUED)
    paths = store.paths.run(study, name)
    steps = row["options"].get("steps")
    steps = steps if type(steps) is int and steps > 0 else None  # a recipe may use an option of this name for anything
    if row["status"] != Status.RUNNING:
        step = _last_step(paths) if row["status"] == Status.INTERRUPTED else None
        return CellState(name, variant, seed, row["status"], step, steps, row["wall_s"], reason=row["reason"])
    now, heartbeat = time.time(), read_heartbeat(paths)
    silent = max(0.0, now - _last_change(paths.metrics, paths.events, paths.log))
    heard = min(silent, max(0.0, now - _last_change(paths.heartbeat, paths.remote_state)))
    try:
        seconds, reason = _training_s(read_events(paths), now) or now - row["created"], None
    except StoreError as error:
        seconds, reason = now - row["created"], error.message
    return CellState(
        name, variant, seed, Status.RUNNING.value, _last_step(paths) or 0, steps, seconds, silent, heard,
        heartbeat.host if heartbeat else None, reason,
    )  # fmt: skip


def _last_step(paths: RunPaths) -> int | None:
    """Return the step of the last line; None if that line is damaged, so that other runs can still be watched."""
    try:
        return last_step(paths.metrics)
    except (AttributeError, OverflowError, TypeError, ValueError, StoreError):
        return None


def _training_s(events: Sequence[Mapping[str, Any]], now: float) -> float:
    """Return the seconds spent on the steps of a run so far.

    Excludes the time between two attempts, and steps that a later attempt had to repeat.
    """
    begins = [number for number, row in enumerate(events) if row["event"] in ("run_started", "run_resumed")]
    attempts = [events[begin:end] for begin, end in pairwise([*begins, len(events)])]
    spent = 0.0
    for earlier, later in pairwise(attempts):
        last = next((row["step"] for row in later if row["event"] == "rewound"), 0)
        kept = [row["at"] for row in earlier if "at" in row and _step_of(row, last + 1) <= last]
        spent += max(kept, default=earlier[0]["at"]) - earlier[0]["at"]
    return spent + (now - attempts[-1][0]["at"] if attempts else 0.0)


def _step_of(event: Mapping[str, Any], otherwise: int) -> int:
    """Return the step of an event, or `otherwise`: a user-defined event may store anything as `step`."""
    step = event.get("step")
    return step if type(step) is int else otherwise


def _last_change(*paths: Path) -> float:
    times = [0.0]
    for path in paths:
        with contextlib.suppress(OSError):
            times.append(path.stat().st_mtime)
    return max(times)
