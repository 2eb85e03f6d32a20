"""Download of runs from a shared store into this machine's mirror.

Each run is downloaded as one consistent snapshot: its plain files if it has ended, or else the files in the manifest of
its newest claim. Only changes are read. Checkpoints are downloaded only when needed.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fairtrial.core.canonical import file_hash
from fairtrial.core.durable import set_lost_tail_aside, sync_path
from fairtrial.core.errors import StoreError
from fairtrial.core.paths import RunPaths, SharedPaths
from fairtrial.core.regular_files import read_regular
from fairtrial.core.untrusted import (
    DAMAGED,
    LARGEST_DOCUMENT_BYTES,
    UntrustedDocument,
    UntrustedName,
    parse_json_fast,
    path_inside,
    why_names_unsafe,
    why_unsafe,
)
from fairtrial.record.atomic import SyncLevel, replace_bytes, replace_file, store_errors
from fairtrial.record.claims import Claim, ClaimedElsewhere
from fairtrial.record.leases import (
    LARGEST_CLAIM,
    PLAIN,
    Link,
    Objects,
    note_heartbeat,
    parse_link,
    refuse_large,
    top_token,
    where_it_stands,
)
from fairtrial.record.remote import ObjectEntry, Remote, Unreachable
from fairtrial.record.remote_state import RemoteState, read_remote_state, write_remote_state
from fairtrial.record.upload import RunManifest, whole_files

STEP = "step-"
SMALL_BYTES = 4 << 20
"""Files up to this size are read into memory in one batch with other runs; larger ones are downloaded to disk."""
SMALL_BYTES_OF_RUN = 64 << 20
LARGEST_SEGMENT = 64 << 20
_UNUSABLE = {errno.EISDIR, errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ}
"""Error numbers that mean that a name cannot be used, as opposed to a failure of the file system."""
Chosen = Callable[[str], bool]
"""Selects which files in subfolders, such as checkpoints, are downloaded."""


class Refusals:
    """Collects runs that are not downloaded, with the reasons, so that one invalid run does not stop the others."""

    def __init__(self) -> None:
        self.why: dict[str, str] = {}

    @contextlib.contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Wrap the work on one run. Problems with its objects are recorded instead of raised."""
        try:
            yield
        except Unreachable:
            raise
        except (UntrustedName, UntrustedDocument) as error:
            self.note(name, error.message)
        except StoreError as error:
            if getattr(error.__cause__, "errno", None) not in _UNUSABLE:
                raise
            self.note(name, error.message)
        except OSError as error:
            if error.errno not in _UNUSABLE:
                raise
            self.note(name, f"this file system cannot use one of its names: {error.strerror}")

    def note(self, name: str, why: str) -> None:
        self.why.setdefault(name, why)

    def incomplete(self, names: SharedPaths, error: StoreError) -> None:
        """Record an ended run whose files are not all in the store."""
        self.note(names.root, f"it is incomplete. {error.hint}")


class Strict(Refusals):
    """Raises problems as errors, for work on a single run."""

    @contextlib.contextmanager
    def of(self, name: str) -> Iterator[None]:
        try:
            yield
        except (UntrustedName, UntrustedDocument) as error:
            raise type(error)(f"{name} cannot be used: {error.message}", hint=error.hint) from None

    def incomplete(self, names: SharedPaths, error: StoreError) -> None:  # noqa: ARG002
        raise error


@dataclass
class Stand:
    """The state of one run in the shared store and in the mirror.

    `source` is where its files are in the store: `plain`, a token, or None. `before` is the state that this machine had
    recorded, and `remote_state` that state updated with the latest heartbeat.
    """

    names: SharedPaths
    paths: RunPaths
    objects: Objects
    top: Link | None
    source: str | None
    remote_state: RemoteState
    before: RemoteState | None
    manifest: RunManifest | None = None

    @property
    def is_overtaken(self) -> bool:
        """Whether a newer claim or a removal supersedes what this machine wrote."""
        newest = 0 if self.top is None else self.top.token if self.top.is_claim else self.top.of
        return self.remote_state.is_ahead and (
            newest > self.remote_state.token or (self.top is not None and self._is_gone)
        )

    @property
    def _is_gone(self) -> bool:
        return self.top is not None and self.top.kind == "gone"


def inspect(
    remote: Remote,
    wanted: Mapping[SharedPaths, RunPaths],
    objects: Objects,
    *,
    closely: bool = False,
    refusals: Refusals,
) -> list[Stand]:
    """Determine the state of runs from their objects. Claims are read only for unfinished runs, or with `closely`."""
    own: dict[str, dict[str, ObjectEntry]] = defaultdict(dict)
    for name, entry in objects.items():
        study, _, rest = name.partition("/")
        own[f"{study}/{rest.partition('/')[0]}"][name] = entry
    tops = {names: top_token(names, own[names.root]) for names in wanted}
    unfinished = {
        names: token
        for names, token in tops.items()
        if token and (closely or not _is_plain(names, own[names.root]) or _is_ahead(wanted[names]))
    }
    claims = {}
    for names, token in unfinished.items():
        with refusals.of(names.root):
            refuse_large(names, own[names.root], [names.claim(token)], LARGEST_CLAIM)
            claims[names] = token
    links = remote.read_many(names.claim(token) for names, token in claims.items())
    clock = functools.cache(remote.now)
    stands = []
    for names, paths in wanted.items():
        if names in unfinished and names not in claims:
            continue
        with refusals.of(names.root):
            mine = own[names.root]
            content = links.get(names.claim(claims[names])) if names in claims else None
            top = parse_link(content, claims[names]) if content is not None else None
            before = read_remote_state(paths)
            known = before or RemoteState()
            if top and top.is_claim and not (known.is_ahead and top.token <= known.token):
                known = note_heartbeat(names, mine, top, known, clock)
            else:
                known = replace(known, pulse="", lease_s=0.0)
            stands.append(Stand(names, paths, mine, top, where_it_stands(remote, names, mine, top), known, before))
    return stands


def _is_plain(names: SharedPaths, objects: Objects) -> bool:
    """Return whether all files of a run have their plain names."""
    return names.metadata in objects and not any(name.startswith(f"{names.live}/") for name in objects)


def _is_ahead(paths: RunPaths) -> bool:
    known = read_remote_state(paths)
    return known is not None and known.is_ahead


def nothing(_name: str) -> bool:
    return False


def everything(_name: str) -> bool:
    return True


@dataclass
class Brought:
    """The number of downloaded bytes, and the runs whose files moved while they were read."""

    size: int = 0
    moved: list[Stand] = field(default_factory=list)


def bring(
    remote: Remote,
    stands: Collection[Stand],
    checkpoints: Chosen = nothing,
    *,
    held: bool = False,
    refusals: Refusals,
) -> Brought:
    """Update the local files of runs to match the store.

    `checkpoints` selects files in subfolders; the others are recorded as absent. A run that another process of this
    machine holds is skipped. With `held`, the caller itself holds the runs.
    """
    live = _read_manifests(remote, stands, refusals)
    pulls = []
    for stand in stands:
        if stand.source == PLAIN or stand.manifest:
            with refusals.of(stand.names.root):
                pulls.append(Pull(stand, checkpoints))
    contents = remote.read_many(name for pull in pulls for name in pull.small())
    brought = Brought(sum(map(len, contents.values())), [stand for stand in live if stand.manifest is None])
    for pull in pulls:
        if not contents.keys() >= set(pull.small()):
            brought.moved.append(pull.stand)
            continue
        with refusals.of(pull.names.root), contextlib.nullcontext() if held else _untouched(pull.stand) as mine:
            try:
                brought.size += pull.apply(remote, contents, whole=held) if held or mine else 0
            except FileNotFoundError:
                brought.moved.append(pull.stand)
    return brought


def _read_manifests(remote: Remote, stands: Collection[Stand], refusals: Refusals) -> list[Stand]:
    """Load the manifests of runs in progress and return these runs. Some may have ended meanwhile and have none."""
    live: dict[str, Stand] = {}
    for stand in stands:
        if stand.source not in (None, PLAIN):
            name = stand.names.manifest(int(stand.source))
            with refusals.of(stand.names.root):
                refuse_large(stand.names, stand.objects, [name], LARGEST_DOCUMENT_BYTES)
                live[name] = stand
    contents = remote.read_many(list(live))
    for name, content in contents.items():
        with refusals.of(live[name].names.root):
            live[name].manifest = RunManifest.from_bytes(content, int(live[name].source or 0))
    return [stand for name, stand in live.items() if stand.manifest or name not in contents]


@contextlib.contextmanager
def _untouched(stand: Stand) -> Iterator[bool]:
    """Hold a run briefly. Yield whether no other process holds it and it is unchanged since it was inspected."""
    try:
        claim = Claim(stand.paths)
    except ClaimedElsewhere:
        yield False
        return
    try:
        yield read_remote_state(stand.paths) == stand.before
    finally:
        claim.release()


@dataclass(frozen=True)
class Growth:
    """A growing file: its local length, its length in the store, and the segments that contain the rest.

    An upload that resumed after a kill may have split the file differently, so segments may overlap.
    """

    have: int
    length: int
    segments: list[tuple[int, str]]

    def put_together(self, contents: Mapping[str, bytes]) -> bytes:
        """Return the bytes that follow the local part, up to the first gap."""
        added = bytearray()
        for offset, there in self.segments:
            at = self.have + len(added)
            if offset > at or there not in contents:
                break  # bytes after a gap cannot be used
            added += contents[there][at - offset :]
        return bytes(added[: self.length - self.have])


class Pull:
    """The download of one run: which objects to read, and how to apply them to the local files."""

    def __init__(self, stand: Stand, checkpoints: Chosen) -> None:
        self.stand, self.names, self.paths = stand, stand.names, stand.paths
        self._chosen = checkpoints
        known = stand.remote_state
        self._same = known.source == stand.source and not known.is_ahead
        self._tags = dict(known.tags) if self._same else {}
        self.files = self._files()
        self._places = self._judged_places()
        self._small = self._few_and_small()
        self._segments = self._missing_segments()

    def _files(self) -> dict[str, tuple[str, str, int]]:
        """Return all files that do not grow: local name → (object name, tag, size)."""
        if self.stand.manifest:
            return {
                name: (self.names.blob(facts["token"], facts["sha256"]), facts["sha256"], facts["size"])
                for name, facts in self.stand.manifest.files.items()
            }
        skip = len(self.names.root) + 1
        plain = {name[skip:]: entry for name, entry in self.stand.objects.items()}
        return {
            name: (self.names.plain(name), entry.tag, entry.size)
            for name, entry in plain.items()
            if not name.startswith(".") or why_unsafe(name)
        }

    def _judged_places(self) -> dict[str, Path]:
        """Return the path of each file. Refuse unsafe names and runs that exceed the size limits."""
        if self.stand.manifest is None:
            refuse_many(size for _, _, size in self.files.values())
            if why := why_names_unsafe(list(self.files)):
                raise UntrustedName(why, hint=DAMAGED)
        refuse_large(self.names, self.stand.objects, [self.names.metadata], LARGEST_DOCUMENT_BYTES)
        appended = self.stand.manifest.appended if self.stand.manifest else ()
        wanted = {*self.files, *appended, self.paths.metadata.name}
        return {name: path_inside(self.paths.root, name, what=self.names.root) for name in wanted}

    def _few_and_small(self) -> set[str]:
        """Return the files to read into memory in one batch with other runs, limited to SMALL_BYTES_OF_RUN per run."""
        chosen, total = set(), 0
        for name, (there, _, size) in self.files.items():
            listed = self.stand.objects.get(there)
            if listed is not None and listed.size != size:
                raise UntrustedDocument(f"{name!r} has {listed.size:,} bytes, not {size:,}", hint=DAMAGED)
            total += size
            is_metadata = name == self.paths.metadata.name
            if is_metadata or ("/" not in name and size < SMALL_BYTES and total <= SMALL_BYTES_OF_RUN):
                chosen.add(name)
        return chosen

    def _is_wanted(self, name: str) -> bool:
        return "/" not in name or self._chosen(name)

    def _is_here(self, name: str) -> bool:
        return self._tags.get(name) == self.files[name][1] and self._places[name].is_file()

    def _missing_segments(self) -> dict[str, Growth]:
        """Return the missing segments of each growing file. A file of another claim is downloaded from the start."""
        if self.stand.manifest is None:
            return {}
        growths = {}
        token = self.stand.manifest.token
        for name, length in self.stand.manifest.appended.items():
            path = self._places[name]
            set_lost_tail_aside(path)  # zeros left by a power loss: downloaded again
            have = path.stat().st_size if self._same and path.exists() else 0
            have = have if have <= length else 0
            offsets = sorted(
                at for each in self.stand.objects if (at := self.names.offset_of(token, name, each)) is not None
            )
            first = max((at for at in offsets if at <= have), default=0)  # this segment may extend the local part
            needed = [at for at in offsets if first <= at < length] if have < length else []
            segments = [self.names.segment(token, name, at) for at in needed]
            refuse_large(self.names, self.stand.objects, segments, LARGEST_SEGMENT)
            growths[name] = Growth(have, length, [(at, self.names.segment(token, name, at)) for at in needed])
        return growths

    def small(self) -> list[str]:
        """Return the objects to read in one batch with those of other runs."""
        segments = [name for each in self._segments.values() for _, name in each.segments]
        return segments + [
            there for name, (there, _, _) in self.files.items() if name in self._small and not self._is_here(name)
        ]

    def apply(self, remote: Remote, contents: Mapping[str, bytes], *, whole: bool) -> int:
        """Write the downloaded files, with metadata last, so that concurrent readers see the old or the new state.

        With `whole`, growing files must be complete. Without it, the rest of a run in progress follows with the next
        pull. The files of an ended run must always be complete; if not, they moved while they were read.
        """
        self._refuse_changed(contents)
        whole = whole or self.stand.top is None or not self.stand.top.is_claim
        grown = {name: growth.put_together(contents) for name, growth in self._segments.items()}
        if whole and any(growth.have + len(grown[name]) < growth.length for name, growth in self._segments.items()):
            raise FileNotFoundError(self.names.root)
        with store_errors(self.paths.root):
            self.paths.root.mkdir(parents=True, exist_ok=True)
        size = self._bring_large(remote)
        for name, (there, tag, _) in self.files.items():
            if name in self._small and there in contents and name != self.paths.metadata.name:
                replace_bytes(self._places[name], contents[there], sync=SyncLevel.FILE)
                self._tags[name] = tag
        for name, growth in self._segments.items():
            self._append(name, growth, grown[name])
        self._remove_others()
        self._write_metadata(contents)
        known = self.stand.remote_state
        token = self.stand.manifest.token if self.stand.manifest else known.token
        facts = self.stand.manifest.files if self.stand.manifest else {}
        absent = {name: facts.get(name, {}) for name in self.files if not self._places[name].is_file()}
        source = self.stand.source or ""
        for folder in {self.paths.root, *(path.parent for path in self._places.values())}:
            if folder.is_dir():
                sync_path(folder)  # files that the state below lists as present are not downloaded again
        write_remote_state(
            self.paths,
            replace(known, token=token, mine=False, closed=False, source=source, tags=self._tags, absent=absent),
        )
        return size

    def _bring_large(self, remote: Remote) -> int:
        size = 0
        for name, (there, tag, length) in self.files.items():
            if name in self._small or not self._is_wanted(name) or self._is_here(name):
                continue
            path = self._places[name]
            with store_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)

            def download(temporary: Path, name: str = name, there: str = there, length: int = length) -> None:
                remote.download(there, temporary)
                if self.stand.manifest and (temporary.stat().st_size, file_hash(temporary)) != (length, tag):  # noqa: B023
                    raise self._not_as_in_manifest(name)

            replace_file(path, download, sync=SyncLevel.FILE)
            self._tags[name] = tag
            size += length
        return size

    def _refuse_changed(self, contents: Mapping[str, bytes]) -> None:
        """Refuse a run before writing anything if a file contradicts the manifest or the metadata are invalid."""
        if self.stand.manifest is None:
            content = contents.get(self.names.metadata)
            if content is not None and not isinstance(parse_json_fast(content, where="metadata.json"), dict):
                raise UntrustedDocument("metadata.json does not describe a run", hint=DAMAGED)
            return
        for name in self._small:
            there, sha256, size = self.files[name]
            content = contents.get(there)
            if content is not None and (len(content), hashlib.sha256(content).hexdigest()) != (size, sha256):
                raise self._not_as_in_manifest(name)

    def _not_as_in_manifest(self, name: str) -> UntrustedDocument:
        return UntrustedDocument(
            f"the content of {name!r} does not have the size and SHA-256 listed in the manifest",
            hint="Execute the run again with --replace.",
        )

    def _append(self, name: str, growth: Growth, added: bytes) -> None:
        path = self._places[name]
        if not growth.length and not self._same:
            path.unlink(missing_ok=True)
        elif growth.have == 0 and growth.length:
            replace_bytes(path, added, sync=SyncLevel.NOTHING)
        elif added:
            with store_errors(path), path.open("ab") as file:
                file.write(added)

    def _remove_others(self) -> None:
        """Remove files of an earlier state of the run that the store no longer has."""
        if self.stand.manifest is None and not self._same and self.paths.metadata.exists():
            for path in self.paths.appended:
                if path.name not in self.files:
                    path.unlink(missing_ok=True)
        for path in list(whole_files(self.paths)):
            if str(path.relative_to(self.paths.root)) not in self.files:
                path.unlink(missing_ok=True)

    def _write_metadata(self, contents: Mapping[str, bytes]) -> None:
        name = self.paths.metadata.name
        if self.stand.manifest:
            text = self.stand.manifest.metadata.encode()
            if not self.paths.metadata.exists() or read_regular(self.paths.metadata) != text:
                replace_bytes(self.paths.metadata, text, sync=SyncLevel.NOTHING)
        elif name in self.files and (there := self.files[name][0]) in contents:
            replace_bytes(self.paths.metadata, contents[there], sync=SyncLevel.FILE)
            self._tags[name] = self.files[name][1]


_STEP_FILE = re.compile(rf"/{STEP}([0-9]{{1,15}})\.pt\Z")


def refuse_many(sizes: Iterable[int]) -> None:
    """Refuse a run that exceeds the limits on the number of files or bytes."""
    from fairtrial.record.shared_schema import LARGEST_RUN, MOST_FILES

    known = list(sizes)
    if len(known) > MOST_FILES:
        raise UntrustedDocument(f"the run has {len(known):,} files, more than the allowed {MOST_FILES:,}")
    if sum(known) > LARGEST_RUN:
        raise UntrustedDocument(f"the run has {sum(known) / 1e12:,.0f} TB, more than allowed")


def not_of_a_step(name: str) -> bool:
    return f"/{STEP}" not in name


def needed_to_resume(files: Iterable[str]) -> Chosen:
    """Select the newest step checkpoint and all other files, which is what a resume needs."""
    steps = [int(match[1]) for name in files if (match := _STEP_FILE.search(name))]
    newest = f"/{STEP}{max(steps)}.pt" if steps else ""
    return lambda name: not _STEP_FILE.search(name) or name.endswith(newest)


def set_aside(paths: RunPaths, folder: Path) -> None:
    """Move the files of a run in the mirror to another folder, because recorded data are never deleted unasked.

    The lock file stays, because the caller holds it.
    """
    target = folder / f"{paths.root.name}.{time.strftime('%Y%m%dT%H%M%S')}-{time.time_ns() % 1_000_000_000:09d}"
    with store_errors(target):
        target.mkdir(parents=True)
        for path in list(paths.root.iterdir()):
            if path != paths.lock:
                path.rename(target / path.name)
