"""Things that are made once per store: data sets, outputs of a teacher. Known by what they are made from."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from fairtrial.core.canonical import content_hash
from fairtrial.core.private_files import open_lock
from fairtrial.core.training import CacheEntry
from fairtrial.record.atomic import replace_bytes, store_errors


class StoreCache:
    """The cache of one store. Two processes that want the same entry make it once."""

    def __init__(self, root: Path, tell: Callable[[str], None] = lambda _: None) -> None:
        self.root = root
        self._tell = tell

    def entry(self, kind: str, key: Mapping[str, Any], make: Callable[[Path], Mapping[str, Any]]) -> CacheEntry:
        folder = self.root / kind / content_hash(dict(key))[:20]
        found = self._read(folder)
        if found is not None:
            return found
        with store_errors(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            lock = os.fdopen(open_lock(folder.with_suffix(".lock")), "rb")
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return self._read(folder) or self._make(folder, key, make)

    def _make(self, folder: Path, key: Mapping[str, Any], make: Callable[[Path], Mapping[str, Any]]) -> CacheEntry:
        self._tell(f"Making {folder.parent.name} {key.get('name', '')} (once per store) …")
        unfinished = folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        with store_errors(folder):
            unfinished.mkdir()
            manifest = {**make(unfinished), "key": dict(key)}
            replace_bytes(unfinished / "manifest.json", orjson.dumps(manifest, option=orjson.OPT_INDENT_2))
            unfinished.rename(folder)
        return CacheEntry(folder, manifest)

    def _read(self, folder: Path) -> CacheEntry | None:
        try:
            return CacheEntry(folder, orjson.loads((folder / "manifest.json").read_bytes()))
        except FileNotFoundError:
            return None
