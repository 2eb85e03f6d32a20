"""A registration: the full plan of a study, its hash, and who signed it. One file, named by the hash.

The file is spelled in one way only, so that any byte that is changed in it is found.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from fairtrial.core.canonical import content_hash
from fairtrial.core.errors import CheckFailed, UserError
from fairtrial.core.schema import REGISTRATION_SCHEMA
from fairtrial.core.untrusted import read_file
from fairtrial.research.plan_schema import TEXT_ONLY, RegistrationModel
from fairtrial.research.seeds import SEEDS, derive_seeds

KIND = "registration"
Plan = Mapping[str, Any]


@dataclass(frozen=True)
class Registration:
    """A registration as it stands in its file. Whether it is intact is for `verify_registration` to say."""

    path: Path
    plan: Plan
    sha256: str
    signature: str

    @property
    def name(self) -> str:
        """Enough of the hash for people to tell registrations apart."""
        return self.sha256[:12]

    @property
    def study(self) -> str | None:
        return self.plan["study"]["name"] if self.plan["study"] else None

    @property
    def is_text_only(self) -> bool:
        return bool(self.plan["basis"] == TEXT_ONLY)

    @property
    def late(self) -> list[Mapping[str, Any]]:
        """The runs that were there already when this was registered."""
        return list(self.plan["late"])

    @property
    def late_names(self) -> set[str]:
        return {str(run["run"]) for run in self.late}

    @property
    def derives_seeds(self) -> bool:
        return bool(self.plan["seeds"] and self.plan["seeds"]["derived"])

    @property
    def seeds(self) -> list[int]:
        """The registered seeds; derived ones follow from the hash."""
        planned = self.plan["seeds"]
        if planned is None:
            return []
        return self.derived(SEEDS, planned["count"]) if planned["derived"] else list(planned["listed"])

    def derived(self, stream: str, count: int) -> list[int]:
        return derive_seeds(self.sha256, stream, count)


def signed_text(sha256: str) -> bytes:
    """What is signed: the hash, and what it is the hash of."""
    return f"fairtrial registration {REGISTRATION_SCHEMA}\n{sha256}\n".encode()


def plan_hash(plan: Plan) -> str:
    return content_hash(plan)


def spell(plan: Plan, sha256: str, signature: str) -> bytes:
    """The one way to write a registration down."""
    document = {
        "fairtrial": KIND,
        "schema": REGISTRATION_SCHEMA,
        "plan": plan,
        "sha256": sha256,
        "signature": signature,
    }
    return (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()


class NotARegistration(UserError):
    """The bytes are none, or are not spelled as they were written."""


def parse(content: bytes, path: Path) -> Registration:
    """The registration that these bytes spell, or one sentence on why they spell none."""
    document = _document(content, path)
    try:
        RegistrationModel.model_validate(document)
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"])) or "its parts"
        raise NotARegistration(f"{path.name} is damaged or of another version: {place} is not as expected") from None
    registration = Registration(path, document["plan"], document["sha256"], document["signature"])
    if not _is_spelled(registration, content):
        raise NotARegistration(f"{path.name} was changed: it is not spelled as it was written")
    return registration


def _is_spelled(registration: Registration, content: bytes) -> bool:
    try:
        return spell(registration.plan, registration.sha256, registration.signature) == content
    except ValueError:  # a number beyond all numbers, half a character: nobody wrote that
        return False


def _document(content: bytes, path: Path) -> dict[str, Any]:
    try:
        document = json.loads(content.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        cut = content.startswith(b'{\n  "fairtrial"') and not content.endswith(b"}\n")
        why = "is cut off: its end is missing" if cut else "is not a registration: it cannot be read as JSON"
        raise NotARegistration(f"{path.name} {why}") from None
    if not isinstance(document, dict) or document.get("fairtrial") != KIND:
        raise NotARegistration(f"{path.name} is not a registration")
    return document


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def read_registration(path: Path) -> Registration:
    """An intact registration, for those who are to act on it; who signed it is not asked here."""
    registration = parse(read_bytes(path), path)
    if plan_hash(registration.plan) != registration.sha256:
        raise CheckFailed(f"{path.name} was changed: its content has another hash than it states")
    return registration


def read_bytes(path: Path) -> bytes:
    try:
        return read_file(path)
    except FileNotFoundError:
        raise UserError(f"no registration {path}", hint="They are listed in registrations/ledger.jsonl.") from None
