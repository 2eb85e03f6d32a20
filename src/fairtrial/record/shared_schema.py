"""Typed models of the documents of a shared store. They are untrusted: anyone with write access may have written them.

`untrusted.checked` validates a document against its model. Invalid documents are refused with the reason, before
anything they refer to is downloaded.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from fairtrial.core.untrusted import UntrustedDocument, parse_json_fast, why_names_unsafe
from fairtrial.record.leases import LONGEST_LEASE_S

METADATA = "metadata.json"
MOST_FILES = 100_000
"""Maximum number of files of one run. A run with a checkpoint at every step has a few thousand."""
LARGEST_FILE = 5 << 40
"""Maximum size of a file in bytes: the limit of S3 for one object."""
LARGEST_RUN = 16 << 40
LARGEST_SERIES = 16 << 30
"""Maximum size of an append-only file in bytes: about a hundred million logged points."""

Token = Annotated[int, Field(ge=1, le=999_999_999)]
Size = Annotated[int, Field(ge=0, le=LARGEST_FILE)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Text = Annotated[str, Field(max_length=1024)]
Seconds = Annotated[float, Field(ge=0, le=1e11)]


class _Document(BaseModel):
    """Base model: strict types; unknown keys are ignored, because later versions may add some."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


class FileModel(_Document):
    """A file of a run in progress: its hash and size, and the token that it is stored below."""

    sha256: Sha256
    size: Size
    token: Token


class ManifestModel(_Document):
    """`manifest.json` of a claim: a snapshot of a run."""

    version: Literal[1] = Field(alias="schema")
    token: Token
    metadata: str
    appended: dict[Literal["metrics.jsonl", "events.jsonl", "log.txt"], Annotated[int, Field(ge=0, le=LARGEST_SERIES)]]
    files: dict[str, FileModel]

    @field_validator("metadata")
    @classmethod
    def _describes_a_run(cls, given: str) -> str:
        try:
            document = parse_json_fast(given.encode(errors="replace"), where="it")
        except UntrustedDocument as error:
            raise ValueError(error.message) from None
        if not isinstance(document, dict):
            raise ValueError("must be the metadata of a run")
        return given

    @field_validator("files", mode="before")
    @classmethod
    def _are_not_too_many(cls, given: Any) -> Any:
        if isinstance(given, dict) and len(given) > MOST_FILES:
            raise ValueError(f"the run has {len(given):,} files, more than the allowed {MOST_FILES:,}")
        return given

    @field_validator("files")
    @classmethod
    def _fit_into_one_folder(cls, given: dict[str, FileModel]) -> dict[str, FileModel]:
        total = sum(facts.size for facts in given.values())
        if total > LARGEST_RUN:
            raise ValueError(f"the run has {total / 1e12:,.0f} TB, more than allowed")
        if why := why_names_unsafe(list(given), taken=(METADATA, "metrics.jsonl", "events.jsonl", "log.txt")):
            raise ValueError(why)
        return given


class LinkModel(_Document):
    """One object of the chain of claims."""

    kind: Literal["claim", "end", "gone"]
    token: Token
    host: Text = ""
    pid: Annotated[int, Field(ge=0, le=1 << 32)] = 0
    mirror: Text = ""
    lease_s: Annotated[float, Field(ge=0, le=LONGEST_LEASE_S)] = 0.0
    prior: Annotated[str, Field(pattern=r"^(plain|[1-9][0-9]{0,8})$")] | None = None
    of: Annotated[int, Field(ge=0, le=999_999_999)] = 0
    status: Text | None = None
    publish: bool = False
    at: Seconds = 0.0


class SharedPlanModel(_Document):
    """The fields of a study plan whose types other code relies on. Other fields are not checked."""

    study: Text | None = None
    seeds: Annotated[list[int], Field(max_length=1_000_000)] = []
    variants: Annotated[dict[str, dict[str, Any]], Field(max_length=100_000)] = {}


class PlanObjectModel(_Document):
    """A numbered plan of a study."""

    plan: dict[str, Any]


class MarkerModel(_Document):
    """The object that marks a folder of a bucket as a store."""

    id: Annotated[str, Field(min_length=1, max_length=256)]


class MirrorModel(_Document):
    """`.mirror.json`: the store that a folder mirrors."""

    url: Annotated[str, Field(min_length=1, max_length=4096)]
    id: Annotated[str, Field(min_length=1, max_length=256)]
    store: Annotated[str, Field(min_length=1, max_length=256)] | None


class RemoteStateModel(_Document):
    """`.shared.json`: what a machine knows about a run."""

    token: Annotated[int, Field(ge=0, le=999_999_999)] = 0
    mine: bool = False
    closed: bool = False
    source: Annotated[str, Field(pattern=r"^(|plain|[1-9][0-9]{0,8})$")] = ""
    tags: dict[str, str] = {}
    absent: dict[str, dict[str, str | int]] = {}
    pulse: Text = ""
    seen: Annotated[float, Field(ge=-1e11, le=1e11)] = 0.0
    lease_s: Annotated[float, Field(ge=0, le=LONGEST_LEASE_S)] = 0.0


class HeartbeatModel(_Document):
    """`.pulse`: the last heartbeat of a run on this machine."""

    host: Text
    pid: Annotated[int, Field(ge=0, le=1 << 32)]
    token: int | None
    at: Seconds
    step: int
    saved: int
