"""A study on a real Slurm of three nodes, where everything goes wrong that may, against the same study on one machine.

2 variants × 15 seeds of the `fake` recipe, whose runs are long enough to be hit. Four runs are at work on two nodes.
The daemon of one node is killed: Slurm takes the node for dead and starts its two jobs again elsewhere, while their
first processes live on. On the other node a job of a higher partition takes the place of one run, and the time limit of
the other is cut short. Then the launcher is killed while runs are at work, and another one started.

In the end every series of every run must equal, value by value and bit by bit, those of a launch on this machine that
nothing happened to. A second study trains real models and is pre-empted once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.harness import eventually, series_of
from tests.launch.slurm_cluster import Cluster, why_not

from benchmarks.figures import Figure, at_least, exactly, unavailable
from benchmarks.measure import ROOT
from fairtrial import LaunchTerms, Study, launch
from fairtrial.core.runs import Status
from fairtrial.record.claims import token_of
from fairtrial.record.pulse import Beat, read_pulse
from fairtrial.record.store import Store

TITLE = "A study on Slurm in which everything goes wrong"
SEEDS = 15
AT_ONCE = 4
PATIENCE_S = 600.0
SYNTHETIC: dict[str, Any] = {
    "study": "synthetic",
    "recipe": "fake",
    "options": {"steps": 160, "step_time": 0.3, "checkpoint_every": 5, "eval_every": 20, "jitter": 0.1},
    "variants": {"control": {}, "candidate": {"effect": 0.03}},
    "seeds": SEEDS,
}
TRAINED: dict[str, Any] = {
    "study": "trained",
    "recipe": "classify",
    "options": {"steps": 3000, "checkpoint_every": 50, "eval_every": 500},
    "variants": {"linear": {"model": "linear"}, "mlp": {"model": "mlp"}},
    "seeds": 3,
}
Series = dict[str, dict[str, list[tuple[int, str]]]]


def measure(folder: Path) -> list[Figure]:
    if reason := why_not():
        return unavailable({"Slurm": reason}, "runs")
    home = folder / "slurm"
    home.mkdir(mode=0o755)
    cluster = Cluster(home)
    synthetic, trained = (_Apart(cluster, study, folder / "apart") for study in (SYNTHETIC, TRAINED))
    try:
        cluster.start()
        return _synthetic(synthetic, folder) + _trained(trained, folder)
    finally:
        synthetic.end()
        trained.end()
        cluster.stop()


def _synthetic(apart: _Apart, folder: Path) -> list[Figure]:
    cluster = apart.cluster
    started = time.monotonic()
    first = apart.start("--jobs", str(AT_ONCE))
    at_work = apart.await_runs(AT_ONCE)
    waiting = apart.hold()
    nodes = {run: _node_of(beat) for run, beat in at_work.items()}
    lost, given = sorted(set(nodes.values()))
    zombies = [beat.pid for run, beat in at_work.items() if nodes[run] == lost]
    cluster.cut_off(lost)
    cluster.preempt(given, cpus=1)
    spared = eventually(lambda: _spared(at_work, nodes, given), timeout=PATIENCE_S, what="a pre-emption")
    apart.cut_short(spared)
    eventually(lambda: "down" in cluster.node_states()[lost], timeout=PATIENCE_S, what="a node taken for dead")
    living = sum(map(_lives, zombies))
    eventually(lambda: not any(map(_lives, zombies)), timeout=PATIENCE_S, what="the end of its processes")
    eventually(apart.timed_out, timeout=PATIENCE_S, what="a time limit")
    apart.release(waiting)
    cluster.start_node(lost)
    eventually(lambda: apart.completed() >= AT_ONCE, timeout=PATIENCE_S, what="runs that completed")
    left = apart.kill(first)
    apart.finish(apart.start())
    took = time.monotonic() - started
    adopted = sum(beat.pid == apart.holders()[run].pid for run, beat in left.items())
    again = sum((token_of(apart.store.paths.run(apart.name, run)) or 0) > 1 for run in nodes)
    alone = _alone(SYNTHETIC, folder / "alone", jobs=SEEDS)
    return [
        *_compared("synthetic", apart.series(), alone),
        Figure("synthetic: array tasks that Slurm timed out", apart.timed_out(), "jobs", goal=at_least(1)),
        Figure("synthetic: processes that outlived their node", living, "processes", goal=exactly(len(zombies))),
        Figure("synthetic: runs that were hit and went on", again, "runs", goal=exactly(AT_ONCE)),
        Figure("synthetic: runs that the second launcher adopted", adopted, "runs", goal=at_least(1)),
        Figure("synthetic: from the first launch to the end", took, "s"),
    ]


def _spared(at_work: Mapping[str, Beat], nodes: Mapping[str, str], node: str) -> str | None:
    """The run that still works on a node when another had to leave it."""
    alive = [run for run, beat in at_work.items() if nodes[run] == node and _lives(beat.pid)]
    return alive[0] if len(alive) == 1 else None


def _trained(apart: _Apart, folder: Path) -> list[Figure]:
    alone = _alone(TRAINED, folder / "alone")
    launcher = apart.start()
    at_work = apart.await_runs(1)
    apart.cluster.preempt(_node_of(next(iter(at_work.values()))))
    apart.finish(launcher)
    again = sum((token_of(apart.store.paths.run(apart.name, run)) or 0) > 1 for run in at_work)
    return [
        *_compared("trained", apart.series(), alone),
        Figure("trained: runs that went on after a pre-emption", again, "runs", goal=at_least(1)),
    ]


def _alone(study: Mapping[str, Any], store: Path, jobs: int | None = None) -> Series:
    """The same study on this machine, where nothing happens to it."""
    done = launch(Study.model_validate(study), store=store, terms=LaunchTerms(jobs=jobs))
    return {run.id: series_of(Store(store), study["study"], run.id) for run in done.runs}


def _compared(name: str, apart: Series, alone: Series) -> list[Figure]:
    pairs = {(run, metric) for series in (apart, alone) for run, found in series.items() for metric in found}
    differing = sum(apart.get(run, {}).get(metric) != alone.get(run, {}).get(metric) for run, metric in pairs)
    runs = len({run for run, _ in pairs})
    return [
        Figure(f"{name}: completed runs", len(apart), "runs", goal=exactly(len(alone)), note="on Slurm"),
        Figure(f"{name}: series compared", len(pairs), "series", note=f"of {runs} runs"),
        Figure(f"{name}: series that differ from those of one machine", differing, "series", goal=exactly(0)),
    ]


class _Apart:
    """A study that is launched on the cluster, by launchers that can be killed."""

    def __init__(self, cluster: Cluster, study: Mapping[str, Any], store: Path) -> None:
        self.cluster = cluster
        self.name = str(study["study"])
        self.store = Store(store)
        self._launchers: list[subprocess.Popen[bytes]] = []
        self._log = store.with_name(f"{self.name}.log")
        self._file = store.with_name(f"{self.name}.yaml")
        self._file.write_text(json.dumps(study))

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "fairtrial", "launch", str(self._file), "--store", str(self.store.root)]
        argv += ["--on", "slurm", "--with", "ask=0.5", "--with", "time=10", *more]
        with self._log.open("ab") as log:
            launcher = subprocess.Popen(
                argv, cwd=ROOT, env={**os.environ, **self.cluster.variables, "FAIRTRIAL_PULSE_S": "0.5"},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self._launchers.append(launcher)
        return launcher

    def end(self) -> None:
        for launcher in self._launchers:
            launcher.kill()
            launcher.wait()

    def kill(self, launcher: subprocess.Popen[bytes]) -> dict[str, Beat]:
        """What was at work when the launcher was killed."""
        launcher.kill()
        assert launcher.wait() == -signal.SIGKILL, self._said()
        return {run: beat for run, beat in self.holders().items() if _lives(beat.pid)}

    def finish(self, launcher: subprocess.Popen[bytes]) -> None:
        if launcher.wait(PATIENCE_S):
            raise RuntimeError(self._said())

    def await_runs(self, count: int) -> dict[str, Beat]:
        found: dict[str, Beat] = eventually(
            lambda: at_work if len(at_work := self._at_work()) >= count else None,
            timeout=PATIENCE_S, what=f"{count} runs at work",
        )  # fmt: skip
        return found

    def _at_work(self) -> dict[str, Beat]:
        return {run: beat for run, beat in self.holders().items() if beat.saved and _lives(beat.pid)}

    def holders(self) -> dict[str, Beat]:
        runs = [path.name for path in self.store.paths.study(self.name).glob("*.seed*")]
        return {run: beat for run in runs if (beat := read_pulse(self.store.paths.run(self.name, run)))}

    def hold(self) -> list[str]:
        """Keep what waits from taking the places of what must start again."""
        waiting = self.cluster.call("squeue", "--array", "--states=pending", "--noheader", "--format=%i").split()
        self.cluster.call("scontrol", "hold", *waiting)
        return waiting

    def release(self, waiting: Sequence[str]) -> None:
        self.cluster.call("scontrol", "release", *waiting)
        array = waiting[0].partition("_")[0]
        # It says that the task which has ended cannot be changed, and changes the others.
        self.cluster.call("scontrol", "update", f"jobid={array}", "ArrayTaskThrottle=6", check=False)

    def cut_short(self, run: str) -> None:
        job = _variable(self.holders()[run].pid, "SLURM_JOB_ID")
        self.cluster.call("scontrol", "update", f"jobid={job}", "EndTime=now")

    def timed_out(self) -> int:
        listed = self.cluster.call("squeue", "--array", "--states=timeout", "--noheader", "--format=%i")
        return len(listed.split())

    def completed(self) -> int:
        return len(self._completed())

    def series(self) -> Series:
        return {run: series_of(self.store, self.name, run) for run in self._completed()}

    def _completed(self) -> list[str]:
        runs = [path.name for path in self.store.paths.study(self.name).glob("*.seed*")]
        found = [(run, self.store.run(self.name, run)) for run in runs]
        return [run for run, there in found if there is not None and there.status is Status.COMPLETED]

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]


def _node_of(beat: Beat) -> str:
    return _variable(beat.pid, "SLURMD_NODENAME")


def _variable(pid: int, name: str) -> str:
    lines = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return next(line.partition("=")[2] for line in lines if line.startswith(f"{name}="))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
