"""Access to a store: find, read, archive and remove runs.

A store at a URL is read and written through a local mirror. `pull`, `fetch` and `push` synchronize the two, and do
nothing if the store is a folder.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fairtrial.core.durable import make_folder, sync_path
from fairtrial.core.errors import StoreError, UserError, nearest
from fairtrial.core.paths import RunPaths, StorePaths, is_url, may_be_short_id, parts_of_run_id, short_id
from fairtrial.core.runs import Run
from fairtrial.record.atomic import store_errors
from fairtrial.record.claims import Claim, ClaimedElsewhere
from fairtrial.record.metadata import load_metadata, load_run, load_run_or_damage
from fairtrial.record.store_location import StoreLocation, mirror_folder, store_address

if TYPE_CHECKING:
    from fairtrial.record.cache import StoreCache

MOST_CANDIDATES = 10
"""How many runs the error for an ambiguous reference lists."""


@dataclass(frozen=True)
class Store:
    """A folder of studies, each a folder of run directories. The run directories are the source of truth.

    If `url` is set, `root` is this machine's mirror of a shared store.
    """

    root: Path
    url: str | None = None

    @classmethod
    def at(cls, address: StoreLocation) -> Store:
        """Return the store at a path or a URL. A folder that is a mirror is recognized as one."""
        place = store_address(address)
        if is_url(place):
            return cls(mirror_folder(place), place)
        root = Path(place)
        if not StorePaths(root).mirror.is_file():
            return cls(root)
        from fairtrial.record.sharing import read_mirror

        known = read_mirror(StorePaths(root))
        return cls(root, known.url if known else None)

    @property
    def address(self) -> str:
        """The URL of a shared store, which is valid on every machine, or else the path of the folder."""
        return self.url or str(self.root)

    @property
    def paths(self) -> StorePaths:
        return StorePaths(self.root)

    @property
    def cache(self) -> StoreCache:
        from fairtrial.record.cache import StoreCache  # not needed to list runs

        return StoreCache(self.paths.cache)

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules that a process imports to write this store, for preloading."""
        if not self.url:
            return ()
        from fairtrial.record.remote import module_of

        return ("fairtrial.record.sharing", module_of(self.url))

    def check_writable(self) -> None:
        """Raise an error if this location cannot be used as a store. Call this before any work starts."""
        if self.url:
            from fairtrial.record.sharing import reach

            reach(self, writing=True)
        with store_errors(self.root):
            if self.root.exists() and not self.root.is_dir():
                raise StoreError(f"{self.root} is a file, not a folder", hint="Choose a folder with --store.")
            new = not self.root.exists()
            make_folder(self.root)
            from fairtrial.record.file_systems import check_file_system  # not needed to list runs

            check_file_system(self.root)
            if new:  # results are not code, so they must not make the git working tree dirty
                (self.root / ".gitignore").write_text("*\n")

    def pull(self, *studies: str) -> None:
        """Download what other machines have recorded since the last pull, without checkpoints."""
        if self.url:
            from fairtrial.record.sharing import pull_fresh

            pull_fresh(self, studies)

    def fetch(self, study: str, run: str, *, steps: bool = True) -> None:
        """Download a run with its checkpoints if they are missing here; without `steps`, only the best and the last."""
        if self.url:
            from fairtrial.record.mirror import everything, not_of_a_step
            from fairtrial.record.sharing import fetch

            fetch(self, study, run, everything if steps else not_of_a_step)

    def push_events(self, study: str, run: str) -> None:
        """Upload the events of an ended run after an event was added."""
        if self.url:
            from fairtrial.record.sharing import push_file

            push_file(self, study, run, self.paths.run(study, run).events.name)

    def push(self, studies: Sequence[str] = ()) -> list[str]:
        """Upload runs that processes of this machine did not upload. Return the names of those still not uploaded."""
        if not self.url:
            return []
        from fairtrial.record.sharing import left_here, push

        with contextlib.suppress(StoreError):
            push(self, studies)
        return left_here(self, studies)

    def studies(self) -> list[str]:
        return sorted(entry.name for entry in _folders(self.root))

    def directories(self, study: str | None = None) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield every run directory with the name of its study."""
        for name in [study] if study else self.studies():
            for entry in _folders(self.paths.study(name)):
                yield name, entry

    def variants(self, study: str) -> set[str]:
        """Return the variants of a study that have a run directory."""
        return {parts[0] for _, entry in self.directories(study) if (parts := parts_of_run_id(entry.name))}

    def run(self, study: str, run_id: str) -> Run | None:
        """Return one run, or None if it does not exist. Raises DamagedRun."""
        return load_run(self.paths.run(study, run_id))

    def look_at(self, study: str, run_id: str) -> Run | None:
        """Return one run like `run`, but give a damaged one the status `damaged` and a reason instead of raising."""
        return load_run_or_damage(self.paths.run(study, run_id))

    def holds(self, paths: RunPaths) -> bool:
        """Return whether a run directory is inside this store. Any other may be a copy outside its study."""
        return self.root.absolute() in paths.root.absolute().parents

    def find(self, reference: str) -> Run:
        """Return the one run with this id, `study/id` or path. It may be damaged."""
        runs = self.match([reference])
        if len(runs) > 1:
            raise _ambiguous(reference, [run.name for run in runs])
        return runs[0]

    def match(self, references: Iterable[str]) -> list[Run]:
        """Return all runs that match ids, paths or globs, without duplicates. A reference without a match is an error.

        Damaged runs are included, with the status `damaged` and a reason.
        """
        run_paths = self.match_paths(references)
        return [run for paths in run_paths if (run := load_run_or_damage(paths, in_store=self.holds(paths)))]

    def match_paths(self, references: Iterable[str]) -> list[RunPaths]:
        """Return the directories of the runs that match, whether they are readable or not."""
        run_paths: dict[Path, RunPaths] = {}
        for reference in references:
            matches = list(self._match(reference))
            if not matches:
                raise UserError(f"no run named '{reference}' in {self.address}", hint=self._hint(reference))
            run_paths.update({paths.root: paths for paths in matches})
        return list(run_paths.values())

    def refuse_foreign(self, paths: RunPaths) -> None:
        """Raise an error unless a folder is a run of this store: only those may be removed."""
        folder = paths.root
        if folder.parent.parent.resolve() != self.root.resolve():
            raise UserError(f"{folder} is not in the store {self.address}", hint="Pass its store with --store.")
        if folder.is_symlink():
            raise UserError(f"{folder} is a symbolic link, not a run directory", hint="Remove the link by hand.")
        if folder.name.startswith(".") or not _holds_a_run(paths):
            raise UserError(
                f"{folder} has a metadata.json but is not a run recorded by Fairtrial", hint="Remove it by hand."
            )

    def archive(self, paths: RunPaths, action: str = "replaced") -> Path:
        """Move a run to the `.archive` folder of its study and return its new path."""
        claim = self._claim(paths, action)
        target = self._archived_name(paths)
        self._take_out(paths, action, f"{target.parent.name}/{target.name}")
        _move(paths.root, target)
        claim.release()
        return target

    def archived_ids(self, study: str) -> set[str]:
        """Return the ids of runs that were replaced or removed. Newer runs may have the same ids."""
        folder = self.paths.archive(study)
        return {place.name.rpartition(".")[0] for place in folder.iterdir()} if folder.is_dir() else set()

    def purge(self, paths: RunPaths) -> None:
        """Delete a run permanently.

        The directory is renamed first. Otherwise a process that is about to claim the run could create new files in it
        during the deletion, and an interrupted deletion would leave half a run.
        """
        import shutil

        claim = self._claim(paths, "removed")
        target = self._archived_name(paths)
        self._take_out(paths, "removed")
        _move(paths.root, target)
        with store_errors(target):
            shutil.rmtree(target)
        claim.release()

    def _archived_name(self, paths: RunPaths) -> Path:
        stamp = time.strftime("%Y%m%dT%H%M%S")
        folder = self.paths.archive(paths.root.parent.name)
        return folder / f"{paths.root.name}.{stamp}-{time.time_ns() % 1_000_000_000:09d}"

    def _claim(self, paths: RunPaths, action: str) -> Claim:
        try:
            return Claim(paths)
        except ClaimedElsewhere:
            raise UserError(
                f"run {paths.root.name} is in progress and cannot be {action}",
                hint="Stop its launcher first.",
            ) from None

    def _take_out(self, paths: RunPaths, action: str, archive: str | None = None) -> None:
        """Archive or remove the run in the shared store, if there is one. Callers do this before the local change."""
        if not self.url:
            return
        from fairtrial.record.sharing import remove

        try:
            remove(self, paths, archive)
        except ClaimedElsewhere:
            raise UserError(
                f"run {paths.root.name} is in progress on another machine and cannot be {action}",
                hint="Stop its launcher first.",
            ) from None

    def _match(self, reference: str) -> Iterator[RunPaths]:
        """Yield the runs that a reference names. A run of this store takes precedence over a run at that path.

        If there is neither, the reference may be the short id that `runs list` shows, or the beginning of the id or of
        STUDY/ID. A beginning must name one run: unlike a glob, it does not say that several are meant.
        """
        runs = {f"{study}/{entry.name}": RunPaths(Path(entry.path)) for study, entry in self.directories()}
        matched = False
        for name, paths in runs.items():
            compared = name if "/" in reference else paths.root.name
            if fnmatch.fnmatchcase(compared, reference) and paths.metadata.exists():
                matched = True
                yield paths
        as_path = RunPaths(Path(os.path.abspath(reference)))  # noqa: PTH100 — resolves `..`
        if not matched and "\0" not in reference and as_path.metadata.is_file():
            yield as_path
        elif not matched:
            yield from _with_beginning(reference, runs)

    def _hint(self, reference: str) -> str:
        names = [entry.name for _, entry in self.directories()]
        guess = nearest(reference.rpartition("/")[2], names)
        if guess:
            return f"Did you mean '{guess}'?"
        return "List them with: fairtrial runs list" if names else "This store has no runs yet."


def _with_beginning(reference: str, runs: Mapping[str, RunPaths]) -> Iterator[RunPaths]:
    """Yield the one run whose short id, id or STUDY/ID begins with the reference, if there is one."""
    is_short = may_be_short_id(reference)
    names = [
        name
        for name, paths in runs.items()
        if (is_short and short_id(*name.split("/", 1)).startswith(reference))
        or (reference and (name if "/" in reference else paths.root.name).startswith(reference))
    ]
    found = [name for name in names if runs[name].metadata.exists()]
    if len(found) > 1:
        raise _ambiguous(reference, found)
    yield from (runs[name] for name in found)


def _ambiguous(reference: str, names: Sequence[str]) -> UserError:
    shown = "".join(f"\n  {short_id(*name.split('/', 1))}  {name}" for name in sorted(names)[:MOST_CANDIDATES])
    more = f"\n  and {len(names) - MOST_CANDIDATES:,} more" if len(names) > MOST_CANDIDATES else ""
    hint = "Name one by its short id or as STUDY/RUN, or several by a glob such as 'STUDY/*'."
    return UserError(f"'{reference}' matches {len(names):,} runs:{shown}{more}", hint=hint)


def open_store(given: StoreLocation, *studies: str) -> Store:
    """Open the store at a location and pull what other machines have recorded."""
    store = Store.at(given)
    store.pull(*studies)
    return store


def _holds_a_run(paths: RunPaths) -> bool:
    """Return whether a directory contains a run: by its metadata or, if damaged, by the files that every run has."""
    try:
        metadata = load_metadata(paths)
    except StoreError:
        return any(path.is_file() for path in (paths.events, paths.metrics, paths.lock))
    return metadata is not None and metadata.run_id == paths.root.name


def _move(source: Path, target: Path) -> None:
    with store_errors(target):
        make_folder(target.parent)
        source.rename(target)
        sync_path(target.parent)  # the move must be durable before another run takes the old name


def _folders(path: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if not entry.name.startswith(".") and entry.is_dir():
                    yield entry
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise StoreError(f"{path} is a file, not a folder", hint="Choose a folder with --store.") from None
