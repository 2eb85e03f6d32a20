"""An OTLP/HTTP receiver on loopback that really decodes what it is sent, and can be made to misbehave."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse

Behaviour = Callable[[int], tuple[int, bytes]]


def take(_: int) -> tuple[int, bytes]:
    return 200, ExportLogsServiceResponse().SerializeToString()


def refuse(status: int) -> Behaviour:
    return lambda _: (status, b"")


def take_partly(rejected: int) -> Behaviour:
    answer = ExportLogsServiceResponse()
    answer.partial_success.rejected_log_records = rejected
    answer.partial_success.error_message = "too old"
    return lambda _: (200, answer.SerializeToString())


class Receiver:
    """`records` has what was taken, in order. `behave(number of the request)` gives status and body of the answer."""

    def __init__(self, behave: Behaviour = take, port: int = 0) -> None:
        self.behave = behave
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.records: list[dict[str, Any]] = []
        self.resources: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.port = self._server.server_address[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [record["body"] for record in self.records]

    def _take(self, path: str, headers: dict[str, str], content: bytes) -> tuple[int, bytes]:
        with self._lock:
            self.requests.append((path, headers))
            number = len(self.requests)
        status, answer = self.behave(number)
        if status == 200:
            with self._lock:
                self._decode(ExportLogsServiceRequest.FromString(content))
        return status, answer

    def _decode(self, request: ExportLogsServiceRequest) -> None:
        for group in request.resource_logs:
            self.resources.append(_pairs(group.resource.attributes))
            for scope in group.scope_logs:
                for record in scope.log_records:
                    self.records.append(
                        {
                            "name": record.event_name,
                            "nanoseconds": record.time_unix_nano,
                            "severity": record.severity_number,
                            "attributes": _pairs(record.attributes),
                            "body": _value(record.body),
                        }
                    )

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                try:
                    status, answer = receiver._take(self.path, headers, content)
                    self.send_response(status)
                    if 300 <= status < 400:
                        self.send_header("Location", answer.decode())
                    self.end_headers()
                    self.wfile.write(answer)
                except (BrokenPipeError, ConnectionResetError):
                    pass

            def do_GET(self) -> None:
                receiver.requests.append(("GET " + self.path, {}))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def _pairs(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    if kind == "kvlist_value":
        return _pairs(value.kvlist_value.values)
    return getattr(value, kind)
