"""Events as OpenTelemetry log records, one per line of `events.jsonl`, sent over OTLP/HTTP.

The messages are standard OpenTelemetry. This module sends them itself, because OpenTelemetry's exporter draws from the
global random number generator of the process at every attempt, blocks while it waits, and does not report why it
failed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote

import orjson

from fairtrial.core.run_metadata import RunMetadata
from fairtrial.core.schema import EVENTS_SCHEMA
from fairtrial.version import __version__

LOGS_PATH = "/v1/logs"

HEADERS_VARIABLES = ("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
UNACCEPTABLE = frozenset({400, 413, 422})
"""HTTP status codes that mean that the content is invalid, so that a retry would fail too."""

_INFO, _ERROR = 9, 17  # OpenTelemetry severity numbers
_LONGEST_INTEGER = 2**63
_LATEST_S = 2**64 / 1e9 - 1  # timestamps are 64-bit nanoseconds


class Line(NamedTuple):
    """One line of a run's `events.jsonl` with its 1-based line number."""

    number: int
    content: bytes


class NotDelivered(Exception):
    """The receiver was unreachable or did not accept the request. A retry may succeed."""


class NotAcceptable(Exception):
    """The receiver rejected the content permanently."""


class Answer(NamedTuple):
    """The response of a receiver to an accepted request: how many records it rejected, and why."""

    rejected: int
    why: str


@dataclass(frozen=True)
class EventSource:
    """The run that events belong to. `created` distinguishes it from a replaced run with the same name."""

    study: str
    run_id: str
    variant: str
    seed: int
    recipe: str
    created: float

    @classmethod
    def of(cls, metadata: RunMetadata) -> EventSource:
        return cls(
            study=metadata.study,
            run_id=metadata.run_id,
            variant=metadata.variant,
            seed=metadata.seed,
            recipe=metadata.recipe,
            created=metadata.timings.created,
        )

    def record_id(self, line: int) -> str:
        """Return a stable id of a line, by which receivers recognize duplicates."""
        return f"{self.study}/{self.run_id}/{round(self.created * 1000)}/{line}"


def encode(source: EventSource, lines: Sequence[Line]) -> bytes:
    """Encode lines as an OTLP export request."""
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    request = ExportLogsServiceRequest()
    group = request.resource_logs.add()
    about = {"service.name": "fairtrial", "service.version": __version__}
    about |= {f"fairtrial.{name}": getattr(source, name) for name in ("study", "run_id", "variant", "seed", "recipe")}
    _fill_list(group.resource.attributes, about)
    scope = group.scope_logs.add()
    scope.scope.name, scope.scope.version = "fairtrial.events", str(EVENTS_SCHEMA)
    for line in lines:
        _fill_record(scope.log_records.add(), source, line)
    encoded: bytes = request.SerializeToString()
    return encoded


def _fill_record(record: Any, source: EventSource, line: Line) -> None:
    content = _event(line)
    record.time_unix_nano = record.observed_time_unix_nano = int(content["at"] * 1e9)
    record.event_name = content["event"]
    record.severity_number = _ERROR if content["event"] == "error" else _INFO
    _fill_value(record.body, content)
    _fill_list(record.attributes, {"fairtrial.id": source.record_id(line.number), "fairtrial.line": line.number})


def _event(line: Line) -> dict[str, Any]:
    """Parse a line. A damaged line becomes an event with its text, so that it does not block later lines."""
    try:
        content = orjson.loads(line.content)
    except orjson.JSONDecodeError:
        content = None
    if isinstance(content, dict) and isinstance(content.get("event"), str):
        at = content.get("at")
        if isinstance(at, int | float) and 0 <= at < _LATEST_S:
            return content
    return {"event": "damaged_line", "at": 0.0, "text": line.content.decode(errors="replace")}


def _fill_list(pairs: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        pair = pairs.add()
        pair.key = name
        _fill_value(pair.value, value)


def _fill_value(place: Any, value: Any) -> None:
    """Convert a JSON value to an OpenTelemetry value. Null leaves the value unset."""
    if isinstance(value, bool):
        place.bool_value = value
    elif isinstance(value, int):
        if -_LONGEST_INTEGER <= value < _LONGEST_INTEGER:
            place.int_value = value
        else:
            place.string_value = str(value)
    elif isinstance(value, float):
        place.double_value = value
    elif isinstance(value, str):
        place.string_value = value
    elif isinstance(value, list):
        place.array_value.SetInParent()
        for each in value:
            _fill_value(place.array_value.values.add(), each)
    elif isinstance(value, dict):
        place.kvlist_value.SetInParent()
        _fill_list(place.kvlist_value.values, value)


def send(receiver: str, body: bytes, timeout: float) -> Answer:
    """Send one request to a receiver. Raises NotDelivered or NotAcceptable with a message that contains no secrets."""
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class StayHere(HTTPRedirectHandler):
        """Refuses redirects, so that only the configured receiver gets the events and the headers."""

        def redirect_request(self, *_: Any, **__: Any) -> None:
            return None

    headers = {**secret_headers(), "Content-Type": "application/x-protobuf"}
    request = Request(logs_address(receiver), data=body, headers=headers, method="POST")  # noqa: S310 — http or https
    try:
        with build_opener(StayHere).open(request, timeout=timeout) as response:
            return _answer(response.read())
    except HTTPError as error:
        with error:
            kind = NotAcceptable if error.code in UNACCEPTABLE else NotDelivered
            raise kind(f"HTTP {error.code} {error.reason}".rstrip()) from None
    except URLError as error:
        raise NotDelivered(str(error.reason)) from None
    except (OSError, HTTPException) as error:
        raise NotDelivered(str(error) or type(error).__name__) from None
    except ValueError:  # its message would quote the header, which may be secret
        raise NotDelivered(f"${HEADERS_VARIABLES[1]} contains an invalid header") from None


def _answer(content: bytes) -> Answer:
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

    try:
        partly = ExportLogsServiceResponse.FromString(content).partial_success
    except DecodeError:  # some receivers answer with JSON or HTML; they have accepted the request
        return Answer(0, "")
    return Answer(partly.rejected_log_records, partly.error_message)


def secret_headers() -> dict[str, str]:
    """Return the headers from the environment, in OpenTelemetry's format `name=value,name=value`."""
    text = next((value for name in HEADERS_VARIABLES if (value := os.environ.get(name))), "")
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {unquote(name.strip()): unquote(value.strip()) for name, _, value in pairs}


def logs_address(receiver: str) -> str:
    """Return the URL for logs: the receiver's URL plus LOGS_PATH, unless it already ends with it."""
    whole = receiver.rstrip("/")
    return whole if whole.endswith(LOGS_PATH) else whole + LOGS_PATH
