"""An errand: a task that runs without a pipe to its launcher, and outlives it.

Launcher and job speak through notes, small files that are written whole and never appended to, so that a folder serves
as well as an object store. The launcher writes what to do, and whether to stop. The job writes that it has started,
which claims it holds, how every cell ended, and that it is done.

An engine may start an errand again, after a pre-emption or when it takes a machine for dead. It does so only when it
has given the earlier start up: the new one takes the claims over that the earlier one noted, and repeats its answers to
the cells that have one. Only the latest start is listened to: every start has a mark, which is in the names of its
notes, so that what an earlier one still writes, after it was frozen for a while, has a name that nobody asks for.
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
    """Small files at one place. `poll_s` is how often it is fine to look there.

    `write` puts the whole content there or nothing; `read` gives None for a note that is not there.
    """

    @property
    def poll_s(self) -> float: ...

    def write(self, name: str, content: bytes) -> None: ...

    def read(self, name: str) -> bytes | None: ...

    def names(self) -> set[str]: ...

    def remove(self, name: str) -> None: ...


class FolderMailbox:
    """Notes in a folder that launcher and jobs share."""

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
        """The name of a note may have a part that another note holds."""
        if "/" in name:
            raise UntrustedName(f"{name!r} cannot be the name of a note")
        return path_inside(self.path, name, what="note")

    def names(self) -> set[str]:
        try:
            return {name for name in os.listdir(self.path) if not name.startswith(".")}  # noqa: PTH208 — names alone
        except FileNotFoundError:
            return set()

    def remove(self, name: str) -> None:
        self._at(name).unlink(missing_ok=True)


def open_mailbox(where: str) -> Mailbox:
    """The notes at a place, as launcher and job are told of it."""
    if "://" in where:
        from fairtrial.jobs.mailbox_objects import ObjectStoreMailbox  # brings fsspec

        return ObjectStoreMailbox(where)
    return FolderMailbox(Path(where))


class RemoteJob:
    """One errand's notes, as both sides read and write them. Its cells are numbered in the order of its requests."""

    def __init__(self, mailbox: Mailbox, name: str) -> None:
        self.mailbox = mailbox
        self.name = name
        self.files = RemoteJobFiles(name)

    # What a launcher says.

    def post(self, engine: str, requests: Mapping[str, Mapping[str, Any]], job: str | None = None) -> None:
        """What to do; written once more when the engine has given its job a name."""
        task = {"engine": engine, "job": job, "at": time.time(), "requests": dict(requests)}
        self._write(self.files.task, {"version": __version__, **task})

    def ask_to_stop(self, *, kill: bool) -> None:
        self._write(self.files.stop, {"kill": kill})

    def remove(self) -> None:
        """A job that has not started yet finds nothing to do."""
        for name in sorted(self.mailbox.names()):
            if RemoteJobFiles.job_of(name) == self.name:
                self.mailbox.remove(name)

    # What both read.

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
        """The mark of the start that is listened to."""
        started = self.started
        return None if started is None else str(started.get("mark", ""))

    def answer(self, cell: int, start: str | None = None) -> tuple[int, Outcome | None] | None:
        """How a cell ended, as a start says, or the latest: the exit status that stands for it, and its outcome."""
        start = start or self.latest_start
        note = self._read(self.files.answer(cell, start), "AnswerNote") if start else None
        if note is None:
            return None
        return int(note["exit"]), Outcome.from_dict(note["outcome"]) if note["outcome"] else None

    def claim(self, cell: int) -> int | None:
        """The highest token that any start has held a cell under; a later claim always has a higher one."""
        claims = [self._read(name, "ClaimNote") for name in self.mailbox.names() if self.files.is_claim(name, cell)]
        return max((int(note["token"]) for note in claims if note), default=None)

    # What a job says. It speaks only as long as it was not started again.

    @cached_property
    def attempt_id(self) -> str:
        """What this start is told from others by."""
        return uuid.uuid4().hex[:8]

    def start(self, job: str | None) -> None:
        who = {"host": socket.gethostname(), "pid": os.getpid(), "at": time.time()}
        self._write(self.files.started, {**who, "job": job, "mark": self.attempt_id})

    @property
    def is_ours(self) -> bool:
        """Whether no later start has taken this errand over from this process."""
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
        if self.is_ours:  # where this is no longer so a moment later, nobody reads that name
            self._write(name, values)

    def _write(self, name: str, values: Mapping[str, Any]) -> None:
        self.mailbox.write(name, json.dumps(values, ensure_ascii=False).encode(errors="replace"))

    def _read(self, name: str, model: str) -> dict[str, Any] | None:
        """What a note says; None for one that is not there, or that does not have the form of such a note."""
        content = self.mailbox.read(name)
        if not content:
            return None
        from fairtrial.jobs import mailbox_schema as note_schema  # brings pydantic

        with contextlib.suppress(UntrustedDocument):
            document = parse_json(content, where=name)
            checked(getattr(note_schema, model), document, where=name)
            return dict(document)
        return None
