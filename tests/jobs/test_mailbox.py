"""Notes of launchers lie where others may be able to write: their names and their content are judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairtrial.core.errors import StoreError
from fairtrial.core.runs import Outcome, Status
from fairtrial.jobs.mailbox import FolderMailbox, RemoteJob

OUTCOME = {"status": "completed", "reason": None, "hint": None, "already_done": False}


@pytest.fixture
def errand(tmp_path: Path) -> RemoteJob:
    found = RemoteJob(FolderMailbox(tmp_path / "notes"), "abc")
    found.post("slurm", {"cell": {"spec": {}}}, "job-1")
    found.start("job-1")
    found.record_claim(0, 3)
    found.record_answer(0, 0, Outcome(Status.COMPLETED))
    return found


def write(remote_job: RemoteJob, name: str, content: Any) -> None:
    remote_job.mailbox.write(name, content if isinstance(content, bytes) else json.dumps(content).encode())


def test_notes_of_our_own_are_read(errand: RemoteJob) -> None:
    assert errand.task and errand.task["job"] == "job-1" and errand.is_ours
    assert errand.claim(0) == 3 and errand.answer(0) == (0, Outcome(Status.COMPLETED))
    assert errand.stop is None
    errand.ask_to_stop(kill=True)
    assert errand.stop == {"kill": True}


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc/passwd", "..", "", "a\0b"])
def test_a_note_is_one_file_of_its_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "x").write_text("untouched")
    notes = FolderMailbox(tmp_path / "notes")
    for use in (lambda: notes.read(name), lambda: notes.write(name, b"{}"), lambda: notes.remove(name)):
        with pytest.raises(StoreError, match=r"name"):
            use()
    assert (tmp_path / "x").read_text() == "untouched"


def test_a_start_cannot_lead_to_an_answer_elsewhere(errand: RemoteJob, tmp_path: Path) -> None:
    """Its mark is a part of the name of the answer."""
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text(json.dumps({"exit": 0, "outcome": OUTCOME}))
    (tmp_path / "notes" / "abc.answer-0.").mkdir()
    write(errand, errand.files.started, {"mark": "/../../elsewhere"})
    assert errand.latest_start is None and errand.answer(0) is None


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"{", b"5", {}, {"exit": "0", "outcome": OUTCOME}, {"exit": 0}, {"exit": 0, "outcome": {}},
        {"exit": 0, "outcome": {**OUTCOME, "status": "won"}}, {"exit": 10**9, "outcome": None},
        {"exit": 0, "outcome": {**OUTCOME, "reason": 5}},
    ],
)  # fmt: skip
def test_an_answer_of_another_form_is_none(errand: RemoteJob, content: Any) -> None:
    write(errand, errand.files.answer(0, errand.attempt_id), content)
    assert errand.answer(0) is None


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000, b"nonsense", [], {"engine": 5}, {"engine": "slurm", "job": 7, "at": 1.0, "requests": {}},
        {"engine": "slurm", "job": None, "at": "now", "requests": {}}, {"engine": "x", "job": None, "at": 1.0, "requests": []},
    ],
)  # fmt: skip
def test_a_task_of_another_form_is_none(errand: RemoteJob, content: Any) -> None:
    write(errand, errand.files.task, content)
    assert errand.task is None


def test_a_claim_of_another_form_does_not_count(errand: RemoteJob) -> None:
    write(errand, errand.files.claim(0, "other"), {"token": "9"})
    assert errand.claim(0) == 3
