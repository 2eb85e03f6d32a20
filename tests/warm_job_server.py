"""Job servers with the imports already loaded.

`fairtrial launch` starts one job server per launch, and nearly all of its first second goes to importing torch and
pyarrow. Tests that launch runs in order to test something else get their servers from here: one process per test
worker loads the imports once, and every server is forked from it. The server itself, its pipes, the processes that it
forks, their environment and their folder are those of a real launch. tests/launch starts real ones.
"""

from __future__ import annotations

import array
import contextlib
import importlib
import importlib.util
import json
import os
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from fairtrial.jobs.processes import one_thread

ROOT = Path(__file__).parent.parent
JOB_SERVER = "fairtrial.jobserver"
LOADED = ("fairtrial.jobs.remote", "fairtrial.jobs.server")
READ_AT_IMPORT = ("PYTHON", "OMP_", "MKL_", "OPENBLAS_", "KMP_", "TORCH_", "CUDA_", "LD_")
LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_STACK)


def read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    """What libraries look at once: a server that has them loaded cannot be given another value."""
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_IMPORT)}


class WarmJobServers:
    """The process that servers are forked from. It starts with the first server and ends with the one that made this."""

    def __init__(self) -> None:
        self._environment = one_thread()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._folder = Path()

    @property
    def address(self) -> str:
        return str(self._folder / "socket")

    def popen(self, argv: Sequence[str], **settings: Any) -> WarmJobServer | subprocess.Popen[bytes]:
        """What `subprocess.Popen` gives to the launcher: a real one where a warm one could behave differently."""
        environment = settings["env"]
        expected = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": environment, "start_new_session": True}
        assert list(argv[:4]) == [sys.executable, "-m", JOB_SERVER, "serve"] and settings == expected
        if read_at_import(environment) != read_at_import(self._environment):
            return subprocess.Popen(argv, **settings)
        if self._process is None or self._owner != os.getpid():
            self._start()
        return WarmJobServer(self.address, argv[3:], environment)

    def _start(self) -> None:
        self._owner, self._folder = os.getpid(), Path(tempfile.mkdtemp(prefix="warm-"))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            listener.listen(64)
            descriptor = listener.fileno()
            argv = [sys.executable, "-m", __name__, str(descriptor)]
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                cwd=ROOT,
                env=self._environment,
                pass_fds=[descriptor],
                start_new_session=True,
            )

    def close(self) -> None:
        if self._process is not None and self._owner == os.getpid():
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            Path(self.address).unlink()
            self._folder.rmdir()
            self._process = None


class WarmJobServer:
    """As much of a `Popen` as the launcher uses."""

    def __init__(self, address: str, words: Sequence[str], environment: Mapping[str, str]) -> None:
        (commands, our_commands), (our_answers, answers) = os.pipe(), os.pipe()
        self.stdin: IO[bytes] = os.fdopen(our_commands, "wb")
        self.stdout: IO[bytes] = os.fdopen(our_answers, "rb")
        self.returncode: int | None = None
        umask = os.umask(0)
        os.umask(umask)
        order = {
            "words": [*words], "environment": {**environment}, "folder": str(Path.cwd()), "umask": umask,
            "limits": [resource.getrlimit(each) for each in LIMITS], "cores": [*os.sched_getaffinity(0)],
        }  # fmt: skip
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(address)
        passed = array.array("i", [commands, answers, 2])
        self._connection.sendmsg([b"+"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)])
        self._connection.sendall(json.dumps(order).encode() + b"\n")
        os.close(commands)
        os.close(answers)
        self._answers = self._connection.makefile("rb")
        self.pid = int(self._answers.readline())

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._connection.close()
        return self.returncode


@contextlib.contextmanager
def warm_job_servers() -> Iterator[WarmJobServers]:
    servers = WarmJobServers()
    try:
        yield servers
    finally:
        servers.close()


def serve(listener: socket.socket) -> None:
    """Fork a server for each connection, until standard input closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers
    for module in LOADED:
        importlib.import_module(module)
    while True:
        ready, _, _ = select.select([listener.fileno(), 0], [], [])
        if 0 in ready:
            return
        connection, _ = listener.accept()
        with connection:
            _, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
            with connection.makefile("rb") as lines:
                order = json.loads(lines.readline())
            _load(order["words"][1:])
            if not os.fork():
                listener.close()
                _keep(connection, descriptors, order)
            for each in descriptors:
                os.close(each)


def _load(preload: Sequence[str]) -> None:
    """Import here what the server would import, so that the next one need not. Plug-ins are left to the server."""
    from fairtrial.core.registry import load_recipe

    for name in preload:
        if "." in name:
            if not name.endswith(".py"):
                importlib.import_module(name)
        elif importlib.util.find_spec(f"fairtrial.recipes.{name}"):
            getattr(load_recipe(name).module, "warm", lambda: None)()


def _keep(connection: socket.socket, descriptors: Sequence[int], order: Mapping[str, Any]) -> NoReturn:
    """Wait for one server and tell its exit code, which only a parent gets to know."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if not pid:
        _become_server(connection, descriptors, order)
    for each in descriptors:
        os.close(each)
    with contextlib.suppress(OSError):  # whoever asked for it may be gone
        connection.sendall(b"%d\n" % pid)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):
        connection.sendall(b"%d\n" % code)
    os._exit(0)


def _become_server(connection: socket.socket, descriptors: Sequence[int], order: Mapping[str, Any]) -> NoReturn:
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        connection.close()
        for target, each in enumerate(descriptors):
            os.dup2(each, target)
            os.close(each)
        os.environ.clear()
        os.environ.update(order["environment"])
        os.umask(order["umask"])
        os.sched_setaffinity(0, order["cores"])
        for each, limit in zip(LIMITS, order["limits"], strict=True):
            resource.setrlimit(each, limit)
        os.chdir(order["folder"])
        sys.path[0] = order["folder"]
        sys.argv = [JOB_SERVER, *order["words"]]
        runpy.run_module(JOB_SERVER, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
