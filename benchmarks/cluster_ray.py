"""A study on a Ray cluster of three nodes that is disturbed in every way, and what Ray costs per run.

The launcher is killed and started again; a run is frozen; a node's Ray is killed while its run lives on; the process
that Ray itself runs for us is frozen. Then two hundred runs of one second on two slots, here and on Ray, one after the
other in one go: what is lost beyond a hundred seconds from the first start to the last end, and what it takes to
connect and to start processes before that, which for Ray alone is a second per place.
"""

from __future__ import annotations

import importlib
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.harness import parent_of

from benchmarks.disturbed import beating, compare, completed, quiet_study, start, until
from benchmarks.figures import Figure, at_least, less_than
from fairtrial import ExecutionPolicy, Study, launch

TITLE = "On a Ray cluster"
SLEEPERS = 200
SLOTS = 2
GOAL_LOSS = 5


def measure(folder: Path) -> list[Figure]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as short:
        os.environ["RAY_TMPDIR"] = short  # its sockets allow for a short name only
        return [*_disturbed(folder), *_loss(folder)]


@contextmanager
def _cluster(*cores: int) -> Iterator[Any]:
    utilities = importlib.import_module("ray.cluster_utils")  # without its types, which say little
    cluster = utilities.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for each in cores:
            cluster.add_node(num_cpus=each)
        yield cluster
    finally:
        cluster.shutdown()


def _disturbed(folder: Path) -> list[Figure]:
    store, log = folder / "store", folder / "log.txt"
    with _cluster(1, 1, 1) as cluster:
        words = ("--on", "ray", "--address", cluster.address, "--lost-after", "5")
        first = start(store, *words, log=log)
        until(
            lambda: completed(store) >= 3 and len(beating(store)) == 3, first, "three runs, and three more on their way"
        )
        first.kill()
        first.wait()
        second = start(store, *words, log=log)
        frozen = min(until(lambda: beating(store, ["run_resumed"]), second, "a run that goes on").values())
        os.kill(frozen, signal.SIGSTOP)
        until(lambda: completed(store) >= 9, second, "nine runs")
        cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        cluster.add_node(num_cpus=1)
        until(lambda: completed(store) >= 15, second, "fifteen runs")
        os.kill(until(lambda: _places_of_runs(store), second, "a run")[0], signal.SIGSTOP)
        code = second.wait()
    if code != 0:
        raise RuntimeError(log.read_text()[-3000:])
    told = log.read_text()
    return [
        *compare("disturbed", store, quiet_study(folder / "quiet", log)),
        Figure("disturbed: runs found without a sign of life", told.count("no heartbeat"), "runs", goal=at_least(1)),
        Figure("disturbed: places that Ray lost", told.count("died; rescheduling"), "places", goal=at_least(1)),
    ]


def _places_of_runs(store: Path) -> list[int]:
    """The processes that Ray runs for us, and that the job servers of runs belong to."""
    places = []
    for pid in beating(store).values():
        with suppress(OSError):
            places.append(parent_of(parent_of(pid)))
    return [place for place in places if "ray::" in Path(f"/proc/{place}/cmdline").read_text()]


def _loss(folder: Path) -> list[Figure]:
    figures = _lost("here", folder / "here", ExecutionPolicy(jobs=SLOTS))
    with _cluster(SLOTS) as cluster:
        terms = ExecutionPolicy(jobs=SLOTS, on="ray", settings={"address": cluster.address})
        figures += _lost("on Ray", folder / "ray", terms)
    return figures


def _lost(label: str, store: Path, terms: ExecutionPolicy) -> list[Figure]:
    """What is lost from the first start to the last end; and how long it takes before and after that."""
    options = {"steps": 1, "checkpoint_every": 0, "eval_every": 0, "step_time": 1.0}
    study = Study.model_validate({"study": "s", "recipe": "fake", "options": options, "seeds": SLEEPERS})
    before = time.perf_counter()
    done = launch(study, store=store, terms=terms)
    whole = time.perf_counter() - before
    assert len(done.made) == SLEEPERS and not done.bad
    timings = [run.metadata["timings"] for run in done.runs]
    spent = max(each["ended"] for each in timings) - min(each["created"] for each in timings)
    ideal = SLEEPERS / SLOTS
    name = f"{SLEEPERS} runs of one second on two slots, {label}"
    return [
        Figure(f"{name}: lost to scheduling", 100 * (spent / ideal - 1), "%", goal=less_than(GOAL_LOSS),
               note=f"{spent:.1f} s from the first start to the last end"),
        Figure(f"{name}: before and after that", whole - spent, "s", note="connecting, starting processes, the table"),
    ]  # fmt: skip
