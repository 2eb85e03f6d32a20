"""`ledger.jsonl`: an append-only hash chain with a line for every registration, amendment and anchor.

Each line contains the hash of the previous line and is signed, so changed, removed or moved lines are detected.
Removing lines at the end together with their registrations leaves no trace here; only an anchor detects that.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from fairtrial.core.canonical import canonical_json
from fairtrial.core.durable import make_folder
from fairtrial.core.errors import CheckFailed
from fairtrial.core.paths import RegistrationPaths
from fairtrial.core.private_files import open_to_append
from fairtrial.core.regular_files import read_regular
from fairtrial.core.untrusted import read_file
from fairtrial.research.ed25519 import is_signed
from fairtrial.research.plan_schema import LAST_MOMENT

if TYPE_CHECKING:
    from fairtrial.research.keys import Signer

REGISTERED, AMENDED, ANCHORED = "registration", "amendment", "anchor"
NOTHING_BEFORE = "0" * 64
KEYS = {"about", "entry", "kind", "previous", "registration", "signature", "signer", "time"}


@dataclass(frozen=True)
class LedgerEntry:
    """One line of the ledger. `about` has the fields of its kind: what is amended, or where the anchor is."""

    number: int
    kind: str
    registration: str
    time: float
    signer: str
    about: Mapping[str, Any]

    @property
    def is_plan(self) -> bool:
        return self.kind in (REGISTERED, AMENDED)


@dataclass(frozen=True)
class Ledger:
    """The readable entries, the problems of the chain, and the hash of its last line."""

    entries: tuple[LedgerEntry, ...] = ()
    problems: tuple[str, ...] = ()
    head: str = NOTHING_BEFORE

    def plans(self) -> list[LedgerEntry]:
        return [entry for entry in self.entries if entry.is_plan]

    def entry_of(self, sha256: str) -> list[LedgerEntry]:
        return [entry for entry in self.plans() if entry.registration == sha256]

    def anchors_of(self, sha256: str) -> list[LedgerEntry]:
        return [each for each in self.entries if each.kind == ANCHORED and each.registration == sha256]

    def valid_for(self, study: str) -> list[str]:
        """Return the registrations of a study that no other registration amends."""
        amended = {entry.about.get("amends") for entry in self.plans()}
        own = [entry.registration for entry in self.plans() if entry.about.get("study") == study]
        return [sha256 for sha256 in own if sha256 not in amended]

    def amendment_of(self, sha256: str) -> LedgerEntry | None:
        """Return the newest entry that replaces a registration."""
        return next((each for each in reversed(self.plans()) if each.about.get("amends") == sha256), None)


def read_ledger(paths: RegistrationPaths) -> Ledger:
    """Read the ledger and check the chain line by line."""
    try:
        return parse_ledger(read_file(paths.ledger))
    except FileNotFoundError:
        return Ledger()


def parse_ledger(content: bytes) -> Ledger:
    lines = content.split(b"\n")
    problems = [] if lines.pop() == b"" else ["the ledger ends with an incomplete line"]
    entries: list[LedgerEntry] = []
    head = NOTHING_BEFORE
    for number, line in enumerate(lines, 1):
        row = _row(line)
        if row is None:
            problems.append(f"entry {number} of the ledger is not in its original form")
        else:
            entries.append(_entry(row))
            problems += _problems(row, number, head)
        head = hashlib.sha256(line).hexdigest()
    return Ledger(tuple(entries), tuple(problems), head)


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
        spelled = canonical_json(row)
    except (ValueError, RecursionError):
        return None
    fits = isinstance(row, dict) and row.keys() == KEYS and isinstance(row["about"], dict)
    fits = fits and type(row["entry"]) is int and type(row["time"]) in (int, float)
    fits = fits and 0 <= row["time"] < LAST_MOMENT
    fits = fits and re.fullmatch(r"[0-9a-f]{64}", str(row["registration"])) is not None
    fits = fits and all(isinstance(row[key], str) for key in KEYS - {"about", "entry", "time"})
    return row if fits and spelled == line else None


def _entry(row: Mapping[str, Any]) -> LedgerEntry:
    return LedgerEntry(row["entry"], row["kind"], row["registration"], row["time"], row["signer"], row["about"])


def _problems(row: Mapping[str, Any], number: int, head: str) -> Iterator[str]:
    if row["entry"] != number or row["previous"] != head:
        yield f"entry {number} of the ledger breaks the hash chain: a line was changed, removed or moved"
    try:
        signed = is_signed(bytes.fromhex(row["signer"]), _signed_part(row), bytes.fromhex(row["signature"]))
    except ValueError:
        signed = False
    if not signed or row["signature"] != row["signature"].lower() or row["signer"] != row["signer"].lower():
        yield f"entry {number} of the ledger was changed: its signature does not match"


def _signed_part(row: Mapping[str, Any]) -> bytes:
    return b"fairtrial ledger 1\n" + canonical_json({key: row[key] for key in KEYS - {"signature"}})


@contextmanager
def held(paths: RegistrationPaths) -> Iterator[None]:
    """Lock the ledger, so that only one process at a time appends to it."""
    make_folder(paths.root)
    with os.fdopen(open_to_append(paths.ledger), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _drop_unfinished(paths, lock)
        yield


def _drop_unfinished(paths: RegistrationPaths, ledger: IO[bytes]) -> None:
    """Truncate an incomplete last line after a kill or a power cut. It was never reported as registered.

    A complete line stays, whatever its content. A line with zero bytes is incomplete: no valid line contains them.
    """
    content = read_regular(paths.ledger)
    whole = content.rfind(b"\n") + 1
    last = content.rfind(b"\n", 0, max(0, whole - 1)) + 1
    end = last if b"\0" in content[last:whole] else whole
    if end < len(content):
        os.ftruncate(ledger.fileno(), end)


def append(
    paths: RegistrationPaths, kind: str, registration: str, *, time: float, signer: Signer, about: Mapping[str, Any]
) -> LedgerEntry:
    """Append a line to a ledger that is `held`. Raise an error if the lines before it are not intact."""
    before = read_ledger(paths)
    if before.problems:
        raise CheckFailed(before.problems[0], hint=f"{paths.ledger} was changed. Restore the original file.")
    row: dict[str, Any] = {
        "about": dict(about), "entry": len(before.entries) + 1, "kind": kind, "previous": before.head,
        "registration": registration, "signer": signer.public, "time": time,
    }  # fmt: skip
    row["signature"] = signer.sign(_signed_part(row))
    with os.fdopen(open_to_append(paths.ledger), "ab") as file:
        file.write(canonical_json(row) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return _entry(row)
