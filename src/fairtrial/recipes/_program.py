"""Fill in the arguments of a user's program, start it, read its metrics while it runs, and stop it."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fairtrial.core.errors import Interrupted
from fairtrial.core.paths import JOIN_VARIABLE, TOKEN_VARIABLE
from fairtrial.core.private_files import open_private_lock, open_to_append
from fairtrial.core.secrets import REFERENCE, references, reveal
from fairtrial.plugins import RunContext, RunLogger, UserError
from fairtrial.recipes._metrics_file import MetricsFile

POLL_S = 0.05
GRACE_S = 5.0


def placeholders(text: str) -> list[str]:
    """Return the names in braces, except for {env:NAME}. `{{` and `}}` are literal braces."""
    matches = [
        match for match in _BRACES.finditer(text) if match[0] not in ("{{", "}}") and not REFERENCE.match(match[0])
    ]
    wrong = next((match[0] for match in matches if not (match[1] or "").isidentifier()), None)
    if wrong:
        raise ValueError(f"argument {text!r}: {wrong!r} is not a placeholder; write {{{{ and }}}} for literal braces")
    return [match[1] for match in matches]


_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def fill(text: str, values: Mapping[str, Any]) -> str:
    """Replace each placeholder with its value. Conversions and format specs of `str.format` are not supported.

    {env:NAME} is left unchanged if `values` has no key `env:NAME`.
    """

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        return match[0] if match[1].startswith("env:") and match[1] not in values else str(values[match[1]])

    return _BRACES.sub(value, text)


def with_secrets(argv: Sequence[str], own: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that the program receives, including secrets, which must never be recorded.

    `own` contains the variant's values, which may refer to environment variables too.
    """
    here = f" on {socket.gethostname()}"
    variables = {f"env:{name}": reveal(f"{{env:{name}}}", here=here) for name in references(argv)}
    return {**values, **reveal(own, here=here), **variables}


def needs_environment(text: str) -> bool:
    """Return whether the text contains {env:NAME}."""
    return bool(references(text))


@dataclass(frozen=True)
class Program:
    """A program and its arguments: `argv` starts it and may contain secrets; `shown` is safe to record."""

    argv: list[str]
    shown: list[str]


def run_program(
    program: Program, folder: Path, metrics: MetricsFile | None, context: RunContext, logger: RunLogger
) -> None:
    process = _start(program, folder, context)
    logger.event("program_started", argv=program.shown, pid=process.pid)
    try:
        _follow(process, metrics, context.should_stop, logger)
    finally:
        _end(process)
        logger.event("program_ended", status=process.returncode)
    if process.returncode in (-signal.SIGKILL, -signal.SIGTERM):
        raise Interrupted(f"{program.shown[0]} was killed by {signal.Signals(-process.returncode).name}")
    if process.returncode != 0:
        raise ProgramFailed(program.shown[0], process.returncode)
    if metrics:
        metrics.check()


@contextlib.contextmanager
def take_turn(path: Path, should_stop: Callable[[], bool]) -> Iterator[None]:
    """Hold a lock for this path, so that programs that write to the same file run one at a time.

    The lock works across processes, and so across launches.
    """
    name = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:20]
    with os.fdopen(open_private_lock(f"{name}.lock"), "rb") as lock:
        while not _locked(lock):
            if should_stop():
                raise Interrupted("stopped while it waited for another program that writes to the same file")
            time.sleep(POLL_S)
        yield


def _locked(lock: IO[bytes]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class ProgramFailed(UserError):
    """Raised when the program exits with a nonzero status or is killed by a signal."""

    def __init__(self, program: str, status: int) -> None:
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"failed with exit status {status}"
        super().__init__(f"{program} {how}", hint="Read the end of log.txt for its output.")


def _start(program: Program, folder: Path, context: RunContext) -> subprocess.Popen[bytes]:
    claim = {} if context.token is None else {TOKEN_VARIABLE: str(context.token)}
    environment = {**os.environ, JOIN_VARIABLE: str(context.run.root), **claim}
    try:
        with os.fdopen(open_to_append(context.run.log), "ab") as log:
            return subprocess.Popen(
                program.argv,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
                preexec_fn=_die_with_parent,
            )
    except FileNotFoundError:
        raise UserError(f"program '{program.shown[0]}' not found", hint="Check the command after '--'.") from None
    except PermissionError:
        raise UserError(f"cannot run '{program.shown[0]}': permission denied") from None


def _die_with_parent() -> None:
    """Have Linux kill the program when its job dies. Elsewhere, only `_end` stops it, through its process group."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _follow(
    process: subprocess.Popen[bytes],
    metrics: MetricsFile | None,
    should_stop: Callable[[], bool],
    logger: RunLogger,
) -> None:
    while process.poll() is None:
        if should_stop():
            raise Interrupted("the program was asked to stop")
        if metrics:
            metrics.copy_new(logger)
        time.sleep(POLL_S)
    if metrics:
        metrics.copy_new(logger, ended=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stop the program's process group: first with SIGTERM, then, after GRACE_S seconds, with SIGKILL."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, signal_number)
        except ProcessLookupError:
            break
        if process.poll() is None:
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                continue
    process.wait()
