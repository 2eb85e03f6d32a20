"""Runs in .venv-crate: `python worker.py CRATE` reads a crate with rocrate and judges it with roc-validator.

The validator fetches the JSON-LD context of the crate from the network. Where there is none it is answered with the one
that the rocrate package carries, which knows every term of the older ones.
"""

from __future__ import annotations

import email.message
import io
import json
import sys
import urllib.response
from importlib.metadata import version
from importlib.resources import files
from typing import Any

CONTEXT = "https://w3id.org/ro/crate/"
PROFILE = "ro-crate-1.1"


def serve_context() -> None:
    """Everything that is asked for but the context is not there."""
    import rdflib._networking
    import rdflib.parser
    import requests
    import urllib3

    content = files("rocrate").joinpath("data/ro-crate.jsonld").read_bytes()

    def opened(request: Any) -> Any:
        url = request if isinstance(request, str) else request.full_url
        if not url.startswith(CONTEXT):
            raise OSError(f"no network: {url}")
        headers = email.message.Message()
        headers["Content-Type"] = "application/ld+json"
        return urllib.response.addinfourl(io.BytesIO(content), headers, url, 200)

    def send(adapter: Any, request: Any, **_: Any) -> Any:
        if not request.url.startswith(CONTEXT):
            raise requests.ConnectionError(f"no network: {request.url}")
        raw = urllib3.HTTPResponse(
            io.BytesIO(content), {"Content-Type": "application/ld+json"}, 200, preload_content=False,
            request_url=request.url, request_method="GET",
        )  # fmt: skip
        return adapter.build_response(request, raw)

    rdflib._networking._urlopen = rdflib.parser._urlopen = opened
    setattr(requests.adapters.HTTPAdapter, "send", send)  # noqa: B010 — a method is replaced, and is meant to be


def judge(crate: str) -> dict[str, Any]:
    from rocrate.rocrate import ROCrate

    read = ROCrate(crate)
    serve_context()
    from rocrate_validator import models, services

    settings = services.ValidationSettings(
        rocrate_uri=crate, profile_identifier=PROFILE, requirement_severity=models.Severity.RECOMMENDED
    )
    issues = services.validate(settings).get_issues()
    told = [f"{issue.severity.name.lower()}: {issue.message}" for issue in issues]
    return {
        "rocrate": version("rocrate"), "validator": version("roc-validator"), "name": read.name,
        "entities": len(list(read.get_entities())),
        "required": [each for each in told if each.startswith("required")],
        "recommended": [each for each in told if not each.startswith("required")],
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(judge(sys.argv[1])))
