"""A mailbox in an object store, for remote jobs that share no file system with their launcher."""

from __future__ import annotations

import errno
import importlib.util
import time
from collections.abc import Callable
from typing import Any, TypeVar

from fairtrial.core.errors import MissingExtra, StoreError

PATIENCE_S = 600.0
"""Seconds to retry when the server does not respond: a job must not mistake unreachable notes for missing ones."""
LONGEST_PAUSE_S = 10.0
_EXTRAS = {"s3": ("s3", "s3fs"), "gs": ("gcs", "gcsfs")}
LIMITS: dict[str, dict[str, Any]] = {
    "s3": {"config_kwargs": {"connect_timeout": 5.0, "read_timeout": 15.0, "retries": {"max_attempts": 0}}},
    "gs": {"requests_timeout": 15.0},
}
_AWAY = {"HTTPClientError", "ClientConnectionError", "ClientPayloadError", "ConnectionError", "TimeoutError"}
_AWAY_NUMBERS = {errno.EBUSY, errno.EIO, errno.EREMOTEIO, errno.EPIPE}
Result = TypeVar("Result")


class ObjectStoreMailbox:
    """A mailbox of small objects below a URL. Object stores replace an object atomically."""

    poll_s = 2.0

    def __init__(self, url: str) -> None:
        scheme = url.partition("://")[0]
        extra, module = _EXTRAS.get(scheme, ("s3", "fsspec"))
        if importlib.util.find_spec(module) is None:
            raise MissingExtra(
                f"a mailbox at {scheme}:// needs {module}, which is not installed",
                hint=f"Install it with: pip install 'fairtrial[{extra}]'",
            )
        import fsspec

        self.url = url
        self._files, root = fsspec.core.url_to_fs(url, use_listings_cache=False, **LIMITS.get(scheme, {}))
        if scheme == "s3":
            self._files.retries = 1  # the callers below decide whether to retry
        self._root = str(root).rstrip("/")
        self._seen: set[str] = set()

    def write(self, name: str, content: bytes) -> None:
        self._patiently(lambda: self._files.pipe_file(f"{self._root}/{name}", content))

    def read(self, name: str) -> bytes | None:
        def read() -> bytes | None:
            try:
                content: bytes = self._files.cat_file(f"{self._root}/{name}")
            except FileNotFoundError:
                return None
            return content

        return self._patiently(read)

    def names(self) -> set[str]:
        """Return the names of all notes; while the server is unreachable, those from its last response."""
        try:
            paths = self._files.ls(self._root, detail=False)
            self._seen = {str(path).rpartition("/")[2] for path in paths} - {""}
        except FileNotFoundError:
            self._seen = set()
        except Exception as error:
            if not _is_away(error):
                raise self._as_store_error(error) from error
        return set(self._seen)

    def remove(self, name: str) -> None:
        def remove() -> None:
            try:
                self._files.rm_file(f"{self._root}/{name}")
            except FileNotFoundError:
                return

        self._patiently(remove)

    def _patiently(self, function: Callable[[], Result]) -> Result:
        deadline, pause = time.monotonic() + PATIENCE_S, 0.5
        while True:
            try:
                return function()
            except Exception as error:
                if not _is_away(error) or time.monotonic() > deadline:
                    raise self._as_store_error(error) from error
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _as_store_error(self, error: Exception) -> StoreError:
        return StoreError(f"cannot access the mailbox at {self.url}: {type(error).__name__}: {error}")


def _is_away(error: Exception) -> bool:
    """Return whether an error is a connection problem, as opposed to a rejected request."""
    named = any(kind.__name__ in _AWAY for kind in type(error).__mro__)
    return named or (isinstance(error, OSError) and error.errno in _AWAY_NUMBERS)
