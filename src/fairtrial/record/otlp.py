"""Events in the form of OpenTelemetry: one log record per line of `events.jsonl`, over OTLP/HTTP.

The messages are OpenTelemetry's own. They are sent from here and not by its exporter, because that one draws from the
global random generator of the process at every attempt, waits by itself, and does not say why it failed.
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
"""Answers that say: this content is wrong. It would be as wrong the next time."""

_INFO, _ERROR = 9, 17  # OpenTelemetry's numbers for how grave a record is
_LONGEST_INTEGER = 2**63
_LATEST_S = 2**64 / 1e9 - 1  # nanoseconds have 64 bits


class Line(NamedTuple):
    """One line of a run's `events.jsonl`, and the how-manieth it is, from 1."""

    number: int
    content: bytes


class NotDelivered(Exception):
    """The receiver could not be reached or did not take it; it may later."""


class NotAcceptable(Exception):
    """The receiver will never take this."""


class Answer(NamedTuple):
    """What a receiver says that took something: how many records it threw away, and why."""

    rejected: int
    why: str


@dataclass(frozen=True)
class EventSource:
    """The run that events are about. `created` tells it from one of the same name that it replaced."""

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
        """The same whenever a line is sent again: receivers can tell what they have already."""
        return f"{self.study}/{self.run_id}/{round(self.created * 1000)}/{line}"


def encode(source: EventSource, lines: Sequence[Line]) -> bytes:
    """A request that takes these lines to a receiver."""
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
    """An event; of a line that was damaged, its text. It must not keep those that follow from being delivered."""
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
    """What JSON can say, OpenTelemetry can say; null is a value that nothing is put in."""
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
    """Give a receiver one request. Raises NotDelivered or NotAcceptable, in words that hold no secret."""
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class StayHere(HTTPRedirectHandler):
        """Another place than the one that was named gets neither the events nor the headers."""

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
    except ValueError:  # its words would repeat the header
        raise NotDelivered(f"${HEADERS_VARIABLES[1]} holds what cannot be sent as a header") from None


def _answer(content: bytes) -> Answer:
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

    try:
        partly = ExportLogsServiceResponse.FromString(content).partial_success
    except DecodeError:  # some answer in JSON or with a page; they have taken it
        return Answer(0, "")
    return Answer(partly.rejected_log_records, partly.error_message)


def secret_headers() -> dict[str, str]:
    """What the environment says that a receiver must be told: `name=value,name=value`, as OpenTelemetry spells it."""
    text = next((value for name in HEADERS_VARIABLES if (value := os.environ.get(name))), "")
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {unquote(name.strip()): unquote(value.strip()) for name, _, value in pairs}


def logs_address(receiver: str) -> str:
    """Where a receiver takes logs: below its address, unless that names the very place."""
    whole = receiver.rstrip("/")
    return whole if whole.endswith(LOGS_PATH) else whole + LOGS_PATH
