"""Metadata of an artifact for Zenodo, and a client for its API. A deposit remains a draft that the user publishes."""

from __future__ import annotations

import json
import shlex
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, urlsplit

from fairtrial.core.errors import FairtrialError, UserError
from fairtrial.core.regular_files import open_regular
from fairtrial.research.artifact import ANOTHER_LICENSE, ArtifactFile

TOKEN_VARIABLE, API_VARIABLE = "ZENODO_TOKEN", "ZENODO_API"
API = "https://zenodo.org/api"
SANDBOX = "https://sandbox.zenodo.org/api"
_KINDS = {"dataset": "dataset", "experiment": "dataset", "code": "software", "model": "other"}
HERE = ("localhost", "127.0.0.1", "::1")
PATIENCE_S = 60.0


def metadata_for(artifact: ArtifactFile) -> dict[str, Any]:
    """Return the metadata of the deposit in the form of the API."""
    creators = []
    own_license = (artifact.license or "").startswith(ANOTHER_LICENSE)
    for author in artifact.known_authors:
        name = f"{author.family}, {author.given}" if author.given else author.family
        more = {"affiliation": author.affiliation, "orcid": author.orcid}
        creators.append({"name": name, **{key: value for key, value in more.items() if value}})
    document = {
        "title": artifact.title,
        "upload_type": _KINDS[artifact.type],
        "creators": creators,
        "description": artifact.description or artifact.title,
        "keywords": artifact.keywords or None,
        "version": artifact.version,
        "access_right": "open",
        "publication_date": artifact.date.isoformat() if artifact.date else None,
        "license": artifact.license.lower() if artifact.license and not own_license else None,
        "doi": artifact.doi,
    }
    return {"metadata": {key: value for key, value in document.items() if value is not None}}


def commands_for(api: str, metadata: Path, bundle: Path) -> list[str]:
    """Return the shell commands for a manual upload. They refer to the token by variable and never contain it."""
    header = f'-H "Authorization: Bearer ${TOKEN_VARIABLE}"'
    create = f"{api}/deposit/depositions"
    return [
        f'curl --fail {header} -H "Content-Type: application/json" --data @{shlex.quote(str(metadata))} '
        f"{shlex.quote(create)} > deposition.json",
        'BUCKET=$(python3 -c \'import json; print(json.load(open("deposition.json"))["links"]["bucket"])\')',
        f'curl --fail {header} --upload-file {shlex.quote(str(bundle))} "$BUCKET/{quote(bundle.name)}"',
    ]


def check_api(api: str) -> str:
    """Check that the URL uses HTTPS or a local address, so that the token is never sent unencrypted."""
    parts = urlsplit(api)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in HERE):
        raise UserError(
            f"{api!r} is not a safe address to send a token to", hint="Use an address that begins with https://"
        )
    return api.rstrip("/")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which could send the token to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def upload(api: str, token: str, metadata: Mapping[str, Any], bundle: Path) -> dict[str, Any]:
    """Create a draft and upload the bundle to it. Return the service's description of the draft."""
    created = _ask(f"{api}/deposit/depositions", token, "POST", json.dumps(metadata).encode(), "application/json")
    bucket = str((created.get("links") or {}).get("bucket") or "")
    if urlsplit(bucket)[:2] != urlsplit(api)[:2]:
        raise FairtrialError(f"the service returned the upload address {bucket!r}, which is on another host")
    with open_regular(bundle) as file:
        stored = _ask(
            f"{bucket}/{quote(bundle.name)}", token, "PUT", file, "application/octet-stream", bundle.stat().st_size
        )
    return {
        "id": created.get("id"),
        "page": (created.get("links") or {}).get("html"),
        "file": bundle.name,
        "checksum": stored.get("checksum"),
    }


def _ask(url: str, token: str, method: str, data: Any, kind: str, size: int | None = None) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
    if size is not None:
        headers["Content-Length"] = str(size)
    request = urllib.request.Request(url, data=data, method=method, headers=headers)  # noqa: S310 — checked above
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=PATIENCE_S) as answer:
            document = json.loads(answer.read())
    except urllib.error.HTTPError as error:
        _refused(url, error)
    except (urllib.error.URLError, TimeoutError, OSError) as error:
        raise FairtrialError(f"cannot reach {url}: {getattr(error, 'reason', error)}") from None
    except ValueError:
        raise FairtrialError(f"{url} did not return JSON") from None
    if not isinstance(document, dict):
        raise FairtrialError(f"{url} returned an unexpected answer")
    return document


def _refused(url: str, error: urllib.error.HTTPError) -> NoReturn:
    try:
        reason = json.loads(error.read()).get("message") or error.reason
    except (ValueError, AttributeError, OSError):
        reason = error.reason
    hint = (
        f"Check that ${TOKEN_VARIABLE} is a token of this service with the scope deposit:write."
        if error.code in (401, 403)
        else None
    )
    raise FairtrialError(f"{url} refused with {error.code}: {reason}", hint=hint) from None
