"""What a run of 10 million points takes: to finish it, and then to show, tail and export it.

Three shapes: two metrics in 5 million lines, one metric in 10 million lines, a thousand metrics in 10,000 lines. The
lines have the form that `log` writes, and are put into the file in large pieces, because 10 million calls would take
longer than all the rest. Each command is a process of its own; its peak is the resident memory that the system noted,
interpreter and imports included, and none of these commands starts another process.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Figure, at_most, exactly
from benchmarks.measure import ROOT, Unavailable

TITLE = "A run of 10 million points"
POINTS = 10_000_000
GOAL_MB = 250
GOAL_CPU_S = 0.5
STUDY, VARIANT, SEED = "long", "v", 1
RUN = f"{STUDY}/{VARIANT}.seed{SEED}"
PIECE_LINES = 5_000


@dataclass(frozen=True)
class Shape:
    """How the points are spread over lines."""

    name: str
    metrics: int
    points: int = POINTS

    @property
    def lines(self) -> int:
        return self.points // self.metrics


SHAPES = (Shape("2 metrics", 2), Shape("1 metric", 1), Shape("1,000 metrics", 1_000))


@dataclass(frozen=True)
class Peak:
    """What a process took."""

    megabytes: float
    cpu_s: float


def measure(folder: Path) -> list[Figure]:
    return [figure for shape in SHAPES for figure in _of_shape(shape, folder / shape.name.replace(" ", "-"))]


def _of_shape(shape: Shape, store: Path) -> list[Figure]:
    store.mkdir(parents=True)
    table = store / "points.csv"
    program = [sys.executable, "-m", "fairtrial", "runs"]
    where = ["--store", str(store)]
    in_process(_module("log", shape, store))
    figures = _figures(shape, "show before the end", in_process([*program, "show", RUN, *where]))
    figures += _figures(shape, "finish", in_process(_module("finish", shape, store)))
    figures += _figures(shape, "show", in_process([*program, "show", RUN, *where]), GOAL_CPU_S)
    figures += _figures(shape, "tail", in_process([*program, "tail", RUN, *where]), GOAL_CPU_S)
    figures += _figures(shape, "export", in_process([*program, "export", RUN, "--output", str(table), *where]))
    with table.open("rb") as file:
        rows = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b"")) - 1
    table.unlink()
    return [*figures, Figure(f"{shape.name}: rows exported", rows, "rows", goal=exactly(shape.points))]


def _figures(shape: Shape, what: str, found: Peak, cpu_goal: float | None = None) -> list[Figure]:
    goal = at_most(cpu_goal) if cpu_goal is not None else None
    return [
        Figure(f"{shape.name}: {what}, peak memory", found.megabytes, "MB", goal=at_most(GOAL_MB)),
        Figure(f"{shape.name}: {what}, CPU", found.cpu_s, "s", goal=goal),
    ]


def in_process(argv: Sequence[str]) -> Peak:
    """Run a program to its end; its peak of resident memory and its CPU time."""
    done = subprocess.run([sys.executable, "-I", "-c", _STARTER, *argv], capture_output=True, cwd=ROOT, check=False)
    status, kilobytes, cpu_s = (float(word) for word in done.stdout.split())
    if status:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise Unavailable(f"{' '.join(argv[1:5])} ended with status {status:.0f}: {' '.join(last)}")
    return Peak(kilobytes / 1e3, cpu_s)


_STARTER = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
print(os.waitstatus_to_exitcode(status), used.ru_maxrss, used.ru_utime + used.ru_stime)
"""
"""Starts a program from a small process: Linux counts the memory of who starts a program to the program's peak."""


def _module(what: str, shape: Shape, store: Path) -> list[str]:
    words = [what, str(shape.metrics), str(shape.points), str(store)]
    return [sys.executable, "-m", "benchmarks.long_run", *words]


def pieces(shape: Shape) -> Iterator[bytes]:
    """Lines as `log` writes them, many at a time."""
    names = [f"metric_{number}" for number in range(shape.metrics)]
    most = max(1, PIECE_LINES // shape.metrics)
    for first in range(1, shape.lines + 1, most):
        yield "".join(
            f'{{"step":{step},"_time":{step / 1000},'
            + ",".join(f'"{name}":{place + 1 / step!r}' for place, name in enumerate(names))
            + "}\n"
            for step in range(first, min(first + most, shape.lines + 1))
        ).encode()


def log_lines(shape: Shape, store: Path) -> None:
    """A run that was interrupted after its last line."""
    import fairtrial

    run = fairtrial.run(study=STUDY, variant=VARIANT, seed=SEED, store=store)
    with run.paths.metrics.open("ab") as file:
        file.writelines(pieces(shape))
    run.save(shape.lines, {"step": shape.lines})
    run.close()


def finish(store: Path) -> None:
    """Goes on from the last checkpoint, which checks every line, and ends the run."""
    import fairtrial

    with fairtrial.run(study=STUDY, variant=VARIANT, seed=SEED, store=store) as run:
        if run.resume() is None:
            raise RuntimeError("the run did not go on")


if __name__ == "__main__":
    what, metrics, points, store = sys.argv[1:]
    if what == "log":
        log_lines(Shape("", int(metrics), int(points)), Path(store))
    else:
        finish(Path(store))
