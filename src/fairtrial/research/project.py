"""Find the registration of a study in a project."""

from __future__ import annotations

from pathlib import Path

from fairtrial.core.errors import CheckFailed, UserError
from fairtrial.core.paths import ProjectPaths
from fairtrial.core.project_root import find_artifact
from fairtrial.core.regular_files import read_regular
from fairtrial.research.ledger import read_ledger
from fairtrial.research.registration import Registration, read_registration


def find_registration(study: str, start: Path | None = None) -> Registration | None:
    """Return the registration of a study in the project that contains a folder; if amended, the newest amendment."""
    artifact = find_artifact(start)
    folder = ProjectPaths(artifact.parent).registrations if artifact else None
    if folder is None or not folder.ledger.exists():
        return None
    if study.encode() not in read_regular(folder.ledger):  # checking signatures is slow; most studies are unregistered
        return None
    ledger = read_ledger(folder)
    valid = ledger.valid_for(study)
    if valid and ledger.problems:
        raise CheckFailed(ledger.problems[0], hint=f"{folder.ledger} was changed. Restore the original file.")
    if len(valid) > 1:
        names = ", ".join(sha256[:12] for sha256 in valid)
        raise UserError(
            f"several registrations are about study '{study}': {names}", hint="Choose one with --plan REGISTRATION."
        )
    return read_registration(folder.registration(valid[0])) if valid else None
