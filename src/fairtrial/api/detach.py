"""launch --detach: a launcher that nobody has to wait for. `runs watch` shows how far it is.

The launcher is a program of its own, in a session of its own, that gets the study and the terms from a file. It is left
alone once it is at work; what keeps it from that is told here and now.
"""

from __future__ import annotations

import atexit
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairtrial.api.launch import LaunchTerms, launch
from fairtrial.api.registered import stop_if_planning
from fairtrial.core.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_RUNS, FairtrialError, UserError
from fairtrial.core.signals import like_ctrl_c
from fairtrial.plan.study import Study
from fairtrial.record.atomic import store_errors
from fairtrial.record.claims import is_launching
from fairtrial.record.store import Store

LOOK_S = 0.05
KEPT = (
    "on", "settings", "jobs", "cpus", "gpus", "memory_gb", "lost_after", "hung_after", "timeout", "retries",
    "retry_failed", "replace_old", "strict", "stack", "plan",
)  # fmt: skip
"""What of the terms can be sent to another process."""
_left_alone: list[subprocess.Popen[bytes]] = []


@atexit.register
def _collect_the_ended() -> None:
    """Python complains about processes that were forgotten; those that have ended can be."""
    _left_alone[:] = [process for process in _left_alone if process.poll() is None]


@dataclass(frozen=True)
class Detached:
    """A launcher that was left to itself. No process: there was nothing to do."""

    study: str
    store: str
    log: Path
    pid: int | None


def detach(
    study: Study, *, store: str | os.PathLike[str] | None = None, terms: LaunchTerms | None = None
) -> Detached:  # fmt: skip
    """Launch a study in a process that goes on after this one has ended; returns when that one is at work."""
    stop_if_planning(study)
    _collect_the_ended()
    place = Store.at(store)
    place.check_writable()
    log = place.paths.launch_log(study.study)
    with store_errors(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        before = log.stat().st_size if log.exists() else 0
        process = _start(place.address, study, terms or LaunchTerms(), log)
    while process.poll() is None and not is_launching(place.paths, study.study):
        time.sleep(LOOK_S)
    if process.returncode not in (None, EXIT_OK, EXIT_RUNS):
        raise UserError(_last_words(log, before), hint=f"The whole log is {log}")
    _left_alone.append(process)
    return Detached(study.study, place.address, log, None if process.returncode is not None else process.pid)


def _start(store: str, study: Study, terms: LaunchTerms, log: Path) -> subprocess.Popen[bytes]:
    kept = {name: getattr(terms, name) for name in KEPT}
    kept["plan"] = os.fspath(terms.plan) if terms.plan is not None else None
    told = {"study": study.model_dump(mode="json"), "store": store, "terms": kept}
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "fairtrial.api.detach"], stdin=subprocess.PIPE, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    assert process.stdin is not None
    with process.stdin as line:
        line.write(json.dumps(told).encode())
    return process


def _last_words(log: Path, before: int) -> str:
    """What the launcher said before it ended."""
    with log.open("rb") as file:
        file.seek(before)
        lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "the launcher ended without a word"


def main() -> int:
    with like_ctrl_c():
        return _launch()


def _launch() -> int:
    told: dict[str, Any] = json.load(sys.stdin)
    terms = dataclasses.replace(LaunchTerms(**told["terms"]), tell=_say)
    _say(f"{time.strftime('%F %T')} launching {told['study']['study']}, process {os.getpid()}")
    try:
        launched = launch(Study.model_validate(told["study"]), store=told["store"], terms=terms)
    except KeyboardInterrupt:
        _say("Stopped. What was recorded is kept; launch again to go on from there.")
        return EXIT_INTERRUPTED
    except FairtrialError as error:
        _say(_in_one_line(error.message, error.problems, error.hint))
        return 1
    bad, missing = len(launched.bad), len(launched.missing)
    _say(f"{len(launched.runs)} runs are there, {bad} did not complete, {missing} are missing")
    return EXIT_RUNS if launched.bad or launched.missing else EXIT_OK


def _in_one_line(message: str, problems: Sequence[str], hint: str | None) -> str:
    return " ".join(["; ".join([message, *problems]) + ".", *([hint] if hint else [])])


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
