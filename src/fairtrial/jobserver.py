"""The processes that jobs run in.

`python -m fairtrial.jobserver serve` loads the heavy imports once and forks a job per request, which costs
milliseconds instead of seconds. Requests come as JSON lines on standard input, answers leave on standard
output. When standard input closes, because the launcher ended in any way, a kill included, every job is asked
to save and stop: none outlives its launcher unnoticed.
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
from types import FrameType
from typing import Any, NoReturn

from fairtrial.core.errors import FairtrialError
from fairtrial.core.paths import RunPaths
from fairtrial.core.registry import load_recipe
from fairtrial.core.runs import EXIT_CLAIMED, Outcome, Status
from fairtrial.job import Request, run_cell
from fairtrial.record.claims import ClaimedElsewhere

GRACE_S = 5.0
_PR_SET_PDEATHSIG = 1
_ANSWER_LIMIT = 60_000  # stays below the capacity of a pipe, so that a job never waits for its reader


class StopFlag:
    """Raised by SIGTERM or SIGINT: the loop finishes its step, saves, and leaves."""

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
    """Send what this process and its children print to the run's log, for the rest of its life."""
    with paths.log.open("ab", buffering=0) as log:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def do_job(request: Request, should_stop: Callable[[], bool]) -> tuple[int, Outcome | None]:
    """Run a cell; exit status and outcome for the launcher, which must hear of whatever goes wrong."""
    try:
        return 0, run_cell(request, should_stop=should_stop, to_log=printed_to_log)
    except ClaimedElsewhere:
        return EXIT_CLAIMED, None
    except FairtrialError as error:
        return 1, Outcome(Status.INTERRUPTED, "; ".join([error.message, *error.problems]), error.hint)
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        return 1, Outcome(Status.FAILED, f"{type(error).__name__}: {error}")


def tell(descriptor: int, outcome: Outcome | None) -> None:
    if outcome:
        os.write(descriptor, json.dumps(outcome.to_dict()).encode()[:_ANSWER_LIMIT])


class Server:
    """Forks jobs on request and says how they ended."""

    def __init__(self, commands: int, answers: int) -> None:
        self.commands = commands
        self.answers = answers
        self.jobs: dict[int, tuple[str, int]] = {}
        self.pending = b""
        self.wake, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)

    def run(self) -> NoReturn:
        signal.set_wakeup_fd(self._wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: self.end_all())
        self._say({"ready": os.getpid()})
        going_on = True
        while going_on:
            ready, _, _ = select.select([self.commands, self.wake], [], [])
            if self.wake in ready:
                os.read(self.wake, 4096)
            self._reap()
            if self.commands in ready:
                going_on = self._read_commands()
        self.end_all()

    def _read_commands(self) -> bool:
        chunk = os.read(self.commands, 1 << 20)
        *lines, self.pending = (self.pending + chunk).split(b"\n")
        for line in lines:
            self._start(json.loads(line))
        return bool(chunk)

    def _start(self, command: Mapping[str, Any]) -> None:
        read_end, write_end = os.pipe()
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._be_job(command, write_end, server)
        os.close(write_end)
        self.jobs[pid] = (command["id"], read_end)
        self._say({"id": command["id"], "pid": pid})

    def _be_job(self, command: Mapping[str, Any], write_end: int, server: int) -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            os.close(self.answers)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            _stop_with(server)
            if command["fresh"]:
                _become_fresh(command, write_end)
            code = _do_and_tell(command, write_end)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        for pid, (identity, read_end) in list(self.jobs.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del self.jobs[pid]
                with os.fdopen(read_end, "rb") as pipe:
                    outcome = json.loads(pipe.read() or b"null")
                self._say({"id": identity, "exit": os.waitstatus_to_exitcode(status), "outcome": outcome})

    def _say(self, message: Mapping[str, Any]) -> None:
        os.write(self.answers, json.dumps(message).encode() + b"\n")

    def end_all(self) -> NoReturn:
        """Ask every job to save and stop; those that do not within the grace are killed."""
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.jobs:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal_number)
            deadline = time.monotonic() + GRACE_S
            while self.jobs and time.monotonic() < deadline:
                select.select([self.wake], [], [], 0.05)
                with contextlib.suppress(BrokenPipeError):
                    self._reap()
        os._exit(0)


def _do_and_tell(command: Mapping[str, Any], write_end: int) -> int:
    stop = StopFlag()
    stop.listen()
    code, outcome = do_job(Request.from_dict(command["request"]), stop)
    tell(write_end, outcome)
    return code


def _become_fresh(command: Mapping[str, Any], write_end: int) -> NoReturn:
    """A process that inherits no threads: torch hangs when it is forked and then uses more than one."""
    os.set_inheritable(write_end, True)
    argv = [sys.executable, "-m", "fairtrial.jobserver", "once", str(write_end), json.dumps(command)]
    os.execv(sys.executable, argv)  # noqa: S606


def _stop_with(parent: int) -> None:
    """Linux tells a job when its server is gone, so that it saves and stops instead of running on."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it went before it could be asked for
        os.kill(os.getpid(), signal.SIGTERM)


def _preload(names: Sequence[str]) -> None:
    """Import modules and warm recipes up, on one thread, in the process that jobs are forked from."""
    for name in names:
        if "." in name and not name.endswith(".py"):
            importlib.import_module(name)
            continue
        warm = getattr(load_recipe(name).module, "warm", None)
        if warm:
            warm()
    gc.collect()
    gc.freeze()


def main(arguments: Sequence[str]) -> int:
    mode, *rest = arguments
    if mode == "serve":
        answers = os.dup(1)
        os.dup2(2, 1)  # a recipe that prints while it is imported must not speak to the launcher
        _preload(rest)
        Server(0, answers).run()
    return _do_and_tell(json.loads(rest[1]), int(rest[0]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
