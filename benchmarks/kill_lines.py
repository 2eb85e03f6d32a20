"""Is a line that was logged ever lost? Kills a process that logs as fast as it can, and looks for every line.

The child tells each step over a pipe after its `log` call has returned. The parent kills it with SIGKILL at a random
moment, takes what is left in the pipe, and looks up every told step in `metrics.jsonl`, its values included.
"""

from __future__ import annotations

import os
import random
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import fairtrial
from benchmarks.figures import Figure, at_least, exactly
from benchmarks.measure import ROOT
from fairtrial.core.paths import RunPaths, StorePaths, run_id
from fairtrial.record.series import read_lines

TITLE = "Lines lost when a process is killed while it logs"
KILLS = 20
LONGEST_LIFE_S = 0.5
STUDY, VARIANT = "kills", "logger"
_STEP = struct.Struct("<q")


def measure(folder: Path) -> list[Figure]:
    chance = random.Random(1)
    told = lost = torn = 0
    for seed in range(KILLS):
        steps = _log_until_killed(folder / "store", seed, chance.uniform(0, LONGEST_LIFE_S))
        paths = StorePaths(folder / "store").run(STUDY, run_id(VARIANT, seed))
        told += steps
        lost += _lost(paths, steps)
        torn += read_lines(paths.metrics).torn
    return [
        Figure("kills", KILLS, "processes", goal=at_least(10)),
        Figure("lines acknowledged", told, "lines", goal=at_least(1)),
        Figure("acknowledged lines lost", lost, "lines", goal=exactly(0)),
        Figure("unacknowledged last lines cut off", torn, "lines", note="ignored by readers, dropped on resume"),
    ]


def _log_until_killed(store: Path, seed: int, life: float) -> int:
    """Start a child, let it log for `life` seconds from its first line on, kill it; how many steps it told."""
    argv = [sys.executable, "-m", "benchmarks.kill_lines", str(store), str(seed)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=ROOT) as child:
        assert child.stdout is not None
        told = 0
        for chunk in _read_for(child.stdout.fileno(), life):
            told += len(chunk)
        os.kill(child.pid, signal.SIGKILL)
        told += len(child.stdout.read())  # told before the kill, read after it: these count too
    if child.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the child ended by itself with status {child.returncode}")
    return told // _STEP.size


def _read_for(descriptor: int, life: float) -> Iterator[bytes]:
    """What arrives from the first byte on, for `life` seconds. Reading on keeps the pipe from blocking the child."""
    yield os.read(descriptor, 1 << 16)
    end = time.monotonic() + life
    while (left := end - time.monotonic()) > 0:
        if select.select([descriptor], [], [], left)[0]:
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                return
            yield chunk


def _lost(paths: RunPaths, told: int) -> int:
    found = {row["step"]: (row["loss"], row["accuracy"]) for row in read_lines(paths.metrics).rows}
    return sum(found.get(step) != _values(step) for step in range(told))


def _values(step: int) -> tuple[float, float]:
    return 1.0 / (step + 1), step * 0.5


def _log_forever(store: str, seed: int) -> None:
    run = fairtrial.run(study=STUDY, variant=VARIANT, seed=seed, store=store)
    step = 0
    while True:
        loss, accuracy = _values(step)
        run.log(step, loss=loss, accuracy=accuracy)
        os.write(1, _STEP.pack(step))
        step += 1


if __name__ == "__main__":
    _log_forever(sys.argv[1], int(sys.argv[2]))
