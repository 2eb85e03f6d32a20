"""Fixes clock, host name, process ids and resource usage of every Python process that finds this on its PYTHONPATH.

Python imports a module of this name before any other code runs. `tools/compare_outputs.py` puts it first on the path,
so that the program under test needs no hooks of its own and two versions of it see the same world. Nothing here
may import or name anything of Fairtrial.

What is fixed, and what stays real:
- `time.time` and everything that means "now" gives one moment per command. Files keep their real modification times,
  because caches rely on them.
- `perf_counter` and `process_time` advance by one tick per call of the main thread, whatever really passed. Ticks are
  powers of two, so that differences are exact and do not depend on where counting began. Other threads read these
  clocks without advancing them: when they run is up to the scheduler.
- `monotonic` stays real, because deadlines and waits need it.
- A process has a made-up id that depends only on how often it was forked; started programs are numbered by the first
  free number. Functions that take process ids understand these.
"""

from __future__ import annotations

import ctypes
import datetime
import gc
import importlib.metadata
import os
import platform
import resource
import socket
import sys
import threading
import time
from typing import Any

NOW = float(os.environ["FIXED_NOW"])
HOST = os.environ["FIXED_HOST"]
VERSION = os.environ["FIXED_VERSION"]
PACKAGE = os.environ["FIXED_PACKAGE"]
PERF_TICK = float(os.environ["FIXED_TICK"])
CPU_TICK = PERF_TICK / 4
PERF_TICK_NS = 1_000_000  # never 0: its resolution is measured by waiting until it changes
FIRST_PID = 5_000_000
"""Above the largest id that Linux gives (4,194,304): a made-up id is never a real one."""
FIRST_PROGRAM = 6_000_000


def fix_clock() -> None:
    gmtime, localtime, strftime, ctime, asctime = time.gmtime, time.localtime, time.strftime, time.ctime, time.asctime
    time.time = lambda: NOW
    time.time_ns = lambda: int(NOW * 1_000_000_000)
    time.gmtime = lambda seconds=None: gmtime(NOW if seconds is None else seconds)
    time.localtime = lambda seconds=None: localtime(NOW if seconds is None else seconds)
    time.strftime = lambda form, moment=None: strftime(form, localtime(NOW) if moment is None else moment)
    time.ctime = lambda seconds=None: ctime(NOW if seconds is None else seconds)
    time.asctime = lambda moment=None: asctime(localtime(NOW) if moment is None else moment)
    # date.today() and datetime.today() ask time.time(). The methods of the C type that do not are replaced in its own
    # dictionary: a subclass would not be what orjson, pydantic and pickle know as a datetime.
    real = datetime.datetime
    methods = gc.get_referents(real.__dict__)[0]
    methods["now"] = classmethod(lambda cls, tz=None: cls.fromtimestamp(NOW, tz))
    methods["utcnow"] = classmethod(lambda cls: cls.fromtimestamp(NOW, datetime.UTC).replace(tzinfo=None))
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(real))


class Ticks:
    """Counts calls of the main thread."""

    def __init__(self) -> None:
        self.count = 1024

    def __call__(self) -> int:
        if threading.current_thread() is threading.main_thread():
            self.count += 1
        return self.count


def fix_stopwatches() -> None:
    perf, cpu = Ticks(), Ticks()
    time.perf_counter = lambda: perf() * PERF_TICK
    time.perf_counter_ns = lambda: perf() * PERF_TICK_NS
    time.process_time = lambda: cpu() * CPU_TICK
    time.process_time_ns = lambda: int(cpu() * CPU_TICK * 1_000_000_000)

    def getrusage(who: int) -> resource.struct_rusage:
        """Fixed, with another number in every field, so that two that are mixed up differ."""
        if who == resource.RUSAGE_CHILDREN:
            return resource.struct_rusage((0.5, 0.25, 600_000, 0, 0, 0, 2002, 3, 0, 5, 7, 0, 0, 0, 22, 26))
        seconds = cpu() * CPU_TICK
        return resource.struct_rusage((seconds, 0.125, 300_000, 0, 0, 0, 1001, 3, 0, 5, 7, 0, 0, 0, 11, 13))

    resource.getrusage = getrusage


def fix_host() -> None:
    socket.gethostname = lambda: HOST
    socket.getfqdn = lambda name="": name or HOST
    platform.node = lambda: HOST
    real_uname = os.uname
    os.uname = lambda: os.uname_result((real_uname()[0], HOST, *real_uname()[2:]))


def fix_version() -> None:
    """The version of the package is not a result: two trees that differ only in it are equal."""
    version = importlib.metadata.version
    importlib.metadata.version = lambda distribution_name: (
        VERSION if distribution_name == PACKAGE else version(distribution_name)
    )


class Processes:
    """Made-up ids instead of real ones, and the way back for functions that take one."""

    def __init__(self) -> None:
        self.own, self.parent = FIRST_PID, (os.getppid(), os.getppid())
        self.programs: dict[int, int] = {}
        self.real_getpid, self.real_getppid = os.getpid, os.getppid
        self.real_own = os.getpid()

    def real(self, pid: int) -> int:
        if abs(pid) == self.own:
            return self.real_own if pid > 0 else -self.real_own
        if abs(pid) == self.parent[0]:
            return self.parent[1] if pid > 0 else -self.parent[1]
        known = self.programs.get(abs(pid), abs(pid))
        return known if pid > 0 else -known

    def getppid(self) -> int:
        made_up, real = self.parent
        now = self.real_getppid()
        return made_up if now == real else now

    def forked(self) -> None:
        self.parent = (self.own, self.real_own)
        self.own, self.real_own, self.programs = self.own + 1, self.real_getpid(), {}

    def started(self, real: int) -> int:
        number = next(n for n in range(FIRST_PROGRAM, FIRST_PROGRAM + 1_000_000) if n not in self.programs)
        self.programs[number] = real
        return number

    def ended(self, real: int) -> int:
        """The made-up id of a program that is gone, whose number is free again."""
        for number, known in list(self.programs.items()):
            if known == real:
                del self.programs[number]
                return number
        return real


def fix_process_ids() -> None:
    processes = Processes()
    os.getpid, os.getppid = (lambda: processes.own), processes.getppid
    os.register_at_fork(after_in_child=processes.forked)
    for name in ("kill", "killpg", "getpgid", "getsid", "pidfd_open", "setpgid", "sched_getaffinity"):
        setattr(os, name, _with_real_pid(getattr(os, name), processes))
    waitpid = os.waitpid

    def waited(pid: int, options: int) -> tuple[int, int]:
        gone, status = waitpid(processes.real(pid), options)
        return processes.ended(gone), status

    os.waitpid = waited
    assert "subprocess" not in sys.modules, "subprocess would keep the real waitpid"
    import subprocess

    execute = subprocess.Popen._execute_child  # type: ignore[attr-defined]

    def started(self: Any, *arguments: Any, **settings: Any) -> None:
        execute(self, *arguments, **settings)
        self.pid = processes.started(self.pid)

    subprocess.Popen._execute_child = started  # type: ignore[attr-defined]


def _with_real_pid(function: Any, processes: Processes) -> Any:
    return lambda pid, *rest: function(processes.real(pid), *rest)


def fix_names_of_unfinished_files() -> None:
    """Four random bytes in the name of an unfinished file end up in checkpoints: torch.save writes its name into it.

    More bytes, as for UUIDs and keys, stay random.
    """
    urandom = os.urandom
    os.urandom = lambda size: bytes(4) if size == 4 else urandom(size)


def wait_for_no_disk() -> None:
    """Whether bytes survive a power failure is tested elsewhere; here it would be most of the time."""
    os.fsync = lambda fd: None  # noqa: ARG005 — the name is part of how it is called
    os.fdatasync = lambda fd: None  # noqa: ARG005


fix_clock()
fix_stopwatches()
fix_host()
fix_version()
fix_process_ids()
fix_names_of_unfinished_files()
wait_for_no_disk()
