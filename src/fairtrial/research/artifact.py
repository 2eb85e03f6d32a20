"""`artifact.yaml`: the description of a research artifact, its authors and its license."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fairtrial.core.errors import UserError, unknown
from fairtrial.core.options import parse_options

TYPES = ("dataset", "model", "code", "experiment")
UNKNOWN = "unknown"
"""Placeholder for the author of an artifact if none was given."""
NO_AUTHOR = "The author is unknown. Name one under 'authors' in artifact.yaml."
NO_LICENSE = (
    "No license is chosen, so others have no permission to reuse this. Choose one with the key 'license' in "
    "artifact.yaml, such as CC-BY-4.0."
)
ANOTHER_LICENSE = "LicenseRef-"
LICENSES = (
    "0BSD", "AFL-3.0", "AGPL-3.0-only", "AGPL-3.0-or-later", "Apache-2.0", "Artistic-2.0", "BSD-2-Clause",
    "BSD-3-Clause", "BSL-1.0", "CC-BY-4.0", "CC-BY-NC-4.0", "CC-BY-NC-ND-4.0", "CC-BY-NC-SA-4.0", "CC-BY-ND-4.0",
    "CC-BY-SA-4.0", "CC0-1.0", "CDLA-Permissive-2.0", "ECL-2.0", "EPL-2.0", "EUPL-1.2", "GPL-2.0-only",
    "GPL-2.0-or-later", "GPL-3.0-only", "GPL-3.0-or-later", "ISC", "LGPL-2.1-only", "LGPL-2.1-or-later",
    "LGPL-3.0-only", "LGPL-3.0-or-later", "MIT", "MIT-0", "MPL-2.0", "ODbL-1.0", "ODC-By-1.0", "PDDL-1.0",
    "Unlicense", "Zlib",
)  # fmt: skip
PARTICLES = frozenset(
    [
        "af",
        "al",
        "da",
        "de",
        "del",
        "della",
        "der",
        "di",
        "dos",
        "du",
        "el",
        "la",
        "le",
        "ten",
        "ter",
        "van",
        "von",
        "zu",
    ]
)
HEAD = """\
# A research artifact of Fairtrial. It marks this folder as a project: commands that you run here or in a subfolder
# write to its store and are listed in artifact.journal.jsonl. You may edit this file; no command changes it.
"""
_UNREADABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
"""Characters that YAML does not allow."""
_ORCID = re.compile(r"(?:https://orcid\.org/)?(\d{4}-\d{4}-\d{4}-\d{3}[\dX])")
_DOI = re.compile(r"(?:https://doi\.org/|doi:)?(10\.\d{4,9}/\S+)")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class _Words(BaseModel):
    """Base of models with text from a user. All text must survive a round trip through a YAML file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*", mode="after")
    @classmethod
    def _is_readable(cls, given: Any) -> Any:
        strange = [character for character in given if _UNREADABLE.match(character)] if isinstance(given, str) else []
        if strange:
            raise ValueError(f"{strange[0]!r} cannot be written into a file")
        return given


class Author(_Words):
    """A person, or a group that is cited by one name."""

    family: str = Field(description="Family name, or the whole name of a group.", min_length=1)
    given: str | None = Field(default=None, description="Given names.", min_length=1)
    orcid: str | None = Field(default=None, description="ORCID iD, such as 0000-0002-1825-0097.")
    affiliation: str | None = Field(default=None, description="Institution.", min_length=1)
    email: str | None = Field(default=None, description="E-mail address that may be published.")

    @field_validator("orcid")
    @classmethod
    def _is_an_orcid(cls, given: str | None) -> str | None:
        if given is None:
            return None
        match = _ORCID.fullmatch(given)
        if not match or not _checks_out(match[1]):
            raise ValueError(f"{given!r} is not a valid ORCID iD: its form or its check digit is wrong")
        return match[1]

    @field_validator("email")
    @classmethod
    def _is_an_address(cls, given: str | None) -> str | None:
        if given is not None and not re.fullmatch(r"[^@\s]+@[^@\s]+", given):
            raise ValueError(f"{given!r} is not an e-mail address")
        return given

    @property
    def name(self) -> str:
        return f"{self.given} {self.family}" if self.given else self.family

    @property
    def is_unknown(self) -> bool:
        return self.name == UNKNOWN


def _checks_out(orcid: str) -> bool:
    """Whether the check digit of an ORCID iD, computed from the other digits (ISO 7064), is correct."""
    total = 0
    for digit in orcid.replace("-", "")[:-1]:
        total = (total + int(digit)) * 2
    return orcid[-1] == "0123456789X"[(12 - total % 11) % 11]


class ArtifactFile(_Words, title="Artifact"):
    """The content of artifact.yaml, which marks a project: commands that run in its folder or below use its store."""

    id: str = Field(description="Short name, usable as a file name: letters, digits and . _ -")
    title: str = Field(description="Title to cite it by.", min_length=1)
    type: Literal["dataset", "model", "code", "experiment"] = Field(description="Kind of artifact.")
    description: str | None = Field(default=None, description="What it contains, in a few sentences.")
    authors: list[Author] = Field(description="Authors, in citation order.", min_length=1)
    license: str | None = Field(
        default=None, description="SPDX identifier, such as Apache-2.0 or CC-BY-4.0, or LicenseRef-NAME."
    )
    keywords: list[str] = Field(default_factory=list, description="Search keywords.")
    version: str = Field(default="0.1.0", description="Version of the artifact, not of Fairtrial.", min_length=1)
    date: datetime.date | None = Field(default=None, description="Release date, as YYYY-MM-DD.")
    doi: str | None = Field(default=None, description="DOI, if one is assigned, such as 10.5281/zenodo.1234.")
    url: str | None = Field(default=None, description="Web address.")
    store: str = Field(
        default="runs", description="Store of the project's runs: a folder relative to this file, or a URL."
    )

    @field_validator("id")
    @classmethod
    def _can_be_a_file_name(cls, given: str) -> str:
        if not _ID.fullmatch(given):
            raise ValueError(
                f"must consist of letters, digits and . _ -, beginning with a letter or digit, not {given!r}"
            )
        return given

    @field_validator("license")
    @classmethod
    def _is_known(cls, given: str | None) -> str | None:
        if given is None or given in LICENSES or re.fullmatch(rf"{ANOTHER_LICENSE}[A-Za-z0-9.-]+", given):
            return given
        message = unknown("license", given, LICENSES)
        raise ValueError(f"{message}; write any other license as {ANOTHER_LICENSE}NAME")

    @field_validator("doi")
    @classmethod
    def _is_a_doi(cls, given: str | None) -> str | None:
        if given is None:
            return None
        match = _DOI.fullmatch(given)
        if not match:
            raise ValueError(f"{given!r} is not a DOI such as 10.5281/zenodo.1234")
        return match[1]

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, given: str | None) -> str | None:
        if given is not None and not re.fullmatch(r"https?://\S+", given):
            raise ValueError(f"{given!r} is not a URL that begins with https://")
        return given

    @field_validator("version", mode="before")
    @classmethod
    def _numbers_are_versions_too(cls, given: Any) -> Any:
        return str(given) if isinstance(given, int | float) and not isinstance(given, bool) else given

    @property
    def known_authors(self) -> list[Author]:
        return [author for author in self.authors if not author.is_unknown]

    @model_validator(mode="after")
    def _no_author_twice(self) -> ArtifactFile:
        names = [author.name for author in self.authors]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"authors: {twice[0]} is named twice")
        return self


def not_stated(artifact: ArtifactFile) -> list[str]:
    """Return a sentence for each missing field that a citation or a reader needs, with what to do."""
    sentences = []
    if not artifact.known_authors:
        sentences.append(NO_AUTHOR)
    if artifact.license is None:
        sentences.append(NO_LICENSE)
    return sentences


def parse_artifact(values: Mapping[str, Any], *, where: str) -> ArtifactFile:
    """Parse the values of an artifact.yaml, or raise an error that lists all problems."""
    return parse_options(ArtifactFile, values, where=where, noun="key")


def parse_author(text: str) -> dict[str, str]:
    """Parse `Given Family`, `Family, Given` or `{A group}`, and optional `; orcid=…; affiliation=…; email=…`."""
    name, *more = (part.strip() for part in text.split(";"))
    author = name_parts(name)
    for part in filter(None, more):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise UserError(
                f"--author: cannot read '{part}'", hint="Write it like 'Given Family; orcid=0000-0002-1825-0097'."
            )
        author[key] = value
    return author


def name_parts(name: str) -> dict[str, str]:
    """Split a name into family name and given names. A group has only a family name."""
    if name.startswith("{") and name.endswith("}"):
        return {"family": name[1:-1].strip()}
    family, comma, given = (part.strip() for part in name.partition(","))
    if comma:
        return {"family": family, "given": given}
    words = name.split()
    first = next((at for at, word in enumerate(words) if at and word in PARTICLES), max(len(words) - 1, 0))
    given = " ".join(words[:first])
    return {"family": " ".join(words[first:]), **({"given": given} if given else {})}


def artifact_text(artifact: ArtifactFile) -> str:
    """Return the text of artifact.yaml: every key, with its meaning as a comment."""
    import json

    described = {key: field.description for key, field in ArtifactFile.model_fields.items()}
    values = artifact.model_dump(mode="json")
    lines = HEAD.splitlines()
    for key, value in values.items():
        if key == "authors":
            lines += [f"authors:  # {described[key]}"]
            for author in value:
                (first, name), *rest = ((k, v) for k, v in author.items() if v is not None)
                lines += [f"  - {first}: {json.dumps(name, ensure_ascii=False)}"]
                lines += [f"    {k}: {json.dumps(v, ensure_ascii=False)}" for k, v in rest]
        elif value is None:
            lines += [f"# {key}:  # {described[key]}"]
        else:
            lines += [f"{key}: {json.dumps(value, ensure_ascii=False)}  # {described[key]}"]
    return "\n".join([*lines, ""])
