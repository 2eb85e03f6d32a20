"""Addresses that a person gives for something to be sent to."""

from __future__ import annotations

from urllib.parse import urlsplit

LOGS_PATH = "/v1/logs"
_EXAMPLE = "write it like http://localhost:4318"
_SECRETS = "give what a receiver must know about you in $OTEL_EXPORTER_OTLP_HEADERS"


def checked_receiver(address: str) -> str:
    """An address of an OTLP receiver as it was given; ValueError, in one sentence, where it cannot be one.

    It is written into the metadata of runs, so that it must not hold what only its owner may know.
    """
    if any(sign in address for sign in "@?#"):
        raise ValueError(f"an address of a receiver has no user, password, query or fragment; {_SECRETS}")
    try:
        parts = urlsplit(address)
        parts.port  # noqa: B018 — looking at it is the check
    except ValueError as error:
        raise ValueError(f"{address!r} is no address ({error}); {_EXAMPLE}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not address.isprintable() or " " in address:
        raise ValueError(f"{address!r} is no http or https address; {_EXAMPLE}")
    return address


def logs_address(receiver: str) -> str:
    """Where a receiver takes logs: below its address, unless that names the very place."""
    whole = receiver.rstrip("/")
    return whole if whole.endswith(LOGS_PATH) else whole + LOGS_PATH
