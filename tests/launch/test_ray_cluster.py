"""A real Ray cluster on this machine: nodes that die, processes that freeze, launchers that are killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairtrial.core.paths import RunPaths
from fairtrial.core.runs import Status
from fairtrial.launch.contract import LaunchRequest
from fairtrial.launch.engines import load_engine
from fairtrial.launch.ray_cluster import RayLauncher, _environment, _not_let_in, _set_authentication
from fairtrial.record.heartbeat import HEARTBEAT_VARIABLE, read_heartbeat
from fairtrial.record.series import read_lines
from fairtrial.record.store import Store
from fairtrial.testing import LAUNCHER_CHECKS, PROCESS_CHECKS, launcher_contract
from tests.conftest import Answer, start
from tests.harness import eventually, is_alive, parent_of, series_of

STUDY = ("--variant", "a:effect=0", "--variant", "b:effect=0.1", "--base-run-name", "s", "--seeds", "3")
RUNS = ("--steps", "330", "--checkpoint-every", "10", "--log-every", "1", "--jitter", "0.1")
GATED = """\
from pathlib import Path
from time import sleep

from fairtrial.recipes.fake import *


class Gated(Fake):
    def step(self, step, watch):
        if step > 30 and not Path(__file__).with_name("open").exists():
            sleep(0.5)
        return super().step(step, watch)


def build(options, setting):
    return Gated(options, setting.streams)
"""


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clusters and tokens of other tests are not found here. Ray's sockets allow for a short name only."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        monkeypatch.setenv("HOME", folder)
        yield


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head that runs nothing, and room for one run on each of three more nodes."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(3):
            made.add_node(num_cpus=1, wait=False)
        made.wait_for_nodes()
        yield made
    finally:
        made.shutdown()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[str]:
    """A cluster as a person starts it who has a token, from an earlier one: it lets nobody in without. Its address."""
    (Path.home() / ".ray").mkdir()
    (Path.home() / ".ray" / "auth_token").write_text("0123456789abcdef" * 4)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    line = [Path(sys.executable).with_name("ray"), "start", "--head", "--block", f"--port={port}", "--num-cpus=2"]
    with (tmp_path / "head.log").open("wb") as log:
        head = subprocess.Popen([*line, "--include-dashboard=false"], stdout=log, stderr=log)
    try:
        started = lambda: "Ray runtime started" in (tmp_path / "head.log").read_text()  # noqa: E731
        eventually(started, timeout=60, what="the start of the cluster")
        yield f"127.0.0.1:{port}"
    finally:
        head.terminate()
        head.wait(60)


@pytest.fixture
def connected() -> Iterator[None]:
    """This process is connected to a cluster, as a person's own program may be; the launcher leaves it at that."""
    import ray

    try:
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield
        assert ray.is_initialized()
    finally:
        ray.shutdown()  # also after half a start: this process could not end otherwise
        _set_authentication(ray, None)


def order(store: Path, **settings: Any) -> LaunchRequest:
    engine = load_engine("ray")
    return LaunchRequest(
        "adhoc", str(store), str(store / ".home"), engine.settings(settings), cells=5, jobs=2, preload=["fake"]
    )


def test_the_launcher_keeps_the_contract(tmp_path: Path, connected: None) -> None:
    for check in (*LAUNCHER_CHECKS, *PROCESS_CHECKS):
        store = tmp_path / check.__name__
        check(lambda store=store: load_engine("ray").open(order(store)), store)
    check_a_task_that_has_begun_is_given_to_nobody_else(order(tmp_path / "begun"))


def check_a_task_that_has_begun_is_given_to_nobody_else(request: LaunchRequest) -> None:
    """Its actor has started, which the launcher has not read yet, when another actor has nothing to do."""
    import ray

    with closing(RayLauncher(request)) as launcher:
        launcher.submit({"cell": launcher_contract._request(Path(request.store), 1).to_dict()})
        [seat] = launcher._seats
        ray.wait([seat.about], timeout=60)
        launcher._new_seat()
        launcher._place()
        assert seat in launcher._seats and list(seat.requests) == ["cell"]
        [end] = launcher_contract._collect(launcher, 1).values()
    assert end.outcome and end.outcome.status is Status.COMPLETED and not end.outcome.already_done


def making(store: Store, event: str) -> dict[str, int]:
    """Run → the process that makes it, for those whose attempt began with this event and has saved since."""
    found = {}
    for _, entry in store.directories("s"):
        beat = read_heartbeat(RunPaths(Path(entry.path)))
        begun = [row for row in read_lines(Path(entry.path) / "events.jsonl").rows if row["event"] == event]
        if beat and begun and beat.pid == begun[-1]["pid"] and beat.saved:
            found[entry.name] = beat.pid
    return found


def raylet_of(node: Any) -> int:
    [raylet] = node.all_processes["raylet"]
    return int(raylet.process.pid)


def ancestors(pid: int) -> list[int]:
    found = []
    while pid > 1:
        pid = parent_of(pid)
        found.append(pid)
    return found


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """Runs of `./gated.py` last minutes until this file is there, and then no time: nothing here hangs on speed."""
    (tmp_path / "gated.py").write_text(GATED)
    return tmp_path / "open"


def test_a_study_survives_a_lost_node_a_frozen_run_and_a_killed_launcher(
    cluster: Any, store: Store, gate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("0123456789abcdef" * 4)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))  # of another cluster; this one wants none
    monkeypatch.setenv(HEARTBEAT_VARIABLE, "0.3")
    study = ("launch", "./gated.py", *STUDY, *RUNS)
    line = (*study, "--on", "ray", "--address", cluster.address, "--lost-after", "3")
    first = start(*line)
    begun = lambda: first.poll() is not None or len(making(store, "run_started")) == 3  # noqa: E731
    eventually(begun, timeout=60, what="three runs that have saved")
    first.kill()
    _, err = first.communicate()
    assert first.returncode == -signal.SIGKILL, err
    second = start(*line)
    going_on = lambda: len(found := making(store, "run_resumed")) == 3 and found  # noqa: E731
    frozen, lost, _ = eventually(going_on, timeout=60, what="three runs that go on").values()
    os.kill(frozen, signal.SIGSTOP)
    [node] = [node for node in cluster.worker_nodes if raylet_of(node) in ancestors(lost)]
    cluster.remove_node(node, allow_graceful=False)
    eventually(lambda: not is_alive(lost), timeout=60, what="the end of the run whose node is gone")
    gate.touch()
    _, err = second.communicate(timeout=120)
    assert second.returncode == 0, err
    assert "no heartbeat" in err, err
    assert "its actor on the Ray cluster died" in err, err
    reference = Store(tmp_path / "reference")
    local = start(*study, "--store", str(reference.root))
    local.communicate()
    runs = [entry.name for _, entry in reference.directories("s")]
    assert len(runs) == 6
    for run in runs:
        assert series_of(store, "s", run) == series_of(reference, "s", run), run
    refuses_what_does_not_fit(cluster)
    refuses_a_node_with_another_version(cluster, tmp_path)


def test_a_guarded_cluster_is_joined_and_neither_a_killed_job_server_nor_a_kill_of_the_launcher_does_harm(
    guarded: str, store: Store, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HEARTBEAT_VARIABLE, "0.3")
    there = ("--on", "ray", "--address", guarded)
    process = start("launch", "./gated.py", *STUDY, *RUNS, *there, "--seeds", "1")
    runs = eventually(lambda: making(store, "run_started"), timeout=60, what="a run that has saved")
    os.kill(parent_of(min(runs.values())), signal.SIGKILL)
    gate.touch()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "the job server exited unexpectedly (status -9); rescheduling it" in err, err
    shows_its_token_to_this_cluster_only(guarded, store)
    ends_like_ctrl_c_though_ray_has_a_handler_of_its_own((*there, "--steps", "4000", "--step-time", "0.05"))


def shows_its_token_to_this_cluster_only(address: str, store: Store) -> None:
    launcher = load_engine("ray").open(order(store.root, address=address))
    assert os.environ["RAY_AUTH_MODE"] == "token"
    launcher.close()
    assert "RAY_AUTH_MODE" not in os.environ


def ends_like_ctrl_c_though_ray_has_a_handler_of_its_own(terms: Sequence[str]) -> None:
    store = Store(Path("detached"))
    process = start(
        "launch",
        "fake",
        *STUDY,
        *terms,
        "--checkpoint-every",
        "10",
        "--detach",
        "--format",
        "json",
        "--store",
        str(store.root),
    )
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    eventually(lambda: making(store, "run_started"), timeout=60, what="a run that has saved")
    os.kill(json.loads(out)["pid"], signal.SIGTERM)
    log = store.paths.launch_log("s")
    eventually(lambda: "launch again to resume" in log.read_text(), what="the last words of the launcher")
    assert "Stopping: runs save first" in log.read_text() and "SIGTERM received" not in log.read_text()


def test_whom_a_cluster_does_not_let_in_is_told_of_tokens() -> None:
    told = _not_let_in("10.0.0.1:6379", ConnectionError("Failed to connect\nand more"))
    assert told.message == "the Ray cluster at 10.0.0.1:6379 rejected the connection: Failed to connect"
    assert told.hint and "token authentication" in told.hint and "RAY_AUTH_TOKEN" in told.hint


def test_runs_there_see_what_reaches_the_store_only_where_it_is_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "me")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://here")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    assert "AWS_ACCESS_KEY_ID" not in _environment(order(Path("/shared/lab")))
    sent = _environment(replace(order(Path("/shared/lab")), store="s3://bucket/lab"))
    assert sent["AWS_ACCESS_KEY_ID"] == "me" and sent["AWS_ENDPOINT_URL"] == "http://here"
    assert "AWS_PROFILE" not in sent and "FAIRTRIAL_STORE" in sent and "HOME" not in sent


def refuses_what_does_not_fit(cluster: Any) -> None:
    line = ("launch", "fake", *STUDY, "--on", "ray", "--address", cluster.address, "--store", "other")
    other_ray = (
        "import ray, sys; ray.__version__ = '9.9'; from fairtrial.cli.app import run; sys.exit(run(sys.argv[1:]))"
    )
    answer = subprocess.run([sys.executable, "-c", other_ray, *line], capture_output=True, text=True, timeout=60)
    assert answer.returncode == 1
    assert "have different versions" in answer.stderr and "Ray: 9.9" in answer.stderr, answer.stderr
    process = start(*line, "--cpus", "99")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "no machine of the Ray cluster has the resources for a run: 99 cores" in err
    assert not Path("other").exists()


def refuses_a_node_with_another_version(cluster: Any, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(Path(load_engine.__code__.co_filename).parent.parent, other / "fairtrial")
    (other / "fairtrial" / "version.py").write_text('__version__ = "9.9"\n')
    cluster.add_node(num_cpus=64, env_vars={"PYTHONPATH": str(other)})
    line = ("launch", "fake", *STUDY, "--on", "ray", "--address", cluster.address, "--cpus", "32", "--store", "other")
    process = start(*line)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "and 9.9 on a machine of the Ray cluster" in err and "Install the same version" in err


def test_what_cannot_be_is_said_before_anything_is_written(shell: Any, store: Store) -> None:
    answer: Answer = shell("launch", "fake", *STUDY, "--on", "ray", "--address", "127.0.0.1:1", "--format", "json")
    assert (
        answer.code == 1 and "no Ray cluster responds at 127.0.0.1:1" in answer.err and "ray start --head" in answer.err
    )
    answer = shell("launch", "fake", *STUDY, "--on", "ray", "--address", "auto")
    assert answer.code == 1 and "no Ray cluster responds here" in answer.err, answer.err
    for wrong, told in (
        (("--on", "rya"), "did you mean 'ray'"),
        (("--on", "ray", "--with", "adress=x"), "did you mean 'address'"),
    ):
        answer = shell("launch", "fake", *STUDY, *wrong)
        assert answer.code == 1 and told in answer.err, answer.err
    assert not store.root.exists()
