"""The benchmarks by name, in the order in which they are run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import accuracies, kill_lines, launching, listing, logging_calls, startup
from benchmarks.figures import Figure


@dataclass(frozen=True)
class Benchmark:
    """A measurement, given an empty folder to work in."""

    title: str
    measure: Callable[[Path], list[Figure]]
    slow: bool = False

    def run(self) -> list[Figure]:
        with tempfile.TemporaryDirectory(prefix="fairtrial-benchmark-") as folder:
            return self.measure(Path(folder))


BENCHMARKS = {
    "logging_calls": Benchmark(logging_calls.TITLE, logging_calls.measure),
    "kill_lines": Benchmark(kill_lines.TITLE, kill_lines.measure),
    "startup": Benchmark(startup.TITLE, startup.measure),
    "launching": Benchmark(launching.TITLE, launching.measure),
    "listing": Benchmark(listing.TITLE, listing.measure),
    "accuracies": Benchmark(accuracies.TITLE, accuracies.measure, slow=True),
}
