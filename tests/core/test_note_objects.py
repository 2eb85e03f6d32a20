"""Notes of errands in an object store: a real S3 server in a process of its own."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest

from fairtrial.core import note_objects
from fairtrial.core.errands import Errand, open_notes
from fairtrial.core.errors import StoreError
from tests.harness import eventually


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    endpoint = f"http://127.0.0.1:{port}"
    surroundings = {
        "ENDPOINT_URL": endpoint,
        "ACCESS_KEY_ID": "k",
        "SECRET_ACCESS_KEY": "s",
        "DEFAULT_REGION": "us-east-1",
    }
    for name, value in surroundings.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    try:
        eventually(lambda: _makes_bucket(endpoint), what="the start of the S3 server")
        yield process
    finally:
        process.kill()
        process.wait()


def _makes_bucket(endpoint: str) -> bool:
    with contextlib.suppress(OSError):
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/bucket", method="PUT")).read()
        return True
    return False


def test_launcher_and_job_speak_through_objects_and_wait_for_a_server_that_is_away(
    server: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    where = "s3://bucket/lab/my study/.launcher"
    notes = open_notes(where)
    errand = Errand(notes, "one")
    assert notes.names() == set() and errand.task is None
    errand.post("skypilot", {"cell": {"seed": 1}}, "job")

    subprocess.run([sys.executable, "-c", JOB, where], check=True)
    assert errand.answer(0) == (0, None) and len(notes.names()) == 3
    monkeypatch.setattr(note_objects, "PATIENCE_S", 0.0)
    server.kill()
    server.wait()
    assert len(notes.names()) == 3, "what was last seen"
    with pytest.raises(StoreError, match="cannot be kept at"):
        errand.remove()


JOB = """
import sys
from fairtrial.core.errands import Errand, open_notes
there = Errand(open_notes(sys.argv[1]), "one")
assert there.task["requests"] == {"cell": {"seed": 1}}
there.start("job")
there.tell(0, 0, None)
"""
