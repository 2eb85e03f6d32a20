"""Remote jobs: tasks that run without a pipe to their launcher and can outlive it.

Launcher and job communicate through notes: small JSON files that are replaced atomically and never appended to, so
that a shared folder and an object store both work. The launcher writes the task and, if needed, a stop request. The
job writes notes for its start, its claims, the result of each cell, and its completion.

An engine (Slurm, Ray, SkyPilot) may restart a remote job after a preemption or when it considers a machine dead. It
restarts a job only after it has given up on the earlier attempt. The new attempt takes over the claims that the earlier
attempt recorded and repeats its answers for the cells that already have one. Readers accept notes from the latest
attempt only: each attempt has an id, stored under the key `mark` and contained in the names of its notes. A suspended
attempt that wakes up therefore writes to names that are no longer read.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import uuid
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from fairtrial.core.paths import RemoteJobFiles
from fairtrial.core.private_files import create
from fairtrial.core.regular_files import read_regular
from fairtrial.core.runs import Outcome
from fairtrial.core.untrusted import UntrustedDocument, UntrustedName, checked, parse_json, path_inside
from fairtrial.version import __version__


class Mailbox(Protocol):
    """A location that stores notes. `poll_s` is the recommended polling interval in seconds.

    `write` is atomic; `read` returns None for a note that does not exist.
    """

    @property
    def poll_s(self) -> float: ...

    def write(self, name: str, content: bytes) -> None: ...

    def read(self, name: str) -> bytes | None: ...

    def names(self) -> set[str]: ...

    def remove(self, name: str) -> None: ...


class FolderMailbox:
    """A mailbox in a folder that the launcher and the jobs share."""

    poll_s = 0.5

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, content: bytes) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = self._at(f".{name}.{socket.gethostname()}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
        create(temporary, content)
        temporary.replace(self._at(name))

    def read(self, name: str) -> bytes | None:
        try:
            return read_regular(self._at(name))
        except FileNotFoundError:
            return None

    def _at(self, name: str) -> Path:
        """Return the path of a note. Part of its name may come from another note, so it is not trusted."""
        if "/" in name:
            raise UntrustedName(f"{name!r} is not a valid note name")
        return path_inside(self.path, name, what="note")

    def names(self) -> set[str]:
        try:
            return {name for name in os.listdir(self.path) if not name.startswith(".")}  # noqa: PTH208 — names only
        except FileNotFoundError:
            return set()

    def remove(self, name: str) -> None:
        self._at(name).unlink(missing_ok=True)


def open_mailbox(where: str) -> Mailbox:
    """Open the mailbox at a folder path or an object store URL."""
    if "://" in where:
        from fairtrial.jobs.mailbox_objects import ObjectStoreMailbox  # imports fsspec

        return ObjectStoreMailbox(where)
    return FolderMailbox(Path(where))


class RemoteJob:
    """The notes of one remote job, for launcher and job. Cells are numbered in the order of the task's requests."""

    def __init__(self, mailbox: Mailbox, name: str) -> None:
        self.mailbox = mailbox
        self.name = name
        self.files = RemoteJobFiles(name)

    # Written by the launcher.

    def post(self, engine: str, requests: Mapping[str, Mapping[str, Any]], job: str | None = None) -> None:
        """Write the task. The launcher writes it a second time once the engine has assigned a job id."""
        task = {"engine": engine, "job": job, "at": time.time(), "requests": dict(requests)}
        self._write(self.files.task, {"version": __version__, **task})

    def ask_to_stop(self, *, kill: bool) -> None:
        self._write(self.files.stop, {"kill": kill})

    def remove(self) -> None:
        """Delete all notes of this remote job. If the job starts later, it finds no task and exits."""
        for name in sorted(self.mailbox.names()):
            if RemoteJobFiles.job_of(name) == self.name:
                self.mailbox.remove(name)

    # Read by both sides.

    @property
    def task(self) -> dict[str, Any] | None:
        return self._read(self.files.task, "TaskNote")

    @property
    def started(self) -> dict[str, Any] | None:
        return self._read(self.files.started, "StartedNote")

    @property
    def stop(self) -> dict[str, Any] | None:
        return self._read(self.files.stop, "StopNote")

    @property
    def latest_start(self) -> str | None:
        """The id of the latest attempt, the only one whose notes count."""
        started = self.started
        return None if started is None else str(started.get("mark", ""))

    def answer(self, cell: int, start: str | None = None) -> tuple[int, Outcome | None] | None:
        """Return the exit code and outcome of a cell, as reported by attempt `start` (default: the latest)."""
        start = start or self.latest_start
        note = self._read(self.files.answer(cell, start), "AnswerNote") if start else None
        if note is None:
            return None
        return int(note["exit"]), Outcome.from_dict(note["outcome"]) if note["outcome"] else None

    def claim(self, cell: int) -> int | None:
        """Return the highest claim token that any attempt recorded for a cell. Later claims have higher tokens."""
        claims = [self._read(name, "ClaimNote") for name in self.mailbox.names() if self.files.is_claim(name, cell)]
        return max((int(note["token"]) for note in claims if note), default=None)

    # Written by the job, until a later attempt starts.

    @cached_property
    def attempt_id(self) -> str:
        """A random id that distinguishes this attempt from others."""
        return uuid.uuid4().hex[:8]

    def start(self, job: str | None) -> None:
        who = {"host": socket.gethostname(), "pid": os.getpid(), "at": time.time()}
        self._write(self.files.started, {**who, "job": job, "mark": self.attempt_id})

    @property
    def is_ours(self) -> bool:
        """Whether this process is still the latest attempt."""
        return self.latest_start == self.attempt_id

    def record_claim(self, cell: int, token: int) -> None:
        self._say(self.files.claim(cell, self.attempt_id), {"token": token})

    def record_answer(self, cell: int, code: int, outcome: Outcome | None) -> None:
        self._say(
            self.files.answer(cell, self.attempt_id), {"exit": code, "outcome": outcome.to_dict() if outcome else None}
        )

    def finish(self) -> None:
        self._say(self.files.done(self.attempt_id), {"at": time.time()})

    def _say(self, name: str, values: Mapping[str, Any]) -> None:
        if self.is_ours:  # losing a race here is harmless: the name contains our attempt id, so it is not read
            self._write(name, values)

    def _write(self, name: str, values: Mapping[str, Any]) -> None:
        self.mailbox.write(name, json.dumps(values, ensure_ascii=False).encode(errors="replace"))

    def _read(self, name: str, model: str) -> dict[str, Any] | None:
        """Return the content of a note, or None if the note is missing or does not match its schema."""
        content = self.mailbox.read(name)
        if not content:
            return None
        from fairtrial.jobs import mailbox_schema as note_schema  # imports pydantic

        with contextlib.suppress(UntrustedDocument):
            document = parse_json(content, where=name)
            checked(getattr(note_schema, model), document, where=name)
            return dict(document)
        return None
