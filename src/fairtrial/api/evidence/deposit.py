"""research deposit: prepare the upload of a bundle to Zenodo; upload it only with a token and explicit consent."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairtrial.api.evidence.verify_bundle import verify_bundle
from fairtrial.core.canonical import file_hash
from fairtrial.core.errors import CheckFailed, UserError
from fairtrial.core.paths import ARTIFACT
from fairtrial.plan.study import parse_mapping
from fairtrial.research.archive import opened
from fairtrial.research.artifact import ArtifactFile, not_stated, parse_artifact
from fairtrial.research.zenodo import API, API_VARIABLE, TOKEN_VARIABLE, check_api, commands_for, metadata_for, upload


@dataclass(frozen=True)
class Deposit:
    """A prepared upload, and the draft that it created. `draft` is None if nothing was uploaded.

    >>> fairtrial.deposit("bundle.zip").why_not  # doctest: +SKIP
    """

    api: str
    bundle: Path
    metadata_file: Path
    metadata: Mapping[str, Any]
    files: Sequence[Mapping[str, Any]]
    commands: Sequence[str]
    draft: Mapping[str, Any] | None = None
    why_not: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "deposited": self.draft is not None, "published": False, "why_not": self.why_not, "api": self.api,
            "draft": self.draft, "metadata_file": str(self.metadata_file), "metadata": dict(self.metadata),
            "files": list(self.files), "commands": list(self.commands),
        }  # fmt: skip


def deposit(bundle: str | os.PathLike[str], *, api: str | None = None, yes: bool = False) -> Deposit:
    """Write the metadata next to the bundle and return the upload commands; with a token and `yes`, upload a draft.

    >>> fairtrial.deposit("bundle.zip").commands  # doctest: +SKIP
    """
    path = Path(bundle)
    if not path.is_file():
        raise UserError(f"no bundle {path}", hint="Make one with: fairtrial research bundle --zip")
    place = check_api(api or os.environ.get(API_VARIABLE) or API)
    checked_bundle = verify_bundle(path)
    if not checked_bundle.intact:
        raise CheckFailed(f"{path.name} is {checked_bundle.sentence}", hint="Make the bundle again before uploading.")
    artifact = _artifact_in(path)
    if gaps := not_stated(artifact):
        raise UserError(
            gaps[0],
            problems=gaps[1:],
            hint="Zenodo requires an author and a license. Add them, then make the bundle again.",
        )
    metadata = metadata_for(artifact)
    metadata_path = path.with_suffix(".zenodo.json")
    metadata_path.write_text(json.dumps(metadata, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    files = [{"name": path.name, "bytes": path.stat().st_size, "sha256": file_hash(path)}]
    commands = commands_for(place, metadata_path, path)
    token = os.environ.get(TOKEN_VARIABLE)
    if not token or not yes:
        why = f"${TOKEN_VARIABLE} is not set" if not token else "--yes was not given"
        return Deposit(place, path, metadata_path, metadata, files, commands, why_not=why)
    return Deposit(place, path, metadata_path, metadata, files, commands, upload(place, token, metadata, path))


def _artifact_in(path: Path) -> ArtifactFile:
    with opened(path) as archive:
        return parse_artifact(parse_mapping(archive.read(ARTIFACT).decode(), Path(ARTIFACT)), where=ARTIFACT)
