"""The job server and the processes that it forks.

`python -m fairtrial.jobserver serve` performs the slow imports once and forks one process per task, which takes
milliseconds instead of seconds. It reads commands as JSON lines from stdin and writes answers to stdout. When stdin
closes because the launcher has exited or was killed, the server asks every job to save and stop, so that no job
outlives its launcher unnoticed.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, NoReturn

from fairtrial.core.errors import FairtrialError
from fairtrial.core.paths import RunPaths
from fairtrial.core.private_files import open_to_append
from fairtrial.core.registry import load_recipe
from fairtrial.core.runs import Outcome, Status
from fairtrial.core.specs import Job, RunSpec
from fairtrial.jobs.processes import VISIBLE_DEVICES, kill_session
from fairtrial.jobs.run_session import OnClaim, exit_for, interrupted_by, run_cell, run_stack
from fairtrial.record.atomic import store_errors
from fairtrial.record.claims import ClaimedElsewhere

GRACE_S = 5.0
_PR_SET_PDEATHSIG = 1
_LONGEST_TEXT = 400


class StopFlag:
    """A flag that SIGTERM or SIGINT sets. The training loop then finishes its step, saves, and exits."""

    def __init__(self) -> None:
        self.raised = False

    def __call__(self) -> bool:
        return self.raised

    def listen(self) -> None:
        def handle(_signal: int, _frame: FrameType | None) -> None:
            self.raised = True

        signal.signal(signal.SIGTERM, handle)
        signal.signal(signal.SIGINT, handle)


@contextlib.contextmanager
def printed_to_log(paths: RunPaths) -> Iterator[None]:
    """Redirect stdout and stderr of this process and its children to the run's log until the process exits."""
    with store_errors(paths.root):
        descriptor = open_to_append(paths.log)
    with os.fdopen(descriptor, "ab", buffering=0) as log:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def run_task(
    jobs: Mapping[str, Job],
    on_end: Callable[[str, int, Outcome | None], None],
    should_stop: Callable[[], bool],
    on_claim: OnClaim = lambda *_: None,
) -> None:
    """Run the jobs of a task. `on_end` is called exactly once per job, even after an error."""
    keys = {job.spec.name: key for key, job in jobs.items()}

    def report_once(spec: RunSpec, code: int, outcome: Outcome | None) -> None:
        key = keys.pop(spec.name, None)
        if key is not None:
            on_end(key, code, outcome)

    first, *others = jobs.values()
    output = printed_to_log
    try:
        if others:
            run_stack([first, *others], report_once, should_stop=should_stop, redirect_output=output, on_claim=on_claim)
            return
        try:
            outcome = run_cell(first, should_stop=should_stop, redirect_output=output, on_claim=on_claim)
        except (ClaimedElsewhere, FairtrialError) as error:
            report_once(first.spec, *exit_for(error))
        else:
            report_once(first.spec, 0, outcome)
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        for job in jobs.values():
            report_once(job.spec, 1, interrupted_by(error))


def write_exit(descriptor: int, cell: str | None, code: int, outcome: Outcome | None) -> None:
    """Write one line with the exit code and outcome of a run, or of the whole task if `cell` is None.

    The launcher reads this line and need not wait for the process to exit.
    """
    short = outcome and replace(outcome, reason=_short(outcome.reason), hint=_short(outcome.hint))
    message = {"cell": cell, "exit": code, "outcome": short.to_dict() if short else None}
    os.write(descriptor, json.dumps(message, ensure_ascii=False).encode(errors="replace") + b"\n")


def _short(text: str | None) -> str | None:
    """Truncate a text so that its line fits into one atomic pipe write. The metadata contain the full text."""
    return text if text is None or len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + " …"


@dataclass
class Child:
    """A forked process that reads one command, runs its task, and writes one line per completed run."""

    pid: int
    command: int
    outcome: int
    unread: bytes = b""


class Server:
    """Assigns tasks to forked children and reports their results.

    The server keeps one spare child, so that a task waits neither for the fork nor for the child's first page faults.
    """

    def __init__(self, commands: int, answers: int, warm: Callable[[], None]) -> None:
        self.commands = commands
        self.answers = answers
        self.warm = warm
        self.spare: Child | None = None
        self.jobs: dict[int, tuple[str, Child]] = {}
        self.exiting: set[int] = set()
        self.pending = b""
        self.wake, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)

    def run(self) -> NoReturn:
        signal.set_wakeup_fd(self._wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: self.end_all())
        self._send({"ready": os.getpid()})
        is_open = True
        while is_open:
            outcomes = {child.outcome: pid for pid, (_, child) in self.jobs.items()}
            ready, _, _ = select.select([self.commands, self.wake, *outcomes], [], [])
            if self.wake in ready:
                os.read(self.wake, 4096)
            reported = [pid for descriptor, pid in outcomes.items() if descriptor in ready]
            self.exiting.update(pid for pid in reported if self._forward(pid))
            self._reap()
            if self.commands in ready:
                is_open = self._read_commands()
        self.end_all()

    def _read_commands(self) -> bool:
        chunk = os.read(self.commands, 1 << 20)
        *lines, self.pending = (self.pending + chunk).split(b"\n")
        for line in lines:
            self._start(line)
        return bool(chunk)

    def _start(self, line: bytes) -> None:
        identity = json.loads(line)["id"]
        child, self.spare = self._living_spare() or self._fork(), None
        self.jobs[child.pid] = (identity, child)
        with os.fdopen(child.command, "wb") as pipe, contextlib.suppress(BrokenPipeError):
            pipe.write(line)
        self._send({"id": identity, "pid": child.pid})
        self.spare = self._fork()

    def _living_spare(self) -> Child | None:
        if self.spare and os.waitpid(self.spare.pid, os.WNOHANG)[0]:
            os.close(self.spare.command)
            os.close(self.spare.outcome)
            return None
        return self.spare

    def _fork(self) -> Child:
        (command_read, command_write), (outcome_read, outcome_write) = os.pipe(), os.pipe()
        server = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # else a child could lose an early SIGTERM
        pid = os.fork()
        if pid == 0:
            os.close(command_write)
            self._run_child(command_read, outcome_write, server)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        os.close(command_read)
        os.close(outcome_write)
        return Child(pid, command_write, outcome_read)

    def _run_child(self, command_read: int, outcome_write: int, server: int) -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            os.setsid()
            os.close(self.answers)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            _stop_with(server)
            self.warm()
            with os.fdopen(command_read, "rb") as pipe:
                line = pipe.read()
            code = _run_command(json.loads(line), outcome_write) if line else 0
        except BaseException as error:  # noqa: BLE001 — a child that fails to start must report why
            traceback.print_exc()
            write_exit(outcome_write, None, code, Outcome(Status.FAILED, f"{type(error).__name__}: {error}"))
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _forward(self, pid: int) -> bool:
        """Forward the lines of a child and return True after its last one, without waiting for the child to exit."""
        identity, child = self.jobs[pid]
        while select.select([child.outcome], [], [], 0)[0]:
            chunk = os.read(child.outcome, 1 << 16)
            if not chunk:
                return False
            *lines, child.unread = (child.unread + chunk).split(b"\n")
            for message in map(json.loads, lines):
                self._send({"id": identity, **message})
                if message["cell"] is None:
                    self._forget(pid)
                    return True
        return False

    def _reap(self) -> None:
        """Reap exited children. For a child that wrote no final line, only the exit code is known."""
        self.exiting = {pid for pid in self.exiting if not os.waitpid(pid, os.WNOHANG)[0]}
        for pid, (identity, _) in list(self.jobs.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done and not self._forward(pid):
                self._forget(pid)
                code = os.waitstatus_to_exitcode(status)
                self._send({"id": identity, "cell": None, "exit": code, "outcome": None})

    def _forget(self, pid: int) -> None:
        os.close(self.jobs.pop(pid)[1].outcome)

    def _send(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # the launcher has exited: the closed stdin ends the server
            os.write(self.answers, json.dumps(message).encode() + b"\n")

    def end_all(self) -> NoReturn:
        """Ask every job to save and stop, and kill those that are still running after GRACE_S."""
        if self.spare:
            os.kill(self.spare.pid, signal.SIGKILL)
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.jobs:
                if signal_number is signal.SIGKILL:
                    kill_session(pid)
                else:
                    os.kill(pid, signal_number)
            deadline = time.monotonic() + GRACE_S
            while self.jobs and time.monotonic() < deadline:
                if select.select([self.wake], [], [], 0.05)[0]:
                    os.read(self.wake, 4096)
                self._reap()
        os._exit(0)


def _run_command(command: Mapping[str, Any], write_end: int) -> int:
    if command.get("device") is not None:
        os.environ[VISIBLE_DEVICES] = command["device"]  # must precede the first device query
    if command.get("fresh"):
        _become_fresh({**command, "fresh": False}, write_end)
    stop = StopFlag()
    stop.listen()
    jobs = {key: Job.from_dict(request) for key, request in command["requests"].items()}
    run_task(jobs, lambda key, code, outcome: write_exit(write_end, key, code, outcome), stop)
    write_exit(write_end, None, 0, None)
    return 0


def _become_fresh(command: Mapping[str, Any], write_end: int) -> NoReturn:
    """Replace this process by a new interpreter, because torch hangs if it uses several threads after a fork."""
    os.set_inheritable(write_end, True)
    argv = [sys.executable, "-m", "fairtrial.jobserver", "once", str(write_end), json.dumps(command)]
    os.execv(sys.executable, argv)  # noqa: S606


def _stop_with(parent: int) -> None:
    """Ask Linux to send SIGTERM to this job when its server dies, so that it saves and stops."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # the parent died before prctl took effect
        os.kill(os.getpid(), signal.SIGTERM)


def _preload(names: Sequence[str]) -> Callable[[], None]:
    """Import modules and warm up recipes on one thread. Return a function that warms them up again in a child."""
    warm = []
    for name in names:
        if "." in name and not name.endswith(".py"):
            importlib.import_module(name)
        else:
            warm.append(getattr(load_recipe(name).module, "warm", lambda: None))
    _call_all(warm)
    gc.collect()
    gc.freeze()
    return lambda: _call_all(warm)


def _call_all(functions: Sequence[Callable[[], None]]) -> None:
    for function in functions:
        function()


def serve(preload: Sequence[str]) -> NoReturn:
    """Serve requests from stdin until it closes."""
    answers = os.dup(1)
    os.dup2(2, 1)  # output printed during imports must not reach the launcher's protocol stream
    Server(0, answers, _preload(preload)).run()


def run_once(write_end: int, command: str) -> int:
    """Run one task in this process and write the results of its runs to a file descriptor."""
    return _run_command(json.loads(command), write_end)
