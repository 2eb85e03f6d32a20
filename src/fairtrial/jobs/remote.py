"""Execution of a remote job (jobs/mailbox.py) in the process that the engine started."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from fairtrial.core.paths import is_url
from fairtrial.core.runs import EXIT_CLAIMED, Outcome, Status
from fairtrial.core.specs import Job
from fairtrial.jobs.mailbox import RemoteJob, open_mailbox
from fairtrial.jobs.processes import kill_session
from fairtrial.jobs.server import GRACE_S, StopFlag, run_task
from fairtrial.record.leases import lease_seconds
from fairtrial.version import __version__

TRY_AGAIN_S = 1.0
EXIT_ASKED_TO_LEAVE = 128 + signal.SIGTERM


def run_remote_job(where: str, name: str, job: str | None = None) -> int:
    """Run a remote job, or resume one after a restart. `job` is the id that the engine assigned to this job."""
    remote_job = RemoteJob(open_mailbox(where), name)
    task = remote_job.task
    if task is None:
        return 0  # the launcher has withdrawn the task
    restarted = remote_job.started is not None
    answered = _start(remote_job, job, len(task["requests"]))
    if task["version"] != __version__:
        return _refuse_version(remote_job, task)
    cells = {key: cell for cell, key in enumerate(task["requests"]) if cell not in answered}
    jobs = {key: Job.from_dict(task["requests"][key]) for key in cells}
    if restarted:
        jobs = {key: _take_over_earlier_start(request, remote_job, cells[key]) for key, request in jobs.items()}
    with _StopWatcher(remote_job) as stop:
        patience = lease_seconds() + GRACE_S if restarted else 0.0
        _run_cells(remote_job, cells, jobs, stop, time.monotonic() + patience)
    if stop.asked_by_engine:
        return EXIT_ASKED_TO_LEAVE
    remote_job.finish()
    return 0


def _start(remote_job: RemoteJob, job: str | None, cells: int) -> set[int]:
    """Make this the latest attempt and return the cells that the previous attempt has already answered.

    Readers ignore earlier attempts from now on, so the existing answers are written again under the new attempt id.
    """
    earlier = remote_job.latest_start
    answers = {cell: answer for cell in range(cells) if earlier and (answer := remote_job.answer(cell, earlier))}
    remote_job.start(job)
    for cell, answer in answers.items():
        remote_job.record_answer(cell, *answer)
    return set(answers)


def _refuse_version(remote_job: RemoteJob, task: Mapping[str, Any]) -> int:
    reason = f"{socket.gethostname()} has Fairtrial {__version__}, but the launcher has {task['version']}"
    for cell in range(len(task["requests"])):
        remote_job.record_answer(cell, 1, Outcome(Status.FAILED, reason, "Install the same version on every machine."))
    remote_job.finish()
    return 1


def _take_over_earlier_start(job: Job, remote_job: RemoteJob, cell: int) -> Job:
    """Let the job take over the claim of the earlier attempt: the engine restarts only jobs that it has given up on."""
    token = remote_job.claim(cell)
    return job if token is None else replace(job, takeover_token=token)


def _run_cells(
    remote_job: RemoteJob, cells: Mapping[str, int], jobs: Mapping[str, Job], stop: _StopWatcher, deadline: float
) -> None:
    """Run the cells. In a shared store, retry cells that another process has claimed until the deadline.

    The claim most likely belongs to the earlier attempt of this remote job on a lost machine, and will expire.
    """
    by_name = {job.spec.name: cells[key] for key, job in jobs.items()}
    held: dict[str, Job] = {}

    def ended(key: str, code: int, outcome: Outcome | None) -> None:
        if stop.asked_by_engine and outcome is not None and outcome.status is Status.INTERRUPTED:
            return  # not final: the engine restarts this job or reports that it will not
        if code == EXIT_CLAIMED and is_url(str(jobs[key].store)) and time.monotonic() < deadline and not stop():
            held[key] = jobs[key]
            return
        remote_job.record_answer(cells[key], code, outcome)

    if jobs:
        run_task(jobs, ended, stop, lambda spec, token: remote_job.record_claim(by_name[spec.name], token))
    if held:
        time.sleep(TRY_AGAIN_S)
        _run_cells(remote_job, cells, held, stop, deadline)


class _StopWatcher(StopFlag):
    """Stop flag that also polls the mailbox for the launcher's stop request. The engine stops a job by signal."""

    def __init__(self, remote_job: RemoteJob) -> None:
        super().__init__()
        self._remote_job = remote_job
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="fairtrial remote job", daemon=True)

    @property
    def asked_by_engine(self) -> bool:
        return self.raised and self._remote_job.stop is None

    def __enter__(self) -> Self:
        self.listen()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._done.wait(self._remote_job.mailbox.poll_s):
            with contextlib.suppress(Exception):  # an unreachable mailbox is polled again
                if asked := self._remote_job.stop:
                    self.raised = True
                    if asked["kill"]:
                        kill_session(os.getpid())
