"""Resource usage of the process during training: CPU, memory, context switches, GPUs.

Counters are read at the start and the end of the window. A separate thread samples memory and GPUs at intervals; it
stops after the last step.
"""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fairtrial.core.training import Observer
from fairtrial.probe.gpu import GpuReading, Gpus

INTERVAL_S = 0.1


class KernelCounters(NamedTuple):
    """Kernel counters of this process at one time of the loop's clock."""

    now: float
    cpu_s: float
    waited: int
    pushed: int
    faults: int

    @classmethod
    def read(cls, now: float) -> KernelCounters:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return cls(now, used.ru_utime + used.ru_stime, used.ru_nvcsw, used.ru_nivcsw, used.ru_majflt)


@dataclass(frozen=True)
class Monitored:
    """Resource usage from the first to the last monitored step."""

    wall_s: float
    cpu_s: float
    steps: int
    voluntary_switches: int
    involuntary_switches: int
    major_faults: int
    rss_bytes: Sequence[int]
    gpus: Sequence[Sequence[GpuReading]]
    gpu_unavailable: str | None

    @property
    def cpu_percent(self) -> float | None:
        """CPU usage; 100 is one fully used core."""
        return 100 * self.cpu_s / self.wall_s if self.wall_s > 0 else None

    def to_dict(self) -> dict[str, Any]:
        rss = self.rss_bytes
        return {
            "wall_s": self.wall_s,
            "cpu_s": self.cpu_s,
            "cpu_percent": self.cpu_percent,
            "cores": os.cpu_count(),
            "switches": {"voluntary": self.voluntary_switches, "involuntary": self.involuntary_switches},
            "major_faults": self.major_faults,
            "steps": self.steps,
            "rss_bytes": {"mean": sum(rss) / len(rss), "max": max(rss), "samples": len(rss)} if rss else None,
            "gpu": {"unavailable": self.gpu_unavailable} if self.gpu_unavailable else self.cards(),
        }

    def cards(self) -> list[dict[str, Any]]:
        return [
            {
                "name": card[0].name,
                "load_percent": sum(each.load_percent for each in card) / len(card),
                "memory_bytes": max(each.memory_bytes for each in card),
                "memory_total_bytes": card[0].memory_total_bytes,
            }
            for card in zip(*self.gpus, strict=True)
        ]


class ResourceMonitor(Observer):
    """Monitors resources from the first step of a window to its last."""

    def __init__(self, interval: float = INTERVAL_S) -> None:
        self._interval = interval
        self._first: KernelCounters | None = None
        self._last: KernelCounters | None = None
        self._steps = 0
        self._rss: list[int] = []
        self._readings: list[list[GpuReading]] = []
        self._gpus = Gpus()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True, name="fairtrial-monitor")

    def turn_started(self, now: float) -> None:
        if self._first is None:
            self._first = KernelCounters.read(now)
            self._thread.start()

    def step_ended(self, step: int, now: float) -> None:  # noqa: ARG002
        if not self._over.is_set():
            self._steps += 1
            self._last = KernelCounters.read(now)

    def stop(self) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def result(self) -> Monitored | None:
        """Return the resource usage; None if no step was monitored."""
        first, last = self._first, self._last
        if first is None or last is None:
            return None
        return Monitored(
            last.now - first.now, last.cpu_s - first.cpu_s, self._steps, last.waited - first.waited,
            last.pushed - first.pushed, last.faults - first.faults, self._rss, self._readings, self._gpus.unavailable,
        )  # fmt: skip

    def _look(self) -> None:
        while True:
            self._rss.append(resident_bytes())
            readings = self._gpus.read() if self._gpus.unavailable is None else []
            self._readings += [readings] if readings else []
            if self._over.wait(self._interval):
                return


def resident_bytes() -> int:
    """Return the current resident size of the process; its peak if the kernel does not expose the current size."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        from fairtrial.probe.resources import peak_process_bytes

        return peak_process_bytes()
    return pages * os.sysconf("SC_PAGE_SIZE")


def available_bytes() -> int | None:
    """Return the memory that a process can still allocate: the minimum of the machine's and the cgroup's."""
    limits = [each for each in (_machine_bytes(), _group_bytes()) if each is not None]
    return min(limits, default=None)


def _machine_bytes() -> int | None:
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def _group_bytes(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    try:
        limit, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
        return None if limit == "max" else max(0, int(limit) - int(used))
    except (OSError, ValueError):
        return None
