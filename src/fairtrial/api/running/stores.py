"""runs sync: synchronize a shared store with its local mirror on this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairtrial.core.errors import UserError, unknown
from fairtrial.core.paths import RunPaths, StorePaths
from fairtrial.record.atomic import SyncLevel, replace_file, store_errors
from fairtrial.record.metadata import load_metadata
from fairtrial.record.mirror import everything, nothing
from fairtrial.record.sharing import left_here, pull, push
from fairtrial.record.store import Store
from fairtrial.record.store_location import StoreLocation
from fairtrial.record.upload import whole_files


@dataclass(frozen=True)
class SyncedStore:
    """The result of a synchronization. `left`: runs with local data that is still not uploaded.

    `refused`: runs and plans of the store that were not downloaded, with the reasons.
    """

    store: str
    folder: Path
    runs: int
    received_bytes: int
    pushed: int
    left: Sequence[str]
    refused: Sequence[tuple[str, str]] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": 1, "store": self.store, "folder": str(self.folder), "runs": self.runs,
            "received_bytes": self.received_bytes, "pushed": self.pushed, "left": list(self.left),
            "refused": [{"name": name, "reason": why} for name, why in self.refused],
        }  # fmt: skip


def sync_store(
    studies: Sequence[str] = (),
    *,
    store: StoreLocation = None,
    checkpoints: bool = False,
    to: str | os.PathLike[str] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> SyncedStore:
    """Upload local data, download what other machines recorded, and copy all of it to the directory `to` if given."""
    place = Store.at(store)
    if not place.url:
        raise UserError(
            f"{place.root} is a local directory, so there is nothing to synchronize", hint="Pass --store s3://…"
        )
    pushed = push(place, studies, tell)
    moved = pull(place, studies, everything if checkpoints else nothing, tell)
    known = place.studies()
    for study in studies:
        if study not in known:
            raise UserError(unknown("study", study, known) if known else f"{place.url} has no studies yet")
    if to is not None:
        _copy_out(place, studies or known, Path(to).expanduser().absolute())
    folder = place.root if to is None else Path(to)
    left = left_here(place, studies)
    return SyncedStore(place.url, folder, moved.runs, moved.received, pushed.pushed, left, moved.refused)


def _copy_out(store: Store, studies: Sequence[str], folder: Path) -> None:
    """Copy the contents of a mirror to an ordinary local store."""
    target = Store(folder)
    target.check_writable()
    for study, entry in [run for each in studies for run in store.directories(each)]:
        source, copy = store.paths.run(study, entry.name), target.paths.run(study, entry.name)
        if source.metadata.exists():
            _refuse_another(source, copy)
            _copy_run(source, copy)
    for study in studies:
        plan = store.paths.study_plan(study)
        if plan.exists():
            _copy(plan, StorePaths(folder).study_plan(study))


def _refuse_another(source: RunPaths, copy: RunPaths) -> None:
    theirs, ours = load_metadata(copy), load_metadata(source)
    if theirs and ours and theirs.fingerprint != ours.fingerprint:
        raise UserError(f"{copy.root} is another run with the same name", hint="Choose another directory with --to.")


def _copy_run(source: RunPaths, copy: RunPaths) -> None:
    for path in [*whole_files(source), *source.appended, source.metadata]:
        if path.exists():
            _copy(path, copy.root / path.relative_to(source.root))


def _copy(path: Path, target: Path) -> None:
    with store_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    there, here = target.stat() if target.exists() else None, path.stat()
    if there is None or (there.st_size, there.st_mtime_ns) != (here.st_size, here.st_mtime_ns):
        replace_file(target, lambda temporary: _duplicate(path, temporary), sync=SyncLevel.FILE)


def _duplicate(path: Path, target: Path) -> None:
    shutil.copy2(path, target)
