"""What SkyPilot itself says of the task files that Fairtrial writes, and of settings that people mistype.

SkyPilot's own parser is asked, in its own environment (`make sky`). Task files of launches of many kinds must all be
accepted; of the mistyped settings, each alone in a launch that is fine otherwise, each must be named before anything is
started. Cards, regions and machine types are looked up in catalogues that SkyPilot fetches from the network, so they
are no part of this.

Last, a task is really carried out, set-up and all, with nothing but what it ships and what pip brings: on a stand-in
for the cloud (tests/launch/sky_stand_in.py), which is this machine. No cloud was used: nothing shows that one starts.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, exactly, less_than
from benchmarks.measure import ROOT
from fairtrial.api.running.execution import complete
from fairtrial.api.running.planning import plan_jobs
from fairtrial.core.errors import FairtrialError
from fairtrial.core.registry import load_recipe
from fairtrial.core.runs import Status
from fairtrial.launch.contract import LaunchRequest, ResourceRequest
from fairtrial.launch.engines import load_engine
from fairtrial.launch.policy import ExecutionPolicy
from fairtrial.launch.sky_program import Sky
from fairtrial.launch.sky_tasks import as_yaml
from fairtrial.launch.skypilot import require_accepted, tasks_for
from fairtrial.plan.cells import resolve, spec_of
from fairtrial.record.store import Store

TITLE = "SkyPilot: task files"
SKY = ROOT / ".venv-sky/bin/sky"
GOAL_S = 60
RUNS = 2
STAND_IN = ROOT / "tests/launch/sky_stand_in.py"


@dataclass(frozen=True)
class Launch:
    """A launch as somebody may ask for it."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    runs: int = 1
    recipes: Sequence[str] = ("fake",)
    resources: ResourceRequest = field(default_factory=ResourceRequest)
    store: str = "s3://bucket/lab"
    jobs: int | None = None

    def tasks(self, folder: Path) -> list[dict[str, Any]]:
        """Its task files, if it is launched from this folder. Refuses what Fairtrial itself finds wrong."""
        request = LaunchRequest(
            "my study", self.store, str(folder / "mirror/my study/.launcher"),
            load_engine("skypilot").settings(self.settings), cells=self.runs, jobs=self.jobs, resources=self.resources,
            preload=self.recipes,
        )  # fmt: skip
        with chdir(folder):
            return tasks_for(request, [[f"my study/v.seed{seed}"] for seed in range(self.runs)])


LAUNCHES = {
    "plain": Launch(runs=3),
    "spot-cards": Launch(
        {"cloud": "aws", "region": "us-east-1", "accelerators": "L4", "spot": True, "at_once": 2},
        runs=6, recipes=("classify",), resources=ResourceRequest(cpus=4, gpus=1, memory_gb=7.5), jobs=4,
    ),
    "own-image": Launch(
        {"image_id": "docker:lab/image:1", "python": "/opt/lab/bin/python", "group": 2, "secrets": "LAB_KEY,LAB_TOKEN"},
        runs=5, recipes=("ppo",), store="gs://bucket/lab",
    ),
    "own-setup": Launch(
        {
            "cloud": "gcp", "zone": "us-central1-a", "disk_size": "200", "disk_tier": "low", "extras": "otlp, rl",
            "setup": "sudo apt-get install -y ffmpeg", "job_recovery": "EAGER_NEXT_REGION",
        },
        recipes=("distill", "classify"),
    ),
    "other-fairtrial": Launch({"cloud": "kubernetes", "install": "fairtrial[s3] @ git+https://example.org/fairtrial"}),
    "many": Launch({"cloud": "lambda", "accelerators": "A100:8", "at_once": 8}, runs=64, jobs=16, recipes=("grpo",)),
}  # fmt: skip
"""Task files of these are also kept in tests/launch/golden, where they are compared."""

TYPOS = {
    "clod=aws": Launch({"clod": "aws"}),
    "acelerators=L4": Launch({"acelerators": "L4"}),
    "cloud=awz": Launch({"cloud": "awz"}),
    "cloud=google": Launch({"cloud": "google"}),
    "disk_size=200x": Launch({"disk_size": "200x"}),
    "disk_tier=fast": Launch({"disk_tier": "fast"}),
    "accelerators=L4:one": Launch({"accelerators": "L4:one"}),
    "accelerators=L4:4 with --gpus 2": Launch({"accelerators": "L4:4"}, resources=ResourceRequest(gpus=2)),
    "accelerators=L4 with --gpus 0": Launch({"accelerators": "L4"}, resources=ResourceRequest(gpus=0)),
    "at_once=0": Launch({"at_once": 0}),
    "group=few": Launch({"group": "few"}),
    "spot=perhaps": Launch({"spot": "perhaps"}),
    "job_recovery=SOMETIMES": Launch({"job_recovery": "SOMETIMES"}),
    "secrets=LAB_KEY=abc": Launch({"secrets": "LAB_KEY=abc"}),
    "project=elsewhere": Launch({"project": "elsewhere"}),
}


def as_kept(tasks: Sequence[Mapping[str, Any]], folder: Path) -> str:
    """Task files one after the other, without the folders of this machine."""
    text = "---\n".join(as_yaml(task) for task in tasks)
    return text.replace(str(folder), "/lab/project").replace(str(ROOT), "/lab/fairtrial")


def measure(folder: Path) -> list[Figure]:
    if not SKY.exists():
        return [
            Figure("task files that SkyPilot accepts", None, "files", note="unavailable: make sky", goal=exactly(0))
        ]
    sky = Sky(str(SKY))
    tasks = [task for launch in LAUNCHES.values() for task in launch.tasks(folder)]
    began = time.perf_counter()
    judged = sky.judge(tasks)
    took = time.perf_counter() - began
    accepted = tasks if judged.version and not judged.problems else [task for task in tasks if accepts(sky, task)]
    caught = [name for name, launch in TYPOS.items() if caught_by(launch, sky, folder)]
    missed = [f"NOT {name}" for name in TYPOS if name not in caught]
    return [
        Figure("task files that SkyPilot accepts", len(accepted), "files", goal=exactly(len(tasks)),
               note=f"of {len(LAUNCHES)} launches; SkyPilot {judged.version}"),
        Figure("mistyped settings that are named before anything is started", len(caught), "settings",
               goal=exactly(len(TYPOS)), note="; ".join([*caught, *missed])),
        Figure("asking SkyPilot's parser about all task files", took, "s", goal=less_than(GOAL_S)),
        *_carried_out(folder / "machine"),
    ]  # fmt: skip


def _carried_out(folder: Path) -> list[Figure]:
    """Runs of a study on a machine that had nothing before its set-up."""
    program = folder / "bin/sky"
    (folder / "project").mkdir(parents=True)
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n" + STAND_IN.read_text())
    program.chmod(0o755)
    store = Store(folder / "store")
    recipe = load_recipe("fake")
    specs = [spec_of(recipe, resolve(recipe, {}, where=TITLE), study="s", variant="v", seed=n) for n in range(RUNS)]
    request = LaunchRequest(
        "s", str(store.root), str(store.paths.launcher("s")), load_engine("skypilot").settings({"group": RUNS}),
        cells=RUNS, preload=["fake"],
    )  # fmt: skip
    began = time.perf_counter()
    with (
        chdir(folder / "project"),
        _surroundings(program.parent, folder / "cloud"),
        closing(load_engine("skypilot").open(request)) as launcher,
    ):
        runs = complete(plan_jobs(specs, store, {}), store, launcher, ExecutionPolicy())
    done = sum(bool(run.outcome and run.outcome.status is Status.COMPLETED) for run in runs)
    took = time.perf_counter() - began
    return [
        Figure("runs made on a machine that its set-up alone had prepared", done, "runs", goal=exactly(RUNS),
               note="a stand-in for the cloud on this machine; Fairtrial installed by pip from its shipped sources"),
        Figure("of that, from launch to end", took, "s"),
    ]  # fmt: skip


@contextmanager
def _surroundings(programs: Path, cloud: Path) -> Iterator[None]:
    """The stand-in is found as `sky`; its machines find no Fairtrial but the one that is installed there."""
    kept = dict(os.environ)
    os.environ.update(PATH=f"{programs}:{kept['PATH']}", SKY_STAND_IN=str(cloud))
    os.environ.pop("PYTHONPATH", None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


def accepts(sky: Sky, task: Mapping[str, Any]) -> bool:
    judged = sky.judge([task])
    return judged.version is not None and not judged.problems


def caught_by(launch: Launch, sky: Sky, folder: Path) -> str | None:
    """What the error says, whether Fairtrial or SkyPilot finds it."""
    try:
        require_accepted(sky.judge(launch.tasks(folder)))
    except FairtrialError as error:
        return str(error)
    return None
