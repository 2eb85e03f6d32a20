"""Verification of a registration: hash, signature, entry in the ledger, anchors, and the order of plan and runs.

The messages never claim more than was checked: dates written by the author only prove an order by the author's clock,
and a signature with a key that the user did not name as trusted is by an unknown signer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairtrial.core.formatting import counted, shown_moment
from fairtrial.core.paths import RegistrationPaths
from fairtrial.research.anchors import check_anchor, check_copy
from fairtrial.research.ed25519 import is_signed
from fairtrial.research.keys import Trust, read_trusted
from fairtrial.research.ledger import AMENDED, REGISTERED, Ledger, read_ledger
from fairtrial.research.registration import (
    NotARegistration,
    Registration,
    parse,
    plan_hash,
    read_bytes,
    signed_text,
)

BY_THE_CLOCK = "by the author's clock"


@dataclass(frozen=True)
class VerificationCheck:
    """The result of one check. `ok` is None if it could not be checked, which is not a mismatch."""

    name: str
    ok: bool | None
    detail: str

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class RunStart:
    """A run of the registered study, and its start time."""

    run: str
    at: float


class VerificationSummary:
    """The overall result of several checks, which never claims more than was checked."""

    checks: Sequence[VerificationCheck]
    trusted: bool

    @property
    def intact(self) -> bool:
        return all(check.ok is not False for check in self.checks)

    @property
    def mismatches(self) -> list[VerificationCheck]:
        return [check for check in self.checks if check.ok is False]

    @property
    def sentence(self) -> str:
        if not self.intact:
            return f"not intact: {self.mismatches[0].detail}"
        return "intact, signed by the key that you trust" if self.trusted else "intact, signer unknown"


@dataclass(frozen=True)
class Checked(VerificationSummary):
    """The result of checking a registration. `registration` is None if the file does not contain one."""

    path: Path
    checks: Sequence[VerificationCheck]
    registration: Registration | None = None
    trusted: bool = False
    anchored: bool = False
    notes: Sequence[str] = field(default_factory=tuple)

    def to_dict(self) -> dict[str, Any]:
        registration = self.registration
        return {
            "path": str(self.path),
            "registration": registration.sha256 if registration else None,
            "intact": self.intact,
            "result": self.sentence,
            "signer": registration.plan["signer"] if registration else None,
            "trusted": self.trusted,
            "anchored": self.anchored,
            "text_only": registration.is_text_only if registration else None,
            "late": bool(registration.late) if registration else None,
            "checks": [check.to_dict() for check in self.checks],
            "notes": list(self.notes),
        }


def verify_registration(
    path: Path, *, trust: Trust = None, runs: Sequence[RunStart] = (), published: Path | None = None
) -> Checked:
    """Check a registration and the ledger next to it. Mismatches are reported in the checks, not raised.

    `trust`: public keys; the registration and every line of its ledger must be signed with one of them. `runs`: those
    of its study are used to check the order. `published`: a copy of its anchor that was kept elsewhere.
    """
    keys = read_trusted(trust)
    try:
        registration = parse(read_bytes(path), path)
    except NotARegistration as error:
        return Checked(path, [VerificationCheck("form", False, error.message)])
    checks = [
        VerificationCheck("form", True, "in its original form"),
        _hash(registration),
        _signature(registration),
    ]
    folder = RegistrationPaths(path.absolute().parent)
    ledger = read_ledger(folder)
    if keys is not None:
        checks += [check_signer(registration.plan["signer"], keys), _signers(ledger, keys)]
    checks += [_chain(folder, ledger), _place(registration, ledger), _files(folder, ledger)]
    if not all(check.ok for check in checks[1:3]):  # its own content cannot be trusted
        return Checked(path, checks, registration)
    anchors = [check_anchor(folder, each) for each in ledger.anchors_of(registration.sha256)]
    anchors += [check_copy(registration.sha256, published)] if published is not None else []
    checks += [VerificationCheck("anchor", each.ok, each.detail) for each in anchors]
    anchored = any(each.ok and each.holds for each in anchors)
    of_its_study = [run for run in runs if run.run.partition("/")[0] == registration.study]
    checks.append(_order(registration, of_its_study, [each.says for each in anchors if each.ok and each.holds]))
    trusted = keys is not None and registration.plan["signer"] in keys
    return Checked(path, checks, registration, trusted, anchored, _notes(registration, ledger))


def _hash(registration: Registration) -> VerificationCheck:
    ok = plan_hash(registration.plan) == registration.sha256
    if ok and registration.path.stem != registration.sha256:
        return VerificationCheck(
            "hash", False, f"{registration.path.name} is not named after its hash, {registration.sha256[:12]}…"
        )
    said = "the content matches its hash" if ok else "the content does not match its hash"
    return VerificationCheck("hash", ok, said)


def _signature(registration: Registration) -> VerificationCheck:
    signer = registration.plan["signer"]
    ok = is_signed(bytes.fromhex(signer), signed_text(registration.sha256), bytes.fromhex(registration.signature))
    said = f"the hash is signed with key {signer[:16]}…" if ok else "the signature does not match the hash and the key"
    return VerificationCheck("signature", ok, said)


def check_signer(signer: str, trusted: frozenset[str]) -> VerificationCheck:
    if signer in trusted:
        return VerificationCheck("signer", True, "it is a key that you trust")
    return VerificationCheck(
        "signer", False, f"signed with key {signer[:16]}…, not with {spelled_keys(trusted)}, which you trust"
    )


def spelled_keys(keys: frozenset[str]) -> str:
    return " or ".join(f"{key[:16]}…" for key in sorted(keys))


def _signers(ledger: Ledger, trusted: frozenset[str]) -> VerificationCheck:
    """Check that trusted keys signed all lines of the ledger, because each line affects all registrations in it."""
    others = [entry for entry in ledger.entries if entry.signer not in trusted]
    if others:
        message = f"entry {others[0].number} of the ledger is signed with key {others[0].signer[:16]}…"
        return VerificationCheck("signers of the ledger", False, f"{message}, which you do not trust")
    return VerificationCheck("signers of the ledger", True, "every line is signed with a key that you trust")


def _chain(folder: RegistrationPaths, ledger: Ledger) -> VerificationCheck:
    if not folder.ledger.exists():
        return VerificationCheck("ledger", False, f"there is no {folder.ledger.name} next to it")
    if ledger.problems:
        return VerificationCheck("ledger", False, "; ".join(ledger.problems))
    return VerificationCheck("ledger", True, f"an unbroken chain of {counted(len(ledger.entries), 'line')}")


def _place(registration: Registration, ledger: Ledger) -> VerificationCheck:
    entries = ledger.entry_of(registration.sha256)
    if len(entries) != 1:
        said = "the ledger does not list it" if not entries else f"the ledger lists it {len(entries)} times"
        return VerificationCheck("place in the ledger", False, said)
    [entry] = entries
    amends = registration.plan["amends"]
    fits = (
        entry.time == registration.plan["time"]
        and entry.signer == registration.plan["signer"]
        and entry.kind == (AMENDED if amends else REGISTERED)
        and entry.about.get("amends") == amends
    )
    if not fits:
        return VerificationCheck(
            "place in the ledger", False, f"entry {entry.number} of the ledger contradicts the file"
        )
    if amends and not any(each.number < entry.number for each in ledger.entry_of(amends)):
        return VerificationCheck(
            "place in the ledger", False, f"it amends {amends[:12]}, which the ledger does not list before it"
        )
    return VerificationCheck("place in the ledger", True, f"entry {entry.number} of {len(ledger.entries)}")


def _files(folder: RegistrationPaths, ledger: Ledger) -> VerificationCheck:
    listed = {entry.registration for entry in ledger.plans()}
    there = {path.stem for path in folder.root.glob("*.json")}
    problems = [f"{sha256[:12]}… is in the ledger, but its file is missing" for sha256 in sorted(listed - there)]
    problems += [f"{name[:12]}… is a file that the ledger does not list" for name in sorted(there - listed)]
    if problems:
        return VerificationCheck("other registrations", False, "; ".join(problems))
    return VerificationCheck("other registrations", True, "the folder contains exactly those that the ledger lists")


def _order(registration: Registration, runs: Sequence[RunStart], anchors: Sequence[str]) -> VerificationCheck:
    at = float(registration.plan["time"])
    early = sorted(
        (run for run in runs if run.at < at and run.run not in registration.late_names), key=lambda run: run.at
    )
    if early:
        message = f"{early[0].run} began {shown_moment(early[0].at)}, before the registration ({shown_moment(at)})"
        more = f"; so did {len(early) - 1} more" if len(early) > 1 else ""
        unsaid = ", which was registered late and does not list it" if registration.late else ""
        return VerificationCheck("order", False, f"{message}{unsaid}{more}")
    if registration.late:
        first = min(registration.late, key=lambda run: float(run["began"]))
        message = (
            f"registered late, as stated: {counted(len(registration.late), 'run')} began before, {first['run']} first"
        )
        return VerificationCheck("order", True, f"{message}, {BY_THE_CLOCK}")
    if not runs:
        return VerificationCheck(
            "order", None, f"no runs of it were found; registered {shown_moment(at)}, {BY_THE_CLOCK}"
        )
    message = f"registered {shown_moment(at)}, before the first of {counted(len(runs), 'run')}"
    return VerificationCheck("order", True, f"{message}, {'; '.join(anchors) if anchors else BY_THE_CLOCK}")


def _notes(registration: Registration, ledger: Ledger) -> list[str]:
    notes = []
    others = (
        [sha256 for sha256 in ledger.valid_for(registration.study) if sha256 != registration.sha256]
        if registration.study
        else []
    )
    if others:
        notes.append(
            f"Not unique: the ledger has {counted(len(others), 'other plan')} of study '{registration.study}'."
        )
    if registration.is_text_only:
        notes.append("Text only: it fixes neither a study nor an analysis, so nothing can be checked against it.")
    if registration.late:
        notes.append("Late: results existed when this was registered, so the plan may depend on them.")
    amended = ledger.amendment_of(registration.sha256)
    if amended:
        notes.append(f"Amended by {amended.registration[:12]}… on {shown_moment(amended.time)}.")
    return notes
