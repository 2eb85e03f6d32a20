"""The states in which a power cut may leave a folder, by what POSIX promises and nothing more.

What was synced is there. Of everything else, in any combination: a change of names (new, renamed, removed) may have
reached the disk or not, whatever came before or after it; content may be there, missing, there up to some block, or
full of zeros where the length reached the disk and the content did not.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.power_loss.recording import (
    ROOT,
    Link,
    OfContent,
    OfFolders,
    Operation,
    Recording,
    Rename,
    Sync,
    Told,
    Truncate,
    Unlink,
    Write,
)

BLOCKS = (512, 4096)
Content = Callable[[int, bytes, bytes], bytes]
"""What is on the disk of a file: given its number, what was synced, and what it was when the power went."""


@dataclass(frozen=True)
class State:
    """A folder after a power cut; `told` is what somebody was told before it."""

    cut: int
    how: str
    files: Mapping[str, bytes]
    folders: Mapping[str, int | None]
    told: tuple[tuple[Any, ...], ...]
    key: str = field(compare=False)

    def write(self, root: Path) -> None:
        """Make it real. Folders get the times that the disk has of them: some caches go by those."""
        for name in sorted(self.folders):
            (root / name).mkdir(parents=True, exist_ok=True)
        for name, content in self.files.items():
            with open(os.open(root / name, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.write(content)
        for name, mtime in self.folders.items():
            if mtime:
                os.utime(root / name, ns=(mtime, mtime))


def crash_states(recording: Recording, *, samples: int, seed: int = 1, stride: int = 1) -> Iterator[State]:
    """Different states after every operation, or every `stride`-th: the extreme ones, single changes, and samples."""
    seen: set[str] = set()
    operations = recording.operations
    for cut in range(recording.start + 1, len(operations) + 1):
        if cut % stride and not isinstance(operations[cut - 1], Told):
            continue
        for state in _states_at(recording, cut, samples, random.Random(f"{seed} {cut}")):
            if state.key not in seen:
                seen.add(state.key)
                yield state


def _states_at(recording: Recording, cut: int, samples: int, chance: random.Random) -> Iterator[State]:
    past = _Past(recording, cut)
    loose = past.loose
    everything, nothing = frozenset(loose), frozenset[int]()
    yield past.state("nothing that was not synced", nothing, _synced)
    yield past.state("everything", everything, _latest)
    yield past.state("all names, no content", everything, _synced)
    yield past.state("all names, zeros for content", everything, _zeros)
    yield past.state("all content, no names", nothing, _latest)
    yield past.state("all names, only the newest content", everything, past.only_newest)
    for at in loose[-3:]:
        yield past.state("one name less", everything - {at}, _latest)
        yield past.state("one name alone", frozenset({at}), chance.choice((_latest, _zeros, _synced)))
    for _ in range(samples):
        names = frozenset(at for at in loose if chance.random() < 0.5)
        yield past.state("some", names, _some(chance))


def _synced(_node: int, synced: bytes, _latest: bytes) -> bytes:
    return synced


def _latest(_node: int, _synced: bytes, latest: bytes) -> bytes:
    return latest


def _zeros(_node: int, synced: bytes, latest: bytes) -> bytes:
    return synced + bytes(max(0, len(latest) - len(synced)))


def _some(chance: random.Random) -> Content:
    def content(_node: int, synced: bytes, latest: bytes) -> bytes:
        if synced == latest:
            return latest
        how = chance.randrange(5)
        if how < 3:
            return (_synced, _latest, _zeros)[how](0, synced, latest)
        block = chance.choice(BLOCKS)
        if how == 3 and latest.startswith(synced):  # up to some block, or some byte
            end = len(synced) + chance.randrange(len(latest) - len(synced) + 1)
            return latest[: max(len(synced), end // block * block if chance.random() < 0.5 else end)]
        blocks = []
        below = synced[: len(latest)].ljust(len(latest), b"\0")
        for start in range(0, len(latest), block):
            source = latest if chance.random() < 0.5 else below
            blocks.append(source[start : start + block])
        return b"".join(blocks)

    return content


class _Past:
    """What happened up to a moment, and what of it is on the disk for sure."""

    def __init__(self, recording: Recording, cut: int) -> None:
        self._cut = cut
        self._folders = recording.folders
        self._operations: Sequence[Operation] = recording.operations[:cut]
        self._synced: dict[int, int] = {}
        for at, operation in enumerate(self._operations):
            if isinstance(operation, Sync):
                self._synced[operation.node] = at
        self.loose = [
            at for at, operation in enumerate(self._operations)
            if isinstance(operation, OfFolders) and not self._is_synced(operation, at)
        ]  # fmt: skip
        self._latest: dict[int, bytes] = {}
        self._sure: dict[int, bytes] = {}
        for at, operation in enumerate(self._operations):
            if isinstance(operation, OfContent):
                latest = _changed(self._latest.get(operation.node, b""), operation)
                self._latest[operation.node] = latest
                if at < self._synced.get(operation.node, -1):
                    self._sure[operation.node] = latest
        written = [operation.node for operation in self._operations if isinstance(operation, OfContent)]
        self._newest = written[-1] if written else None
        self._told = tuple(each.what for each in self._operations if isinstance(each, Told))

    def _is_synced(self, operation: Link | Unlink | Rename, at: int) -> bool:
        """A rename is one step: whichever of its two folders is synced brings all of it to the disk."""
        places = {operation.folder}
        if isinstance(operation, Rename):
            places.add(operation.to_folder)
        return any(at < self._synced.get(folder, -1) for folder in places)

    def only_newest(self, node: int, synced: bytes, latest: bytes) -> bytes:
        """The last file that was written to is whole, and those before it are not."""
        return (_latest if node == self._newest else _zeros)(node, synced, latest)

    def state(self, how: str, names: frozenset[int], content: Content) -> State:
        tree: dict[int, dict[str, int]] = {}
        mtimes: dict[int, int] = {}
        loose = set(self.loose)
        for at, operation in enumerate(self._operations):
            if isinstance(operation, OfFolders) and (at not in loose or at in names):
                _rename(tree, operation)
                mtimes[operation.folder] = operation.mtime
                if isinstance(operation, Rename):
                    mtimes[operation.to_folder] = operation.mtime
        files: dict[str, bytes] = {}
        folders: dict[str, int | None] = {}
        contents: dict[int, bytes] = {}

        def walk(path: str, folder: int) -> None:
            folders[path] = mtimes.get(folder)
            for name, node in sorted(tree.get(folder, {}).items()):
                if node in self._folders:
                    walk(f"{path}/{name}" if path else name, node)
                    continue
                if node not in contents:  # all names of a file have the same content
                    contents[node] = content(node, self._sure.get(node, b""), self._latest.get(node, b""))
                files[f"{path}/{name}" if path else name] = contents[node]

        walk("", ROOT)
        digest = hashlib.sha256(repr((sorted(folders), self._told)).encode())
        for name, found in sorted(files.items()):
            digest.update(f"\0{name}\0{len(found)}\0".encode() + found)
        return State(self._cut, how, files, folders, self._told, digest.hexdigest())


def _changed(content: bytes, operation: Write | Truncate) -> bytes:
    if isinstance(operation, Truncate):
        return content[: operation.size].ljust(operation.size, b"\0")
    end = operation.offset + len(operation.data)
    return content[: operation.offset].ljust(operation.offset, b"\0") + operation.data + content[end:]


def _rename(tree: dict[int, dict[str, int]], operation: Link | Unlink | Rename) -> None:
    folder = tree.setdefault(operation.folder, {})
    if isinstance(operation, Link):
        folder[operation.name] = operation.node
    elif isinstance(operation, Unlink):
        if folder.get(operation.name) == operation.node:
            del folder[operation.name]
    else:
        if folder.get(operation.name) == operation.node:
            del folder[operation.name]
        tree.setdefault(operation.to_folder, {})[operation.to_name] = operation.node
