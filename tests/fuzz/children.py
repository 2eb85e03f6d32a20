"""Runs one input in a forked child that can harm nothing: own folder, own home, no network, no training, a time limit."""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import re
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.cases import WORKSPACE, Case, use_workspace

LIMIT_S = 10.0
LIMIT_BYTES = 1 << 30
FIXED_TIME = 1_800_000_000
DOCUMENTED = frozenset({0, 1, 2, 3, 4, 130})
RUNS_FAILED = 4
ESCAPED = 99
"""Exit code of a child whose command raised: no code of the program."""
_POLL_S = 0.004
_PRELOADED = ("core", "plan", "record", "research", "stats", "costs", "report", "api", "cli")
_LIBRARIES = ("duckdb", "pyarrow.parquet", "scipy.stats", "rich.console", "rich.table", "yaml")
_TRACE = re.compile(r"^\s*Traceback \(most recent call last\)", re.MULTILINE)
_WARNING = re.compile(r"^\S+\.py:\d+: \w*Warning: .*$", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """How an input ended. `problem` says what was wrong with that, None where nothing was."""

    exit_code: int
    seconds: float
    peak_bytes: int
    problem: str | None
    detail: str = ""
    warning: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def preload() -> None:
    """Import what commands import, once: a child that is forked afterwards starts in milliseconds."""
    for room in _PRELOADED:
        package = importlib.import_module(f"fairtrial.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    for name in _LIBRARIES:
        importlib.import_module(name)


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """Where cases live: in memory where the system offers that, because each of them makes up to a hundred files."""
    memory = "/dev/shm"
    return tempfile.TemporaryDirectory(prefix="fairtrial-fuzz-", dir=memory if os.access(memory, os.W_OK) else None)


def prepare(scratch: Path) -> None:
    """A copy of the workspace with what a store caches: files have fixed times, so that the cache is always the same."""
    folder = scratch / "workspace"
    shutil.copytree(WORKSPACE, folder)
    for path in folder.rglob("*"):
        os.utime(path, (FIXED_TIME, FIXED_TIME))
    pid = os.fork()
    if pid == 0:
        _warm(folder, scratch)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise RuntimeError("the workspace of the fuzzer cannot be used: see what `runs list` and `analyze` say in it")
    use_workspace(folder)


def _warm(folder: Path, scratch: Path) -> None:
    code = 1
    try:
        _surround(scratch, folder)
        for argv in (["runs", "list", "--quiet"], ["analyze", "s", "--quiet"]):
            code = _run(Case("warm", (*argv, "--output", f"{scratch}/warm.json")))
    finally:
        os._exit(code)


def run_case(case: Case, scratch: Path, limit_s: float = LIMIT_S, limit_bytes: int = LIMIT_BYTES) -> Outcome:
    """The case in a child of this process, judged."""
    folder = Path(tempfile.mkdtemp(prefix="case-", dir=scratch))
    try:
        begun = time.monotonic()
        pid = os.fork()
        if pid == 0:
            _child(case, folder)
        status, usage, killed = _wait(pid, limit_s, limit_bytes)
        seconds = time.monotonic() - begun
        shown = "".join(_read(folder / name) for name in ("out", "err"))
        code = os.waitstatus_to_exitcode(status)
        peak = usage.ru_maxrss * 1024
        problem = killed or judged(code, peak, shown, limit_bytes) or _unexpected(case, code, shown)
        warning = _WARNING.search(shown)
        return Outcome(code, seconds, peak, problem, shown[-6000:] if problem else "", warning and warning[0])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(4 << 20).decode("utf-8", "replace")
    except OSError:
        return ""


def _wait(pid: int, limit_s: float, limit_bytes: int) -> tuple[int, Any, str | None]:
    """Wait for a child and for how much it took; end it, and what it started, when that is too much.

    Time that the child spends waiting for a free core does not count: on a busy machine that alone can pass the limit.
    """
    started = time.monotonic()
    pause, looked, killed = _POLL_S, 0.0, None
    while True:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            break
        now = time.monotonic()
        if now - started > limit_s and now - started - seconds_without_core(pid) > limit_s:
            killed = f"hang: more than {limit_s:g} s"
        elif now - looked > 0.05:
            looked = now
            if resident_bytes(pid) > 1.5 * limit_bytes:
                killed = f"memory: more than {1.5 * limit_bytes / (1 << 30):.2g} GB, ended"
        if killed:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            _, status, usage = os.wait4(pid, 0)
            break
        time.sleep(pause)
        pause = min(pause * 1.3, 0.05)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # what it left running
    return status, usage, killed


def seconds_without_core(pid: int) -> float:
    """Return how long the threads of a process were ready to run but had no core: the longest wait of one thread.

    It is 0 where the kernel does not record it.
    """
    try:
        threads = [path.read_text().split()[1] for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
        return max(map(int, threads), default=0) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def judged(code: int, peak: int, shown: str, limit_bytes: int = LIMIT_BYTES) -> str | None:
    """What is wrong with how a command ended; None where nothing is."""
    if code == ESCAPED or (code != RUNS_FAILED and _TRACE.search(shown)):  # a program that was run may show its own
        return f"traceback: {_last_line(shown)}"
    if code not in DOCUMENTED:
        return f"exit code {code}"
    if peak > limit_bytes:
        return f"memory: {peak >> 20} MB"
    return None


def _last_line(shown: str) -> str:
    lines = [line for line in shown.splitlines() if re.match(r"^[\w.]+(Error|Exception|Interrupt|Iteration)\b", line)]
    return (lines or shown.strip().splitlines() or [""])[-1][:200]


def _unexpected(case: Case, code: int, shown: str) -> str | None:
    expected = case.expected
    if expected.exit_code is not None and code != expected.exit_code:
        return f"result: exit code {code}, not {expected.exit_code}"
    missing = [words for words in expected.contains if words not in shown]
    return f"result: does not say {missing[0]!r}" if missing else None


# In the child


def _child(case: Case, folder: Path) -> None:
    code = ESCAPED
    try:
        os.setsid()
        _redirect(folder)
        place = folder / "here"
        place.mkdir()
        case.lay_out(place)
        _surround(folder, place)
        _forbid()
        code = _run(case)
    except BaseException:  # noqa: BLE001 — whatever escapes is what is looked for
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BaseException):
                stream.flush()
        os._exit(code)


def _run(case: Case) -> int:
    """As `fairtrial.cli.app.main` does."""
    from fairtrial.cli.app import main

    try:
        main(list(case.argv))
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1


def _redirect(folder: Path) -> None:
    for name, descriptor in (("out", 1), ("err", 2)):
        target = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(target, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 — for the rest of the process
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _surround(folder: Path, place: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("FAIRTRIAL_", "AWS_", "ZENODO"))]:
        del os.environ[name]
    home, temporary = folder / "home", folder / "tmp"
    home.mkdir()
    temporary.mkdir()
    os.environ.update(HOME=str(home), TMPDIR=str(temporary), FAIRTRIAL_MIRRORS=str(folder / "mirrors"), COLUMNS="100")
    tempfile.tempdir = None
    os.chdir(place)
    # Nobody cuts the power here; a file that is not open is still an error.
    os.fsync = os.fstat  # type: ignore[assignment]
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, signal.default_int_handler if signal_number == signal.SIGINT else signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 20, 256 << 20))


def _forbid() -> None:
    """No network, no training, no programs of others: what is fuzzed is everything before that.

    A name that is not there is an error: the program was changed, and the guard has to follow.
    """
    from fairtrial.core.errors import Interrupted

    def stop(*_: Any, **__: Any) -> Any:
        raise Interrupted("the fuzzer starts nothing")

    def unreachable(*_: Any) -> Any:
        raise OSError(101, "Network is unreachable")

    def tiny(*_: Any) -> Any:
        import numpy

        return {f"{split}_{part}": numpy.zeros((4, 40)) for split in ("train", "eval", "report") for part in "xy"}

    small = _module("api.running.train").run_cell

    def only_small(request: Any, **settings: Any) -> Any:
        options = request.spec.options
        times = [value for name, value in options.items() if name.endswith("_time")]
        steps = options.get("steps")
        is_small = request.spec.recipe == "fake" and isinstance(steps, int) and steps <= 50 and not any(times)
        return small(request, **settings) if is_small else stop()

    engines, hidden = _module("launch.engines").LauncherModule, _module("api.benchmarking.bench_runs").HiddenRuns
    for holder, name, instead in (
        (engines, "open", stop),
        (hidden, "__enter__", stop),
        (_module("api.benchmarking.profile"), "_running", stop),
        (_module("api.running.train"), "run_cell", only_small),
        (_module("recipes.data.mnist1d"), "make", tiny),
        (_module("recipes.data.mnist1d_shifted"), "make", tiny),
        (_module("recipes.data.digits"), "make", tiny),
        (_module("recipes.data.mnist1d"), "make_report", tiny),
        (_module("recipes.data.mnist1d_shifted"), "make_report", tiny),
        (_module("sync.trials"), "run_trial", stop),
        (socket.socket, "connect", unreachable),
        (socket, "getaddrinfo", unreachable),
    ):
        getattr(holder, name)
        setattr(holder, name, instead)


def _module(name: str) -> Any:
    return importlib.import_module(f"fairtrial.{name}")
