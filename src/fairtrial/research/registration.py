"""A registration: the full plan of a study, its hash, and its signature, in one file named after the hash.

The file has a canonical form, so that any changed byte is detected.
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
    """A registration as read from its file. `verify_registration` checks whether it is intact."""

    path: Path
    plan: Plan
    sha256: str
    signature: str

    @property
    def name(self) -> str:
        """A prefix of the hash, long enough to distinguish registrations."""
        return self.sha256[:12]

    @property
    def study(self) -> str | None:
        return self.plan["study"]["name"] if self.plan["study"] else None

    @property
    def is_text_only(self) -> bool:
        return bool(self.plan["basis"] == TEXT_ONLY)

    @property
    def late(self) -> list[Mapping[str, Any]]:
        """The runs that already existed when this was registered."""
        return list(self.plan["late"])

    @property
    def late_names(self) -> set[str]:
        return {str(run["run"]) for run in self.late}

    @property
    def derives_seeds(self) -> bool:
        return bool(self.plan["seeds"] and self.plan["seeds"]["derived"])

    @property
    def seeds(self) -> list[int]:
        """The registered seeds, listed or derived from the hash."""
        planned = self.plan["seeds"]
        if planned is None:
            return []
        return self.derived(SEEDS, planned["count"]) if planned["derived"] else list(planned["listed"])

    def derived(self, stream: str, count: int) -> list[int]:
        return derive_seeds(self.sha256, stream, count)


def signed_text(sha256: str) -> bytes:
    """Return the bytes to sign: the hash, prefixed with the type of the document."""
    return f"fairtrial registration {REGISTRATION_SCHEMA}\n{sha256}\n".encode()


def plan_hash(plan: Plan) -> str:
    return content_hash(plan)


def spell(plan: Plan, sha256: str, signature: str) -> bytes:
    """Return the canonical bytes of a registration."""
    document = {
        "fairtrial": KIND,
        "schema": REGISTRATION_SCHEMA,
        "plan": plan,
        "sha256": sha256,
        "signature": signature,
    }
    return (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()


class NotARegistration(UserError):
    """The bytes are not a registration, or not in canonical form."""


def parse(content: bytes, path: Path) -> Registration:
    """Parse a registration, or raise `NotARegistration` with the reason."""
    document = _document(content, path)
    try:
        RegistrationModel.model_validate(document)
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"])) or "its parts"
        raise NotARegistration(f"{path.name} is damaged or from another version: {place} is invalid") from None
    registration = Registration(path, document["plan"], document["sha256"], document["signature"])
    if not _is_spelled(registration, content):
        raise NotARegistration(f"{path.name} was changed: it is not in its original form")
    return registration


def _is_spelled(registration: Registration, content: bytes) -> bool:
    try:
        return spell(registration.plan, registration.sha256, registration.signature) == content
    except ValueError:  # infinite numbers or lone surrogates, which Fairtrial never writes
        return False


def _document(content: bytes, path: Path) -> dict[str, Any]:
    try:
        document = json.loads(content.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        cut = content.startswith(b'{\n  "fairtrial"') and not content.endswith(b"}\n")
        why = "is truncated: its end is missing" if cut else "is not a registration: it is not valid JSON"
        raise NotARegistration(f"{path.name} {why}") from None
    if not isinstance(document, dict) or document.get("fairtrial") != KIND:
        raise NotARegistration(f"{path.name} is not a registration")
    return document


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def read_registration(path: Path) -> Registration:
    """Read a registration and check its hash. The signature is not checked here."""
    registration = parse(read_bytes(path), path)
    if plan_hash(registration.plan) != registration.sha256:
        raise CheckFailed(f"{path.name} was changed: its content does not match its hash")
    return registration


def read_bytes(path: Path) -> bytes:
    try:
        return read_file(path)
    except FileNotFoundError:
        raise UserError(f"registration not found: {path}", hint="See registrations/ledger.jsonl.") from None
