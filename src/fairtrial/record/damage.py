"""Detection of damaged files in a store, and repairs that lose nothing.

A check examines one run, one study or the store and yields each damaged file with the reason and, if possible, a
`Repair`. Repairs never invent data. Before a repair replaces or removes a file, it saves the file in the store's
`.archive`, in a folder named after the time of the repair.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from fairtrial.core.canonical import file_hash
from fairtrial.core.errors import FairtrialError, StoreError
from fairtrial.core.paths import ARCHIVE, RunPaths
from fairtrial.core.regular_files import read_regular
from fairtrial.core.run_metadata import RunMetadata
from fairtrial.core.runs import Status
from fairtrial.core.schema import PROFILE_SCHEMA
from fairtrial.record.atomic import replace_bytes, replace_file, store_errors
from fairtrial.record.cache import damaged_entries
from fairtrial.record.claims import Claim, ClaimedElsewhere, is_claimed
from fairtrial.record.index import is_whole_index
from fairtrial.record.interim_looks import why_interim_looks_damaged
from fairtrial.record.lines import drop_torn_line, is_torn, iter_rows
from fairtrial.record.metadata import (
    DamagedRun,
    load_metadata,
    parse_metadata,
    why_misplaced,
)
from fairtrial.record.profiles import profile_names, profile_snapshots, read_profile
from fairtrial.record.recorded import contradiction, why_not_event, why_other_lines
from fairtrial.record.seals import why_broken
from fairtrial.record.series import SeriesProblem, read_series, verify_series, write_columns
from fairtrial.record.store import Store
from fairtrial.record.studies import load_plan
from fairtrial.record.study_cache import is_whole_copy

QUIET_S = 60.0
"""Seconds after which an unchanged temporary file is considered a leftover of a killed process."""

Repair = Callable[["Quarantine"], None]


@dataclass(frozen=True)
class Damage:
    """One file that differs from what was recorded.

    `repair` describes what can be done, possibly by hand; `mend` does it. `kept` is the backup of the old file.
    """

    path: Path
    reason: str
    run: str | None = None
    repair: str | None = None
    mend: Repair | None = field(default=None, compare=False, repr=False)
    repaired: bool = False
    kept: Path | None = None

    def to_dict(self, root: Path) -> dict[str, Any]:
        return {
            "path": str(self.path.relative_to(root)),
            "run": self.run,
            "reason": self.reason,
            "repair": self.repair,
            "repairable": self.mend is not None,
            "repaired": self.repaired,
            "kept": str(self.kept.relative_to(root)) if self.kept else None,
        }


class Quarantine:
    """The folder in the store's `.archive` where repairs save replaced files under their original relative paths."""

    def __init__(self, store: Store) -> None:
        self._root = store.root
        stamp = f"{time.strftime('%Y%m%dT%H%M%S')}-{time.time_ns() % 1_000_000_000:09d}"
        self._folder = store.root / ARCHIVE / f"damage.{stamp}"
        self.kept: Path | None = None

    def keep(self, path: Path) -> None:
        """Copy a file that is about to be replaced."""
        if path.is_file():
            with store_errors(self._folder):
                shutil.copy2(path, self._place(path))

    def take(self, path: Path) -> None:
        """Move a file or folder away."""
        with store_errors(self._folder):
            path.rename(self._place(path))

    def _place(self, path: Path) -> Path:
        target = self._folder / path.relative_to(self._root)
        target.parent.mkdir(parents=True, exist_ok=True)
        self.kept = target
        return target


ProgressCallback = Callable[[int, int], None]
"""Called with the number of checked runs and the total number of runs."""


def find_damage(store: Store, *, on_progress: ProgressCallback = lambda _done, _all: None) -> Iterator[Damage]:
    """Yield all damage in a store. Runs in progress are skipped."""
    places = [(study, RunPaths(Path(entry.path))) for study, entry in store.directories()]
    misplaced = _misplaced(places)
    for done, (study, paths) in enumerate(places):
        on_progress(done, len(places))
        if paths.metadata.exists() and not is_claimed(paths):
            for damage in _of_run(paths, misplaced):
                yield replace(damage, run=f"{study}/{paths.root.name}")
        elif not paths.metadata.exists() and not is_claimed(paths):
            yield from _of_no_run(study, paths, misplaced)
    on_progress(len(places), len(places))
    for study in store.studies():
        yield from _of_study(store, study)
    yield from _of_store(store)


def mend(store: Store, damage: Damage) -> Damage:
    """Repair one damage and return its new state. If the repair fails, the reason is added to the damage."""
    if damage.mend is None:
        return damage
    quarantine = Quarantine(store)
    try:
        if damage.run is None:
            damage.mend(quarantine)
        else:
            claim = Claim(store.paths.run(*damage.run.split("/", 1)))
            try:
                damage.mend(quarantine)
            finally:
                claim.release()
    except ClaimedElsewhere:
        return replace(damage, reason=f"{damage.reason}; not repaired, because the run is in progress")
    except (FairtrialError, OSError) as error:
        return replace(damage, reason=f"{damage.reason}; the repair failed: {error}")
    return replace(damage, repaired=True, kept=quarantine.kept)


# Runs

Misplaced = Mapping[tuple[str, str], Path]
"""(Study, run) → an intact metadata.json that describes this run but is in another folder."""


def _misplaced(places: Sequence[tuple[str, RunPaths]]) -> Misplaced:
    misplaced = {}
    for study, paths in places:
        with contextlib.suppress(FairtrialError, OSError):
            metadata = parse_metadata(read_regular(paths.metadata), str(paths.metadata))
            if why_misplaced(metadata, study, paths.root.name):
                misplaced[metadata.study, metadata.run_id] = paths.metadata
    return misplaced


def _of_run(paths: RunPaths, misplaced: Misplaced) -> Iterator[Damage]:
    try:
        metadata = load_metadata(paths)
    except FairtrialError as error:
        message = "; ".join((error.message, *error.problems))
        yield _restorable(paths, DamagedRun(message), misplaced)
        metadata = None
    if metadata is not None:
        yield from _of_series(paths, metadata)
        yield from _of_best(paths, metadata)
    yield from _of_events(paths, metadata)
    yield from _of_notes(paths)
    yield from _leftovers(paths)


def _of_no_run(study: str, paths: RunPaths, misplaced: Misplaced) -> Iterator[Damage]:
    """Report a folder without metadata as damaged if it contains metrics or events."""
    if any(path.is_file() and path.stat().st_size for path in (paths.metrics, paths.events)):
        damage = _restorable(paths, DamagedRun(f"{paths.metadata} is missing"), misplaced)
        yield replace(damage, run=f"{study}/{paths.root.name}")


def _restorable(paths: RunPaths, error: DamagedRun, misplaced: Misplaced) -> Damage:
    """Report damaged metadata, with a repair if an intact copy exists: left by a kill, or in another run's folder."""
    copies = [*sorted(paths.root.glob(".metadata.json.*.tmp"), key=lambda path: path.stat().st_mtime)][::-1]
    elsewhere = misplaced.get((paths.root.parent.name, paths.root.name))
    for copy in [*copies, *([elsewhere] if elsewhere else [])]:
        with contextlib.suppress(FairtrialError, OSError):
            content = read_regular(copy)
            metadata = parse_metadata(content, str(copy))
            if why_misplaced(metadata, paths.root.parent.name, paths.root.name) is None and not _contradicted(
                paths, metadata
            ):
                return Damage(
                    paths.metadata,
                    error.message,
                    repair=f"restore it from the intact copy {copy.name} in {copy.parent}",
                    mend=partial(_restore, paths.metadata, content),
                )
    return Damage(paths.metadata, error.message, repair="restore it from a backup; the store has no intact copy")


def _contradicted(paths: RunPaths, metadata: RunMetadata) -> bool:
    """Return whether the other files of a run contradict these metadata."""
    return bool(why_other_lines(paths, metadata) or why_broken(paths.events, metadata))


def _restore(path: Path, content: bytes, quarantine: Quarantine) -> None:
    quarantine.keep(path)
    replace_bytes(path, content)


def _of_series(paths: RunPaths, metadata: RunMetadata) -> Iterator[Damage]:
    """Check the lines first, because they are authoritative. Intact lines can recreate the columnar copy."""
    problem = verify_series(paths, metadata)
    if problem is None:
        problem = _contradiction(paths, metadata)
    if problem is None:
        yield from _of_torn(paths.metrics, metadata)
        return
    if problem.repairable:
        yield Damage(
            paths.columns,
            str(problem),
            repair="recreate it from metrics.jsonl",
            mend=lambda quarantine: _remake_columns(paths, quarantine),
        )
        return
    yield Damage(paths.metrics, str(problem), repair="restore it from a backup, or run it again with --replace")


def _contradiction(paths: RunPaths, metadata: RunMetadata) -> SeriesProblem | None:
    """Check a run of an earlier version, which recorded the final value of every metric but no hash."""
    if metadata.series is not None:
        return None
    try:
        why = contradiction(metadata, read_series(paths, metadata))
    except (StoreError, OSError) as error:
        return SeriesProblem(str(error))
    return SeriesProblem(f"{paths.metrics} {why}") if why else None


def _remake_columns(paths: RunPaths, quarantine: Quarantine) -> None:
    quarantine.keep(paths.columns)
    write_columns(paths)


def _of_best(paths: RunPaths, metadata: RunMetadata) -> Iterator[Damage]:
    sha256 = metadata.best_checkpoint_sha256
    if sha256 is not None and paths.best.is_file() and file_hash(paths.best) != sha256:
        yield _checkpoint_damage(paths, paths.best, sha256, "metadata.json")


def _of_events(paths: RunPaths, metadata: RunMetadata | None) -> Iterator[Damage]:
    """Check the events, and the checkpoints whose hashes they contain."""
    hint = "restore it from a backup; the metrics of the run do not depend on it"
    if metadata is not None and (why := why_broken(paths.events, metadata)):
        yield Damage(paths.events, why, repair=hint)
        return
    saved: dict[Path, str] = {}
    try:
        for number, row in enumerate(iter_rows(paths.events), 1):
            if why := why_not_event(row):
                yield Damage(paths.events, f"line {number} {why}", repair=hint)
                return
            _follow(paths, row, saved)
    except (StoreError, OSError) as error:
        yield Damage(paths.events, str(error), repair=hint)
        return
    yield from _of_torn(paths.events, metadata)
    for path, sha256 in sorted(saved.items()):
        if not path.is_file():
            if path != paths.last and not _is_elsewhere(paths, path):
                yield Damage(path, f"{path} is missing, although events.jsonl records it as saved", repair=_REPEAT)
        elif file_hash(path) != sha256:
            yield _checkpoint_damage(paths, path, sha256, "events.jsonl")


def _of_torn(path: Path, metadata: RunMetadata | None) -> Iterator[Damage]:
    """Check for an incomplete last line in an ended run. In other runs, a resume removes the one that a kill left."""
    if metadata is not None and metadata.status != Status.RUNNING and is_torn(path):
        yield Damage(
            path,
            f"{path} ends with an incomplete line",
            repair="remove that line",
            mend=partial(_drop_torn, path),
        )


def _drop_torn(path: Path, quarantine: Quarantine) -> None:
    quarantine.keep(path)
    drop_torn_line(path)


def _follow(paths: RunPaths, row: Mapping[str, Any], saved: dict[Path, str]) -> None:
    """Update the expected checkpoints and their hashes after an event."""
    if row["event"] == "checkpoint_saved":
        saved[paths.step(row["step"])] = saved[paths.last] = row["sha256"]
    elif row["event"] == "top_kept":
        saved[paths.top(row["step"])] = row["sha256"]
    elif row["event"] == "top_dropped":
        saved.pop(paths.top(row["step"]), None)
    elif row["event"] == "rewound":
        later = [path for path in saved if path != paths.last and _step_of(path) > row["step"]]
        for path in later:
            del saved[path]
        steps = [path for path in saved if path.name.startswith("step-")]
        newest = max(steps, key=_step_of, default=None)
        saved.pop(paths.last, None)
        if newest is not None:
            saved[paths.last] = saved[newest]


def _step_of(path: Path) -> int:
    digits = path.stem.rpartition("-")[2]
    return int(digits) if digits.isdigit() else -1


def _is_elsewhere(paths: RunPaths, path: Path) -> bool:
    """Return whether a checkpoint is in the shared store and has not been downloaded."""
    from fairtrial.record.remote_state import read_remote_state

    known = read_remote_state(paths)
    return known is not None and str(path.relative_to(paths.root)) in known.absent


_REPEAT = "restore it from a backup; a resume uses an earlier checkpoint"


def _checkpoint_damage(paths: RunPaths, path: Path, sha256: str, where: str) -> Damage:
    """Report a checkpoint with a wrong hash. Another file of the run with the recorded hash is an intact copy."""
    reason = f"{path} does not have the hash recorded in {where}"
    for other in sorted(paths.checkpoints.iterdir()):
        if other != path and other.is_file() and not other.is_symlink() and file_hash(other) == sha256:
            return Damage(
                path,
                reason,
                repair=f"restore it from {other.name}, which has that hash",
                mend=partial(_copy_checkpoint, other, path),
            )
    return Damage(path, reason, repair=_REPEAT)


def _copy_checkpoint(source: Path, path: Path, quarantine: Quarantine) -> None:
    quarantine.keep(path)
    replace_file(path, lambda temporary: _duplicate(source, temporary))


def _duplicate(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)


def _of_notes(paths: RunPaths) -> Iterator[Damage]:
    """Check small files that are rewritten when needed."""
    for path in (paths.delivered, paths.heartbeat):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            try:
                whole = type(orjson.loads(read_regular(path))) is dict
            except orjson.JSONDecodeError:
                whole = False
            if not whole:
                yield Damage(
                    path,
                    f"{path} is not JSON",
                    repair="remove it; it is rewritten when needed",
                    mend=partial(_take, path),
                )


def _take(path: Path, quarantine: Quarantine) -> None:
    quarantine.take(path)


def _leftovers(paths: RunPaths) -> Iterator[Damage]:
    """Yield temporary files that a kill left behind. A resumed run removes them, but ended runs are never resumed."""
    for path in sorted([*paths.root.glob(".*.tmp"), *paths.checkpoints.glob(".*.tmp")]):
        if _is_old(path):
            yield _leftover(path)


def _is_old(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return time.time() - path.stat().st_mtime > QUIET_S
    return False


def _leftover(path: Path) -> Damage:
    return Damage(
        path,
        f"{path} was left by a killed process",
        repair="remove it",
        mend=partial(_take, path),
    )


# Studies and the store


def _of_study(store: Store, study: str) -> Iterator[Damage]:
    try:
        load_plan(store, study)
    except FairtrialError as error:
        yield Damage(
            store.paths.study_plan(study),
            error.message,
            repair="restore it from a backup, or move it away; the next launch then writes its own plan",
        )
    if why := why_interim_looks_damaged(store, study):
        yield Damage(store.paths.interim_looks(study), why, repair="restore it from a backup")
    folder = store.paths.study(study)
    for path in sorted(folder.glob(".*.tmp")):
        if _is_old(path):
            yield _leftover(path)


def _of_store(store: Store) -> Iterator[Damage]:
    index = store.paths.index
    if index.exists() and not is_whole_index(store):
        yield Damage(
            index,
            f"{index} does not have its recorded checksum",
            repair="remove it; it is rebuilt from the runs",
            mend=partial(_take, index),
        )
    for path in sorted(store.paths.series_caches.glob("*.arrow")):
        if not is_whole_copy(path):
            yield _of_cache(path, f"{path} is damaged or from another version", remade=True)
    for cache_damage in damaged_entries(store.paths.cache):
        yield _of_cache(cache_damage.path, cache_damage.reason, remade=cache_damage.remade)
    for name in profile_names(store.paths):
        for path in profile_snapshots(store.paths, name):
            try:
                read_profile(path, PROFILE_SCHEMA)
            except FairtrialError as error:
                yield Damage(path, error.message, repair="restore it from a backup, or measure again")
    for folder in (store.root, store.paths.cache):
        for path in sorted(folder.glob(".*.tmp")):
            if _is_old(path):
                yield _leftover(path)


def _of_cache(path: Path, reason: str, *, remade: bool) -> Damage:
    message = "remove it; it is recreated when needed" if remade else "remove it; nothing uses it"
    return Damage(path, reason, repair=message, mend=partial(_take, path))
