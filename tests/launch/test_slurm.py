"""On a real Slurm: nothing is lost when a job is pre-empted, timed out, or when its node or its launcher is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fairtrial import Launched, LaunchTerms, Study, launch
from fairtrial.launch.contract import Order
from fairtrial.launch.slurm import Options, open_launcher
from fairtrial.record.pulse import Beat, read_pulse
from fairtrial.record.store import Store
from fairtrial.testing import LAUNCHER_CHECKS, PROCESS_CHECKS
from tests.harness import eventually, one_at_a_time, series_of
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


def an_order(folder: Path, **settings: object) -> Order:
    return Order(
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


STEPS = {"steps": 150, "step_time": 0.05, "checkpoint_every": 10, "jitter": 0.1}
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
    store = Store(launched.store)
    return {run.id: series_of(store, "s", run.id) for run in launched.runs}


def holders(store: Store) -> dict[str, Beat]:
    """Which process works on which cell, by its last sign of life."""
    runs = {f"{variant}.seed{seed}" for variant in STUDY.variants for seed in (0, 1)}
    return {run: beat for run in sorted(runs) if (beat := read_pulse(store.paths.run("s", run)))}


def nodes_of(cluster: Cluster) -> dict[str, str]:
    listed = cluster.call("squeue", "--array", "--states=running", "--noheader", "--partition=main", "--format=%i %N")
    return dict(line.split() for line in listed.splitlines())


def test_a_preempted_job_and_one_whose_node_is_lost_go_on_elsewhere(
    cluster: Cluster, store: Store, undisturbed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRTRIAL_PULSE_S", "0.2")
    told: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        terms = LaunchTerms(on="slurm", settings=SETTINGS, tell=told.append)
        launched = pool.submit(launch, STUDY, store=store.root, terms=terms)
        eventually(lambda: launched.done() or len(holders(store)) == 4, timeout=60, what="four runs at work")
        before, placed = holders(store), nodes_of(cluster)
        lost, given = sorted(set(placed.values()))[:2]
        cluster.kill_node(lost)
        zombies = [beat for beat in before.values() if Path(f"/proc/{beat.pid}").exists()]
        cluster.call("scontrol", "update", f"nodename={lost}", "state=down", "reason=test")
        cluster.call("sbatch", "--partition=high", f"--nodelist={given}", "--cpus-per-task=2", "--output=/dev/null",
                     "--wrap=sleep 1")  # fmt: skip
        result = launched.result(timeout=120)
    cluster.start_node(lost)
    print(told, placed, before, {run.id: run.metadata.get("timings") for run in result.runs}, zombies)
    assert all_series(result) == undisturbed
