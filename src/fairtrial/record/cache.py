"""Things that are made once per store: data sets, outputs of a teacher. Known by what they are made from.

The manifest of an entry lists the size and the SHA-256 of every file in it. An entry is held against that list before
it is used, once per process and file: what a run reads is what its metadata name. Hashing takes 0.6 s per gigabyte, so
this holds for data of any size. An entry that does not agree is set aside, not deleted, and made again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from fairtrial.core.canonical import content_hash, file_hash
from fairtrial.core.durable import make_folder, sync_path
from fairtrial.core.errors import FairtrialError, StoreError
from fairtrial.core.private_files import open_lock
from fairtrial.core.training import CacheEntry, CheckEntry, MakeEntry
from fairtrial.core.untrusted import read_file
from fairtrial.record.atomic import replace_bytes, store_errors

MANIFEST = "manifest.json"
FILES, SEAL = "files", "manifest_sha256"
UNFINISHED, DAMAGED = ".unfinished", ".damaged-"
CHANGED_OR_DAMAGED = "the file was changed or damaged"


class DamagedEntry(StoreError):
    """The files of an entry are not those that its manifest lists."""


@dataclass(frozen=True)
class CacheDamage:
    """One thing in the cache that is not as it was made. `remade`: it is made again when it is needed next."""

    path: Path
    reason: str
    remade: bool = True


class StoreCache:
    """The cache of one store. Two processes that want the same entry make it once."""

    def __init__(self, root: Path, tell: Callable[[str], None] | None = None) -> None:
        self.root = root
        self._tell = tell

    def entry(
        self, kind: str, key: Mapping[str, Any], make: MakeEntry, check: CheckEntry = lambda *_: False
    ) -> CacheEntry:
        """`check` judges an entry of an earlier version, whose manifest does not list its files."""
        folder = self.root / kind / content_hash(dict(key))[:20]
        with contextlib.suppress(DamagedEntry):
            cache_entry = _read(folder)
            if cache_entry is not None and FILES in cache_entry.manifest:
                return cache_entry
        with self._held(folder):
            try:
                return _settled(folder, check) or self._make(folder, key, make)
            except DamagedEntry as damage:
                return self._make_again(folder, key, make, damage)

    @contextlib.contextmanager
    def _held(self, folder: Path) -> Iterator[None]:
        with store_errors(folder):
            make_folder(folder.parent)
            lock = os.fdopen(open_lock(folder.with_suffix(".lock")), "rb")
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _make(self, folder: Path, key: Mapping[str, Any], make: MakeEntry) -> CacheEntry:
        if self._tell is not None:
            self._tell(f"Making {folder.parent.name} {key.get('name', '')} (once per store) …")
        unfinished = folder.with_suffix(UNFINISHED)
        shutil.rmtree(unfinished, ignore_errors=True)
        with store_errors(folder):
            unfinished.mkdir()
            made = make(unfinished)
            _sync_all(unfinished)
            manifest = _sealed({**made, "key": dict(key), FILES: _listed(unfinished)})
            _write_manifest(unfinished, manifest)
            unfinished.rename(folder)
            sync_path(folder.parent)
        return CacheEntry(folder, manifest)

    def _make_again(self, folder: Path, key: Mapping[str, Any], make: MakeEntry, damage: DamagedEntry) -> CacheEntry:
        """Never in silence, and never from what is damaged."""
        try:
            aside = set_aside(folder)
            (self._tell or _to_stderr)(f"Not used: {damage.message}. It was moved to {aside.name} and is made again.")
            return self._make(folder, key, make)
        except (FairtrialError, ImportError, OSError) as error:
            why = error.message if isinstance(error, FairtrialError) else str(error)
            hint = error.hint if isinstance(error, FairtrialError) else None
            raise StoreError(f"{damage.message}, and it cannot be made again: {why}", hint=hint) from error


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _settled(folder: Path, check: CheckEntry) -> CacheEntry | None:
    """The entry, brought up to date where an earlier version made it; None where there is none."""
    cache_entry = _read(folder)
    if cache_entry is None or FILES in cache_entry.manifest:
        return cache_entry
    if not check(folder, cache_entry.manifest):
        raise DamagedEntry(f"{folder} was made by an earlier version, and its content cannot be confirmed")
    manifest = _sealed({**cache_entry.manifest, FILES: _listed(folder)})
    with contextlib.suppress(StoreError, OSError):  # a store that cannot be written can still be read
        _write_manifest(folder, manifest)
    return CacheEntry(folder, manifest)


def set_aside(folder: Path) -> Path:
    """Move an entry out of the way: it is not used any more, and nothing of it is lost."""
    target = folder.with_name(f"{folder.name}{DAMAGED}{time.time_ns()}")
    with store_errors(folder):
        folder.rename(target)
    return target


def damaged_entries(root: Path) -> Iterator[CacheDamage]:
    """Everything in a cache that is not as it was made, read from the disk anew. `root` is that of the cache."""
    for folder in sorted(root.glob("*/*/")):
        if folder.name.endswith(UNFINISHED):
            continue
        if DAMAGED in folder.name:
            yield CacheDamage(folder, "it was set aside because it was damaged; nothing uses it any more", remade=False)
            continue
        try:
            manifest = _manifest(folder)
            if manifest is not None and FILES in manifest:
                _compare(folder, manifest, forget=True)
        except DamagedEntry as error:
            yield CacheDamage(folder, error.message)


def _read(folder: Path) -> CacheEntry | None:
    manifest = _manifest(folder)
    if manifest is None:
        return None
    if FILES in manifest:
        _compare(folder, manifest)
    return CacheEntry(folder, manifest)


def _manifest(folder: Path) -> dict[str, Any] | None:
    """None where there is no entry. A folder gets its name when all of it is there, so one without it is damaged."""
    try:
        manifest = orjson.loads(read_file(folder / MANIFEST))
    except FileNotFoundError:
        if folder.exists():
            raise DamagedEntry(f"{folder} has no {MANIFEST}") from None
        return None
    except (FairtrialError, orjson.JSONDecodeError):
        raise DamagedEntry(f"{folder / MANIFEST} cannot be read: {CHANGED_OR_DAMAGED}") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get(FILES, {}), dict):
        raise DamagedEntry(f"{folder / MANIFEST} does not describe an entry: {CHANGED_OR_DAMAGED}")
    if FILES in manifest and manifest != _sealed(manifest):
        raise DamagedEntry(f"{folder / MANIFEST} does not have the recorded hash: {CHANGED_OR_DAMAGED}")
    return manifest


def _sealed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """With the hash of the rest, which holds what runs state about their data."""
    content = orjson.loads(orjson.dumps({name: value for name, value in manifest.items() if name != SEAL}))
    return {**content, SEAL: content_hash(content)}


def _compare(folder: Path, manifest: Mapping[str, Any], *, forget: bool = False) -> None:
    """Hold the files of an entry against its manifest. The names in the manifest are compared, never opened."""
    recorded, there = manifest[FILES], dict(_files(folder))
    for name in sorted({*recorded, *there}):
        if name not in there:
            raise DamagedEntry(f"{folder} lacks {name}")
        if recorded.get(name) != _facts(there[name], forget=forget):
            raise DamagedEntry(f"{there[name]} does not have the recorded hash: {CHANGED_OR_DAMAGED}")


def _listed(folder: Path) -> dict[str, dict[str, Any]]:
    return {name: _facts(path, forget=True) for name, path in _files(folder)}


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != MANIFEST and not path.name.endswith(".tmp"):
            yield path.relative_to(folder).as_posix(), path


_hashes: dict[tuple[str, int, int, int, int, int], str] = {}
"""What this process has hashed, by path and by all that changes with a file's content."""


def _facts(path: Path, *, forget: bool) -> dict[str, Any]:
    file_status = path.stat()
    key = (
        os.fspath(path),
        file_status.st_dev,
        file_status.st_ino,
        file_status.st_size,
        file_status.st_mtime_ns,
        file_status.st_ctime_ns,
    )
    if forget or key not in _hashes:
        _hashes[key] = file_hash(path)
    return {"size": file_status.st_size, "sha256": _hashes[key]}


def _sync_all(folder: Path) -> None:
    """Everything that was made, before the manifest says that it is there."""
    for path in folder.rglob("*"):
        sync_path(path)


def _write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    replace_bytes(folder / MANIFEST, orjson.dumps(manifest, option=orjson.OPT_INDENT_2))
