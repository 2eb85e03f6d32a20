"""Run tasks on this machine: one process each, forked from a server that has already imported the packages."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fairtrial.launch.contract import ResourceRequest
from fairtrial.launch.jobs import kill_session, one_thread
from fairtrial.launch.surroundings import counted
from fairtrial.plugins import Exit, LauncherOptions, LaunchRequest, Outcome, UserError, errors

SUMMARY = "Processes on this machine."
REQUIRES: tuple[str, ...] = ()
EXTRA = None


class Options(LauncherOptions):
    """The local launcher has no settings."""


def check(request: LaunchRequest) -> None:
    """Raise an error if a run needs more CPUs or memory than this machine has."""
    needs, cores, memory_gb = request.resources, len(os.sched_getaffinity(0)), _memory_gb()
    lacking = []
    if needs.cpus and needs.cpus > cores:
        lacking.append(f"--cpus {needs.cpus}: this machine has only {counted(cores, 'core')} available")
    if needs.memory_gb and needs.memory_gb > memory_gb:
        lacking.append(f"--memory {needs.memory_gb:g}: this machine has {memory_gb:.0f} GB")
    if lacking:
        raise UserError(lacking[0], problems=lacking[1:], hint="Request less, or launch on a cluster with --on.")


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def open_launcher(request: LaunchRequest) -> LocalLauncher:
    return LocalLauncher(slots_of(request), request.preload, fresh=request.fresh, devices=request.devices)


def slots_of(request: LaunchRequest) -> int:
    """Return the number of runs at once."""
    return min(request.jobs or _fitting(request.resources), request.cells)


def _fitting(resources: ResourceRequest) -> int:
    """Return how many runs fit on this machine at once, given the resources of one; at least 1."""
    slots = len(os.sched_getaffinity(0)) // (resources.cpus or 1)
    if resources.gpus:
        slots = resources.gpus
    if resources.memory_gb:
        slots = min(slots, int(_memory_gb() / resources.memory_gb))
    return max(1, slots)


class LocalLauncher:
    """Runs jobs through one job server. `fresh` gives every job a new interpreter, for more than one thread per run.

    `devices` has one GPU per slot; a job sees only its own.
    """

    def __init__(self, slots: int, preload: Sequence[str], *, fresh: bool = False, devices: Sequence[str] = ()) -> None:
        self.slots = slots
        self._fresh = fresh
        self._free, self._has_devices = list(devices), bool(devices)
        self._waiting: deque[dict[str, Any]] = deque()
        self._device_of: dict[int, str] = {}
        self._pids: dict[int, int] = {}
        self._numbers = itertools.count()  # a retried cell may be submitted before its old process has exited
        self._tasks: dict[int, dict[str, None]] = {}
        self._task_of: dict[str, int] = {}
        self._to_stop: dict[int, bool] = {}
        self._pending = b""
        self._ready = False
        argv = [sys.executable, "-m", "fairtrial.jobserver", "serve", *([] if fresh else preload)]
        self._server = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=one_thread(), start_new_session=True
        )

    def adopt(self, keys: Collection[str]) -> list[list[str]]:  # noqa: ARG002 — jobs never outlive their launcher
        return []

    def submit(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        task = next(self._numbers)
        self._tasks[task] = dict.fromkeys(requests)
        self._task_of.update(dict.fromkeys(requests, task))
        self._waiting.append({"id": task, "fresh": self._fresh, "requests": requests})
        self._send_waiting()

    def _send_waiting(self) -> None:
        """Send waiting tasks while GPUs are free: a process may hold its GPU for a while after its cell has ended."""
        while self._waiting and (self._free or not self._has_devices):
            command = self._waiting.popleft()
            if self._has_devices:
                command["device"] = self._device_of[command["id"]] = self._free.pop(0)
            self._send(command)

    def _send(self, command: Mapping[str, Any]) -> None:
        line = json.dumps(command).encode() + b"\n"
        assert self._server.stdin is not None
        try:
            self._server.stdin.write(line)
            self._server.stdin.flush()
        except BrokenPipeError:
            raise self._server_is_gone() from None

    def poll(self, timeout: float) -> list[Exit]:
        exits = []
        for message in self._messages(timeout):
            if "pid" in message:
                self._pids[message["id"]] = message["pid"]
                if message["id"] in self._to_stop:  # it was stopped before it had started
                    self._stop(message["id"], kill=self._to_stop.pop(message["id"]))
            elif "exit" in message:
                exits += self._exits(message)
            else:
                self._ready = True
        return exits

    def wait_until_ready(self) -> None:
        """Wait until the server has finished its imports, so that jobs start immediately."""
        while not self._ready:
            self.poll(1.0)

    def _exits(self, message: Mapping[str, Any]) -> list[Exit]:
        """Return the exit of one cell or, when the process has exited, of every cell that it did not report."""
        task, cell, code = message["id"], message["cell"], message["exit"]
        outcome = Outcome.from_dict(message["outcome"]) if message["outcome"] else None
        left = self._tasks.get(task, {})
        keys = [key for key in left if cell in (None, key)]
        for key in keys:
            left.pop(key, None)
            if self._task_of.get(key) == task:
                del self._task_of[key]
        if cell is None:
            self._tasks.pop(task, None)
            if task in self._device_of:
                self._free.append(self._device_of.pop(task))
                self._send_waiting()
            pid = self._pids.pop(task, None)
            if pid and code < 0:  # a killed job could not stop its own child processes
                kill_session(pid)
        return [Exit(key, code, outcome) for key in keys]

    def stop(self, key: str, *, kill: bool) -> None:
        """Stop a cell's job. The job leads its own session, so that a kill also ends its child processes."""
        if key in self._task_of:
            self._stop(self._task_of[key], kill=kill)

    def _stop(self, task: int, *, kill: bool) -> None:
        pid = self._pids.get(task)
        if pid is None:
            self._to_stop[task] = kill
            return
        with contextlib.suppress(ProcessLookupError):
            if kill:
                kill_session(pid)
            else:
                os.kill(pid, signal.SIGTERM)

    def forget(self, key: str) -> None:
        """Abandon a cell that even SIGKILL did not end, such as in uninterruptible disk I/O, and free its slot."""
        task = self._task_of.pop(key, None)
        if task is not None:
            self._tasks[task].pop(key, None)

    def has_started(self, key: str) -> bool:
        return self._task_of.get(key) in self._pids

    def close(self) -> None:
        assert self._server.stdin is not None and self._server.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()

    def _messages(self, timeout: float) -> list[dict[str, Any]]:
        assert self._server.stdout is not None
        descriptor = self._server.stdout.fileno()
        if not select.select([descriptor], [], [], timeout)[0]:
            return []
        chunk = os.read(descriptor, 1 << 20)
        if not chunk:
            raise self._server_is_gone()
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        return [json.loads(line) for line in lines]

    def _server_is_gone(self) -> errors.FairtrialError:
        code = self._server.wait()
        return errors.FairtrialError(
            f"the job server exited unexpectedly (status {code})",
            hint="Finished runs are kept; launch again to run the others.",
        )
