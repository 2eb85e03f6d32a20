"""Writes down, in order, every change that a piece of work makes below a folder, and everything that it syncs.

Calls of `os` that change files are noted as they happen. Around each of them the folder is compared with what is
known of it, so that changes by other means (buffered files, `numpy.save`, Arrow's and torch's own writers) are found
too, at the latest when the file is synced or renamed. Nothing below the folder can change unnoticed.
"""

# The calls of `os` are what is watched here: pathlib would make them on our behalf.
# ruff: noqa: PTH100, PTH116, PTH120, PTH206

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = 0


@dataclass(frozen=True)
class Link:
    """A new name in a folder."""

    folder: int
    name: str
    node: int
    mtime: int = 0


@dataclass(frozen=True)
class Unlink:
    folder: int
    name: str
    node: int
    mtime: int = 0


@dataclass(frozen=True)
class Rename:
    """Takes the place of what has the new name, in one step."""

    folder: int
    name: str
    to_folder: int
    to_name: str
    node: int
    mtime: int = 0


@dataclass(frozen=True)
class Write:
    node: int
    offset: int
    data: bytes


@dataclass(frozen=True)
class Truncate:
    node: int
    size: int


@dataclass(frozen=True)
class Sync:
    """The content of a file, or the names in a folder, are on the disk."""

    node: int


@dataclass(frozen=True)
class Told:
    """Somebody was told that something is done."""

    what: tuple[Any, ...]


Operation = Link | Unlink | Rename | Write | Truncate | Sync | Told
OfFolders = (Link, Unlink, Rename)
OfContent = (Write, Truncate)


class Recording:
    """The operations below one folder. Folders and files are numbered; 0 is the folder itself."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.operations: list[Operation] = []
        self.folders: set[int] = {ROOT}
        self._names: dict[int, dict[str, int]] = {ROOT: {}}
        self._contents: dict[int, bytes] = {}
        self._numbers: dict[int, int] = {os.stat(root).st_ino: ROOT}
        self._next = 1
        self._lock = threading.RLock()
        self._busy = False
        self._observe()
        self.operations += [Sync(node) for node in (*self._names, *self._contents)]  # what was there before
        self.start = len(self.operations)

    def tell(self, *what: Any) -> None:
        """Note that from here on `what` must survive."""
        with self._lock:
            self._observe()
            self.operations.append(Told(what))

    @contextmanager
    def active(self) -> Iterator[None]:
        kept = {name: getattr(os, name) for name in (*_CHANGING, *_RENAMING, *_SYNCING)}
        wrappers = {
            **dict.fromkeys(_CHANGING, self._changing), **dict.fromkeys(_RENAMING, self._renaming),
            **dict.fromkeys(_SYNCING, self._syncing),
        }  # fmt: skip
        for name, call in kept.items():
            setattr(os, name, wrappers[name](call))
        try:
            yield
        finally:
            for name, call in kept.items():
                setattr(os, name, call)
            self._observe()

    def _changing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **settings: Any) -> Any:
            with self._lock:
                self._observe()
                result = call(*arguments, **settings)
                self._observe()
                return result

        return wrapped

    def _syncing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(descriptor: int) -> Any:
            with self._lock:
                self._observe()
                result = call(descriptor)
                node = self._numbers.get(os.fstat(descriptor).st_ino)
                if node is not None:
                    self.operations.append(Sync(node))
                return result

        return wrapped

    def _renaming(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(source: Any, target: Any, **settings: Any) -> Any:
            with self._lock:
                self._observe()
                result = call(source, target, **settings)
                self._note_rename(source, target)
                self._observe()
                return result

        return wrapped

    def _note_rename(self, source: Any, target: Any) -> None:
        here, there = self._place(source), self._place(target)
        if here is None or there is None:
            return  # into the folder or out of it: the comparison finds it
        (folder, name), (to_folder, to_name) = here, there
        node = self._names[folder][name]
        if self._names[to_folder].get(to_name) == node:
            return  # two names of one file are not renamed onto each other
        replaced = self._names[to_folder].get(to_name)
        del self._names[folder][name]
        self._names[to_folder][to_name] = node
        self._free_number(replaced)
        mtime = os.stat(os.path.dirname(os.path.abspath(target))).st_mtime_ns
        self.operations.append(Rename(folder, name, to_folder, to_name, node, mtime))

    def _place(self, path: Any) -> tuple[int, str] | None:
        absolute = os.path.abspath(os.fspath(path))
        folder = ROOT
        relative = os.path.relpath(absolute, self.root)
        if relative.startswith(".."):
            return None
        *above, name = relative.split(os.sep)
        for part in above:
            folder = self._names[folder][part]
        return folder, name

    def _observe(self) -> None:
        """Note the differences between the folder and what is known of it."""
        if self._busy:
            return
        self._busy = True
        try:
            self._compare(os.fspath(self.root), ROOT)
        finally:
            self._busy = False

    def _compare(self, path: str, folder: int) -> None:
        known = self._names[folder]
        with os.scandir(path) as entries:
            there = {entry.name: entry for entry in entries}
        mtime = os.stat(path).st_mtime_ns
        for name in [name for name in known if name not in there]:
            self._forget(Unlink(folder, name, known.pop(name), mtime))
        for name, entry in sorted(there.items()):
            is_folder = entry.is_dir(follow_symlinks=False)
            inode = entry.inode()
            node = known.get(name)
            if node is None or self._numbers.get(inode) != node:
                if node is not None:
                    self._forget(Unlink(folder, name, known.pop(name), mtime))
                node = self._number(inode, is_folder)
                known[name] = node
                self.operations.append(Link(folder, name, node, mtime))
            if is_folder:
                self._compare(entry.path, node)
            else:
                self._compare_content(entry.path, node)

    def _forget(self, gone: Unlink) -> None:
        self.operations.append(gone)
        self._free_number(gone.node)

    def _free_number(self, gone: int | None) -> None:
        """The system may give the number of a file without a name to another one."""
        if gone is not None and not any(gone in names.values() for names in self._names.values()):
            self._numbers = {inode: node for inode, node in self._numbers.items() if node != gone}

    def _number(self, inode: int, is_folder: bool) -> int:
        node = self._numbers.get(inode)
        if node is None:
            node, self._next = self._next, self._next + 1
            self._numbers[inode] = node
            if is_folder:
                self.folders.add(node)
                self._names[node] = {}
            else:
                self._contents[node] = b""
        return node

    def _compare_content(self, path: str, node: int) -> None:
        try:
            with open(path, "rb") as file:
                now = file.read()
        except FileNotFoundError:  # another thread has just removed it
            return
        before = self._contents[node]
        if now == before:
            return
        if len(now) < len(before):
            self.operations.append(Truncate(node, len(now)))
            before = before[: len(now)]
        start = next((at for at, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), len(before))
        if start < len(now):
            self.operations.append(Write(node, start, now[start:]))
        self._contents[node] = now


_CHANGING = (
    "write",
    "pwrite",
    "ftruncate",
    "truncate",
    "link",
    "unlink",
    "remove",
    "mkdir",
    "rmdir",
    "open",
    "sendfile",
)
_RENAMING = ("replace", "rename")
_SYNCING = ("fsync", "fdatasync")
