"""Objects in a store at a URL: list, read, write, and create-if-absent.

Claims depend on create-if-absent, the only operation that fsspec does not support for every file system. It accepts
`mode="create"` everywhere, but most file systems check and then write, which is a race. S3 and Google Cloud Storage
perform the check atomically on the server. Other file systems are refused.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib.util
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from fairtrial.core.errors import MissingExtra, StoreError
from fairtrial.core.paths import SHARED_MARKER
from fairtrial.core.untrusted import UntrustedDocument, checked, parse_json

CONNECT_S = 5.0
READ_S = 15.0
"""Read timeout in seconds, after which the server counts as unreachable. Callers decide whether to retry."""

LARGEST_MARKER = 1 << 16

_S3, _GCS = ("s3", "s3a"), ("gs", "gcs")
_EXTRAS = {**dict.fromkeys(_S3, ("s3", "s3fs")), **dict.fromkeys(_GCS, ("gcs", "gcsfs"))}
_CREDENTIALS = {
    **dict.fromkeys(_S3, "Set $AWS_PROFILE, or $AWS_ACCESS_KEY_ID and $AWS_SECRET_ACCESS_KEY."),
    **dict.fromkeys(_GCS, "Run: gcloud auth application-default login"),
}
_AWAY = {errno.EBUSY, errno.EIO, errno.EREMOTEIO, errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT, errno.EPIPE}


class Unreachable(StoreError):
    """The server does not respond in time. The operation can be retried."""


@dataclass(frozen=True)
class ObjectEntry:
    """An object in a listing. `tag` changes whenever the content changes."""

    size: int
    tag: str
    modified: float | None


class Remote:
    """The store at a URL. Object names are relative to it. Thread-safe."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.scheme = url.partition("://")[0]
        self._files = _file_system(self.scheme, url)
        self._root = str(self._files._strip_protocol(url)).rstrip("/")

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    # Reading.

    def list(self, below: str = "") -> dict[str, ObjectEntry]:
        """Return all objects below a name. The empty objects that some tools create for folders are ignored."""
        with self._errors():
            try:
                listing = self._files.find(self._at(below), detail=True)
            except FileNotFoundError as error:
                if _code(error) == "NoSuchBucket":
                    raise
                return {}
        skip, inside = len(self._root) + 1, f"{self._at(below)}/"  # excludes an object with the name of the folder
        return {
            name[skip:]: _entry(facts)
            for name, facts in listing.items()
            if name.startswith(inside) and not name.endswith("/")
        }

    def read(self, name: str) -> bytes:
        """Return the content of an object. Raises FileNotFoundError if it does not exist."""
        with self._errors(missing_is_fine=True):
            content: bytes = self._files.cat_file(self._at(name))
        return content

    def read_many(self, names: Iterable[str]) -> dict[str, bytes]:
        """Read several objects concurrently. Missing objects are omitted from the result."""
        wanted = {self._at(name): name for name in names}
        if not wanted:
            return {}
        with self._errors():
            contents = self._files.cat(list(wanted), on_error="return")
            contents = contents if isinstance(contents, dict) else {next(iter(wanted)): contents}
            for content in contents.values():
                if isinstance(content, Exception) and not isinstance(content, FileNotFoundError):
                    raise content
        return {wanted[name]: content for name, content in contents.items() if isinstance(content, bytes)}

    def _size(self, name: str) -> int:
        """Return the size of an object. Raises FileNotFoundError if it does not exist."""
        with self._errors(missing_is_fine=True):
            return int(self._files.size(self._at(name)) or 0)

    def exists(self, name: str) -> bool:
        try:
            self.read(name)
        except FileNotFoundError:
            return False
        return True

    def download(self, name: str, path: Path) -> None:
        with self._errors(missing_is_fine=True):
            self._files.get_file(self._at(name), str(path))

    def now(self) -> float | None:
        """Return the time of the server's clock, which also sets object timestamps, or None if it is not available."""
        if self.scheme not in _S3:
            return None
        with self._errors():
            answer = self._files.call_s3("head_bucket", Bucket=self._root.partition("/")[0])
        from email.utils import parsedate_to_datetime

        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        return parsedate_to_datetime(date).timestamp() if date else None

    # Writing.

    def write(self, contents: Mapping[str, bytes]) -> None:
        """Write several objects concurrently. Each is replaced atomically."""
        if contents:
            with self._errors():
                self._files.pipe({self._at(name): content for name, content in contents.items()})

    def upload(self, path: Path, name: str, moved: Callable[[], None] = lambda: None) -> None:
        """Upload a file. `moved` is called after each uploaded part of a large file."""
        from fsspec.callbacks import Callback

        with self._errors():
            self._files.put_file(str(path), self._at(name), callback=Callback(hooks={"part": lambda *_, **__: moved()}))

    def copy(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Copy objects on the server, as pairs of (old name, new name)."""
        if pairs:
            with self._errors():
                self._files.copy([self._at(old) for old, _ in pairs], [self._at(new) for _, new in pairs])

    def delete(self, names: Iterable[str]) -> None:
        doomed = [self._at(name) for name in names]
        if doomed:
            with self._errors(), contextlib.suppress(FileNotFoundError):
                self._files.rm(doomed)

    def create(self, name: str, content: Mapping[str, Any]) -> bool:
        """Create an object and return True, or return False if it already exists. Of concurrent callers, one succeeds.

        If the response to a successful request is lost, a retry finds our own object, which we recognize by a random
        `mark` in it.
        """
        mark = uuid.uuid4().hex
        try:
            with self._errors():
                self._files.pipe_file(self._at(name), orjson.dumps({**content, "mark": mark}), mode="create")
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError, UntrustedDocument):
                there = parse_json(self.read(name), where=name)
                return isinstance(there, dict) and there.get("mark") == mark
            return False
        return True

    def identity(self) -> str | None:
        """Return the id of this store, or None if no store was initialized here."""
        from fairtrial.record.shared_schema import MarkerModel

        where = f"{self.url}/{SHARED_MARKER}"
        try:
            if self._size(SHARED_MARKER) > LARGEST_MARKER:
                raise UntrustedDocument("it is too large")
            return checked(MarkerModel, parse_json(self.read(SHARED_MARKER), where=where), where=where).id
        except FileNotFoundError:
            return None
        except UntrustedDocument:
            raise StoreError(f"{where} is damaged", hint="Choose another --store.") from None

    def begin(self) -> str:
        """Initialize the store if needed, check that the server supports create-if-absent, and return the store id."""
        if self.create(SHARED_MARKER, {"schema": 1, "id": uuid.uuid4().hex}) and self.create(SHARED_MARKER, {}):
            raise StoreError(
                f"the server of {self.url} does not support create-if-absent, so two machines could execute the "
                "same run",
                hint="Update the server, or choose another --store.",
            )
        begin = self.identity()
        assert begin is not None
        return begin

    @contextlib.contextmanager
    def _errors(self, *, missing_is_fine: bool = False) -> Iterator[None]:
        try:
            yield
        except (StoreError, FileExistsError):
            raise
        except Exception as error:
            if isinstance(error, FileNotFoundError) and _code(error) != "NoSuchBucket" and missing_is_fine:
                raise
            store_error = _as_store_error(error, self)
            if store_error is None:
                raise
            raise store_error from error


def open_remote(url: str) -> Remote:
    """Open a store. A forked child gets its own connection, because connections do not survive a fork."""
    return _open(url, os.getpid())


@functools.cache
def _open(url: str, _pid: int) -> Remote:
    return Remote(url)


def module_of(url: str) -> str:
    """Return the module that implements access to a URL, for preloading."""
    _, module = _EXTRAS.get(url.partition("://")[0], ("", "fsspec"))
    return f"{module}.core"


def _file_system(scheme: str, url: str) -> Any:
    if scheme not in _EXTRAS:
        raise StoreError(
            f"{url}: {scheme}:// is not supported for stores, because it has no atomic create-if-absent: "
            "two machines could execute the same run",
            hint="Use s3://, gs:// or a folder.",
        )
    extra, module = _EXTRAS[scheme]
    if importlib.util.find_spec(module) is None:
        raise MissingExtra(
            f"a store at {scheme}:// needs {module}, which is not installed",
            hint=f"Install it with: pip install 'fairtrial[{extra}]'",
        )
    import fsspec

    try:
        kind = fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        raise MissingExtra(f"a store at {scheme}:// needs more packages: {error}") from None
    try:
        files = kind(use_listings_cache=False, skip_instance_cache=True, **_settings(scheme))
    except Exception as error:
        raise StoreError(f"{url} cannot be opened: {_sentence(error)}", hint=_CREDENTIALS.get(scheme)) from error
    if scheme in _S3:
        files.retries = 1  # callers decide whether to retry
    return files


def _settings(scheme: str) -> dict[str, Any]:
    if scheme in _S3:
        limits = {"connect_timeout": CONNECT_S, "read_timeout": READ_S, "retries": {"max_attempts": 0}}
        return {"config_kwargs": limits}
    return {"requests_timeout": READ_S} if scheme in _GCS else {}


def _entry(facts: Mapping[str, Any]) -> ObjectEntry:
    tag = facts.get("ETag") or facts.get("etag") or facts.get("generation") or facts.get("mtime") or ""
    modified = facts.get("LastModified") or facts.get("updated") or facts.get("mtime")
    if isinstance(modified, str):
        modified = datetime.fromisoformat(modified)
    if isinstance(modified, datetime):
        modified = (modified if modified.tzinfo else modified.replace(tzinfo=UTC)).timestamp()
    return ObjectEntry(int(facts["size"] or 0), str(tag), modified)


def _as_store_error(error: Exception, remote: Remote) -> StoreError | None:
    """Convert a library's error about the server into a StoreError; None if the error is not about the server."""
    url, name, code = remote.url, type(error).__name__, _code(error)
    bucket = url.partition("://")[2].partition("/")[0]
    if name in ("NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError", "ProfileNotFound"):
        return StoreError(f"no credentials for {url}", hint=_CREDENTIALS.get(remote.scheme))
    if code == "NoSuchBucket":
        return StoreError(f"the bucket '{bucket}' does not exist", hint="Create it, or choose another --store.")
    if code == "InvalidBucketName" or name == "ParamValidationError":
        return StoreError(f"'{bucket}' is not a valid bucket name", hint="Use the form s3://bucket/folder.")
    if isinstance(error, PermissionError):
        return StoreError(f"{url} denies access: {_sentence(error)}", hint=_CREDENTIALS.get(remote.scheme))
    if isinstance(error, ValueError) and "endpoint" in str(error).lower():
        return StoreError(f"{url} cannot be opened: {_sentence(error)}", hint="Check $AWS_ENDPOINT_URL.")
    foreign = type(error).__module__.partition(".")[0] in ("botocore", "aiohttp", "aiobotocore", "fsspec", "gcsfs")
    if foreign or isinstance(error, TimeoutError) or (isinstance(error, OSError) and error.errno in _AWAY):
        return Unreachable(
            f"{url} cannot be reached: {_sentence(error)}",
            hint="Check the network and $AWS_ENDPOINT_URL, then run the same command again: it resumes."
            if remote.scheme in _S3
            else "Check the network, then run the same command again: it resumes.",
        )
    return None


def _code(error: BaseException) -> str | None:
    """Return the server's error code, searching the chain of causes."""
    seen: BaseException | None = error
    while seen is not None:
        answer = getattr(seen, "response", None)
        if isinstance(answer, Mapping):
            return str(answer.get("Error", {}).get("Code"))
        seen = seen.__cause__
    return None


def _sentence(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:200]
