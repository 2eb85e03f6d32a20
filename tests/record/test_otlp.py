"""The option --otlp: sent only when asked to, to that place alone, with headers that are written nowhere, and told of."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial.core.errors import MissingExtra
from fairtrial.core.options import not_benched
from fairtrial.core.registry import load_recipe
from fairtrial.core.runs import Status
from fairtrial.record.metadata import load_metadata
from fairtrial.record.store import Store
from tests.conftest import Answer
from tests.harness import make, request_for
from tests.record.conftest import FAKE, lines_of, telemetry_of
from tests.record.receiver import Receiver, refuse


def test_headers_come_from_the_environment_and_are_written_nowhere(
    store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=s3cret%20word, x-tenant=lab")
    make(store, "fake", **FAKE, otlp=receiver.address)
    assert all((headers["api-key"], headers["x-tenant"]) == ("s3cret word", "lab") for _, headers in receiver.requests)
    for path in store.root.rglob("*"):
        assert not path.is_file() or b"s3cret" not in path.read_bytes(), path


def test_a_header_that_cannot_be_sent_is_not_repeated_in_the_error(
    store: Store, receiver: Receiver, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=s3cret%0aword")
    assert make(store, "fake", **FAKE, otlp=receiver.address).status is Status.COMPLETED
    told = telemetry_of(store)
    assert "OTEL_EXPORTER_OTLP_HEADERS" in told["last_error"] and "s3cret" not in told["last_error"]


def test_a_redirection_is_not_followed(store: Store, impatient: None) -> None:
    """What was meant for one place, headers included, must not be carried to another."""
    with Receiver() as elsewhere, Receiver() as receiver:
        receiver.behave = lambda _: (302, f"{elsewhere.address}/v1/logs".encode())
        make(store, "fake", **FAKE, otlp=receiver.address)
        assert not elsewhere.requests and "HTTP 302" in telemetry_of(store)["last_error"]


def test_nothing_is_sent_unless_it_was_asked_for(
    store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.address)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", receiver.address)
    make(store, "fake", **FAKE)
    assert not receiver.requests
    assert not any(thread.name == "fairtrial-delivery" for thread in threading.enumerate())
    metadata = load_metadata(store.paths.run("s", "v.seed1"))
    assert metadata is not None and "telemetry" not in metadata
    assert not store.paths.run("s", "v.seed1").delivered.exists()


def test_the_address_is_no_part_of_a_run_and_no_option_of_bench(store: Store) -> None:
    with_it = request_for(store, "fake", **FAKE, otlp="http://localhost:1")
    assert with_it.spec.fingerprint == request_for(store, "fake", **FAKE).spec.fingerprint
    assert "otlp" in not_benched(load_recipe("fake").options)


def test_a_missing_package_is_refused_before_the_run_is_begun(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.proto")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingExtra) as caught:
        request_for(store, "fake", **FAKE, otlp="http://localhost:4318")
    assert "pip install 'fairtrial[otlp]'" in (caught.value.hint or "")
    assert not store.paths.run("s", "v.seed1").root.exists()
    request_for(store, "fake", **FAKE)  # without the option nothing is needed


@pytest.mark.parametrize(
    ("address", "part"),
    [
        ("localhost:4318", "use a URL such as http://localhost:4318"),
        ("", "use a URL such as"),
        ("http://", "use a URL such as"),
        ("ftp://host/x", "use a URL such as"),
        ("http://host:notaport", "use a URL such as"),
        ("http://[half", "use a URL such as"),
        ("http://ho st", "use a URL such as"),
        ("http://me:s3cret@host", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("http://host/?token=s3cret", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("http://me:s3cret@[half", "OTEL_EXPORTER_OTLP_HEADERS"),
    ],
)
def test_an_address_that_is_none_is_refused_before_the_run(
    cli: Callable[..., Answer], store: Store, address: str, part: str
) -> None:
    for verb in (["train", "fake"], ["launch", "fake", "--seeds", "1"]):
        answer = cli(*verb, "--otlp", address)
        assert answer.code == 1 and "otlp: " in answer.err and part in answer.err
        assert "s3cret" not in answer.err and "Traceback" not in answer.err
    assert not store.root.exists() or not list(store.root.glob("*/*/metadata.json"))


def test_the_place_for_logs_lies_below_the_address() -> None:
    from fairtrial.record.otlp import logs_address

    for given in ("http://h:1", "http://h:1/", "http://h:1/v1/logs"):
        assert logs_address(given) == "http://h:1/v1/logs"
    assert logs_address("https://h/otlp") == "https://h/otlp/v1/logs"


def test_train_tells_a_person_what_arrived(cli: Callable[..., Answer], receiver: Receiver, impatient: None) -> None:
    told = cli("train", "fake", "--steps", "5", "--otlp", receiver.address)
    assert f"telemetry: {len(receiver.records)} events sent to {receiver.address}" in told.out
    receiver.behave = refuse(503)
    words = ("train", "fake", "--steps", "5", "--seed", "2", "--otlp", receiver.address)
    failed = cli(*words)
    assert failed.code == 0 and "did not reach" in failed.out and "HTTP 503" in failed.out
    found = cli(*words, "--replace", "--format", "json").json
    assert found["telemetry"]["dropped"] > 0 and found["telemetry"]["sent"] == 0


def test_jobs_of_a_launch_deliver_from_their_own_processes(
    cli: Callable[..., Answer], store: Store, receiver: Receiver
) -> None:
    told = cli("launch", "fake", "--steps", "5", "--seeds", "3", "--base-run-name", "s", "--otlp", receiver.address)
    assert told.code == 0, told.err
    runs = sorted(path.parent.name for path in store.root.glob("s/*/metadata.json"))
    lines = {run: lines_of(store, run) for run in runs}
    assert len(lines) == 3
    by_run: dict[str, list[Any]] = {run: [] for run in runs}
    for record in receiver.records:
        by_run[record["attributes"]["fairtrial.id"].split("/")[1]].append(record["body"])
    assert by_run == lines
    assert f"telemetry: {len(receiver.records)} events sent to {receiver.address}" in told.out


@pytest.mark.slow
def test_a_job_without_the_option_imports_nothing_for_it(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from fairtrial.core.specs import RunSpec; "
        "from fairtrial.core.specs import Job; from fairtrial.jobs.run_session import run_cell; "
        "spec = RunSpec(recipe='fake', options=dict(steps=5), identity={}, seed=1); "
        f"print(run_cell(Job(spec, Path({str(tmp_path / 'store')!r}))).status, "
        "*[name for name in ('opentelemetry', 'urllib.request') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["completed"]


def test_a_damaged_line_does_not_keep_the_others_from_being_delivered() -> None:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    from fairtrial.record.otlp import EventSource, Line, encode

    good = b'{"schema":1,"event":"coffee","at":5.0}\n'
    damaged = [
        b"nonsense\n",
        b"[1]\n",
        b'{"event":"x","at":"noon"}\n',
        b'{"event":3,"at":1.0}\n',
        b'{"event":"x","at":-1}\n',
    ]
    lines = [Line(number, content) for number, content in enumerate([*damaged, good], 1)]
    request = ExportLogsServiceRequest.FromString(encode(EventSource("s", "v.seed1", "v", 1, "fake", 1.0), lines))
    records = request.resource_logs[0].scope_logs[0].log_records
    assert [record.event_name for record in records] == ["damaged_line"] * len(damaged) + ["coffee"]
    assert records[-1].time_unix_nano == 5 * 10**9
