"""Real processes that are really killed: forked from the test, so that nothing has to be imported again."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fairtrial.api.running.planning import plan_jobs
from fairtrial.core.paths import RunPaths
from fairtrial.core.registry import load_recipe
from fairtrial.core.runs import Outcome
from fairtrial.core.specs import Job
from fairtrial.jobs.run_session import run_cell
from fairtrial.plan.cells import resolve, spec_of
from fairtrial.record.series import read_series
from fairtrial.record.store import Store


def request_for(
    store: Store, recipe: str, *, seed: int = 1, study: str = "s", variant: str = "v", **options: Any
) -> Job:
    loaded = load_recipe(recipe)
    spec = spec_of(loaded, resolve(loaded, options, where="test"), study=study, variant=variant, seed=seed)
    plan = plan_jobs([spec], store, {})
    [job] = plan.jobs
    for need in plan.needs_of(job):
        run_cell(need)
    return job


def make(store: Store, recipe: str, **settings: Any) -> Outcome:
    return run_cell(request_for(store, recipe, **settings))


def series_of(store: Store, study: str = "s", run: str = "v.seed1") -> dict[str, list[tuple[int, str]]]:
    """Every series with its values spelled bit by bit."""
    found = read_series(store.paths.run(study, run))
    return {name: [(int(s), float(v).hex()) for s, v in zip(*points, strict=True)] for name, points in found.items()}


def edit_metadata(paths: RunPaths, **changes: Any) -> None:
    """Change metadata as an earlier version would have written them: without a checksum, which would tell."""
    metadata = {**json.loads(paths.metadata.read_bytes()), **changes}
    metadata.pop("checksum", None)
    paths.metadata.write_text(json.dumps(metadata))


def forked(function: Callable[[], Any]) -> int:
    """Run a function in a forked child; returns its process id."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        function()
        code = 0
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def in_small_process(function: Callable[..., None], *arguments: Any) -> None:
    """Call a test's function, of its own module, where little is loaded: that is forked in a third of the time."""
    words = ", ".join(map(repr, arguments))
    code = f"""
import os
from pathlib import Path, PosixPath
from tests.conftest import do_not_wait_for_the_disk
from {function.__module__} import {function.__name__}
os.fsync = do_not_wait_for_the_disk
{function.__name__}({words})
"""
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def wait(pid: int) -> int:
    """How a child ended: its exit status, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill_after(pid: int, seconds: float) -> int:
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    return wait(pid)


class KillAt:
    """Ends this process with SIGKILL at the n-th of the system calls that change files."""

    CALLS = ("write", "fsync", "replace", "link", "ftruncate")

    def __init__(self, number: int, *, after: bool) -> None:
        self.left = number
        self.after = after

    def install(self) -> None:
        for name in self.CALLS:
            setattr(os, name, self._wrap(getattr(os, name)))

    def _wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **settings: Any) -> Any:
            self.left -= 1
            if self.left == 0 and not self.after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = call(*arguments, **settings)
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return wrapped


class CountCalls(KillAt):
    """Counts those calls without killing."""

    def __init__(self) -> None:
        super().__init__(0, after=False)

    @property
    def count(self) -> int:
        return -self.left


def eventually(condition: Callable[[], Any], *, timeout: float = 30.0, what: str = "it") -> Any:
    """Wait for something that another process does."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {timeout} s")


def is_alive(pid: int) -> bool:
    """A zombie that nobody has collected yet is not."""
    try:
        return _stat(pid)[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter: gone between opening and reading
        return False


def parent_of(pid: int) -> int:
    return int(_stat(pid)[1])


def _stat(pid: int | str) -> list[str]:
    """What the system says of a process after its name: state, parent …"""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Of all workers only one is in here; the file is their lock."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fill_up(path: Path, *, leave: int) -> Path:
    ballast = path / "ballast"
    descriptor = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(descriptor, b"x" * 4096)
    except OSError:
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - leave)
    os.close(descriptor)
    return ballast
