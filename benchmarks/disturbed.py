"""What the disturbed studies of every cluster share: the study, watching it, and comparing it with a quiet one.

Real training: two learning rates × fifteen seeds of a small model, long enough to be killed in the middle. The quiet
study is made on this machine alone; every series of every run must be the same, bit by bit.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks.figures import Figure, exactly
from fairtrial.core.paths import RunPaths
from fairtrial.core.runs import Status
from fairtrial.record.heartbeat import HEARTBEAT_VARIABLE, read_heartbeat
from fairtrial.record.series import read_lines, read_series
from fairtrial.record.store import Store

STUDY = "study"
RUNS = 30
LINE = (
    "launch", "classify", "--model", "linear", "--steps", "6000", "--checkpoint-every", "500",
    "--variant", "slow:learning_rate=0.002", "--variant", "fast:learning_rate=0.01", "--seeds", "15",
    "--base-run-name", STUDY,
)  # fmt: skip
PATIENCE_S = 600.0
Found = TypeVar("Found")


def start(store: Path | str, *words: str, log: Path, line: Sequence[str] = LINE) -> subprocess.Popen[bytes]:
    """A launcher in a process of its own; what it says goes to a file."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", HEARTBEAT_VARIABLE: "0.5"}
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "fairtrial", *line, "--store", str(store), *words],
            stdout=output, stderr=output, env=environment,
        )  # fmt: skip


def until(condition: Callable[[], Found], launcher: subprocess.Popen[bytes], what: str) -> Found:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and launcher.poll() is None:
        if found := condition():
            return found
        time.sleep(0.1)
    raise TimeoutError(f"{what}: not seen (status of the launcher: {launcher.poll()})")


def runs_of(store: Path) -> list[RunPaths]:
    return [RunPaths(Path(entry.path)) for _, entry in Store(store).directories(STUDY)]


def completed(store: Path) -> int:
    found = (Store(store).run(STUDY, paths.root.name) for paths in runs_of(store))
    return sum(run is not None and run.status is Status.COMPLETED for run in found)


def beating(store: Path, begun_by: Collection[str] = ("run_started", "run_resumed")) -> dict[str, int]:
    """Run → process, for runs whose last attempt began with one of these events, lives, and has saved."""
    found = {}
    for paths in runs_of(store):
        told = [row for row in read_lines(paths.events).rows if row["event"] in (*begun_by, "run_ended")]
        beat = read_heartbeat(paths)
        if beat and beat.saved and told and told[-1].get("pid") == beat.pid:
            found[paths.root.name] = beat.pid
    return found


def compare(label: str, store: Path, quiet: Path) -> list[Figure]:
    """How much of a disturbed study is the same as in the quiet one."""
    series, same = 0, 0
    for paths in runs_of(quiet):
        ours, theirs = read_series(RunPaths(store / STUDY / paths.root.name)), read_series(paths)
        series += len(theirs)
        same += sum(name in ours and _equal(ours[name], points) for name, points in theirs.items())
    events = Counter(row["event"] for paths in runs_of(store) for row in read_lines(paths.events).rows)
    return [
        Figure(f"{label}: runs completed", completed(store), "runs", goal=exactly(RUNS)),
        Figure(f"{label}: attempts that went on from a checkpoint", events["run_resumed"], "attempts"),
        Figure(
            f"{label}: series equal to those of a quiet study", same, "series", goal=exactly(series), note="bit by bit"
        ),
    ]


def _equal(ours: tuple[object, object], theirs: tuple[object, object]) -> bool:
    return [list(map(repr, part)) for part in ours] == [list(map(repr, part)) for part in theirs]  # type: ignore[call-overload]


def quiet_study(store: Path, log: Path, *words: str, line: Sequence[str] = LINE) -> Path:
    process = start(store, *words, log=log, line=line)
    if process.wait() != 0:
        raise RuntimeError(log.read_text()[-2000:])
    return store
