"""--on skypilot: task files that SkyPilot accepts, and what becomes of the runs when machines and launchers are lost."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.cluster_skypilot import LAUNCHES, TYPOS, Launch, as_kept, caught_by

from fairtrial import Study, launch
from fairtrial.api.running.execution import complete
from fairtrial.api.running.planning import plan_jobs
from fairtrial.core.errors import UserError
from fairtrial.core.registry import load_recipe
from fairtrial.core.runs import Run, Status
from fairtrial.jobs.mailbox import FolderMailbox, open_mailbox
from fairtrial.launch import remote_jobs, sky_queue
from fairtrial.launch.contract import Exit, Launcher, LaunchRequest, ResourceRequest
from fairtrial.launch.engines import load_engine
from fairtrial.launch.job_plan import JobPlan
from fairtrial.launch.policy import ExecutionPolicy
from fairtrial.launch.schedule import ScheduledRun
from fairtrial.launch.sky_program import Sky, interpreter_of
from fairtrial.launch.sky_queue import SkyLauncher
from fairtrial.launch.sky_tasks import extras_of
from fairtrial.launch.skypilot import check, open_launcher
from fairtrial.plan.cells import resolve, spec_of
from fairtrial.record.store import Store
from fairtrial.testing import LAUNCHER_CHECKS, PROCESS_CHECKS
from tests.conftest import Answer, Moto
from tests.harness import eventually, forked, make, series_of, wait
from tests.launch import sky_stand_in

ROOT = Path(__file__).parent.parent.parent
GOLDEN = Path(__file__).parent / "golden"
REAL_SKY = ROOT / ".venv-sky/bin/sky"
needs_sky = pytest.mark.skipif(not REAL_SKY.exists(), reason="SkyPilot's own environment is missing: make sky")
Cli = Callable[..., Answer]


GATED = """
import os, time
from beside import METRIC, REQUIRES, SUMMARY, Options
from beside import build as build_fake

def build(options, setting):
    trainable = build_fake(options, setting)
    take = trainable.step

    def step(number, watch):
        while number == 40 and not os.path.exists(os.environ["GATE"]):
            time.sleep(0.02)
        return take(number, watch)

    trainable.step = step
    return trainable
"""
"""A recipe of somebody's whose runs wait before step 40 until there is a file, so that tests need not be quick."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project of somebody's, with a recipe that needs a module beside it."""
    root = tmp_path / "project"
    inner = root / "experiments"
    inner.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / ".gitignore").write_text("*.secret\n")
    (root / "big.secret").write_text("not shipped")
    (inner / "beside.py").write_text("from fairtrial.recipes.fake import *\n")
    (inner / "mine.py").write_text(GATED)
    monkeypatch.setenv("GATE", str(tmp_path / "gate"))
    monkeypatch.chdir(inner)
    return root


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: Path) -> Iterator[None]:
    """The stand-in on $PATH. Whatever still runs on its machines in the end is ended."""
    program = tmp_path / "bin" / "sky"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n" + Path(sky_stand_in.__file__).read_text())
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("SKY_STAND_IN", str(tmp_path / "cloud"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
    monkeypatch.setattr(sky_queue.SkyQueue, "ask_s", 0.2)
    monkeypatch.setattr(remote_jobs, "MESSAGE_DELAY_S", 0.3)
    monkeypatch.setattr(FolderMailbox, "poll_s", 0.1)
    yield
    for job in sky_stand_in.all_jobs():
        sky_stand_in.cancel(["--name", sky_stand_in.read(job)["job_name"]])
    eventually(lambda: all(sky_stand_in.read(job)["end_at"] for job in sky_stand_in.all_jobs()), what="the end of all")


def order_on(
    store: Store, *, cells: int = 1, resources: ResourceRequest | None = None, **settings: Any
) -> LaunchRequest:
    """Machines of the stand-in share our disk, so a folder serves as their store."""
    options = load_engine("skypilot").settings({"python": sys.executable, **settings})
    home = str(store.paths.launcher("s"))
    return LaunchRequest("s", str(store.root), home, options, cells=cells, resources=resources or ResourceRequest())


def records() -> list[dict[str, Any]]:
    return [sky_stand_in.read(job) for job in sky_stand_in.all_jobs()]


def ended_records() -> list[tuple[int, str]]:
    """How often the machine of each job was replaced, and how the job ended. It does so after its last run."""
    eventually(lambda: all(record["end_at"] for record in records()), what="the end of the jobs")
    return sorted((record["recovery_count"], record["status"]) for record in records())


# What SkyPilot says.


@pytest.mark.parametrize("name", LAUNCHES)
def test_task_files_are_those_that_skypilot_accepted(name: str, tmp_path: Path) -> None:
    """`make sky` writes them anew, after asking SkyPilot."""
    assert as_kept(LAUNCHES[name].tasks(tmp_path), tmp_path) == (GOLDEN / f"{name}.yaml").read_text()


@needs_sky
def test_skypilot_accepts_every_task_file_and_names_every_problem_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    sky = Sky(str(REAL_SKY))
    tasks = [task for launch in LAUNCHES.values() for task in launch.tasks(tmp_path)]
    judged = sky.judge(tasks)
    assert judged.version and not judged.problems
    three = Launch({"cloud": "awz", "disk_size": "200x", "disk_tier": "fast"})
    problems = sky.judge(three.tasks(tmp_path)).problems
    assert [problem.partition(":")[0] for problem in problems] == ["cloud", "disk_size", "disk_tier"]


def test_what_we_find_wrong_ourselves_needs_no_skypilot(tmp_path: Path) -> None:
    nobody = Sky(str(tmp_path / "no sky here"))
    (tmp_path / "no sky here").write_text("")
    caught = {name: told for name, launch in TYPOS.items() if (told := caught_by(launch, nobody, tmp_path))}
    assert "did you mean 'accelerators'?" in caught["acelerators=L4"]
    assert {"clod=aws", "accelerators=L4 with --gpus 0", "at_once=0", "secrets=LAB_KEY=abc"} < set(caught)


@pytest.mark.parametrize(("scheme", "extra"), [("s3", "s3"), ("s3a", "s3"), ("gs", "gcs"), ("gcs", "gcs")])
def test_a_machine_gets_what_its_store_needs(scheme: str, extra: str, store: Store) -> None:
    assert extras_of(replace(order_on(store), store=f"{scheme}://bucket/lab")) == [extra]


def test_a_launch_is_refused_before_anything_is_written(
    cli: Cli, tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("launch", "fake", "--seeds", "1", "--on", "skypilot")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    missing = cli(*words)
    assert missing.code == 1 and "needs the program sky" in missing.err and "pipx install" in missing.err
    assert not (tmp_path / "store").exists()


@pytest.mark.usefixtures("cloud")
def test_what_is_missing_is_named(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = replace(order_on(store), store="s3://bucket/lab")
    check(shared)
    with pytest.raises(UserError, match="cannot reach the store"):
        check(order_on(store))
    with pytest.raises(UserError, match="no access to gcp") as refused:
        check(replace(shared, options=load_engine("skypilot").settings({"cloud": "gcp"})))
    assert refused.value.hint and "sky check gcp" in refused.value.hint
    with pytest.raises(UserError, match=r"\$LAB_KEY is not set"):
        check(replace(shared, options=load_engine("skypilot").settings({"secrets": "LAB_KEY"})))
    elsewhere = tmp_path / "elsewhere.py"
    with pytest.raises(UserError, match="outside of"):
        check(replace(shared, preload=[str(elsewhere)]))
    monkeypatch.setenv("SKY_STAND_IN_CLOUDS", "")
    with pytest.raises(UserError, match="no access to any cloud"):
        check(shared)


def test_a_dry_run_shows_files_and_commands_and_writes_nothing(cli: Cli, tmp_path: Path, project: Path) -> None:
    words = ("launch", "./mine.py", "--seeds", "3", "--jobs", "2", "--on", "skypilot", "--spot", "--dry-run")
    said = cli(*words)
    assert said.code == 0 and "use_spot: true" in said.out and "cd experiments" in said.out
    assert "sky jobs launch --yes --detach-run" in said.out and "cannot reach the store" in said.err
    document = cli(*words, "--format", "json").json["launcher"]
    assert [len(task["task"]["run"].splitlines()) for task in document["tasks"]] == [5, 4]
    assert document["tasks"][0]["yaml"] in said.out and len(document["commands"]) == 2
    assert not (tmp_path / "store").exists()


def test_the_python_of_sky_is_found_in_either_form_of_its_first_lines(tmp_path: Path) -> None:
    program = tmp_path / "sky"
    program.write_text(f"#!{sys.executable}\n")
    assert interpreter_of(program) == sys.executable
    program.write_text('#!/bin/sh\n\'\'\'exec\' "/a long/path/python3.11" "$0" "$@"\n'.replace("\\", ""))
    assert interpreter_of(program) == "/a long/path/python3.11"
    program.write_text("")
    assert interpreter_of(program) is None


# On machines.


@pytest.mark.parametrize("check", (*LAUNCHER_CHECKS, *PROCESS_CHECKS), ids=lambda check: check.__name__)
@pytest.mark.usefixtures("cloud")
def test_it_keeps_the_contract(check: Callable[..., None], store: Store) -> None:
    """Two runs at once on a machine, each with a card of its own; three runs for each machine."""
    request = order_on(store, cells=5, resources=ResourceRequest(gpus=1), accelerators="L4", at_once=2, group=3)
    check(lambda: open_launcher(request), store.root)


def plan_of(store: Store, seeds: Sequence[int], recipe: str = "fake", **options: Any) -> JobPlan:
    loaded = load_recipe(recipe)
    specs = [spec_of(loaded, resolve(loaded, options, where="test"), study="s", variant="v", seed=n) for n in seeds]
    return plan_jobs(specs, store, {})


def run_of(store: Store, seed: int) -> Run:
    run = store.run("s", f"v.seed{seed}")
    assert run is not None
    return run


@pytest.mark.usefixtures("cloud")
def test_a_run_goes_on_from_its_checkpoint_when_skypilot_replaces_a_lost_machine(store: Store, tmp_path: Path) -> None:
    """The recipe is a file of the project, with a module beside it; a second run waits behind it on the machine."""
    make(store, "fake", study="alone", steps=60)
    plan = plan_of(store, [1, 2], "./mine.py", steps=60, checkpoint_every=5)
    key, gate = plan.jobs[0].spec.name, tmp_path / "gate"
    wait_too = f"case $HOME in *machine-1) until test -e {gate}; do sleep 0.05; done;; esac"
    launcher = open_launcher(order_on(store, cells=2, group=2, setup=wait_too, secrets="GATE"))
    phases = ["lose it", "look", "done"]

    def lose_once(runs: Sequence[ScheduledRun]) -> None:
        if phases[0] == "lose it" and launcher.has_started(key) and store.paths.run("s", "v.seed1").last.exists():
            phases.pop(0)
            sky_stand_in.lose(1)
        elif phases[0] == "look" and records()[0]["recovery_count"] and records()[0]["status"] == "RUNNING":
            phases.pop(0)
            eventually(lambda: launcher.poll(0.05) or not launcher.has_started(key), what="the news of the loss")
            assert not [True for _ in range(4) if launcher.poll(0.2) or launcher.has_started(key)], "it is being set up"
            gate.touch()

    runs = complete(plan, store, launcher, ExecutionPolicy(watch=lose_once))
    launcher.close()
    assert phases == ["done"]
    assert [run.outcome and run.outcome.status for run in runs] == [Status.COMPLETED] * 2
    assert ended_records() == [(1, "SUCCEEDED")]
    assert series_of(store) == series_of(store, "alone"), "metric by metric what an undisturbed run has"
    assert run_of(store, 1).metadata["lineage"], "it was resumed"
    shipped = sky_stand_in.folder_of(1) / "machine-1/sky_workdir"
    assert (shipped / "experiments/beside.py").exists() and not (shipped / "big.secret").exists()


@pytest.mark.usefixtures("cloud")
def test_a_killed_launcher_has_a_successor_that_adopts_its_machines(store: Store, tmp_path: Path) -> None:
    plan = plan_of(store, [1, 2], "./mine.py", steps=50)
    request = order_on(store, cells=2, group=1, secrets="GATE")

    def first() -> None:
        complete(plan, store, open_launcher(request), ExecutionPolicy())

    pid = forked(first)
    eventually(lambda: store.run("s", "v.seed1") and store.run("s", "v.seed2"), what="the start of both runs")
    os.kill(pid, signal.SIGKILL)
    wait(pid)
    launcher = open_launcher(request)
    runs = complete(plan, store, launcher, ExecutionPolicy(watch=lambda _: (tmp_path / "gate").touch()))
    launcher.close()
    assert [run.outcome and run.outcome.status for run in runs] == [Status.COMPLETED] * 2
    assert len(records()) == 2, "nothing was started twice"
    assert not list(Path(request.home).glob("*.json")), "nothing is left of the errands"


def started(launcher: Launcher, keys: Sequence[str]) -> None:
    eventually(lambda: launcher.poll(0.05) or all(launcher.has_started(key) for key in keys), what="the start")


def exits_of(launcher: Launcher, count: int) -> Mapping[str, Exit]:
    found: dict[str, Exit] = {}
    eventually(lambda: found.update({end.key: end for end in launcher.poll(0.05)}) or len(found) == count, timeout=60)
    return found


@pytest.mark.usefixtures("cloud")
def test_one_run_of_a_machine_is_killed_and_the_rest_go_on_until_they_are_not_wanted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sky_queue, "CANCEL_S", 1.0)
    requests = {str(job.spec.seed): job.to_dict() for job in plan_of(store, [1, 2, 3], step_time=0.05, steps=2000).jobs}
    launcher = open_launcher(order_on(store, cells=3, group=3, at_once=2))
    for key, request in requests.items():
        launcher.submit({key: request})
    started(launcher, ["1", "2"])
    launcher.stop("1", kill=True)
    end = exits_of(launcher, 1)["1"]
    assert end.code == -signal.SIGKILL and end.outcome is None
    assert run_of(store, 2).status is Status.RUNNING and records()[0]["status"] == "RUNNING"
    launcher.stop("2", kill=False)
    asked = exits_of(launcher, 1)["2"]
    assert asked.outcome and asked.outcome.status is Status.INTERRUPTED
    launcher.close()
    eventually(lambda: records()[0]["status"] == "CANCELLED", what="that the machine is given back")


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize("how", ["refused", "set-up"])
def test_what_would_fail_anywhere_is_told_with_its_reason(
    how: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"setup": "echo no such package; exit 1"} if how == "set-up" else {}
    if how == "refused":
        monkeypatch.setenv("SKY_STAND_IN_REFUSES", "1")
    launcher: SkyLauncher = open_launcher(order_on(store, **settings))
    [job] = plan_of(store, [1]).jobs
    launcher.submit({"cell": job.to_dict()})
    end = exits_of(launcher, 1)["cell"]
    launcher.close()
    expected = "no machine of this kind is left" if how == "refused" else "no such package"
    assert end.outcome and end.outcome.status is Status.FAILED and expected in (end.outcome.reason or "")


@pytest.mark.usefixtures("cloud")
def test_a_study_in_a_shared_store_equals_a_local_one_though_a_machine_is_lost(
    moto: Moto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machines have mirrors of their own; all that they have in common with us is the object store.

    No run gets beyond step 40 before the machines are lost.
    """
    gate = tmp_path / "gate"
    surroundings = {**moto.surroundings, "FAIRTRIAL_LEASE": "4", "GATE": str(gate)}
    for name, value in {**surroundings, "FAIRTRIAL_MIRRORS": str(tmp_path / "here")}.items():
        monkeypatch.setenv(name, value)
    options = {"steps": 60, "checkpoint_every": 10, "jitter": 0.1, "eval_every": 20}
    study = Study.model_validate({"study": "s", "recipe": "./mine.py", "seeds": [1, 2], "options": options})
    settings = {"python": sys.executable, "secrets": ",".join(surroundings), "group": 1}
    url = f"s3://{moto.bucket()}/lab"

    def lose_once(runs: Sequence[ScheduledRun]) -> None:
        if not gate.exists() and all(run.liveness.heartbeat and run.liveness.heartbeat.step >= 30 for run in runs):
            for job in sky_stand_in.all_jobs():
                sky_stand_in.lose(job)
            gate.touch()

    done = launch(study, store=url, terms=ExecutionPolicy(on="skypilot", settings=settings, watch=lose_once))
    assert [run.status for run in done.runs] == [Status.COMPLETED] * 2
    local = launch(study, store=tmp_path / "local")
    for name in (run.name.partition("/")[2] for run in local.runs):
        assert series_of(Store.at(url), "s", name) == series_of(Store(tmp_path / "local"), "s", name)
    assert ended_records() == [(1, "SUCCEEDED")] * 2, "the next machines of the same jobs went on"
    assert not open_mailbox(f"{url}/s/.launcher").names(), "nothing is left of the errands"
