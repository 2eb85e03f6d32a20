"""Run the test command of a benchmark and report how it ended."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

from fairtrial.core.errors import UserError
from fairtrial.jobs.processes import kill_session

LAST_LINES = 15


@dataclass(frozen=True)
class Trial:
    """The result of a test command. `tail` has the last lines of its output."""

    command: str
    exit_code: int
    seconds: float
    tail: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return self.exit_code == 0

    @property
    def result(self) -> str:
        return "PASS" if self.passed else "FAIL"

    @property
    def ending(self) -> str:
        if self.passed:
            return "passed"
        return f"failed with exit code {self.exit_code}" if self.exit_code > 0 else f"ended by signal {-self.exit_code}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "command": self.command,
            "status": "passed" if self.passed else "failed",
            "exit_code": self.exit_code,
            "seconds": self.seconds,
            "tail": list(self.tail),
        }


def split_command(command: str) -> list[str]:
    """Split a command into words as a shell would, and check that its program exists. No shell is used."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError(f"cannot parse the test command '{command}': {error}") from None
    if not words:
        raise UserError("the test command is empty", hint="Pass one, such as: --run-test 'pytest tests/test_bench.py'")
    if shutil.which(words[0]) is None:
        raise _cannot_run(words[0], "no such program")
    return words


def _cannot_run(program: str, why: str | None) -> UserError:
    return UserError(f"cannot run the test command: {program}: {why}", hint="Install it, or add it to the PATH.")


def run_trial(command: str, words: Sequence[str]) -> Trial:
    """Run the command and wait for it. Output goes to a file, not a pipe: a background child could keep a pipe open."""
    with tempfile.TemporaryFile() as output:
        started = time.monotonic()
        exit_code = _run(words, output)
        seconds = time.monotonic() - started
        output.seek(0)
        lines = output.read().decode(errors="replace").rstrip().splitlines()
    return Trial(command, exit_code, seconds, tuple(lines[-LAST_LINES:]))


def _run(words: Sequence[str], output: IO[bytes]) -> int:
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    except OSError as error:
        raise _cannot_run(words[0], error.strerror) from None
    try:
        return process.wait()
    except BaseException:  # Ctrl-C does not reach the test's own session, so kill that session
        kill_session(process.pid)
        process.wait()
        raise
