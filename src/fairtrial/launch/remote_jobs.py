"""What launchers have in common whose engine has a queue of its own: their tasks are remote jobs, which outlive them.

The engine's part is a `Queue`: it takes remote jobs, says where they stand, and cancels them. All the rest is here.

A launcher that leaves, by Ctrl-C or an error, cancels what it handed over. One that is killed cannot: its jobs go on,
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
"""A job that is gone may have written messages that are not visible here yet."""
MESSAGE_DELAY_COMPLETED_S = 60.0
"""One that ended well has certainly written some, and they travel over a network."""

STATE_ATTEMPTS = 4
"""How many times an engine is asked about the jobs of an earlier launcher, if it does not answer."""

SUBMITTING_S = 300.0
"""A remote job without an engine's job is being submitted by another launcher, unless it is older than this."""


class JobStage(StrEnum):
    """Where a job stands in its engine."""

    QUEUED = "queued"
    RUNNING = "running"
    GONE = "gone"


@dataclass(frozen=True)
class JobState:
    """What the engine says of a job. Of one that is gone: why, and its exit status where it ended by itself.

    `failed` is for a job that would end the same way anywhere, such as one that needs more memory than it asked for.
    """

    stage: JobStage
    code: int | None = None
    why: str = "the engine no longer knows its job"
    failed: bool = False
    hint: str | None = None


UNKNOWN = JobState(JobStage.GONE)


class Queue(Protocol):
    """What an engine must be able to do. `word` is what a person calls it; `ask_s`, how often it may be asked."""

    @property
    def word(self) -> str: ...

    @property
    def ask_s(self) -> float: ...

    def hand_over(self, remote_jobs: Sequence[str]) -> list[str] | None:
        """Start these remote jobs; returns what the engine calls each. None: it cannot be asked now."""
        ...

    def states(self, jobs: Collection[str]) -> Mapping[str, JobState] | None:
        """Where these jobs stand; those that the engine no longer knows are left out. None: it cannot be asked now."""
        ...

    def cancel(self, jobs: Collection[str]) -> None: ...

    def last_words(self, job: str) -> str:
        """What a job printed last before its run began; empty where nothing is known."""
        ...

    def clear(self, job: str) -> None:
        """Nothing of this job is needed any more."""
        ...

    def close(self) -> None: ...


@dataclass
class _Task:
    """A remote job that is under way. `left` has the runs that have not come back, with their numbers."""

    remote_job: RemoteJob
    left: dict[str, int]
    requests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    job: str | None = None
    state: JobState | None = None
    gone_since: float | None = None
    stop_signal: signal.Signals | None = None


class RemoteJobLauncher:
    """Keeps the launcher contract on top of a queue and a mailbox."""

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
        """Remote jobs of an earlier launcher that are queued or running; those that are gone are cleared."""
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
        """Without knowing what runs, all of it would be handed over, and paid for, a second time."""
        for again in range(STATE_ATTEMPTS if jobs else 0):
            time.sleep(self._queue.ask_s if again else 0)
            if (states := self._queue.states(jobs)) is not None:
                return states
        if jobs:
            raise UserError(
                f"{self._queue.word} does not say what became of {counted(len(jobs), 'job')} of an earlier launcher",
                hint="They may still be running, so nothing was started. Try again when it answers.",
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
        """What was submitted since the last poll is handed over together at the next."""
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
        """The engine is asked first: what a job that is gone has written can then be seen."""
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
        """By the messages of the latest start alone; an earlier one may have been frozen, and write again."""
        start = task.remote_job.latest_start if task.remote_job.name in self._reported else None
        done = start is not None and task.remote_job.files.done(start) in self._names
        exits = self._answered(task, start, done=done) if start else []
        if task.left and (done or self._is_gone(task, now)):
            exits += [self._unreported(task, key) for key in list(task.left)]
        if not task.left and (done or self._is_gone(task, now)):
            self._end(task)
        return exits

    def _answered(self, task: _Task, start: str, *, done: bool) -> list[Exit]:
        """A listing may miss what came meanwhile, so all answers of a job that is done are read."""
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
            return task.stop_signal is not None  # it was stopped before it was handed over
        if task.gone_since is None or task.state is None:
            return False
        return now - task.gone_since >= (MESSAGE_DELAY_COMPLETED_S if task.state.code == 0 else MESSAGE_DELAY_S)

    def _unreported(self, task: _Task, key: str) -> Exit:
        self._release(task, key)
        if task.stop_signal:
            return Exit(key, -task.stop_signal, None)
        state, started = task.state or UNKNOWN, task.remote_job.files.started in self._names
        words = self._queue.last_words(task.job) if task.job and not started else ""
        why = f"{state.why}, having said: {words}" if words else state.why
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
        """A job that waits, or that is to be killed, is cancelled; one that runs saves and leaves by itself."""
        task, wanted = self._task_of.get(key), signal.SIGKILL if kill else signal.SIGTERM
        if task is None or task.stop_signal in (wanted, signal.SIGKILL):
            return
        task.stop_signal = wanted
        if task.job is None:
            return
        task.remote_job.ask_to_stop(kill=kill)
        if kill or not self.has_started(key):
            self._to_cancel.add(task.job)  # with all others that are stopped now

    def forget(self, key: str) -> None:
        """The engine is asked not to start it again; what its old process still writes is not read."""
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
                self._to_cancel.add(task.job)  # its messages are cleared by the next launcher of the study
        self._cancel()
        self._queue.close()

    def _await_finishing(self) -> None:
        """A job whose runs have all been reported is about to leave; it should not find its mailbox empty."""
        deadline = time.monotonic() + MESSAGE_DELAY_S
        reported = [task.remote_job for task in self._tasks.values() if not task.left]
        done_files = {remote_job.files.done(remote_job.latest_start or "") for remote_job in reported}
        while done_files - self._mailbox.names() and time.monotonic() < deadline:
            time.sleep(0.05)
