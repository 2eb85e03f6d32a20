"""`manifest.json`: size and SHA-256 of every file in a bundle, the files left out, and what was scrubbed from files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, field_validator

from fairtrial.core.canonical import content_hash
from fairtrial.core.untrusted import UntrustedDocument, checked, collisions, parse_json, why_unsafe

SCHEMA = 1
LARGEST = 1 << 30
"""Maximum size of a manifest in bytes, twice the size needed for two million files."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _FileModel(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    bytes: int = Field(ge=0, le=64 << 30)
    sha256: Sha256


class _ManifestModel(BaseModel):
    """Schema of a manifest, for validating untrusted input."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)

    files: dict[str, _FileModel]
    excluded: list[dict[str, Any]]
    scrubbed: list[str]
    made_with: str
    about: dict[str, Any]
    signer: Sha256 | None
    sha256: Sha256

    @field_validator("files")
    @classmethod
    def _could_be_unpacked(cls, given: dict[str, _FileModel]) -> dict[str, _FileModel]:
        for name in given:
            if why := why_unsafe(name):
                raise ValueError(f"the name {name!r} {why}")
        if clashing := collisions(given):
            raise ValueError(f"the name {clashing[0]!r} and another name refer to the same file")
        return given


@dataclass(frozen=True)
class ExcludedFiles:
    """Files that were left out for the same reason."""

    what: str
    why: str
    names: Sequence[str]
    size: int

    def to_dict(self) -> dict[str, Any]:
        return {"what": self.what, "why": self.why, "files": len(self.names), "bytes": self.size,
                "names": list(self.names)}  # fmt: skip


@dataclass(frozen=True)
class BundleManifest:
    """The list of files in a bundle. The manifest is not in the list; it contains a hash of itself.

    `signer` is the key that signs it, or None. Because it is part of the hash, removing or replacing the signature is
    detected.
    """

    files: Mapping[str, tuple[int, str]]
    excluded: Sequence[Mapping[str, Any]] = ()
    scrubbed: Sequence[str] = ()
    made_with: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)
    signer: str | None = None

    def render(self) -> bytes:
        return _rendered({**self._content(), "sha256": self.sha256})

    @property
    def sha256(self) -> str:
        return content_hash(self._content())

    def _content(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "made_with": self.made_with,
            "about": dict(self.about),
            "signer": self.signer,
            "files": {name: {"bytes": size, "sha256": digest} for name, (size, digest) in sorted(self.files.items())},
            "excluded": list(self.excluded),
            "scrubbed": list(self.scrubbed),
        }


def _rendered(document: Mapping[str, Any]) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def read_manifest(content: bytes) -> tuple[BundleManifest | None, list[str]]:
    """Return the manifest and its problems. Any changed character makes it differ from its own hash."""
    try:
        document = parse_json(content, where="it")
        schema = document.get("schema") if isinstance(document, dict) else None
        if isinstance(schema, int) and schema != SCHEMA:
            return None, [f"was written by another version of Fairtrial (schema {schema}; this one supports {SCHEMA})"]
        read = checked(_ManifestModel, document, where="it")
    except UntrustedDocument as error:
        return None, [f"is not the manifest of a bundle: {error.message}"]
    files = {name: (each.bytes, each.sha256) for name, each in read.files.items()}
    bundle_manifest = BundleManifest(files, read.excluded, read.scrubbed, read.made_with, read.about, read.signer)
    try:
        fits = read.sha256 == bundle_manifest.sha256 and bundle_manifest.render() == content
    except (TypeError, ValueError):  # infinite numbers or lone surrogates, which Fairtrial never writes
        fits = False
    return bundle_manifest, [] if fits else ["was changed: it does not match its own hash"]


def compare_files(listed: Mapping[str, tuple[int, str]], actual: Mapping[str, tuple[int, str]]) -> list[str]:
    """Return a problem for every file that is missing, added, renamed or changed."""
    missing, extra = sorted(listed.keys() - actual.keys()), sorted(actual.keys() - listed.keys())
    content = {actual[name]: name for name in extra}
    problems = []
    for name in missing:
        if listed[name] in content:
            new = content.pop(listed[name])
            extra.remove(new)
            problems.append(f"{name} was renamed to {new}")
        else:
            problems.append(f"{name} is missing")
    problems += [f"{name} was added: the manifest does not list it" for name in extra]
    problems += [
        f"{name} was changed: its SHA-256 is {actual[name][1][:12]}…, not {listed[name][1][:12]}…"
        for name in sorted(listed.keys() & actual.keys())
        if listed[name] != actual[name]
    ]
    return problems
