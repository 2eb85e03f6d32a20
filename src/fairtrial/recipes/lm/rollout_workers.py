"""Rollout workers in separate processes. Each receives the frozen model once and reads adapters from the run directory.

A listener thread sends tasks to idle workers and receives their results, so that workers never wait for the trainer.
Workers are started as new programs and not forked, because a fork of a process with threads can deadlock. Unlike with
multiprocessing's `spawn`, they do not run the user's script again.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection, wait

from fairtrial.core.errors import FairtrialError, Interrupted
from fairtrial.plugins import LoopEvents
from fairtrial.recipes.lm.rollouts import GamePlayer, PhaseRecorder
from fairtrial.recipes.lm.types import RolloutPart
from fairtrial.recipes.lm.version_schedule import Buffer, Task

MakePlayer = Callable[[], GamePlayer]
WAIT_S = 5.0
POLL_S = 1.0
STANDARD_ERROR = 2
"""A worker's stdout goes to stderr, because the command's own stdout is reserved for its result."""
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Processes:
    """A pool of `count` worker processes. `make_player` is called in each of them and must be picklable."""

    def __init__(self, buffer: Buffer, make_player: MakePlayer, count: int) -> None:
        self._buffer = buffer
        self._tasks: deque[Task] = deque()
        self._turn = threading.Lock()
        self._closing = False
        self._members = dict(_start(make_player) for _ in range(count))
        self._idle = list(self._members)
        self._listener = threading.Thread(target=self._listen, name="rollouts", daemon=True)
        self._listener.start()

    def assign(self, task: Task) -> None:
        with self._turn:
            self._tasks.append(task)
            self._hand_out()

    def close(self) -> None:
        self._closing = True
        for process in self._members.values():
            process.terminate()
        for process in self._members.values():
            _see_off(process)
        self._listener.join(WAIT_S)
        for line in self._members:
            line.close()

    def _hand_out(self) -> None:
        try:
            while self._tasks and self._idle:
                self._idle.pop().send(self._tasks.popleft())
        except OSError:
            self._buffer.fail(self._how_they_ended())

    def _listen(self) -> None:
        try:
            while not self._closing:
                for line in wait(list(self._members), timeout=POLL_S):
                    assert isinstance(line, Connection)
                    self._hear(line)
        except (EOFError, OSError):
            if not self._closing:
                self._buffer.fail(self._how_they_ended())

    def _hear(self, line: Connection) -> None:
        message = line.recv()
        if isinstance(message, str):
            self._buffer.fail(FairtrialError(f"a rollout worker failed: {message}"))
            return
        with self._turn:
            self._idle.append(line)
            self._hand_out()
        self._buffer.deliver(message)

    def _how_they_ended(self) -> FairtrialError:
        """Return Interrupted: a killed worker is not an error of the run, which can resume from its last checkpoint."""
        for process in self._members.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
        codes = [process.returncode for process in self._members.values() if process.returncode is not None]
        how = next((f"was killed by {signal.Signals(-code).name}" for code in codes if code < 0), "exited unexpectedly")
        return Interrupted(f"a rollout worker {how}")


def _see_off(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that was asked to terminate, and kill it after WAIT_S seconds."""
    try:
        process.wait(WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _start(make_player: MakePlayer) -> tuple[Connection, subprocess.Popen[bytes]]:
    ours, theirs = multiprocessing.Pipe()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "fairtrial.recipes.lm.rollout_workers", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**os.environ, **dict.fromkeys(ONE_THREAD, "1")},
            stdout=STANDARD_ERROR,
            process_group=0,  # Ctrl-C must reach only the trainer, which then stops its workers
        )
    ours.send(make_player)
    return ours, process


def play(line: Connection) -> None:
    """Run a worker: receive tasks and send parts until the connection is closed."""
    try:
        player = line.recv()()
        while True:
            line.send(noted(player, line.recv()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:  # noqa: BLE001 - any error must be reported to the trainer
        message = (
            error.message if isinstance(error, FairtrialError) else "".join(traceback.format_exception_only(error))
        )
        line.send(message.strip())


def noted(player: GamePlayer, task: Task) -> RolloutPart:
    """Play a task and return its part, with the start and end times of its phases."""
    notes = PhaseRecorder()
    part = player.part(task.step, task.version, task.batch, LoopEvents([notes]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return replace(part, notes=notes.notes, player=os.getpid(), peak_bytes=peak)


if __name__ == "__main__":
    play(Connection(int(sys.argv[1])))
