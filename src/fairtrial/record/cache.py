"""A cache of things that are created once per store, such as data sets and teacher outputs, keyed by their inputs.

The manifest of an entry lists the size and SHA-256 of every file in it. An entry is verified against its manifest
before use, once per process and file, so that a run reads exactly the data that its metadata name. Hashing takes 0.6 s
per gigabyte, so data of any size are verified. A damaged entry is renamed, not deleted, and created again.
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
    """The files of an entry do not match its manifest."""


@dataclass(frozen=True)
class CacheDamage:
    """One damaged entry of the cache. `remade`: it is created again when needed."""

    path: Path
    reason: str
    remade: bool = True


class StoreCache:
    """The cache of one store. Concurrent processes create an entry only once."""

    def __init__(self, root: Path, tell: Callable[[str], None] | None = None) -> None:
        self.root = root
        self._tell = tell

    def entry(
        self, kind: str, key: Mapping[str, Any], make: MakeEntry, check: CheckEntry = lambda *_: False
    ) -> CacheEntry:
        """Return an entry, creating it if needed.

        `check` validates an entry of an earlier version, whose manifest does not list its files.
        """
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
            self._tell(f"Creating {folder.parent.name} {key.get('name', '')} (once per store) …")
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
        """Set a damaged entry aside, report it, and create the entry again."""
        try:
            aside = set_aside(folder)
            (self._tell or _to_stderr)(f"Damaged: {damage.message}. It was moved to {aside.name} and is created again.")
            return self._make(folder, key, make)
        except (FairtrialError, ImportError, OSError) as error:
            why = error.message if isinstance(error, FairtrialError) else str(error)
            hint = error.hint if isinstance(error, FairtrialError) else None
            raise StoreError(f"{damage.message}, and it cannot be created again: {why}", hint=hint) from error


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _settled(folder: Path, check: CheckEntry) -> CacheEntry | None:
    """Return the entry, upgraded if an earlier version created it; None if there is none."""
    cache_entry = _read(folder)
    if cache_entry is None or FILES in cache_entry.manifest:
        return cache_entry
    if not check(folder, cache_entry.manifest):
        raise DamagedEntry(f"{folder} was created by an earlier version, and its content cannot be verified")
    manifest = _sealed({**cache_entry.manifest, FILES: _listed(folder)})
    with contextlib.suppress(StoreError, OSError):  # a read-only store can still be read
        _write_manifest(folder, manifest)
    return CacheEntry(folder, manifest)


def set_aside(folder: Path) -> Path:
    """Rename a damaged entry, so that it is no longer used but not lost. Return its new path."""
    target = folder.with_name(f"{folder.name}{DAMAGED}{time.time_ns()}")
    with store_errors(folder):
        folder.rename(target)
    return target


def damaged_entries(root: Path) -> Iterator[CacheDamage]:
    """Yield all damage in the cache at `root`, reading every file again from disk."""
    for folder in sorted(root.glob("*/*/")):
        if folder.name.endswith(UNFINISHED):
            continue
        if DAMAGED in folder.name:
            yield CacheDamage(folder, "it was set aside because it was damaged; nothing uses it", remade=False)
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
    """Return the manifest of an entry, or None if there is no entry.

    An entry gets its final folder name only when it is complete, so a folder without a manifest is damaged.
    """
    try:
        manifest = orjson.loads(read_file(folder / MANIFEST))
    except FileNotFoundError:
        if folder.exists():
            raise DamagedEntry(f"{folder} has no {MANIFEST}") from None
        return None
    except (FairtrialError, orjson.JSONDecodeError):
        raise DamagedEntry(f"{folder / MANIFEST} cannot be read: {CHANGED_OR_DAMAGED}") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get(FILES, {}), dict):
        raise DamagedEntry(f"{folder / MANIFEST} is not a valid manifest: {CHANGED_OR_DAMAGED}")
    if FILES in manifest and manifest != _sealed(manifest):
        raise DamagedEntry(f"{folder / MANIFEST} does not have the recorded hash: {CHANGED_OR_DAMAGED}")
    return manifest


def _sealed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest with a hash of its content, which includes what runs record about their data."""
    content = orjson.loads(orjson.dumps({name: value for name, value in manifest.items() if name != SEAL}))
    return {**content, SEAL: content_hash(content)}


def _compare(folder: Path, manifest: Mapping[str, Any], *, forget: bool = False) -> None:
    """Compare the files of an entry with its manifest. Names in the manifest are untrusted and never opened."""
    recorded, there = manifest[FILES], dict(_files(folder))
    for name in sorted({*recorded, *there}):
        if name not in there:
            raise DamagedEntry(f"{folder} does not contain {name}")
        if recorded.get(name) != _facts(there[name], forget=forget):
            raise DamagedEntry(f"{there[name]} does not have the recorded hash: {CHANGED_OR_DAMAGED}")


def _listed(folder: Path) -> dict[str, dict[str, Any]]:
    return {name: _facts(path, forget=True) for name, path in _files(folder)}


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != MANIFEST and not path.name.endswith(".tmp"):
            yield path.relative_to(folder).as_posix(), path


_hashes: dict[tuple[str, int, int, int, int, int], str] = {}
"""Hashes that this process has computed, keyed by path and the stat fields that change with the content."""


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
    """Sync all files before the manifest lists them."""
    for path in folder.rglob("*"):
        sync_path(path)


def _write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    replace_bytes(folder / MANIFEST, orjson.dumps(manifest, option=orjson.OPT_INDENT_2))
