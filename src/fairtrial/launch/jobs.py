"""Functions for launchers to start and stop jobs and to receive their results.

For an engine with its own queue, such as a cluster scheduler, a plug-in only has to implement `Queue`:
`launcher_of(queue, request)` turns it into a launcher. Its jobs run the program `job_program(request.home, name)` on
any machine that can access the study's folder. They write their results to that folder, so that they can outlive the
launcher, and the next launcher adopts them.
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
    """Return the command line of a job. Run it with the environment `one_thread()`. `job` is the engine's job id.

    `home` is the folder of the launch request, as a path on the job's machine.
    """
    return [sys.executable, "-m", "fairtrial.jobserver", "errand", home, name, *([] if job is None else [job])]


def launcher_of(queue: Queue, request: LaunchRequest, *, slots: int | None = None) -> RemoteJobLauncher:
    """Return a launcher on top of a queue. `slots` limits the jobs that the engine gets at once; None: all of them."""
    return RemoteJobLauncher(queue, FolderMailbox(Path(request.home)), slots=slots or max(1, request.cells))
