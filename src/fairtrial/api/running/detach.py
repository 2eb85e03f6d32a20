"""launch --detach: run the launcher in the background. `runs watch` shows its progress.

The launcher is a separate process in its own session; it receives the study and the policy on its standard input. The
calling process returns as soon as the launcher reports that it is running the study, and raises if it fails before.
Nothing is written to the store before the launcher itself writes there: until then, its output goes to a file in the
system's temporary directory.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairtrial.api.running.launch import run_study
from fairtrial.api.running.recording import recorded
from fairtrial.core.command_line import carrying_out
from fairtrial.core.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_RUNS, FairtrialError, UserError
from fairtrial.core.private_files import open_to_append
from fairtrial.jobs.signals import like_ctrl_c
from fairtrial.launch.policy import ExecutionPolicy
from fairtrial.plan.study import Study
from fairtrial.record.atomic import store_errors
from fairtrial.record.environment import recorded_command_line
from fairtrial.record.store import Store

AT_WORK = b"at work"
CALLBACKS = ("watch", "ready", "tell")
"""Fields of a policy that hold functions, which cannot be sent to another process."""
_left_alone: list[subprocess.Popen[bytes]] = []


@atexit.register
def _collect_the_ended() -> None:
    """Forget launchers that have ended. Python warns about a Popen object that is dropped while its process runs."""
    _left_alone[:] = [process for process in _left_alone if process.poll() is None]


@dataclass(frozen=True)
class Detached:
    """A launcher in the background. `pid` is None if there was nothing to do.

    >>> fairtrial.detach(study).pid  # doctest: +SKIP
    """

    study: str
    store: str
    log: Path
    pid: int | None

    def to_dict(self) -> dict[str, Any]:
        return {"study": self.study, "store": str(self.store), "pid": self.pid, "log": str(self.log)}


@recorded("launch")
def detach(
    study: Study, *, store: str | os.PathLike[str] | None = None, terms: ExecutionPolicy | None = None
) -> Detached:
    """Launch a study in a process that outlives this one. Returns when that process is running the study.

    >>> fairtrial.detach(study).log  # doctest: +SKIP
    """
    _collect_the_ended()
    place = Store.at(store)
    log = place.paths.launch_log(study.study)
    before = log.stat().st_size if log.exists() else 0
    first = Path(tempfile.mkdtemp(prefix="fairtrial-")) / log.name
    process, at_work = _start(place.address, study, terms or ExecutionPolicy(), first, log)
    if not at_work and process.wait() not in (EXIT_OK, EXIT_RUNS):
        said, since = (first, 0) if first.exists() else (log, before)
        raise UserError(_last_words(said, since), hint=f"Its full output is in {said}")
    _left_alone.append(process)
    return Detached(study.study, place.address, log, process.pid if at_work else None)


def _start(
    store: str, study: Study, policy: ExecutionPolicy, first: Path, log: Path
) -> tuple[subprocess.Popen[bytes], bool]:
    """Start the launcher. Returns it and whether it is running the study; if not, it has exited or is about to."""
    names = [each.name for each in dataclasses.fields(ExecutionPolicy) if each.name not in CALLBACKS]
    document = {
        "study": study.model_dump(mode="json"),
        "store": store,
        "policy": {name: getattr(policy, name) for name in names},
        "command_line": recorded_command_line(),
        "first": str(first),
        "log": str(log),
    }
    # This process closes its write end below, so that the read ends when the launcher reports or exits.
    here, there = os.pipe()
    with first.open("ab") as output, os.fdopen(there, "wb"):
        process = subprocess.Popen(
            [sys.executable, "-m", "fairtrial.api.running.detach", str(there)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=[there],
        )
    assert process.stdin is not None
    with process.stdin as line:
        line.write(json.dumps(document, default=os.fspath).encode())
    with os.fdopen(here, "rb") as word:
        return process, word.read() == AT_WORK  # empty if it exits without reporting


def _last_words(log: Path, before: int) -> str:
    """Return the last line of the launcher's output."""
    with log.open("rb") as file:
        file.seek(before)
        lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "the launcher exited without any output"


def main(pipe: int) -> int:
    with like_ctrl_c():
        return _launch(pipe)


def _launch(pipe: int) -> int:
    document: dict[str, Any] = json.load(sys.stdin)
    at_work = _Once(lambda: _notify_starter(pipe))
    into_store = _Once(lambda: _move_output(Path(document["first"]), Path(document["log"])))
    policy = ExecutionPolicy(**document["policy"], tell=_say, ready=into_store, watch=at_work)
    _say(f"{time.strftime('%F %T')} launching {document['study']['study']}, PID {os.getpid()}")
    try:
        with carrying_out(document["command_line"]):
            launched = run_study(Study.model_validate(document["study"]), store=document["store"], terms=policy)
    except KeyboardInterrupt:
        _say("Stopped. All recorded data is kept; launch again to resume.")
        return EXIT_INTERRUPTED
    except FairtrialError as error:
        _say(_in_one_line(error.message, error.problems, error.hint))
        return 1
    bad, missing = len(launched.bad), len(launched.missing)
    _say(f"{len(launched.runs)} runs exist, {bad} did not complete, {missing} are missing")
    return EXIT_RUNS if launched.bad or launched.missing else EXIT_OK


class _Once:
    """A callback that acts on its first call only, whatever its argument."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act: Callable[[], None] | None = act

    def __call__(self, _: object) -> None:
        act, self._act = self._act, None
        if act:
            act()


def _notify_starter(pipe: int) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(pipe, "wb") as starter:  # it may have been killed
        starter.write(AT_WORK)


def _move_output(first: Path, log: Path) -> None:
    """Copy the output so far to the study's log, and redirect all further output there."""
    with store_errors(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(open_to_append(log), "ab") as output:
            output.write(first.read_bytes())
            output.flush()
            for stream in (1, 2):
                os.dup2(output.fileno(), stream)
    shutil.rmtree(first.parent)


def _in_one_line(message: str, problems: Sequence[str], hint: str | None) -> str:
    return " ".join(["; ".join([message, *problems]) + ".", *([hint] if hint else [])])


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
