"""On a real Slurm: nothing is lost when a job is pre-empted, timed out, or when its node or its launcher is gone."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fairtrial import ExecutionPolicy, Launched, Study, launch
from fairtrial.core.errors import UserError
from fairtrial.core.runs import Status
from fairtrial.launch.contract import LaunchRequest
from fairtrial.launch.remote_jobs import JobStage, JobState
from fairtrial.launch.slurm import Options, SlurmQueue, open_launcher
from fairtrial.record.claims import token_of
from fairtrial.record.heartbeat import RecordedHeartbeat, read_heartbeat
from fairtrial.record.store import Store
from fairtrial.testing import LAUNCHER_CHECKS, PROCESS_CHECKS
from tests.conftest import start
from tests.harness import eventually, forked, is_alive, one_at_a_time, request_for, series_of, wait
from tests.launch.slurm_cluster import Cluster, why_not


@pytest.fixture(scope="session")
def running_cluster(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Each worker of the tests has its own: it is up within two seconds."""
    with one_at_a_time(shared / "slurm.lock"):
        if reason := why_not():
            pytest.skip(reason)
    cluster = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def cluster(running_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    for name, value in running_cluster.variables.items():
        monkeypatch.setenv(name, value)
    return running_cluster


def an_order(folder: Path, **settings: object) -> LaunchRequest:
    return LaunchRequest(
        study="s", store=str(folder / "store"), home=str(folder / "home"), options=Options(ask=0.3, **settings), cells=5
    )


def keep(check: Callable[..., None], folder: Path) -> None:
    check(lambda: open_launcher(an_order(folder)), folder / "store")


def test_slurm_keeps_the_contract(cluster: Cluster, tmp_path: Path) -> None:
    """All checks at once, each with a store of its own: they wait for Slurm far longer than they compute."""
    with ThreadPoolExecutor(16) as pool:
        kept = {
            check: pool.submit(keep, check, tmp_path / check.__name__) for check in LAUNCHER_CHECKS + PROCESS_CHECKS
        }
    broken = {check.__name__: error for check, done in kept.items() if (error := done.exception())}
    assert not broken


STEPS = {"steps": 240, "step_time": 0.05, "checkpoint_every": 10, "jitter": 0.1}
STUDY = Study.model_validate(
    {"study": "s", "recipe": "fake", "options": STEPS, "variants": {"a": {}, "b": {"effect": 0.1}}, "seeds": 2}
)
SETTINGS = {"ask": 0.3}


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the study gives on this machine, where nothing happens to it; time spent is no part of the numbers."""
    store = tmp_path_factory.mktemp("undisturbed")
    quick = STUDY.model_copy(update={"options": {**STEPS, "step_time": 0.0}})
    return all_series(launch(quick, store=store))


def all_series(launched: Launched) -> dict[str, Any]:
    assert not launched.bad and not launched.missing
    store = Store.at(launched.store)
    return {run.id: series_of(store, "s", run.id) for run in launched.runs}


def holders(store: Store) -> dict[str, RecordedHeartbeat]:
    """Which process works on which cell, by its last sign of life."""
    runs = [path.name for path in store.paths.study("s").glob("*.seed*")]
    return {run: beat for run in runs if (beat := read_heartbeat(store.paths.run("s", run)))}


def node_of(beat: RecordedHeartbeat) -> str:
    """The node that a process believes to be on."""
    variables = Path(f"/proc/{beat.pid}/environ").read_bytes().split(b"\0")
    return next(line.partition(b"=")[2].decode() for line in variables if line.startswith(b"SLURMD_NODENAME="))


def test_a_preempted_job_and_one_whose_node_is_lost_go_on_elsewhere(
    cluster: Cluster, store: Store, undisturbed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRTRIAL_PULSE_S", "0.2")
    with ThreadPoolExecutor(1) as pool:
        launched = pool.submit(launch, STUDY, store=store.root, terms=ExecutionPolicy(on="slurm", settings=SETTINGS))
        eventually(lambda: launched.done() or len(holders(store)) == 4, timeout=60, what="four runs at work")
        first = holders(store)
        nodes = {run: node_of(beat) for run, beat in first.items()}
        lost, given = sorted(set(nodes.values()))[:2]
        cluster.lose_node(lost)
        cluster.preempt(given)
        zombies = [beat.pid for run, beat in first.items() if nodes[run] == lost]
        assert all(map(is_alive, zombies)), "the lost node's processes live on"
        eventually(
            lambda: launched.done() or not any(map(is_alive, zombies)), timeout=60, what="the end of the zombies"
        )
        assert not launched.done()
        result = launched.result(timeout=120)
    cluster.start_node(lost)
    for run, node in nodes.items():
        token = token_of(store.paths.run("s", run))
        assert token == (2 if node in (lost, given) else 1), (run, node, nodes)
    assert all_series(result) == undisturbed


def test_the_jobs_of_a_killed_launcher_go_on_and_the_next_one_adopts_them(
    cluster: Cluster, store: Store, undisturbed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRTRIAL_PULSE_S", "0.2")
    study = STUDY.model_copy(update={"options": {**STEPS, "step_time": 0.025}})
    terms = ExecutionPolicy(on="slurm", settings=SETTINGS)
    launcher = forked(lambda: launch(study, store=store.root, terms=terms))
    eventually(lambda: len(holders(store)) == 4, timeout=60, what="four runs at work")
    first = holders(store)
    os.kill(launcher, signal.SIGKILL)
    assert wait(launcher) == -signal.SIGKILL
    result = launch(study, store=store.root, terms=terms)
    assert all_series(result) == undisturbed
    last = holders(store)
    assert {run: beat.pid for run, beat in last.items()} == {run: beat.pid for run, beat in first.items()}
    assert not store.paths.launcher("s").exists(), "nothing is left of the errands"


def test_the_jobs_of_a_launcher_that_is_asked_to_end_save_and_are_gone(
    cluster: Cluster, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRTRIAL_PULSE_S", "0.2")
    line = ("launch", "fake", "--base-run-name", "s", "--seeds", "2", "--steps", "4000", "--step-time", "0.05")
    process = start(*line, "--on", "slurm", "--with", "ask=0.3")
    eventually(lambda: len(holders(store)) == 2, timeout=60, what="two runs at work")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "runs save first" in err, err
    for run in holders(store):
        found = store.run("s", run)
        assert found and found.status is Status.INTERRUPTED and found.paths.last.exists()
    assert not any(is_alive(beat.pid) for beat in holders(store).values())


def test_what_slurm_would_not_take_is_refused_before_anything_is_written(
    cluster: Cluster, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusal(**settings: Any) -> str:
        resources = {name: settings.pop(name) for name in ("cpus", "memory_gb") if name in settings}
        with pytest.raises(UserError) as refused:
            launch(STUDY, store=store.root, terms=ExecutionPolicy(on="slurm", settings=settings, **resources))
        assert not store.root.exists()
        return str(refused.value)

    assert "did you mean 'main'" in refusal(partition="mian").lower()
    assert "partition" in refusal(partitoin="main")
    assert "time: must be" in refusal(time="soon")
    assert "Invalid feature" in refusal(constraint="gold")
    assert "not available" in refusal(cpus=64)
    assert "not available" in refusal(memory_gb=10_000.0)
    monkeypatch.setenv("PATH", "")
    assert "sbatch is not on the PATH" in refusal()


def test_what_was_said_before_a_run_began_is_passed_on(cluster: Cluster, tmp_path: Path, store: Store) -> None:
    launcher = open_launcher(an_order(tmp_path, setup="echo 'no such module: cuda' >&2; exit 3"))
    launcher.submit({"cell": request_for(store, "fake").to_dict()})
    [end] = eventually(lambda: launcher.poll(0.1), what="the exit")
    launcher.close()
    assert end.outcome and end.outcome.status is Status.FAILED and "no such module: cuda" in (end.outcome.reason or "")


def row(state: str, **fields: str) -> str:
    known = {"JobArrayID": "7_1", "State": state, "NodeList": "n2", "TimeLimit": "1:00", "TimeUsed": "0:30",
             "exit_code": "0", "Reason": "None", **fields}  # fmt: skip
    return "|".join(f"{value:40}" for value in known.values()) + "|\n"


@pytest.mark.parametrize(
    ("line", "state"),
    [
        (row("PENDING"), JobState(JobStage.QUEUED)),
        (row("COMPLETING"), JobState(JobStage.RUNNING)),
        (row("TIMEOUT"), JobState(JobStage.GONE, why="Slurm's time limit of 1 minute was reached on n2")),
        (row("TIMEOUT", TimeLimit="2-01:00:00"),
         JobState(JobStage.GONE, why="Slurm's time limit of 2940 minutes was reached on n2")),
        (row("NODE_FAIL"), JobState(JobStage.GONE, why="Slurm lost the node n2")),
        (row("PREEMPTED"), JobState(JobStage.GONE, why="Slurm preempted its job 7_1 on n2")),
        (row("CANCELLED by 0"), JobState(JobStage.GONE, why="its Slurm job 7_1 was canceled")),
        (row("DEADLINE"), JobState(JobStage.GONE, why="the deadline of its Slurm job 7_1 was reached on n2")),
        (row("BOOT_FAIL"), JobState(JobStage.GONE, why="the node n2 did not start")),
        (row("OUT_OF_MEMORY"),
         JobState(JobStage.GONE, why="it needed more memory than it requested on n2", failed=True,
                  hint="Request more with --memory GB.")),
        (row("COMPLETED"), JobState(JobStage.GONE, 0, "its Slurm job 7_1 ended on n2 without reporting a result")),
        (row("FAILED", exit_code=str(137 << 8)), JobState(JobStage.GONE, -9, "its Slurm job 7_1 ended on n2")),
        (row("FAILED", exit_code="3:0"), JobState(JobStage.GONE, 3, "its Slurm job 7_1 ended on n2")),
        (row("FAILED", exit_code=str(143 << 8)),
         JobState(JobStage.GONE, -15, "Slurm's time limit of 1 minute was near on n2")),
        (row("FAILED", exit_code=str(143 << 8), TimeLimit="UNLIMITED"),
         JobState(JobStage.GONE, -15, "its Slurm job 7_1 ended on n2")),
    ],
)  # fmt: skip
def test_what_slurm_says_of_a_job_is_understood(line: str, state: JobState, tmp_path: Path) -> None:
    assert SlurmQueue(an_order(tmp_path))._read(line, ["7_1"]) == {"7_1": state}
