"""Call the program `sky`: find it, validate tasks, list accessible clouds, and query jobs.

SkyPilot cannot be a dependency, because it needs older versions of some packages. Fairtrial calls it as a program, and
calls its parser in its own interpreter.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairtrial.core.errors import UserError
from fairtrial.launch import sky_parser

OLDEST = (0, 14)
"""The oldest supported version: earlier ones do not print the queue of managed jobs in the expected JSON format."""
PARSER_S = 120.0
CHECK_S = 180.0
"""Timeout of `sky check`, which first starts a server on this machine and then queries every cloud."""
QUEUE_S = 60.0
INSTALL = 'pipx install "skypilot[aws]"'
QUEUE = ("jobs", "queue", "--all", "--verbose", "--output", "json")
_NOBODY = "No in-progress managed jobs"
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


@dataclass(frozen=True)
class Judgement:
    """The result of SkyPilot's parser for some tasks. `not_checked` lists what it could not check."""

    version: str | None
    problems: Sequence[str] = ()
    not_checked: Sequence[str] = ()


@dataclass(frozen=True)
class Sky:
    """The program `sky` at a path."""

    path: str

    @classmethod
    def find(cls) -> Sky | None:
        path = shutil.which("sky")
        return cls(path) if path else None

    @classmethod
    def require(cls) -> Sky:
        sky = cls.find()
        if sky is None:
            raise UserError(
                "--on skypilot needs the program sky, which is not on $PATH",
                hint=f"Install it as a separate tool, with the clouds you use: {INSTALL}",
            )
        return sky

    # Commands that are waited for.

    def judge(self, tasks: Sequence[Mapping[str, Any]]) -> Judgement:
        """Validate tasks with SkyPilot's own parser. This needs neither a cloud nor credentials."""
        python = interpreter_of(Path(self.path))
        if python is None:
            return Judgement(None, not_checked=[f"the Python interpreter of {self.path} is unknown"])
        try:
            asked = subprocess.run(
                [python, sky_parser.__file__], input=json.dumps(tasks), capture_output=True, text=True, check=False,
                timeout=PARSER_S, env=environment(),
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return Judgement(None, not_checked=[f"SkyPilot's parser cannot be run: {error}"])
        if asked.returncode != 0:
            return Judgement(None, not_checked=[f"SkyPilot's parser cannot be run: {last_line(asked.stderr)}"])
        return Judgement(**json.loads(asked.stdout))

    def clouds(self, cloud: str | None) -> list[str]:
        """Return the clouds that SkyPilot has access to; with `cloud`, check only this one."""
        command = ["check", *([cloud] if cloud else []), "--output", "json"]
        shown = f"sky {shlex.join(command[:-2])}"
        try:
            asked = self._run(command, CHECK_S)
        except subprocess.TimeoutExpired:
            raise UserError(f"`{shown}` did not respond within {CHECK_S:.0f} s", hint=f"Run: {shown}") from None
        by_workspace = read_json(asked.stdout)
        if asked.returncode != 0 or not isinstance(by_workspace, Mapping):
            raise UserError(
                f"`{shown}` failed: {last_line(asked.stderr + asked.stdout)}", hint=f"Read its full output: {shown}"
            )
        return sorted({name for clouds in by_workspace.values() for name in clouds})

    def last_words(self, job: int) -> str:
        """Return the last line that a job printed, if SkyPilot still has it."""
        try:
            asked = self._run(["jobs", "logs", "--no-follow", "--tail", "20", str(job)], QUEUE_S)
        except subprocess.TimeoutExpired:
            return ""
        return last_line(asked.stdout) if asked.returncode == 0 else ""

    def _run(self, command: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.path, *command], capture_output=True, text=True, check=False, timeout=timeout, env=environment(),
            stdin=subprocess.DEVNULL, errors="replace",
        )  # fmt: skip

    # Commands in the background.

    def start(self, command: Sequence[str], log: Path) -> Call:
        """Start a command without waiting for it. It keeps running if this process is killed."""
        with log.open("wb") as output:
            process = subprocess.Popen(
                [self.path, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment(),
                start_new_session=True,
            )
        return Call(process, log)


@dataclass
class Call:
    """A command in the background."""

    process: subprocess.Popen[bytes]
    log: Path
    begun: float = field(default_factory=time.monotonic)
    seen_over: float | None = None

    @property
    def is_over(self) -> bool:
        if self.seen_over is None and self.process.poll() is not None:
            self.seen_over = time.monotonic()
        return self.seen_over is not None

    @property
    def went_well(self) -> bool:
        return self.process.poll() == 0

    @property
    def printed(self) -> str:
        return _COLOURS.sub("", self.log.read_text(errors="replace")) if self.log.exists() else ""


def read_queue(call: Call) -> dict[str, Mapping[str, Any]] | None:
    """Return the managed jobs by name, the last row of each, or None if the queue could not be read."""
    if not call.went_well:
        return {} if _NOBODY in call.printed else None
    rows = read_json(call.printed)
    return {str(row["job_name"]): row for row in rows} if isinstance(rows, list) else None


def interpreter_of(program: Path) -> str | None:
    """Return the Python interpreter of a program, from its first lines, which pip writes in one of two forms."""
    with program.open("rb") as file:
        first, second = file.readline(), file.readline()
    words = shlex.split(first.decode(errors="replace").removeprefix("#!")) if first.startswith(b"#!") else []
    if words and Path(words[0]).name == "sh":  # the interpreter's path was too long for a shebang line
        words = shlex.split(second.decode(errors="replace"))[1:]
    if words and Path(words[0]).name == "env":
        return shutil.which(words[-1])
    return words[0] if words and Path(words[0]).name.startswith("python") else None


def environment() -> dict[str, str]:
    """Return the environment for `sky`, with its usage collection turned off."""
    return {**os.environ, "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}


def read_json(printed: str) -> Any:
    """Return the JSON document in a command's output, which may start with other lines, or None."""
    lines = _COLOURS.sub("", printed).splitlines()
    for number, line in enumerate(lines):
        if line[:1] in ("{", "["):
            try:
                return json.loads("\n".join(lines[number:]))
            except json.JSONDecodeError:
                continue
    return None


def last_line(printed: str) -> str:
    lines = [line.strip() for line in _COLOURS.sub("", printed).splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"
