"""A stand-in for the *cloud*, for tests on a machine that has none. It is not SkyPilot, and not our code either.

It is a program with the name and the commands of SkyPilot 0.14.1 that Fairtrial calls, and no others: any other word is
refused, as are task fields that it does not know. A launched task is really carried out: its project and mounts are copied into
a clean folder, which is the home of a machine, and its `setup` and `run` are run there by bash, on this machine. A machine
that is lost (`lose`, which tests call) is killed with everything on it, and the task begins again in a clean folder, as
SkyPilot does with spot machines. `jobs queue` answers in the JSON form of 0.14.1, `jobs cancel` kills.

What it cannot show: real machines, images, networks, credentials, prices, and SkyPilot's own mistakes. Whether SkyPilot
accepts the task files is shown elsewhere, by SkyPilot itself.

$SKY_STAND_IN is its folder. The environment variable $STAND_IN_MACHINE marks what runs on a machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TASK_FIELDS = {"name", "resources", "workdir", "file_mounts", "envs", "secrets", "setup", "run"}
RECORD = dict.fromkeys(
    [
        "task_job_id",
        "job_id",
        "task_id",
        "job_name",
        "task_name",
        "job_duration",
        "workspace",
        "status",
        "schedule_state",
        "resources",
        "cluster_resources",
        "cluster_resources_full",
        "cloud",
        "region",
        "zone",
        "infra",
        "recovery_count",
        "details",
        "failure_reason",
        "user_name",
        "user_hash",
        "submitted_at",
        "start_at",
        "end_at",
        "user_yaml",
        "entrypoint",
        "metadata",
        "priority",
        "pool",
        "pool_hash",
        "current_cluster_name",
        "accelerators",
        "labels",
        "links",
        "node_names",
        "execution",
        "is_job_group",
        "is_primary_in_job_group",
        "root_job_id",
        "parent_job_id",
        "parent_task_id",
    ]
)
STARTS = 4
"""A machine that is lost so often is given up."""


def jobs_folder() -> Path:
    return Path(os.environ["SKY_STAND_IN"]) / "jobs"


def folder_of(job: int | str) -> Path:
    return jobs_folder() / str(job)


def read(job: int | str) -> dict[str, Any]:
    return dict(json.loads((folder_of(job) / "record.json").read_text()))


def note(job: int | str, **changes: Any) -> None:
    """Change a record. A job that has ended stays as it ended: `cancel` and its controller may come at the same moment."""
    path = folder_of(job) / "record.json"
    with (folder_of(job) / "record.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = json.loads(path.read_text()) if path.exists() else RECORD
        if before["end_at"] is not None:
            return
        new = path.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps({**before, **changes}))
        new.replace(path)


def all_jobs() -> list[int]:
    return sorted(int(path.parent.name) for path in jobs_folder().glob("*/record.json"))


# Machines.


def lose(job: int) -> None:
    """Take the machine of a job away, with everything that runs on it."""
    machines = sorted(folder_of(job).glob("machine-*"))
    if machines:
        end_machine(machines[-1])


def end_machine(home: Path) -> None:
    mark = f"STAND_IN_MACHINE={home}".encode()
    for _ in range(3):  # what was just being started is caught the next time
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0") and int(entry.name) != os.getpid():
                    os.kill(int(entry.name), signal.SIGKILL)


def control(job: int) -> None:
    """What SkyPilot's controller does: starts the task, and again wherever its machine was lost."""
    import yaml

    task = yaml.safe_load((folder_of(job) / "task.yaml").read_text())
    for start in range(STARTS):
        home = folder_of(job) / f"machine-{start}"
        environment = ship(task, home)
        note(job, status="STARTING")
        status = carry_out(job, task, home, {**environment, "STAND_IN_MACHINE": str(home)})
        if (folder_of(job) / "cancelled").exists():
            status = "CANCELLED"
        if status is not None:
            note(job, status=status, end_at=time.time())
            return
        note(job, status="RECOVERING", recovery_count=start + 1)
    note(job, status="FAILED_NO_RESOURCE", failure_reason="lost too often", end_at=time.time())


def ship(task: dict[str, Any], home: Path) -> dict[str, str]:
    """Copy what the task names, and nothing else; returns the environment that the task finds."""
    work = home / "sky_workdir"
    shutil.copytree(task["workdir"], work, ignore=_ignored)
    for there, here in task.get("file_mounts", {}).items():
        target = home / there.removeprefix("~/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if Path(here).is_dir():
            shutil.copytree(here, target)
        else:
            shutil.copy(here, target)
    given = {name: os.environ[name] for name in task.get("secrets", {})}
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, **task.get("envs", {}), **given, "HOME": str(home)}


def _ignored(folder: str, names: list[str]) -> list[str]:
    path = Path(folder) / ".gitignore"
    patterns = path.read_text().split() if path.exists() else []
    return [name for name in names if name == ".git" or any(Path(name).match(pattern) for pattern in patterns)]


def carry_out(job: int, task: dict[str, Any], home: Path, environment: dict[str, str]) -> str | None:
    """How the task ended; None where its machine was lost. SkyPilot calls a task running while it is being set up."""
    note(job, status="RUNNING", start_at=time.time())
    for section, failed in (("setup", "FAILED_SETUP"), ("run", "FAILED")):
        if (folder_of(job) / "cancelled").exists():
            return "CANCELLED"
        with (folder_of(job) / "log.txt").open("ab") as log:
            bash = subprocess.Popen(
                ["bash", "-c", task.get(section, "")], cwd=home / "sky_workdir", env=environment, stdout=log,
                stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            code = _wait(bash, folder_of(job) / "cancelled", home)
        if code == -signal.SIGKILL:
            return None
        if code != 0:
            return failed
    return "SUCCEEDED"


def _wait(bash: subprocess.Popen[bytes], cancelled: Path, home: Path) -> int:
    """How bash ended. A task that `cancel` missed, because it had not begun yet, is ended here."""
    while True:
        try:
            return bash.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            if cancelled.exists():
                end_machine(home)


# The commands.


def check(words: list[str]) -> int:
    clouds = [word for word in words if not word.startswith("-") and word != "json"]
    enabled = os.environ.get("SKY_STAND_IN_CLOUDS", "AWS").split()
    shown = [name for name in enabled if not clouds or name.lower() in clouds]
    print("\x1b[2mFailed to connect to SkyPilot API server at http://127.0.0.1:46580. Starting a local server.\x1b[0m")
    print(json.dumps({"default": {name: ["compute", "storage"] for name in shown}}, indent=2))
    return 0


def launch(words: list[str]) -> int:
    import yaml

    [file] = [word for word in words if word.endswith(".yaml")]
    task = yaml.safe_load(Path(file).read_text())
    if unknown := set(task) - TASK_FIELDS:
        return refuse(f"unknown fields: {unknown}")
    if os.environ.get("SKY_STAND_IN_REFUSES"):
        return refuse("sky.exceptions.ResourcesUnavailableError: no machine of this kind is left")
    secrets = {words[place + 1] for place, word in enumerate(words) if word == "--secret"}
    if secrets != set(task.get("secrets", {})):
        return refuse("secrets of the task are not those of the command line")
    jobs_folder().mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        try:
            folder_of(number).mkdir()
            break
        except FileExistsError:
            number += 1
    shutil.copy(file, folder_of(number) / "task.yaml")
    facts = {"job_id": number, "task_id": 0, "job_name": task["name"], "task_name": task["name"], "recovery_count": 0}
    note(number, **facts, status="PENDING", workspace="default", submitted_at=time.time())
    subprocess.Popen(
        [sys.executable, __file__, "control", str(number)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=(folder_of(number) / "controller.log").open("ab"), start_new_session=True,
    )  # fmt: skip
    print(f"\n📋 Useful Commands\nManaged Job ID: {number}\n├── To cancel the job:\t\tsky jobs cancel {number}")
    return 0


def queue(words: list[str]) -> int:
    if not {"--all", "--verbose", "--output", "json"} <= set(words):
        return refuse("this stand-in shows the whole queue as JSON only")
    if not all_jobs():
        return refuse("sky.exceptions.ClusterNotUpError: No in-progress managed jobs.")
    print(json.dumps([read(job) for job in reversed(all_jobs())], indent=2))
    return 0


def cancel(words: list[str]) -> int:
    name = words[words.index("--name") + 1]
    for job in all_jobs():
        record = read(job)
        if record["job_name"] == name and record["end_at"] is None:
            (folder_of(job) / "cancelled").touch()
            note(job, status="CANCELLING")
            lose(job)
    return 0


def logs(words: list[str]) -> int:
    print((folder_of(words[-1]) / "log.txt").read_text())
    return 0


def refuse(why: str) -> int:
    print(why, file=sys.stderr)
    return 1


def main(words: list[str]) -> int:
    commands = {("check",): check, ("jobs", "launch"): launch, ("jobs", "queue"): queue, ("jobs", "cancel"): cancel,
                ("jobs", "logs"): logs}  # fmt: skip
    if words[0] == "control":
        control(int(words[1]))
        return 0
    for known, command in commands.items():
        if tuple(words[: len(known)]) == known:
            return command(words[len(known) :])
    return refuse(f"No such command: {words}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
