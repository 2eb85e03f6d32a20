"""Upload of a run to the shared store while it is in progress, without blocking the training.

A background thread checks the files of the run every few seconds. Growth of append-only files is uploaded in segments
whose names contain their offsets; other files are uploaded whole, named by their hash. The manifest, which lists all of
them, is written last, so that readers see a consistent snapshot. All of these objects are below the token of the claim.

At the end, the uploader ends the claim and then copies the files to the plain names that they have in a folder. If it
is killed in between, the manifest remains, and the next process completes the copy.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from fairtrial.core.canonical import file_hash
from fairtrial.core.errors import FairtrialError, StoreError
from fairtrial.core.paths import RunPaths, SharedPaths
from fairtrial.core.regular_files import open_regular, read_regular
from fairtrial.core.runs import Status
from fairtrial.core.untrusted import (
    DAMAGED,
    LARGEST_DOCUMENT_BYTES,
    UntrustedDocument,
    checked,
    collisions,
    parse_json,
    why_unsafe,
)
from fairtrial.record.atomic import link_or_copy
from fairtrial.record.leases import Lease, refuse_large
from fairtrial.record.remote import ObjectEntry, Remote, Unreachable
from fairtrial.record.remote_state import RemoteState, read_remote_state, write_remote_state

POLL_S, LONGEST_POLL_S = 2.0, 60.0
POLLS = 20
"""The poll interval grows to the age of the run divided by this, so that a long run creates few objects."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 15.0
MOST_BYTES = 4 << 20
"""Maximum size of a segment. Smaller files are uploaded in one batch; larger files are uploaded one by one."""
PATIENCE_VARIABLE = "FAIRTRIAL_PATIENCE"
PATIENCE_S = 60.0
"""Seconds that the end of a run waits for an upload that makes no progress."""
PUBLISHED = (Status.COMPLETED, Status.DIVERGED, Status.FAILED)


def patience() -> float:
    return float(os.environ.get(PATIENCE_VARIABLE) or PATIENCE_S)


def whole_files(paths: RunPaths) -> Iterator[Path]:
    """Yield the files of a run that are not appended to, except the metadata, which the manifest contains."""
    known = {*paths.appended, paths.metadata}
    for folder, folders, files in os.walk(paths.root):
        folders.sort()
        for name in sorted(files):
            path = Path(folder, name)
            unfinished = name.endswith(".tmp") or name.startswith(".best-")
            if path not in known and not unfinished and not (name.startswith(".") and path.parent == paths.root):
                yield path


@dataclass(frozen=True)
class RunManifest:
    """A snapshot of a run: its metadata, the lengths of append-only files, and the hashes of the others."""

    token: int
    metadata: str
    appended: Mapping[str, int]
    files: Mapping[str, Mapping[str, Any]]

    def to_bytes(self) -> bytes:
        return orjson.dumps({"schema": 1, **self.__dict__})

    @classmethod
    def from_bytes(cls, content: bytes, token: int) -> RunManifest:
        """Parse the manifest of a claim. Raises UntrustedDocument for invalid names, sizes or types."""
        from fairtrial.record.shared_schema import ManifestModel

        where = "manifest.json"
        manifest = checked(ManifestModel, parse_json(content, where=where), where=where)
        if manifest.token != token:
            raise UntrustedDocument(
                f"{where} of claim {token} states that it belongs to claim {manifest.token}", hint=DAMAGED
            )
        files = {name: facts.model_dump() for name, facts in manifest.files.items()}
        if later := [name for name, facts in files.items() if facts["token"] > token]:
            raise UntrustedDocument(f"{where}: {later[0]!r} belongs to a later claim", hint=DAMAGED)
        return cls(
            manifest.token, manifest.metadata, {str(name): length for name, length in manifest.appended.items()}, files
        )

    @classmethod
    def read(cls, remote: Remote, names: SharedPaths, objects: Mapping[str, ObjectEntry], token: int) -> RunManifest:
        name = names.manifest(token)
        refuse_large(names, objects, [name], LARGEST_DOCUMENT_BYTES)
        return cls.from_bytes(remote.read(name), token)

    @property
    def status(self) -> Status:
        return Status(orjson.loads(self.metadata)["status"])


@dataclass
class RunUpload:
    """The upload of one run. `over` is set when the upload is complete or nothing more can be done.

    `unnameable` are files that are not uploaded, because other machines would refuse their names.
    """

    lease: Lease
    paths: RunPaths
    absent: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    blobs: dict[str, int] = field(default_factory=dict)
    unnameable: Sequence[str] = ()
    over: threading.Event = field(default_factory=threading.Event)
    ending: bool = False
    arrived: bool = False
    trouble: FairtrialError | None = None
    progress: float = field(default_factory=time.monotonic)
    began: float = field(default_factory=time.monotonic)
    polled: float = field(default_factory=time.monotonic)
    _manifest: bytes = b""
    _hashes: dict[tuple[int, int, int], str] = field(default_factory=dict)

    @property
    def remote(self) -> Remote:
        return self.lease.remote

    @property
    def names(self) -> SharedPaths:
        return self.lease.names

    @property
    def due(self) -> float:
        """The time of the next poll, on the monotonic clock."""
        pause = min(LONGEST_POLL_S, max(POLL_S, (self.polled - self.began) / POLLS))
        return 0.0 if self.ending or self.lease.lost else self.polled + pause

    def bring(self) -> RunManifest | None:
        """Upload what is new and return the uploaded manifest, or None if there is no consistent snapshot yet."""
        self.polled = time.monotonic()
        moment = None if self.lease.lost else self._moment()
        if moment is None:
            return None
        pieces, lengths = self._pieces(moment.appended)
        self._send_files(moment.files, pieces)
        self._send(pieces)
        self.sent |= lengths
        files = {name: {**facts, "token": self._token_of(name, facts)} for name, facts in moment.files.items()}
        manifest = replace(moment, appended=lengths, files=files)
        content = manifest.to_bytes()
        if content != self._manifest:
            self._send({self.names.manifest(self.lease.token): content})
            self._manifest = content
        return manifest

    def close(self) -> None:
        """Upload the rest of an ended run, end the claim, and publish the files under their plain names."""
        manifest = self.bring()
        status = manifest.status if manifest else None
        status = Status.INTERRUPTED if status is Status.RUNNING else status  # its process died without recording it
        publish = status in PUBLISHED
        if not self.lease.end("end", status=status, publish=publish):
            return
        self._moved()
        tags: Mapping[str, str] = {}
        if publish and manifest:
            tags = publish_run(self.remote, self.names, manifest, self.paths)
        source = "plain" if publish else str(self.lease.token)
        state = RemoteState(self.lease.token, mine=True, closed=True, source=source, tags=tags, absent=self.absent)
        write_remote_state(self.paths, state)
        self.arrived = True

    def _moment(self) -> RunManifest | None:
        """Return a consistent snapshot of the files, or None.

        Events are measured before other files, so that everything they refer to is included.
        """
        for _ in range(3):
            try:
                before = self.paths.metadata.stat()
                metadata = read_regular(self.paths.metadata).decode()
                lengths = {path.name: _size(path) for path in reversed(self.paths.appended)}
                files = {str(path.relative_to(self.paths.root)): self._hashed(path) for path in whole_files(self.paths)}
                self.unnameable = _unnameable(files)
                files = {name: facts for name, facts in files.items() if name not in self.unnameable}
                if os.path.samestat(before, self.paths.metadata.stat()):
                    return RunManifest(self.lease.token, metadata, lengths, {**self.absent, **files})
            except FileNotFoundError:  # not started yet, or a file was replaced meanwhile
                continue
        return None

    def _hashed(self, path: Path) -> dict[str, Any]:
        facts = path.stat()
        key = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
        if key not in self._hashes:
            self._hashes[key] = file_hash(path)
        return {"sha256": self._hashes[key], "size": facts.st_size}

    def _pieces(self, lengths: Mapping[str, int]) -> tuple[dict[str, bytes], dict[str, int]]:
        """Return the growth of append-only files as segments, without incomplete lines."""
        pieces, reached = {}, {}
        for path in self.paths.appended:
            start = self.sent.get(path.name, 0)
            content = _read(path, start, lengths[path.name])
            if path != self.paths.log:
                content = content[: content.rfind(b"\n") + 1]
            for offset in range(0, len(content), MOST_BYTES):
                name = self.names.segment(self.lease.token, path.name, start + offset)
                pieces[name] = content[offset : offset + MOST_BYTES]
            reached[path.name] = start + len(content)
        return pieces, reached

    def _send_files(self, files: Mapping[str, Mapping[str, Any]], pieces: dict[str, bytes]) -> None:
        """Upload files that the store does not have. Small ones are added to `pieces`; others are sent one by one."""
        for name, facts in files.items():
            if name in self.absent or facts["sha256"] in self.blobs:
                continue
            staged = self.paths.staged
            staged.unlink(missing_ok=True)
            link_or_copy(self.paths.root / name, staged)  # protects against replacement during the upload
            try:
                if file_hash(staged) != facts["sha256"]:
                    raise FileNotFoundError(name)
                there = self.names.blob(self.lease.token, facts["sha256"])
                if facts["size"] < MOST_BYTES:
                    pieces[there] = read_regular(staged)
                else:
                    self.remote.upload(staged, there, self._moved)
                    self._moved()
            finally:
                staged.unlink(missing_ok=True)
            self.blobs[facts["sha256"]] = self.lease.token

    def _token_of(self, name: str, facts: Mapping[str, Any]) -> int:
        """Return the claim under which a file was uploaded. Later claims do not upload it again."""
        return int(facts["token"] if name in self.absent else self.blobs[facts["sha256"]])

    def _send(self, pieces: dict[str, bytes]) -> None:
        try:
            self.remote.write(pieces)
        except BaseException:
            for name in pieces:
                self.blobs.pop(name.rpartition("/")[2], None)
            raise
        self._moved()

    def _moved(self) -> None:
        self.progress = time.monotonic()


def _unnameable(names: Collection[str]) -> list[str]:
    """Return files whose names other machines would refuse. They are not uploaded."""
    unsafe = [name for name in names if why_unsafe(name)]
    return unsafe + collisions(name for name in names if name not in unsafe)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _read(path: Path, start: int, end: int) -> bytes:
    if end <= start:
        return b""
    with open_regular(path) as file:
        file.seek(start)
        return file.read(end - start)


def publish_run(remote: Remote, names: SharedPaths, manifest: RunManifest, paths: RunPaths) -> dict[str, str]:
    """Copy the files of an ended run to their plain names and return the tags of the objects.

    The manifest is deleted after everything else is in place; from then on the plain names count. Two processes may do
    this concurrently with the same result, but neither may change objects of a claim made after this end.
    """
    if remote.exists(names.claim(manifest.token + 2)):
        return {}
    shown = {name: facts for name, facts in manifest.files.items() if not Path(name).name.startswith(".")}
    grown = {path.name: path for path in paths.appended if manifest.appended.get(path.name)}
    small = {name for name in grown if manifest.appended[name] < MOST_BYTES}
    remote.write({names.plain(name): _read(grown[name], 0, manifest.appended[name]) for name in small})
    for name in grown.keys() - small:
        remote.upload(grown[name], names.plain(name))
    with contextlib.suppress(FileNotFoundError):  # another process has published the run and cleaned up
        remote.copy([(names.blob(facts["token"], facts["sha256"]), names.plain(n)) for n, facts in shown.items()])
    remote.write({names.metadata: manifest.metadata.encode()})
    objects = remote.list(names.root)
    plain = {names.plain(name) for name in (*shown, *grown, paths.metadata.name)}
    if not plain <= objects.keys():
        lost = ", ".join(sorted(plain - objects.keys()))
        raise StoreError(f"{remote.url} lost {lost}", hint="The local files are kept. Try: fairtrial runs sync")
    stale = [name for name in objects if name not in plain and not name.startswith(f"{names.root}/.")]
    remote.delete([names.manifest(manifest.token), *stale])
    remote.delete([name for name in objects if (names.token_of(name) or manifest.token + 1) <= manifest.token])
    return {name[len(names.root) + 1 :]: entry.tag for name, entry in objects.items() if name in plain}


class Uploader:
    """Uploads all runs of this process to their stores in one thread."""

    def __init__(self) -> None:
        self._uploads: list[RunUpload] = []
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._guard = threading.Lock()

    def add(self, upload: RunUpload) -> None:
        with self._guard:
            self._uploads.append(upload)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True, name="fairtrial-upload")
                self._thread.start()
        self._wake.set()

    def finish(self, upload: RunUpload) -> bool:
        """Wait until the upload of a run is complete or stops making progress. Return whether it is complete."""
        upload.progress = time.monotonic()
        upload.ending = True
        self._wake.set()
        limit = patience()
        try:
            while not upload.over.wait(0.2) and time.monotonic() - upload.progress < limit:
                continue
        finally:
            with self._guard:
                self._uploads = [each for each in self._uploads if each is not upload]
        return upload.arrived

    # Runs in the thread.

    def _work(self) -> None:
        pause = FIRST_PAUSE_S
        while True:
            with self._guard:
                uploads = list(self._uploads)
                if not uploads:
                    self._thread = None
                    return
            now = time.monotonic()
            failed = [each for each in uploads if each.due <= now and not each.over.is_set() and not _ship(each)]
            nearest = min((each.due for each in uploads if not each.over.is_set()), default=now + POLL_S)
            self._wake.wait(pause if failed else max(0.05, min(nearest - time.monotonic(), POLL_S)))
            self._wake.clear()
            pause = min(2 * pause, LONGEST_PAUSE_S) if failed else FIRST_PAUSE_S


def _ship(upload: RunUpload) -> bool:
    """Upload once. Return False if it should be retried soon."""
    is_ending = upload.ending
    try:
        if is_ending:
            upload.close()
        else:
            upload.bring()
    except Unreachable as error:
        upload.trouble = error
        return False
    except FairtrialError as error:
        upload.trouble = error
    except FileNotFoundError:  # a file was replaced meanwhile
        return False
    except Exception as error:  # noqa: BLE001 — an upload error must not stop the training
        upload.trouble = FairtrialError(f"{type(error).__name__}: {error}")
    else:
        upload.trouble = None
    if is_ending or upload.lease.lost:
        upload.over.set()
    return True


_uploaders: dict[int, Uploader] = {}


def uploader() -> Uploader:
    """Return the uploader of this process. A forked child needs its own, because threads do not survive a fork."""
    return _uploaders.setdefault(os.getpid(), Uploader())


def start_upload(lease: Lease, paths: RunPaths, there: RunManifest | None) -> RunUpload:
    """Start the upload of a run. `there` is the manifest of the last claim, whose files are not uploaded again."""
    known = read_remote_state(paths)
    absent = known.absent if known else {}
    write_remote_state(paths, RemoteState(lease.token, mine=True, absent=absent))
    upload = RunUpload(lease, paths, absent=absent, blobs=_blobs(there))
    uploader().add(upload)
    return upload


def resumed_upload(
    lease: Lease, paths: RunPaths, absent: Mapping[str, Mapping[str, Any]], there: RunManifest | None
) -> RunUpload:
    """Return an upload that continues where the killed process of the same claim stopped."""
    sent = dict(there.appended) if there else {}
    return RunUpload(lease, paths, absent=absent, sent=sent, blobs=_blobs(there))


def _blobs(there: RunManifest | None) -> dict[str, int]:
    return {facts["sha256"]: facts["token"] for facts in there.files.values()} if there else {}
