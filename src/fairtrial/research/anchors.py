"""Anchors: the hash of a registration in a place that its author cannot change unnoticed, and what that proves."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fairtrial.core.durable import sync_path
from fairtrial.core.errors import UserError
from fairtrial.core.paths import RegistrationPaths
from fairtrial.core.regular_files import read_regular
from fairtrial.core.untrusted import read_file
from fairtrial.research.ledger import LedgerEntry

GIT_TAG, FILE = "git-tag", "file"
KINDS = (GIT_TAG, FILE)
PROVES = {
    GIT_TAG: "Push the tag: anyone who receives it before the runs begin can confirm the order. The date of the tag "
    "itself comes from the author's clock.",
    FILE: "The local file proves nothing. Publish it before the runs begin, where others record the date; their copy "
    "then proves that the registration existed by that date.",
}


@dataclass(frozen=True)
class Anchor:
    """The result of checking an anchor.

    `holds`: others have, or may have, a copy. `says`: what the anchor proves about the order of plan and runs.
    """

    ok: bool | None
    detail: str
    holds: bool = False
    says: str = ""


def tag_name(sha256: str) -> str:
    return f"registration-{sha256[:16]}"


def make_tag(folder: Path, sha256: str) -> str:
    """Create an annotated tag with the hash at the current commit, and return its name."""
    name = tag_name(sha256)
    done = _git(folder, "tag", "-a", name, "-m", anchor_text(sha256))
    if done is None or done.returncode:
        why = done.stderr.strip().splitlines()[-1] if done and done.stderr.strip() else "git is not available"
        raise UserError(f"registered as {sha256[:12]}, but without an anchor: git could not create the tag ({why})")
    return name


def check_can_tag(folder: Path) -> None:
    """Raise an error, before anything is registered, if no tag could be created."""
    needed = {
        ("rev-parse", "--verify", "HEAD"): "there is no commit",
        ("var", "GIT_COMMITTER_IDENT"): "git does not know who you are",
    }
    for arguments, what in needed.items():
        done = _git(folder, *arguments)
        if done is None or done.returncode:
            raise UserError(f"--anchor git-tag: {what} in {folder}", hint="Fix that, or use --anchor file.")


def make_file(folder: RegistrationPaths, sha256: str) -> str:
    """Write a small file with the hash, which the author can publish elsewhere, and return its name."""
    path = folder.anchor(sha256)
    with path.open("x") as file:
        file.write(anchor_text(sha256))
        file.flush()
        os.fsync(file.fileno())
    sync_path(path.parent)
    return path.name


def anchor_text(sha256: str) -> str:
    return f"Fairtrial registration\nsha256 {sha256}\n"


def check_anchor(folder: RegistrationPaths, entry: LedgerEntry) -> Anchor:
    """Check the anchor that the ledger names."""
    how, name = str(entry.about.get("how")), str(entry.about.get("name"))
    if how == GIT_TAG:
        return _in_git(folder, entry.registration, name)
    return _in_file(folder, entry.registration, name)


def check_copy(sha256: str, path: Path) -> Anchor:
    """Check a copy of the anchor that others kept."""
    if not is_named_in(sha256, path):
        return Anchor(False, f"{path.name} does not contain this hash")
    says = f"if {path.name} was published before them, which its publisher must confirm"
    return Anchor(True, f"{path.name} contains the hash", True, says)


def is_named_in(sha256: str, path: Path) -> bool:
    try:
        return sha256 in read_file(path).decode(errors="replace").split()
    except FileNotFoundError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


def _in_git(folder: RegistrationPaths, sha256: str, name: str) -> Anchor:
    done = _git(folder.root, "for-each-ref", "--format=%(objecttype) %(contents)", f"refs/tags/{name}")
    if done is None or done.returncode or not done.stdout.strip():
        return Anchor(None, f"the git tag {name} was not found, so it could not be checked")
    kind, _, text = done.stdout.partition(" ")
    if kind != "tag" or sha256 not in text.split():
        return Anchor(False, f"the git tag {name} does not contain this hash")
    says = f"as anyone who received the git tag {name} before them can confirm (its date comes from the author's clock)"
    return Anchor(True, f"the git tag {name} contains the hash", True, says)


def _in_file(folder: RegistrationPaths, sha256: str, name: str) -> Anchor:
    path = folder.anchor(sha256)
    if path.name != name:
        return Anchor(False, f"the ledger names {name}, which is not the anchor of this registration")
    if not path.is_file():
        return Anchor(None, f"{name} was not found: pass the published copy to check it")
    if read_regular(path) != anchor_text(sha256).encode():
        return Anchor(False, f"{name} was changed")
    return Anchor(True, f"{name} contains the hash; a copy next to the registration proves nothing about time")


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments],  # noqa: S607
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
            check=False,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
