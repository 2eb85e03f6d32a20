"""The base of launchers whose engine has its own queue, such as Slurm. Their tasks are remote jobs.

The engine implements `Queue`, which submits remote jobs, reports their states and cancels them. Everything else is
here.

A launcher that exits by Ctrl-C or an error cancels the jobs that it submitted. If it is killed, its jobs keep running,
and the next launcher of the study adopts them.
"""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from fairtrial.core.errors import UserError
from fairtrial.core.formatting import counted
from fairtrial.core.paths import RemoteJobFiles
from fairtrial.core.runs import Outcome, Status
from fairtrial.jobs.mailbox import Mailbox, RemoteJob
from fairtrial.launch.contract import Exit

MESSAGE_DELAY_S = 2.0
"""Wait for the messages of a job that has ended: they may not be visible here yet."""
MESSAGE_DELAY_COMPLETED_S = 60.0
"""The same after exit code 0: such a job has certainly written messages, which may be delayed by a network."""

STATE_ATTEMPTS = 4
"""Number of attempts to query the engine about the jobs of an earlier launcher."""

SUBMITTING_S = 300.0
"""Age up to which a remote job without an engine's job id is considered being submitted by another launcher."""


class JobStage(StrEnum):
    """The stage of a job in its engine."""

    QUEUED = "queued"
    RUNNING = "running"
    GONE = "gone"


@dataclass(frozen=True)
class JobState:
    """The engine's report of a job. If it is gone: the reason, and its exit code if it exited by itself.

    `failed` marks a job that would fail again on any machine, such as one that needs more memory than it requested.
    """

    stage: JobStage
    code: int | None = None
    why: str = "the engine no longer has a record of its job"
    failed: bool = False
    hint: str | None = None


UNKNOWN = JobState(JobStage.GONE)


class Queue(Protocol):
    """The interface of an engine. `word` is its name for users; `ask_s` is the seconds between queries of its state."""

    @property
    def word(self) -> str: ...

    @property
    def ask_s(self) -> float: ...

    def hand_over(self, remote_jobs: Sequence[str]) -> list[str] | None:
        """Submit these remote jobs and return the engine's id of each, or None if the engine cannot be reached now."""
        ...

    def states(self, jobs: Collection[str]) -> Mapping[str, JobState] | None:
        """Return the states of the jobs that the engine knows, or None if the engine cannot be reached now."""
        ...

    def cancel(self, jobs: Collection[str]) -> None: ...

    def last_words(self, job: str) -> str:
        """Return the last lines that a job printed before its run started; empty if unknown."""
        ...

    def clear(self, job: str) -> None:
        """Delete what is stored for this job, which is no longer needed."""
        ...

    def close(self) -> None: ...


@dataclass
class _Task:
    """A remote job that has not ended. `left` maps the runs that have not been reported to their indices in the job."""

    remote_job: RemoteJob
    left: dict[str, int]
    requests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    job: str | None = None
    state: JobState | None = None
    gone_since: float | None = None
    stop_signal: signal.Signals | None = None


class RemoteJobLauncher:
    """Implements the launcher interface on top of a queue and a mailbox."""

    def __init__(self, queue: Queue, mailbox: Mailbox, slots: int) -> None:
        self.slots = slots
        self._queue = queue
        self._mailbox = mailbox
        self._waiting: list[_Task] = []
        self._tasks: dict[str, _Task] = {}
        self._task_of: dict[str, _Task] = {}
        self._to_cancel: set[str] = set()
        self._names: set[str] = set()
        self._reported: set[str | None] = set()
        self._checked_at = self._asked_at = self._retry_at = float("-inf")

    def adopt(self, keys: Collection[str]) -> list[list[str]]:
        """Adopt queued and running remote jobs of an earlier launcher, and delete those that have ended."""
        self._names = self._mailbox.names()
        earlier = self._earlier_jobs()
        states = self._states_now([job for _, job, _ in earlier if job])
        adopted = []
        for remote_job, job, requests in earlier:
            state = states.get(job, UNKNOWN) if job else UNKNOWN
            if state.stage is JobStage.GONE:
                self._clear(remote_job, job)
            elif remote_job.files.stop not in self._names and (cells := self._open_cells(remote_job, requests, keys)):
                self._watch(_Task(remote_job, cells, requests, job, state))
                adopted.append(list(cells))
        return adopted

    def _states_now(self, jobs: Collection[str]) -> Mapping[str, JobState]:
        """Query the states with retries, or raise an error: unknown jobs would be submitted, and paid for, twice."""
        for again in range(STATE_ATTEMPTS if jobs else 0):
            time.sleep(self._queue.ask_s if again else 0)
            if (states := self._queue.states(jobs)) is not None:
                return states
        if jobs:
            raise UserError(
                f"{self._queue.word} does not report the state of {counted(len(jobs), 'job')} of an earlier launcher",
                hint="They may still be running, so nothing was started. Try again when it responds.",
            )
        return {}

    def _earlier_jobs(self) -> list[tuple[RemoteJob, str | None, Mapping[str, Any]]]:
        earlier: list[tuple[RemoteJob, str | None, Mapping[str, Any]]] = []
        for name in sorted({owner for note in self._names if (owner := RemoteJobFiles.job_of(note))}):
            remote_job = RemoteJob(self._mailbox, name)
            task = remote_job.task or {"engine": self._queue.word, "job": None, "at": 0.0, "requests": {}}
            is_submitting = task["job"] is None and time.time() - task["at"] < SUBMITTING_S
            if task["engine"] == self._queue.word and name not in self._tasks and not is_submitting:
                earlier.append((remote_job, task["job"], task["requests"]))
        return earlier

    def _open_cells(self, remote_job: RemoteJob, requests: Collection[str], keys: Collection[str]) -> dict[str, int]:
        cells = {key: cell for cell, key in enumerate(requests) if key in keys and key not in self._task_of}
        start = remote_job.latest_start or ""
        return {key: cell for key, cell in cells.items() if remote_job.files.answer(cell, start) not in self._names}

    def _watch(self, task: _Task) -> None:
        self._tasks[task.remote_job.name] = task
        self._task_of.update(dict.fromkeys(task.left, task))

    def submit(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        """Collect a task. The next poll submits all tasks since the last one together."""
        remote_job = RemoteJob(self._mailbox, uuid.uuid4().hex[:16])
        task = _Task(remote_job, {key: cell for cell, key in enumerate(requests)}, dict(requests))
        self._waiting.append(task)
        self._watch(task)

    def _submit_waiting(self) -> None:
        self._waiting = [task for task in self._waiting if task.left and not task.stop_signal]
        if not self._waiting or time.monotonic() < self._retry_at:
            return
        for task in self._waiting:
            task.remote_job.post(self._queue.word, task.requests)
        jobs = self._queue.hand_over([task.remote_job.name for task in self._waiting])
        if jobs is None:
            self._retry_at = time.monotonic() + self._queue.ask_s
            return
        tasks, self._waiting = self._waiting, []
        for task, job in zip(tasks, jobs, strict=True):
            task.job = job
            task.remote_job.post(self._queue.word, task.requests, job)

    def _cancel(self) -> None:
        jobs, self._to_cancel = self._to_cancel, set()
        if jobs:
            self._queue.cancel(jobs)

    def poll(self, timeout: float) -> list[Exit]:
        self._cancel()
        self._submit_waiting()
        exits = self._check()
        if not exits:
            time.sleep(timeout)
            exits = self._check()
        return exits

    def _check(self) -> list[Exit]:
        """Query the engine before the mailbox, so that the messages of a job that has ended are visible."""
        now = time.monotonic()
        if now - self._checked_at < self._mailbox.poll_s:
            return []
        self._update_states(now)
        self._checked_at = now
        self._names = self._mailbox.names()
        self._reported = {RemoteJobFiles.job_of(name) for name in self._names if RemoteJobFiles.is_outcome(name)}
        return [end for task in list(self._tasks.values()) for end in self._exits(task, now)]

    def _update_states(self, now: float) -> None:
        if now - self._asked_at < self._queue.ask_s:
            return
        self._asked_at = now
        jobs = {task.job: task for task in self._tasks.values() if task.job}
        states = self._queue.states(list(jobs)) if jobs else None
        for job, task in jobs.items() if states is not None else ():
            task.state = (states or {}).get(job, UNKNOWN)
            if task.state.stage is not JobStage.GONE:
                task.gone_since = None
            elif task.gone_since is None:
                task.gone_since = now

    def _exits(self, task: _Task, now: float) -> list[Exit]:
        """Return new exits, from messages of the latest start only: an earlier process may resume and still write."""
        start = task.remote_job.latest_start if task.remote_job.name in self._reported else None
        done = start is not None and task.remote_job.files.done(start) in self._names
        exits = self._answered(task, start, done=done) if start else []
        if task.left and (done or self._is_gone(task, now)):
            exits += [self._unreported(task, key) for key in list(task.left)]
        if not task.left and (done or self._is_gone(task, now)):
            self._end(task)
        return exits

    def _answered(self, task: _Task, start: str, *, done: bool) -> list[Exit]:
        """Return the exits that the job reported. If it is done, read every answer, as the listing may be outdated."""
        files = task.remote_job.files
        listed = {key: cell for key, cell in task.left.items() if done or files.answer(cell, start) in self._names}
        answers = {key: answer for key, cell in listed.items() if (answer := task.remote_job.answer(cell, start))}
        return [self._exit(task, key, *answer) for key, answer in answers.items()]

    def _exit(self, task: _Task, key: str, code: int, outcome: Outcome | None) -> Exit:
        self._release(task, key)
        if (
            outcome
            and outcome.status is Status.INTERRUPTED
            and not task.stop_signal
            and task.remote_job.stop is not None
        ):
            return Exit(key, code, None, lost="another launcher stopped it")
        return Exit(key, code, outcome)

    def _is_gone(self, task: _Task, now: float) -> bool:
        if task.job is None:
            return task.stop_signal is not None  # it was stopped before it was submitted
        if task.gone_since is None or task.state is None:
            return False
        return now - task.gone_since >= (MESSAGE_DELAY_COMPLETED_S if task.state.code == 0 else MESSAGE_DELAY_S)

    def _unreported(self, task: _Task, key: str) -> Exit:
        self._release(task, key)
        if task.stop_signal:
            return Exit(key, -task.stop_signal, None)
        state, started = task.state or UNKNOWN, task.remote_job.files.started in self._names
        words = self._queue.last_words(task.job) if task.job and not started else ""
        why = f"{state.why}; its last output: {words}" if words else state.why
        by_itself = state.code not in (None, 0, -signal.SIGTERM)
        if state.failed or (by_itself and not started):
            return Exit(key, 1, Outcome(Status.FAILED, why, state.hint))
        if by_itself and state.code:
            return Exit(key, state.code, None)
        return Exit(key, 1, None, lost=why)

    def _release(self, task: _Task, key: str) -> None:
        task.left.pop(key, None)
        if self._task_of.get(key) is task:
            del self._task_of[key]

    def _end(self, task: _Task) -> None:
        self._tasks.pop(task.remote_job.name, None)
        self._clear(task.remote_job, task.job)

    def _clear(self, remote_job: RemoteJob, job: str | None) -> None:
        remote_job.remove()
        if job:
            self._queue.clear(job)

    def has_started(self, key: str) -> bool:
        task = self._task_of.get(key)
        if task is None or (task.state and task.state.stage is JobStage.QUEUED):
            return False
        return task.remote_job.files.started in self._names

    def stop(self, key: str, *, kill: bool) -> None:
        """Stop a job: cancel it if it is queued or to be killed; otherwise ask it to save and exit."""
        task, wanted = self._task_of.get(key), signal.SIGKILL if kill else signal.SIGTERM
        if task is None or task.stop_signal in (wanted, signal.SIGKILL):
            return
        task.stop_signal = wanted
        if task.job is None:
            return
        task.remote_job.ask_to_stop(kill=kill)
        if kill or not self.has_started(key):
            self._to_cancel.add(task.job)  # the next poll cancels all stopped jobs with one call

    def forget(self, key: str) -> None:
        """Abandon a cell. A job without other cells is cancelled, and its later messages are ignored."""
        task = self._task_of.get(key)
        if task is None:
            return
        self._release(task, key)
        if not task.left:
            if task.job:
                self._to_cancel.add(task.job)
            self._end(task)

    def close(self) -> None:
        self._await_finishing()
        for task in list(self._tasks.values()):
            if not task.left or not task.job:
                self._end(task)
            else:
                task.remote_job.ask_to_stop(kill=False)
                self._to_cancel.add(task.job)  # the next launcher of the study deletes its messages
        self._cancel()
        self._queue.close()

    def _await_finishing(self) -> None:
        """Wait briefly for jobs that have reported all runs, so that their files are not deleted before they exit."""
        deadline = time.monotonic() + MESSAGE_DELAY_S
        reported = [task.remote_job for task in self._tasks.values() if not task.left]
        done_files = {remote_job.files.done(remote_job.latest_start or "") for remote_job in reported}
        while done_files - self._mailbox.names() and time.monotonic() < deadline:
            time.sleep(0.05)
