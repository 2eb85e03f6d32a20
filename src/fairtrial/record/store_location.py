"""Location of the store: `--store`, $FAIRTRIAL_STORE, the project around the current folder, or ./runs.

A store is a folder or a URL. Each machine has a mirror of a store at a URL, which is a folder too.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
from pathlib import Path
from urllib.parse import unquote, urlsplit

from fairtrial.core.errors import UserError
from fairtrial.core.paths import is_url
from fairtrial.core.project_root import find_artifact

LARGEST_ARTIFACT_BYTES = 1 << 20
STORE_VARIABLE = "FAIRTRIAL_STORE"
MIRRORS_VARIABLE = "FAIRTRIAL_MIRRORS"
ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")

StoreLocation = str | os.PathLike[str] | None
"""A store as the user specifies it: a path, a URL, or None for the default store."""


def store_address(given: StoreLocation = None) -> str:
    """Return the absolute path or the URL of a store.

    The default is $FAIRTRIAL_STORE, then the store of the project, then ./runs.
    """
    place = os.fspath(given or os.environ.get(STORE_VARIABLE) or _project_store() or "runs")
    if is_url(place):
        return _checked_url(place)
    return str(Path(place).expanduser().absolute())


def _project_store() -> str | None:
    artifact = find_artifact()
    return None if artifact is None else project_store(artifact)


def project_store(artifact: Path) -> str:
    """Return the store of a project: `store:` in its artifact.yaml, or `runs` next to that file."""
    known = artifact.stat()
    place = _store_in(artifact, known.st_mtime_ns, known.st_size)
    return place if is_url(place) else str(artifact.parent / Path(place).expanduser())


@functools.lru_cache(maxsize=8)
def _store_in(artifact: Path, _changed: int, _size: int) -> str:
    """Read `store:` from artifact.yaml. Cached while the file is unchanged, as a command needs it many times."""
    import yaml

    from fairtrial.core.untrusted import read_file
    from fairtrial.core.yaml_values import load_yaml

    try:
        content = load_yaml(read_file(artifact, most=LARGEST_ARTIFACT_BYTES).decode())
    except (FileNotFoundError, UserError, UnicodeDecodeError, yaml.YAMLError):
        raise UserError(
            f"{artifact} cannot be read, so the store of its project is unknown", hint="Fix the file, or pass --store."
        ) from None
    place = content.get("store") if isinstance(content, dict) else None
    if place is not None and (not isinstance(place, str) or not place.strip()):
        raise UserError(
            f"{artifact}: store must be a folder or a URL, not {place!r}", hint="Fix the file, or pass --store."
        )
    return place or "runs"


def _checked_url(url: str) -> str:
    """Validate and normalize a URL. Return a path for a URL that refers to this machine."""
    scheme, _, rest = url.partition("://")
    if scheme in ("file", "local"):
        return str(Path(unquote(rest)).expanduser().absolute())
    if scheme == "memory":
        raise UserError(
            "memory:// cannot be a store: the processes of a study do not share it", hint="Pass a folder instead."
        )
    parts = urlsplit(url)
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme) or not parts.netloc:
        raise UserError(f"{url!r} is not a valid store URL", hint="Use the form s3://bucket/folder.")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise UserError(
            "a store URL must not contain a user, password, query or fragment, because it is recorded",
            hint="Provide credentials as the tools of the storage provider expect them, such as $AWS_PROFILE.",
        )
    return url.rstrip("/")


def mirror_folder(url: str) -> Path:
    """Return the folder of this machine's mirror of the store at a URL."""
    base = os.environ.get(MIRRORS_VARIABLE) or "~/.cache/fairtrial/stores"
    served_by = next((os.environ[name] for name in ENDPOINT_VARIABLES if os.environ.get(name)), "")
    key = f"{url} {served_by}" if url.startswith("s3") else url
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", url).strip("-")[:60]
    return Path(base).expanduser().absolute() / f"{readable}-{hashlib.sha256(key.encode()).hexdigest()[:10]}"


def store_words(given: StoreLocation) -> str:
    """Return the `--store` option of a suggested command; empty for the default store."""
    return "" if store_address(given) == store_address() else f" --store {shlex.quote(str(given))}"
