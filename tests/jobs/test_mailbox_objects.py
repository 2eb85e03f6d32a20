"""Notes of errands in an object store: a real S3 server in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fairtrial.core.errors import StoreError
from fairtrial.jobs import mailbox_objects as note_objects
from fairtrial.jobs.mailbox import RemoteJob, open_mailbox
from tests.conftest import Moto


def test_launcher_and_job_speak_through_objects_and_wait_for_a_server_that_is_away(
    moto: Moto, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in moto.surroundings.items():
        monkeypatch.setenv(name, value)
    where = f"s3://{moto.bucket()}/lab/my study/.launcher"
    notes = open_mailbox(where)
    remote_job = RemoteJob(notes, "one")
    assert notes.names() == set() and remote_job.task is None
    remote_job.post("skypilot", {"cell": {"seed": 1}}, "job")

    subprocess.run([sys.executable, "-c", JOB, where], check=True)
    assert remote_job.answer(0) == (0, None) and len(notes.names()) == 3
    monkeypatch.setattr(note_objects, "PATIENCE_S", 0.0)
    monkeypatch.setitem(note_objects.LIMITS["s3"]["config_kwargs"], "read_timeout", 0.5)
    impatient = open_mailbox(where)
    assert len(impatient.names()) == 3
    with moto.out_of_reach():
        assert len(impatient.names()) == 3, "what was last seen"
        with pytest.raises(StoreError, match="cannot access the mailbox at"):
            impatient.read("one.errand.json")


JOB = """
import sys
from fairtrial.jobs.mailbox import RemoteJob, open_mailbox
there = RemoteJob(open_mailbox(sys.argv[1]), "one")
assert there.task["requests"] == {"cell": {"seed": 1}}
there.start("job")
there.record_answer(0, 0, None)
"""
