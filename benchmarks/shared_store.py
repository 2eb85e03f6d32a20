"""A store at a URL: is each cell made once, is nothing lost when its server is away, and is a training slowed?

Two launchers, each with a mirror of its own as two machines have, fill one study in s3:// (moto, in a process of its
own). In the middle the server is stopped for a while. Then the study is brought to a third machine and compared with
one that was made in a folder.

One process trains: steps of about a millisecond of work, each with one `log` of two numbers, and a checkpoint of 2 MB
every thousand. It does so in turn into a folder, into s3://, and into s3:// with the server stopped. What is compared
is the loop alone: the processor time of the thread that trains, and the processor time that all other threads of the
process took meanwhile, as a share of the loop's time. The last bounds what they can have taken from the training by
holding Python's lock.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy
import threadpoolctl

import fairtrial
from benchmarks.disturbed import RUNS, compare, quiet_study, runs_of, start
from benchmarks.figures import Figure, at_most, estimated, exactly
from benchmarks.measure import median_interval, ratio_interval
from fairtrial.record.series import read_lines
from fairtrial.record.store import Store

TITLE = "Shared stores"
URL = "s3://lab/team"
AWAY_S = 15.0
CHECKPOINT_EVERY = 1000
STEPS = 4000
ROUNDS = 6
SLOWED = 1.05
OTHERS = 5


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


def measure(folder: Path) -> list[Figure]:
    # A second thread that multiplies matrices would be taken for one that brings them up.
    with server() as process, threadpoolctl.threadpool_limits(1):
        return [*_shared(folder, process), *_slowed(folder, process)]


def _shared(folder: Path, process: subprocess.Popen[bytes]) -> list[Figure]:
    mirrors = [folder / "one", folder / "two", folder / "three"]
    launchers = [_launcher(folder, mirror) for mirror in mirrors[:2]]
    quiet = quiet_study(folder / "quiet", folder / "log.txt")
    process.send_signal(signal.SIGSTOP)
    time.sleep(AWAY_S)
    process.send_signal(signal.SIGCONT)
    codes = [launcher.wait() for launcher in launchers]
    if any(codes):
        raise RuntimeError((folder / "log.txt").read_text()[-3000:])
    os.environ["FAIRTRIAL_MIRRORS"] = str(mirrors[2])
    shared = Store.at(URL)
    shared.pull()
    begun = [sum(row["event"] == "run_started" for row in read_lines(run.events).rows) for run in runs_of(shared.root)]
    return [
        *compare("two launchers", shared.root, quiet),
        Figure("two launchers: runs that were begun once", begun.count(1), "runs", goal=exactly(RUNS),
               note=f"the server was away for {AWAY_S:g} s"),
    ]  # fmt: skip


def _launcher(folder: Path, mirror: Path) -> subprocess.Popen[bytes]:
    os.environ["FAIRTRIAL_MIRRORS"] = str(mirror)
    return start(URL, "--jobs", "1", log=folder / "log.txt")


def _slowed(folder: Path, process: subprocess.Popen[bytes]) -> list[Figure]:
    found: dict[str, list[Timed]] = {"a folder": [], "a folder again": [], "s3": [], "s3, its server stopped": []}
    os.environ["FAIRTRIAL_MIRRORS"] = str(folder / "mirrors")
    for number in range(ROUNDS):
        for name, timed in found.items():
            place = str(folder / "plain") if "folder" in name else URL
            variant = f"{name.replace(', ', '-').replace(' ', '-')}-{number}"
            timed.append(train(place, variant, STEPS, stop=process if "stopped" in name else None))
    base, *others = found
    figures = []
    for name in others:
        ratio = ratio_interval([each.own for each in found[name]], [each.own for each in found[base]])
        goal = None if "folder" in name else at_most(SLOWED)
        figures.append(estimated(f"CPU time of training into {name}, against a folder", ratio, "×", goal))
    for name in others[1:]:
        share = median_interval(100 * each.others / each.wall for each in found[name])
        figures.append(estimated(f"{name}: other threads", share, "% of the time", at_most(OTHERS)))
    return figures
