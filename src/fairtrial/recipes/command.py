"""Run any program: this is how Fairtrial is used on code that knows nothing of it.

`{seed}`, `{run_dir}`, `{variant}` and the values of the variant are filled into the arguments element by
element; there is no shell. `{env:NAME}` is filled from the environment when the program starts, and never recorded.
Metrics are read from a JSONL or CSV file that the program writes, or the program
calls `fairtrial.run()`, which joins this run.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar, Literal

from pydantic import field_validator, model_validator

from fairtrial.core.cautions import SEED_NOT_PASSED, SHARED_FILE
from fairtrial.core.errors import Interrupted, UserError
from fairtrial.core.options import Options as BaseOptions
from fairtrial.core.options import Role, option
from fairtrial.core.paths import JOIN_VARIABLE, TOKEN_VARIABLE
from fairtrial.core.private_files import open_private_lock, open_to_append
from fairtrial.core.secrets import REFERENCE, references, reveal
from fairtrial.core.training import RunContext, RunLogger
from fairtrial.recipes._metrics_file import MetricsFile

SUMMARY = "Run any program, with its arguments filled in per variant and seed."
REQUIRES = ()
EXTRA = None
METRIC = None
EXAMPLE = {
    "variants": {"base": {"lr": 0.1}, "new": {"lr": 0.2}},
    "options": {
        "argv": ["python", "train.py", "--lr", "{lr}", "--seed", "{seed}"],
        "metrics": "{run_dir}/out.jsonl",
    },
}
BUILT_IN = ("seed", "run_dir", "variant")
SUFFIXES = (".jsonl", ".ndjson", ".csv")
POLL_S = 0.05
GRACE_S = 5.0
SEED_READ = b'"event":"seed_read"'
"""As the recorder spells it in `events.jsonl`."""


class Options(BaseOptions):
    free_values: ClassVar[str | None] = "values"
    fills_environment: ClassVar[bool] = True

    argv: tuple[str, ...] = option((), "The program and its arguments, with {placeholders}.", role=Role.PROGRAM)
    values: dict[str, str] = option({}, "Values for the placeholders; variants set them.", role=Role.PROGRAM)
    metrics: str | None = option(
        None,
        "JSONL or CSV file that the program writes, relative to its folder; placeholders allowed.",
        role=Role.PROGRAM,
    )
    step_column: str = option("step", "The field of that file that counts steps.", role=Role.PROGRAM)
    cwd: str | None = option(None, "Folder to run in; default: where the launch was started.", role=Role.PROGRAM)
    best_metric: str | None = option(
        None,
        "Metric that judges the best checkpoint, for programs that call fairtrial.run().",
        role=Role.SELECTION,
    )
    best_mode: Literal["max", "min"] | None = option(
        None, "Whether higher or lower is better for --best-metric.", role=Role.SELECTION
    )

    @field_validator("values", mode="before")
    @classmethod
    def _as_text(cls, values: Any) -> Any:
        """A value is what the program is told: 0.1 in a file and 0.1 on the command line are the same."""
        return {name: str(value) for name, value in values.items()} if isinstance(values, dict) else values

    @field_validator("metrics")
    @classmethod
    def _is_a_file_of_metrics(cls, metrics: str | None) -> str | None:
        if metrics is not None and Path(metrics).suffix not in SUFFIXES:
            raise ValueError(f"must end in {' or '.join(SUFFIXES)}, not {metrics!r}")
        return metrics

    @model_validator(mode="after")
    def _placeholders_match(self) -> Options:
        if not self.argv:
            raise ValueError("argv: give the program after '--', for example: -- python train.py --seed {seed}")
        texts = [*self.argv, self.metrics or ""]
        wanted = {name for text in texts for name in placeholders(text)}
        missing = sorted(wanted - set(self.values) - set(BUILT_IN))
        unused = sorted(set(self.values) - wanted)
        problems = [f"placeholder {{{name}}} has no value" for name in missing]
        problems += [f"value '{name}' has no placeholder {{{name}}}" for name in unused]
        if references(self.metrics or ""):
            problems.append("metrics: the name of a file is recorded, so {env:NAME} cannot be in it")
        if problems:
            raise ValueError("; ".join(problems))
        return self


def placeholders(text: str) -> list[str]:
    """The names in braces, but for {env:NAME}. `{{` and `}}` stand for the braces themselves."""
    matches = [
        match for match in _BRACES.finditer(text) if match[0] not in ("{{", "}}") and not REFERENCE.match(match[0])
    ]
    wrong = next((match[0] for match in matches if not (match[1] or "").isidentifier()), None)
    if wrong:
        raise ValueError(f"argument {text!r}: {wrong!r} is no placeholder; write {{{{ and }}}} for plain braces")
    return [match[1] for match in matches]


_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def fill(text: str, values: Mapping[str, Any]) -> str:
    """Put values in place of names: nothing else that a format string could do is done.

    {env:NAME} stays as it is where `values` has no `env:NAME`.
    """

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        return match[0] if match[1].startswith("env:") and match[1] not in values else str(values[match[1]])

    return _BRACES.sub(value, text)


def with_secrets(options: Options, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as the program gets them, secrets included; nothing may write them down."""
    here = f" on {socket.gethostname()}"
    variables = {f"env:{name}": reveal(f"{{env:{name}}}", here=here) for name in references(options.argv)}
    return {**values, **reveal(options.values, here=here), **variables}


def execute(options: Options, context: RunContext, logger: RunLogger) -> None:
    folder = Path(options.cwd or Path.cwd())
    if not folder.is_dir():
        raise UserError(f"no folder {folder}", hint="Check --cwd.")
    given = {"seed": context.streams.root, "run_dir": str(context.run.root), "variant": context.variant}
    values = {**options.values, **given}
    program = Program(
        [fill(part, with_secrets(options, values)) for part in options.argv],
        [fill(part, values) for part in options.argv],
    )
    _run_with_metrics(program, folder, options, values, context, logger)
    if not any("seed" in placeholders(part) for part in options.argv) and not _read_seed(context.run.events):
        context.cautions.append(SEED_NOT_PASSED.fill())


def _read_seed(events: Path) -> bool:
    """Whether the program asked `fairtrial.run()` for its seed; known once it has ended."""
    with events.open("rb") as lines:
        return any(SEED_READ in line for line in lines)


def _run_with_metrics(
    program: Program, folder: Path, options: Options, values: Mapping[str, Any], context: RunContext, logger: RunLogger
) -> None:
    """Run the program and follow the file of metrics that it writes, if it does."""
    if options.metrics is None:
        _run(program, folder, None, context, logger)
        return
    path = folder / fill(options.metrics, values)
    if {"seed", "run_dir"} & set(placeholders(options.metrics)):
        _run(program, folder, MetricsFile(path, options.step_column), context, logger)
        return
    context.cautions.append(SHARED_FILE.fill(file=options.metrics))
    with _turn(path, context.should_stop):
        logger.begin_training()
        _run(program, folder, MetricsFile(path, options.step_column), context, logger)
        if path.exists():
            shutil.move(path, context.run.root / f"program-{path.name}")


@dataclass(frozen=True)
class Program:
    """A program and its arguments: as it is started, and as that may be written down."""

    argv: list[str]
    shown: list[str]


def _run(program: Program, folder: Path, metrics: MetricsFile | None, context: RunContext, logger: RunLogger) -> None:
    process = _start(program, folder, context)
    logger.event("program_started", argv=program.shown, pid=process.pid)
    try:
        _follow(process, metrics, context.should_stop, logger)
    finally:
        _end(process)
        logger.event("program_ended", status=process.returncode)
    if process.returncode in (-signal.SIGKILL, -signal.SIGTERM):
        raise Interrupted(f"{program.shown[0]} was ended by {signal.Signals(-process.returncode).name}")
    if process.returncode != 0:
        raise ProgramFailed(program.shown[0], process.returncode)
    if metrics:
        metrics.check()


@contextlib.contextmanager
def _turn(path: Path, should_stop: Callable[[], bool]) -> Iterator[None]:
    """Programs that write to one and the same file run one after another, whoever launched them."""
    name = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:20]
    with os.fdopen(open_private_lock(f"{name}.lock"), "rb") as lock:
        while not _locked(lock):
            if should_stop():
                raise Interrupted("stopped while it waited for its turn")
            time.sleep(POLL_S)
        yield


def _locked(lock: IO[bytes]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class ProgramFailed(UserError):
    """The program ended with another status than 0."""

    def __init__(self, program: str, status: int) -> None:
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
        super().__init__(f"{program} {how}", hint="The end of log.txt shows what it printed.")


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
        raise UserError(f"no program '{program.shown[0]}'", hint="Check the words after '--'.") from None
    except PermissionError:
        raise UserError(f"'{program.shown[0]}' cannot be run: permission denied") from None


def _die_with_parent() -> None:
    """A killed job must not leave its program running unnoticed (Linux; elsewhere the group is ended)."""
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
    """Ask the program and whatever it started to stop, then make it."""
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
