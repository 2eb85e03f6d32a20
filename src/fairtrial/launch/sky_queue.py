"""SkyPilot's managed jobs as a queue of remote jobs, and a launcher that handles the replacement of machines."""

from __future__ import annotations

import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairtrial.jobs.mailbox import Mailbox, RemoteJob
from fairtrial.launch.contract import LaunchRequest
from fairtrial.launch.remote_jobs import JobStage, JobState, RemoteJobLauncher
from fairtrial.launch.sky_program import QUEUE, Call, Sky, last_line, read_queue
from fairtrial.launch.sky_shipping import ShippedFolder, translated
from fairtrial.launch.sky_tasks import as_yaml, divide, launch_words, mailbox_location, make_task, task_name

LAUNCHES = 4
"""Limit of concurrent `sky` commands; each starts a Python interpreter."""
ASK_S = 5.0
MISSED = 3
"""Number of times in a row that the queue must lack a job before the job is considered gone."""
CANCEL_S = 15.0
"""Seconds that a canceled run on a shared machine has to find its stop message."""
LEAVE_S = 60.0
_WAITING = {"PENDING", "SUBMITTED", "STARTING", "RECOVERING"}
_ALIVE = {"RUNNING", "WINDING_DOWN", "CANCELLING"}
_SAME_ANYWHERE = {"FAILED_SETUP", "FAILED_PRECHECKS", "FAILED_NO_RESOURCE"}


@dataclass
class _Job:
    """A managed job. `open` has its remote jobs that are not known to have ended."""

    name: str
    open: set[str]
    call: Call | None = None
    row: Mapping[str, Any] | None = None
    missed: int = 0
    cancelled: bool = False


class SkyQueue:
    """SkyPilot's managed jobs. A remote job has the id `NAME/NUMBER`; those with equal names share a machine."""

    word = "skypilot"
    ask_s = ASK_S

    def __init__(self, sky: Sky, request: LaunchRequest, project: ShippedFolder, mailbox: Mailbox) -> None:
        self._sky, self._request, self._project, self._mailbox = sky, request, project, mailbox
        self._folder = Path(tempfile.mkdtemp(prefix="fairtrial-sky-"))
        self._jobs: dict[str, _Job] = {}
        self._to_launch: list[_Job] = []
        self._asking: Call | None = None
        self._cancelled: dict[str, float] = {}
        self._to_cancel: list[_Job] = []
        self._cancelling: dict[str, Call] = {}
        self._words: dict[str, str] = {}

    def hand_over(self, remote_jobs: Sequence[str]) -> list[str]:
        """Submit remote jobs under generated names, by which the next launcher finds them if this one is killed."""
        labels = {}
        for group in divide(len(remote_jobs), self._request):
            members = [remote_jobs[number] for number in group]
            job = self._prepare(members)
            labels.update({remote_job: f"{job.name}/{number}" for number, remote_job in enumerate(members)})
            job.open.update(labels[remote_job] for remote_job in members)
        self._launch_some()
        return [labels[remote_job] for remote_job in remote_jobs]

    def _prepare(self, remote_jobs: Sequence[str]) -> _Job:
        runs = {
            remote_job: list((RemoteJob(self._mailbox, remote_job).task or {"requests": {}})["requests"])
            for remote_job in remote_jobs
        }
        job = _Job(task_name(self._request.study, uuid.uuid4().hex[:8]), set())
        task = make_task(self._request, self._project, job.name, runs, mailbox_location(self._request))
        self._file(job).write_text(as_yaml(task))
        self._jobs[job.name] = job
        self._to_launch.append(job)
        return job

    def _file(self, job: _Job) -> Path:
        return self._folder / f"{job.name}.yaml"

    def _launch_some(self) -> None:
        busy = sum(job.call is not None and not job.call.is_over for job in self._jobs.values())
        while self._to_launch and busy < LAUNCHES:
            job = self._to_launch.pop(0)
            log = self._folder / f"{job.name}.log"
            job.call = self._sky.start(launch_words(self._request, str(self._file(job))), log)
            busy += 1

    # Job states.

    def states(self, jobs: Collection[str]) -> Mapping[str, JobState] | None:
        for label in jobs:
            self._jobs.setdefault(_name(label), _Job(_name(label), set())).open.add(
                label
            )  # a job of an earlier launcher
        self._launch_some()
        self._cancel_some()
        if not self._listen(wait=any(self._is_foreign(_name(label)) for label in jobs)):
            return None
        return {label: state for label in jobs if (state := self._state(label))}

    def _is_foreign(self, name: str) -> bool:
        job = self._jobs[name]
        return job.call is None and job.row is None and job not in self._to_launch and not job.missed

    def _listen(self, *, wait: bool) -> bool:
        """Read SkyPilot's queue if the background query, which takes seconds, is done. Return whether it was read."""
        if self._asking is None:
            self._asking = self._sky.start(QUEUE, self._folder / "queue.json")
        if wait:
            _wait_for(lambda: self._asking is not None and self._asking.is_over, LEAVE_S)
        if not self._asking.is_over:
            return False
        asked, self._asking = self._asking, None
        rows = read_queue(asked)
        for job in self._jobs.values() if rows is not None else ():
            if job.name in (rows or {}):
                job.row, job.missed = (rows or {})[job.name], 0
            elif self._was_there(job, asked):
                job.missed += 1
        return rows is not None

    def _was_there(self, job: _Job, asked: Call) -> bool:
        """Return whether the job was launched before this query, so that the queue should have contained it."""
        if job.call is None:
            return job not in self._to_launch
        return job.call.went_well and job.call.is_over and (job.call.seen_over or 0.0) < asked.begun

    def _state(self, label: str) -> JobState | None:
        job = self._jobs[_name(label)]
        if label in self._cancelled and time.monotonic() - self._cancelled[label] > CANCEL_S:
            return JobState(JobStage.GONE, why="it was canceled")
        if job.call is not None and job.call.is_over and not job.call.went_well and job.row is None:
            why = f"SkyPilot rejected its task: {last_line(job.call.printed)}"
            return JobState(JobStage.GONE, why=why, failed=True)
        if job.row is None or job.missed:
            return None if job.missed >= MISSED else JobState(JobStage.QUEUED)
        return _stage(job.row)

    def recoveries(self, label: str) -> int:
        """Return how many times SkyPilot has replaced the job's machine."""
        job = self._jobs.get(_name(label))
        return int((job.row or {}).get("recovery_count") or 0) if job else 0

    # Cancellation.

    def cancel(self, jobs: Collection[str]) -> None:
        """Cancel remote jobs. A machine is released only when all of its jobs are canceled or have ended."""
        for label in jobs:
            self._cancelled.setdefault(label, time.monotonic())
            job = self._jobs.get(_name(label))
            if job and not job.cancelled and job.open <= set(self._cancelled):
                job.cancelled = True
                self._to_cancel.append(job)
        self._cancel_some()

    def _cancel_some(self) -> None:
        """Cancel the jobs that can be: one whose launch command is still running cannot be canceled yet."""
        for job in list(self._to_cancel):
            if job in self._to_launch:
                self._to_launch.remove(job)
            elif job.call is None or job.call.is_over:
                log = self._folder / f"{job.name}.cancel.log"
                self._cancelling[job.name] = self._sky.start(["jobs", "cancel", "--yes", "--name", job.name], log)
            else:
                continue
            self._to_cancel.remove(job)

    def last_words(self, job: str) -> str:
        row = self._jobs[_name(job)].row if _name(job) in self._jobs else None
        if row is None or row.get("job_id") is None:
            return ""
        if _name(job) not in self._words:
            self._words[_name(job)] = self._sky.last_words(int(row["job_id"]))
        return self._words[_name(job)]

    def clear(self, job: str) -> None:
        if sky_job := self._jobs.get(_name(job)):
            sky_job.open.discard(job)
            if not sky_job.open:
                self._file(sky_job).unlink(missing_ok=True)

    def close(self) -> None:
        """Wait until SkyPilot has confirmed all cancellations, and name jobs that may still run and cost money."""
        _wait_for(self._has_cancelled_all, LEAVE_S)
        left = [job.name for job in self._to_cancel]
        left += [name for name, call in self._cancelling.items() if not call.went_well]
        for name in left:
            self._request.tell(f"SkyPilot did not confirm a cancellation. Run this: sky jobs cancel --name {name}")
        if self._asking:
            self._asking.process.kill()
            self._asking.process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _has_cancelled_all(self) -> bool:
        self._cancel_some()
        return not self._to_cancel and all(call.is_over for call in self._cancelling.values())


class SkyLauncher(RemoteJobLauncher):
    """Runs remote jobs on machines that SkyPilot may replace while the jobs are running."""

    def __init__(self, queue: SkyQueue, mailbox: Mailbox, request: LaunchRequest, project: ShippedFolder) -> None:
        super().__init__(queue, mailbox, request.cells)
        self._sky = queue
        self._request, self._project = request, project
        self._starts: dict[str, tuple[int, float]] = {}
        self._checked: dict[str, float] = {}

    def submit(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        super().submit(
            {key: translated(request, self._request.store, self._project) for key, request in requests.items()}
        )

    def has_started(self, key: str) -> bool:
        """Return whether the cell's process has started. A start message from a replaced machine does not count."""
        if not super().has_started(key):
            return False
        task = self._task_of[key]
        times, known = self._sky.recoveries(task.job or ""), self._starts.get(task.remote_job.name)
        if known is None or known[0] != times:
            if self._checked.get(task.remote_job.name) == self._checked_at:
                return False  # the mailbox has not been read since the last check
            self._checked[task.remote_job.name] = self._checked_at
            at = float((task.remote_job.started or {}).get("at", 0))
            if known is not None and known[1] == at:
                return False
            self._starts[task.remote_job.name] = (times, at)
        return True


def _stage(row: Mapping[str, Any]) -> JobState:
    status = str(row["status"])
    if status in _WAITING:
        return JobState(JobStage.QUEUED)
    if status in _ALIVE:
        return JobState(JobStage.RUNNING)
    message = f": {row['failure_reason']}" if row.get("failure_reason") else ""
    return JobState(
        JobStage.GONE,
        code={"SUCCEEDED": 0, "FAILED": 1}.get(status),
        why=f"its job is {status} in SkyPilot{message}",
        failed=status in _SAME_ANYWHERE,
        hint=f"Read its output: sky jobs logs {row['job_id']}",
    )


def _name(label: str) -> str:
    return label.partition("/")[0]


def _wait_for(condition: Callable[[], bool], seconds: float) -> None:
    """Wait until the condition is true, but at most for this many seconds."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
