"""The test suite as `make test` runs it: its time alone, and whether it passes five times in a row under load."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Figure, at_most, exactly
from benchmarks.measure import ROOT

TITLE = "The test suite: time alone, and five runs in a row next to two busy loops"
RUNS = 5
BUSY_LOOPS = 2
MOST_MINUTES, MOST_FAST_SECONDS = 8, 60
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Suite:
    """One run of a make target."""

    seconds: float
    passed: bool
    failures: tuple[str, ...]

    @property
    def note(self) -> str | None:
        return f"failed: {', '.join(self.failures) or 'see the output'}" if not self.passed else None


def measure(folder: Path) -> list[Figure]:
    alone = [run_target(target, folder) for target in ("test", "test-fast")]
    figures = [
        Figure("make test, alone", alone[0].seconds / 60, "min", goal=at_most(MOST_MINUTES), note=alone[0].note),
        Figure("make test-fast, alone", alone[1].seconds, "s", goal=at_most(MOST_FAST_SECONDS), note=alone[1].note),
    ]
    with busy_loops():
        for number in range(1, RUNS + 1):
            suite = run_target("test", folder)
            figures += [
                Figure(f"under load, run {number} passed", float(suite.passed), "", goal=exactly(1), note=suite.note),
                Figure(f"under load, run {number}", suite.seconds / 60, "min"),
            ]
    return figures


def run_target(target: str, folder: Path) -> Suite:
    """Run a make target of this checkout and keep its output in `folder` until the benchmark ends."""
    output = folder / f"{target}.log"
    started = time.monotonic()
    with output.open("w") as file:
        done = subprocess.run(
            ["make", "--no-print-directory", target], cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, check=False
        )
    failures = dict.fromkeys(FAILED.findall(output.read_text(errors="replace")))
    return Suite(time.monotonic() - started, done.returncode == 0, tuple(failures))


@contextlib.contextmanager
def busy_loops() -> Iterator[None]:
    """Keep as many processes as there are test workers computing all the time."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY_LOOPS)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
