"""Studies on a real Slurm of three nodes that are disturbed in every way, against the same studies on one machine.

The first is synthetic, with runs that are long enough for Slurm to notice what happens. Four runs are at work on two
nodes. The daemon of one node is killed: Slurm takes the node for dead and starts its two jobs again elsewhere, while
their first processes live on. On the other node a job of a higher partition takes the place of one run, and the time
limit of the other is cut short. Then the launcher is killed while runs are at work, and another one started. The second
study is real training: a pre-emption, and a node that is lost.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.harness import is_alive
from tests.launch.slurm_cluster import Cluster, why_not

from benchmarks.disturbed import LINE, STUDY, beating, compare, completed, quiet_study, start, until
from benchmarks.figures import Figure, at_least, exactly, unavailable
from fairtrial.core.paths import StorePaths
from fairtrial.record.claims import token_of
from fairtrial.record.heartbeat import read_heartbeat

TITLE = "On a Slurm cluster"
LONG = (
    "launch", "fake", "--steps", "160", "--step-time", "0.3", "--checkpoint-every", "5", "--jitter", "0.1",
    "--variant", "control:effect=0", "--variant", "candidate:effect=0.03", "--seeds", "15", "--base-run-name", STUDY,
)  # fmt: skip
WORDS = ("--on", "slurm", "--with", "ask=0.5", "--with", "time=10")
AT_ONCE = 4


def measure(folder: Path) -> list[Figure]:
    if reason := why_not():
        return unavailable({"Slurm": reason}, "runs")
    home = folder / "slurm"
    home.mkdir()
    cluster = Cluster(home)
    os.environ.update(cluster.variables)
    try:
        cluster.start()
        return [*_long(cluster, folder / "long"), *_trained(cluster, folder / "trained")]
    finally:
        cluster.stop()


def _long(cluster: Cluster, folder: Path) -> list[Figure]:
    store, log = folder / "store", folder / "log.txt"
    folder.mkdir()
    began = time.monotonic()
    with _launcher(store, log, "--jobs", str(AT_ONCE), line=LONG) as first:
        at_work = until(lambda: _if_all(beating(store)), first, f"{AT_ONCE} runs that have saved")
        living = _disturb(cluster, at_work, first)
        until(lambda: completed(store) >= AT_ONCE + 2, first, "runs that are done")
    left = {run: pid for run, pid in beating(store).items() if is_alive(pid)}
    with _launcher(store, log, line=LONG) as second:
        _finish(second, log)
    adopted = sum(pid == _last_holder(store, run) for run, pid in left.items())
    took = time.monotonic() - began
    return [
        *compare("synthetic", store, quiet_study(folder / "quiet", log, "--jobs", "15", line=LONG)),
        Figure("synthetic: array tasks that Slurm timed out", _timed_out(cluster), "jobs", goal=at_least(1)),
        Figure("synthetic: processes that outlived their node", living, "processes", goal=exactly(2)),
        Figure("synthetic: runs that were hit and went on", _went_on(store, at_work), "runs", goal=exactly(AT_ONCE)),
        Figure("synthetic: runs that the second launcher adopted", adopted, "runs", goal=at_least(1)),
        Figure("synthetic: from the first launch to the end", took, "s"),
    ]


def _if_all(at_work: dict[str, int]) -> dict[str, int]:
    return at_work if len(at_work) == AT_ONCE else {}


def _disturb(cluster: Cluster, at_work: Mapping[str, int], launcher: subprocess.Popen[bytes]) -> int:
    """Lose one node, pre-empt one run of the other, time out its neighbour; how many outlived the lost node."""
    waiting = _hold(cluster)
    nodes = {run: _variable(pid, "SLURMD_NODENAME") for run, pid in at_work.items()}
    lost, given = sorted(set(nodes.values()))
    zombies, hit = ([pid for run, pid in at_work.items() if nodes[run] == node] for node in (lost, given))
    cluster.cut_off(lost)
    jobs = {pid: _variable(pid, "SLURM_JOB_ID") for pid in hit}
    cluster.preempt(given, cpus=1)
    [spared] = until(lambda: spared if len(spared := list(filter(is_alive, hit))) == 1 else [], launcher, "it leaves")
    cluster.call("scontrol", "update", f"jobid={jobs[spared]}", "EndTime=now")
    until(lambda: "down" in cluster.node_states()[lost], launcher, "a node that is taken for dead")
    living = sum(map(is_alive, zombies))
    until(lambda: not any(map(is_alive, zombies)), launcher, "the end of its processes")
    until(lambda: _timed_out(cluster), launcher, "a time limit that is reached")
    _release(cluster, waiting)
    cluster.start_node(lost)
    return living


def _trained(cluster: Cluster, folder: Path) -> list[Figure]:
    store, log = folder / "store", folder / "log.txt"
    folder.mkdir()
    with _launcher(store, log) as launcher:
        at_work = until(lambda: beating(store), launcher, "a run that has saved")
        cluster.preempt(_variable(next(iter(at_work.values())), "SLURMD_NODENAME"))
        until(lambda: completed(store) >= 6, launcher, "six runs")
        lost = _variable(next(iter(until(lambda: beating(store), launcher, "a run").values())), "SLURMD_NODENAME")
        cluster.lose_node(lost)
        until(lambda: completed(store) >= 12, launcher, "twelve runs")
        cluster.start_node(lost)
        _finish(launcher, log)
    return compare("trained", store, quiet_study(folder / "quiet", log))


@contextmanager
def _launcher(store: Path, log: Path, *words: str, line: Sequence[str] = LINE) -> Iterator[subprocess.Popen[bytes]]:
    """A launcher on Slurm; whoever leaves before it is done kills it."""
    launcher = start(store, *WORDS, *words, log=log, line=line)
    try:
        yield launcher
    finally:
        launcher.kill()
        launcher.wait()


def _finish(launcher: subprocess.Popen[bytes], log: Path) -> None:
    if launcher.wait() != 0:
        raise RuntimeError(log.read_text()[-3000:])


def _hold(cluster: Cluster) -> list[str]:
    """Keep what waits from taking the places of what must start again."""
    waiting = cluster.call("squeue", "--array", "--states=pending", "--noheader", "--format=%i").split()
    cluster.call("scontrol", "hold", *waiting)
    return waiting


def _release(cluster: Cluster, waiting: Sequence[str]) -> None:
    cluster.call("scontrol", "release", *waiting)
    array = waiting[0].partition("_")[0]
    # It says that tasks which have ended cannot be changed, and changes the others.
    cluster.call("scontrol", "update", f"jobid={array}", "ArrayTaskThrottle=6", check=False)


def _timed_out(cluster: Cluster) -> int:
    return len(cluster.call("squeue", "--array", "--states=timeout", "--noheader", "--format=%i").split())


def _went_on(store: Path, runs: Mapping[str, int]) -> int:
    paths = StorePaths(store)
    return sum((token_of(paths.run(STUDY, run)) or 0) > 1 for run in runs)


def _last_holder(store: Path, run: str) -> int | None:
    beat = read_heartbeat(StorePaths(store).run(STUDY, run))
    return beat.pid if beat else None


def _variable(pid: int, name: str) -> str:
    lines = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return next(line.partition("=")[2] for line in lines if line.startswith(f"{name}="))
