"""Write a registration, which is never changed afterwards."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairtrial.core.durable import sync_path
from fairtrial.core.errors import UserError
from fairtrial.core.paths import ProjectPaths
from fairtrial.research import ledger
from fairtrial.research.anchors import FILE, GIT_TAG, PROVES, check_can_tag, make_file, make_tag
from fairtrial.research.keys import Signer
from fairtrial.research.registration import Registration, parse, plan_hash, signed_text, spell


@dataclass(frozen=True)
class Registered:
    """A new registration, its entry number in the ledger, and what its anchor proves."""

    registration: Registration
    entry: int
    signer: str
    anchor: Mapping[str, str] | None = None

    def to_dict(self) -> dict[str, Any]:
        registration = self.registration
        return {
            "registration": registration.sha256,
            "path": str(registration.path),
            "basis": registration.plan["basis"],
            "study": registration.study,
            "seeds": registration.seeds,
            "derived": registration.derives_seeds,
            "late": registration.late,
            "amends": registration.plan["amends"],
            "entry": self.entry,
            "signer": self.signer,
            "anchor": self.anchor,
        }


def register(project: ProjectPaths, plan: Mapping[str, Any], signer: Signer, *, anchor: str | None) -> Registered:
    """Sign a plan and write it to its own file and to the ledger. `plan` lacks only its signer and its time."""
    folder = project.registrations
    if anchor == GIT_TAG:
        check_can_tag(project.root)
    with ledger.held(folder):
        amends = plan["amends"]
        _check_place(ledger.read_ledger(folder), amends, plan["study"]["name"] if plan["study"] else None)
        now = time.time()
        whole = {**plan, "signer": signer.public, "time": now}
        sha256 = plan_hash(whole)
        path = folder.registration(sha256)
        content = spell(whole, sha256, signer.sign(signed_text(sha256)))
        registration = parse(content, path)  # an unreadable registration must not get into the ledger
        _write_once(path, content)
        kind = ledger.AMENDED if amends else ledger.REGISTERED
        about = {
            **({"amends": amends} if amends else {}),
            **({"study": study["name"]} if (study := plan["study"]) else {}),
        }
        entry = ledger.append(folder, kind, sha256, time=now, signer=signer, about=about)
        messages = _anchor(project, sha256, anchor, signer) if anchor else None
    return Registered(registration, entry.number, signer.public, messages)


def _check_place(known: ledger.Ledger, amends: str | None, study: str | None) -> None:
    """Check that the study has no other plan, and that an amendment is about the same study."""
    if amends is not None:
        before = known.entry_of(amends)
        if not before:
            raise UserError(
                f"the ledger lists no registration {amends}", hint="Pass the full hash of a listed registration."
            )
        planned = before[0].about.get("study")
        if planned is not None and planned != study:
            now = f"study '{study}'" if study else "no study"
            raise UserError(
                f"{amends[:12]} is about study '{planned}', but its amendment is about {now}",
                hint="Register it separately, without --amends.",
            )
    others = [sha256 for sha256 in known.valid_for(study) if sha256 != amends] if study else []
    if others:
        raise UserError(
            f"study '{study}' is already registered as {others[0]}",
            hint="Amend that plan with --amends and its hash, or rename the study.",
        )


def _write_once(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    sync_path(path.parent)  # make the file durable before the ledger lists it; also syncs the name of the ledger


def _anchor(project: ProjectPaths, sha256: str, how: str, signer: Signer) -> dict[str, str]:
    folder = project.registrations
    make = {GIT_TAG: lambda: make_tag(project.root, sha256), FILE: lambda: make_file(folder, sha256)}
    name = make[how]()
    about = {"how": how, "name": name}
    ledger.append(folder, ledger.ANCHORED, sha256, time=time.time(), signer=signer, about=about)
    return {**about, "proves": PROVES[how]}
