"""`manifest.json`: size and SHA-256 of every file of a bundle, what was left out, and what was taken out of files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from fairtrial.core.canonical import content_hash

SCHEMA = 1


@dataclass(frozen=True)
class Excluded:
    """Files that were left out for one reason."""

    what: str
    why: str
    names: Sequence[str]
    size: int

    def to_dict(self) -> dict[str, Any]:
        return {"what": self.what, "why": self.why, "files": len(self.names), "bytes": self.size,
                "names": list(self.names)}  # fmt: skip


@dataclass(frozen=True)
class Manifest:
    """What a bundle says about its files. The manifest itself is not among them: it hashes itself.

    `signer` is the key that signs it, or None: so that a signature which was taken away, or made by another, is missed.
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
            "schema": SCHEMA, "made_with": self.made_with, "about": dict(self.about),
            "signer": self.signer,
            "files": {name: {"bytes": size, "sha256": digest} for name, (size, digest) in sorted(self.files.items())},
            "excluded": list(self.excluded), "scrubbed": list(self.scrubbed),
        }  # fmt: skip


def _rendered(document: Mapping[str, Any]) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def read_manifest(content: bytes) -> tuple[Manifest | None, list[str]]:
    """The manifest, and what is wrong with it. One that was changed in any character does not fit its own hash."""
    try:
        told = orjson.loads(content)
        files = {str(name): (int(each["bytes"]), str(each["sha256"])) for name, each in told["files"].items()}
        found = Manifest(files, told["excluded"], told["scrubbed"], told["made_with"], told["about"], told["signer"])
        if not isinstance(found.signer, str | None):
            raise TypeError(found.signer)
        schema, fits = told["schema"], told["sha256"] == found.sha256 and found.render() == content
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
        return None, ["is not the manifest of a bundle"]
    if schema != SCHEMA:
        return None, [f"was written by another Fairtrial (schema {schema}, this one knows {SCHEMA})"]
    if not fits:
        return found, ["was changed: it does not fit its own hash"]
    return found, []


def compare_files(said: Mapping[str, tuple[int, str]], found: Mapping[str, tuple[int, str]]) -> list[str]:
    """Every file that is missing, extra, renamed or changed, by name."""
    missing, extra = sorted(said.keys() - found.keys()), sorted(found.keys() - said.keys())
    content = {found[name]: name for name in extra}
    problems = []
    for name in missing:
        if said[name] in content:
            new = content.pop(said[name])
            extra.remove(new)
            problems.append(f"{name} was renamed to {new}")
        else:
            problems.append(f"{name} is missing")
    problems += [f"{name} was added: the manifest does not know it" for name in extra]
    problems += [
        f"{name} was changed: its SHA-256 is {found[name][1][:12]}…, not {said[name][1][:12]}…"
        for name in sorted(said.keys() & found.keys())
        if said[name] != found[name]
    ]
    return problems
