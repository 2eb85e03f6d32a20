"""Is a training slower because it records into a store at a URL? And when the server of that store is away?

One process trains: steps of about a millisecond of work, each with one `log` of two numbers, and a checkpoint of 2 MB
every thousand. It does so in turn into a folder, into s3:// (moto, in a process of its own), and into s3:// with the
server stopped. What is compared is the loop alone: its time per step, the processor time of the thread that trains,
and the processor time that all other threads of the process took meanwhile, as a share of the loop's time. The last
bounds what they can have taken from the training by holding Python's lock.

    python -m benchmarks.shared_store [--steps 8000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy

import fairtrial

CHECKPOINT_EVERY = 1000


@contextlib.contextmanager
def server() -> Iterator[subprocess.Popen[bytes]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    os.environ.update(AWS_ENDPOINT_URL=address, AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x")
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(urllib.request.Request(f"{address}/lab", method="PUT")).read()
                break
            time.sleep(0.05)
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


@dataclass(frozen=True)
class Timed:
    """Of one loop: seconds of wall clock, of the training thread, of all other threads, and of each `log`."""

    wall: float
    own: float
    others: float
    calls: list[float]


def train(store: str, variant: str, steps: int, *, stop: subprocess.Popen[bytes] | None) -> Timed:
    matrix = numpy.random.default_rng(1).normal(size=(160, 160))
    calls = []
    with fairtrial.run(seed=1, study="slow", variant=variant, store=store) as run:
        time.sleep(0.5)  # what begins with the run is over
        if stop:
            stop.send_signal(signal.SIGSTOP)
        begun, own, everybody = time.perf_counter(), time.thread_time(), time.process_time()
        for step in range(steps):
            for _ in range(4):
                matrix = matrix @ matrix / 200.0 + 0.001
            matrix /= max(1.0, float(abs(matrix).max()))
            before = time.perf_counter()
            run.log(step, loss=1.0 / (step + 1), accuracy=0.5)
            calls.append(time.perf_counter() - before)
            if step % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1:
                run.save(step, {"weights": matrix.ravel()[:20_000].tolist()})
        wall, own, everybody = time.perf_counter() - begun, time.thread_time() - own, time.process_time() - everybody
        if stop:
            stop.send_signal(signal.SIGCONT)
    return Timed(wall, own, everybody - own, calls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    found: dict[str, list[Timed]] = {"folder": [], "folder again": [], "s3": [], "s3, server stopped": []}
    with tempfile.TemporaryDirectory() as folder, server() as process:
        os.environ["FAIRTRIAL_MIRRORS"] = str(Path(folder) / "mirrors")
        for number in range(given.rounds):
            for name, timed in found.items():
                place = str(Path(folder) / "plain") if name.startswith("folder") else "s3://lab/bench"
                variant = f"{name.replace(', ', '-').replace(' ', '-')}-{number}"
                timed.append(train(place, variant, given.steps, stop=process if "stopped" in name else None))
    for name, timed in found.items():
        print(_line(name, timed, found["folder"], given.steps))


def _line(name: str, timed: Sequence[Timed], base: Sequence[Timed], steps: int) -> str:
    walls = sorted(each.wall / other.wall for each, other in zip(timed, base, strict=True))
    owns = sorted(each.own / other.own for each, other in zip(timed, base, strict=True))
    micro = sorted(1e6 * call for each in timed for call in each.calls)
    share = statistics.median(each.others / each.wall for each in timed)
    return (
        f"{name:20} {statistics.median(each.wall for each in timed) / steps * 1e6:7.0f} µs per step; against a folder: "
        f"wall {statistics.median(walls):.3f} [{walls[0]:.3f}, {walls[-1]:.3f}], "
        f"CPU of training {statistics.median(owns):.3f} [{owns[0]:.3f}, {owns[-1]:.3f}]; "
        f"other threads {100 * share:.1f} % of the time; "
        f"log median {statistics.median(micro):.1f} µs, 99 % {micro[int(0.99 * len(micro))]:.0f} µs"
    )


if __name__ == "__main__":
    main()
