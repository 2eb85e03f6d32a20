"""What launchers start jobs with, end them by, and hear from them through.

An engine that has a queue of its own, such as a cluster, needs a `Queue` and nothing else: `launcher_of(queue,
request)` makes a launcher of it. Its jobs are programs, `job_program(request.home, name)`, for any machine that sees
the study's folder. They leave their answers in that folder, so they outlive the launcher, and the next one adopts them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fairtrial.jobs.mailbox import FolderMailbox
from fairtrial.jobs.processes import kill_session, kill_with_children, one_thread
from fairtrial.launch.contract import LaunchRequest
from fairtrial.launch.remote_jobs import JobStage, JobState, Queue, RemoteJobLauncher

__all__ = [
    "JobStage",
    "JobState",
    "Queue",
    "RemoteJobLauncher",
    "job_program",
    "kill_session",
    "kill_with_children",
    "launcher_of",
    "one_thread",
]


def job_program(home: str, name: str, job: str | None = None) -> list[str]:
    """The program of a job, to be run with the environment `one_thread()`. `job` is what its engine calls it.

    `home` is the folder of the launch request, by the path that it has on the machine of the job.
    """
    return [sys.executable, "-m", "fairtrial.jobserver", "errand", home, name, *([] if job is None else [job])]


def launcher_of(queue: Queue, request: LaunchRequest, *, slots: int | None = None) -> RemoteJobLauncher:
    """A launcher on top of a queue. `slots` is how many jobs the engine is given at once; None: all of them."""
    return RemoteJobLauncher(queue, FolderMailbox(Path(request.home)), slots=slots or max(1, request.cells))
