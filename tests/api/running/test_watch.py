"""runs watch: a study as it stands, from its directories alone."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fairtrial import Study, launch
from fairtrial.api.running.watch import CellState, StudyState, _training_s, watch_study
from fairtrial.core.errors import UserError
from fairtrial.core.runs import Status
from fairtrial.record.claims import launching
from fairtrial.record.metadata import load_metadata, write_metadata
from fairtrial.record.store import Store
from fairtrial.record.studies import save_plan
from tests.conftest import Answer, start
from tests.harness import eventually

Cli = Callable[..., Answer]
LINE = ("launch", "fake", "--base-run-name", "my study", "--variant", "a:effect=0", "--variant", "b:effect=1")


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a refused launcher said is left there."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def cell(place: str, step: int | None = None, seconds: float | None = None) -> CellState:
    return CellState("r", "v", 1, place, step, 100, seconds)


def test_time_left_follows_from_what_has_ended_and_from_how_far_the_rest_is() -> None:
    running = [cell(Status.RUNNING, 50, 5.0), cell(Status.RUNNING, 20, 2.0)]
    assert (
        StudyState("s", [cell(Status.COMPLETED, None, 10.0), *running, cell("queued")], True).left_s == (5 + 8 + 10) / 2
    )
    assert StudyState("s", [*running, cell("queued")], True).left_s == (5 + 8 + 10) / 2, "from those under way"
    assert StudyState("s", [cell(Status.RUNNING, 0, 1.0), cell("queued")], True).left_s is None
    assert StudyState("s", [cell(Status.COMPLETED, None, 1.0)], False).left_s is None


def test_a_run_that_goes_on_after_a_night_is_judged_by_the_time_it_was_trained() -> None:
    def row(at: float, event: str, **fields: int) -> dict[str, object]:
        return {"event": event, "at": at, **fields}

    first = [row(100.0, "run_started"), row(110.0, "checkpoint_saved", step=20), row(119.0, "evaluated", step=38)]
    night = [row(40_000.0, "run_resumed"), row(40_000.0, "rewound", step=20)]
    assert _training_s([*first, *night], 40_005.0) == 10 + 5, "what was made after the checkpoint is made again"
    assert _training_s([*first, row(40_000.0, "run_started")], 40_005.0) == 5, "from the beginning"
    assert _training_s(first, 120.0) == 20 and _training_s([], 120.0) == 0


@pytest.mark.slow
def test_time_left_of_a_resumed_run_does_not_count_the_time_between(cli: Cli, store: Store) -> None:
    line = (*LINE[:2], "--base-run-name", "s", "--seeds", "1", "--step-time", "0.02", "--log-every", "1")
    process = start(*line, "--steps", "2000", "--checkpoint-every", "10")
    eventually(
        lambda: store.studies() == ["s"] and any((cell.step or 0) > 20 for cell in watch_study("s").cells),
        what="some steps",
    )
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    paths = store.paths.run("s", "default.seed1072")
    metadata = load_metadata(paths)
    assert metadata is not None
    timings = {**metadata["timings"], "created": metadata["timings"]["created"] - 36_000}
    write_metadata(paths, {**metadata, "timings": timings})
    process = start(*line, "--steps", "2000", "--checkpoint-every", "10")
    eventually(lambda: watch_study("s").cells[0].place == Status.RUNNING, what="the run that goes on")
    left = watch_study("s").left_s
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert left is not None and left < 600


def test_it_is_over_when_nothing_runs_and_nobody_will_start_the_rest() -> None:
    assert not StudyState("s", [cell("queued")], True).over
    assert StudyState("s", [cell("queued")], False).over
    assert not StudyState("s", [cell(Status.RUNNING)], False).over, "another machine may be at it"
    assert StudyState("s", [cell(Status.COMPLETED), cell(Status.FAILED)], True).over


@pytest.mark.slow
def test_a_study_is_watched_from_another_process_until_it_is_over(cli: Cli, store: Store) -> None:
    process = start(*LINE, "--seeds", "3", "--jobs", "2", "--steps", "40", "--step-time", "0.02", "--log-every", "1")
    eventually(lambda: store.studies() == ["my study"] and watch_study("my study").counts.get("running"), what="a run")
    state = watch_study("my study")
    assert state.launching and len(state.cells) == 6 and not state.over
    running = [each for each in state.cells if each.place == Status.RUNNING]
    assert all(each.steps == 40 and each.step is not None and each.silent_s is not None for each in running)
    assert cli("runs", "watch", "my study").code == 0
    state = watch_study("my study")
    assert state.counts == {"completed": 6} and state.over
    process.communicate(timeout=60)
    assert not watch_study("my study").launching


@pytest.mark.slow
def test_what_no_launcher_is_at_work_on_stays_queued_and_is_said(cli: Cli, store: Store) -> None:
    study = Study.model_validate({"study": "s", "recipe": "fake", "options": {"steps": 5}, "seeds": [1, 2]})
    launch(study, store=store.root)
    save_plan(store, {**study.to_dict(), "seeds": [1, 2, 3]})
    told = cli("runs", "watch", "s")
    assert told.code == 0 and "2 completed" in told.out and "no launcher is running the rest" in told.out
    with launching(store.paths, "s"):
        assert watch_study("s").launching and not watch_study("s").over
        once = cli("runs", "watch", "s", "--once", "--format", "json").json
    assert once["launching"] and once["counts"] == {"queued": 1, "completed": 2}


def test_failed_runs_end_the_watch_with_4_and_their_reason(cli: Cli) -> None:
    assert cli("launch", "fake", "--base-run-name", "s", "--steps", "20", "--fail-at", "2", "--seeds", "1").code == 4
    told = cli("runs", "watch", "s")
    assert told.code == 4 and "asked to fail" in told.out


def test_a_run_that_writes_nothing_is_pointed_out() -> None:
    from fairtrial.cli._watch_text import _remark

    slow = CellState("r", "v", 1, Status.RUNNING, 1, 2, 99.0, silent_s=45.0, heard_s=2.0)
    assert _remark(slow) == "alive, but nothing logged for 45.0 s"
    assert _remark(replace(slow, heard_s=45.0)) == "no heartbeat for 45.0 s"
    assert _remark(CellState("r", "v", 1, Status.RUNNING, 1, 2, 99.0, 5.0)) == ""


@pytest.mark.slow
def test_a_study_that_is_not_there_is_named(store: Store) -> None:
    with pytest.raises(UserError, match="no studies"):
        watch_study("nothing")
    launch(Study.model_validate({"study": "something", "recipe": "fake", "options": {"steps": 3}}), store=store.root)
    with pytest.raises(UserError, match="unknown study 'nothing'"):
        watch_study("nothing")


@pytest.mark.slow
def test_a_study_is_left_running_and_come_back_to(cli: Cli, store: Store) -> None:
    """The process that launched is gone; its study goes on in a session of its own."""
    told = cli(*LINE, "--seeds", "2", "--steps", "30", "--step-time", "0.01", "--detach")
    assert told.code == 0 and "running as PID" in told.out
    assert "fairtrial runs watch 'my study'" in told.out
    assert cli("runs", "watch", "my study").code == 0
    assert watch_study("my study").counts == {"completed": 4}
    eventually(lambda: not watch_study("my study").launching, what="the end of the launcher")
    log = store.paths.launch_log("my study")
    eventually(lambda: "4 runs exist" in log.read_text(), what="the last line of its log")
    again = cli(*LINE, "--seeds", "2", "--steps", "30", "--step-time", "0.01", "--detach", "--format", "json").json
    assert again["pid"] is None, "there was nothing left to do"


@pytest.mark.slow
def test_what_keeps_a_detached_launcher_from_its_work_is_told_at_once(cli: Cli) -> None:
    cli("launch", "fake", "--base-run-name", "s", "--steps", "3", "--seeds", "1")
    told = cli("launch", "fake", "--base-run-name", "s", "--steps", "4", "--seeds", "1", "--detach")
    assert told.code == 1 and "different options" in told.err and "launch.log" in told.err


def test_a_detached_launcher_that_is_ended_lets_its_runs_save(cli: Cli, store: Store) -> None:
    line = (
        "launch",
        "fake",
        "--base-run-name",
        "s",
        "--seeds",
        "1",
        "--steps",
        "4000",
        "--step-time",
        "0.01",
        "--log-every",
        "1",
    )
    pid = cli(*line, "--detach", "--format", "json").json["pid"]
    eventually(lambda: (watch_study("s").cells[0].step or 0) > 3, what="some steps")
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: watch_study("s").over, what="the end")
    run = store.run("s", "default.seed1072")
    assert run is not None and run.status is Status.INTERRUPTED
    assert run.reason is not None and "stopped by Ctrl-C" in run.reason
    log = store.paths.launch_log("s")
    eventually(lambda: "launch again to resume" in log.read_text(), what="the last words of the launcher")
    assert "Traceback" not in log.read_text()


@pytest.mark.slow
def test_a_second_detached_launcher_that_fails_is_not_taken_for_the_first(cli: Cli, store: Store) -> None:
    line = ("launch", "fake", "--base-run-name", "s", "--seeds", "1", "--step-time", "0.01", "--detach")
    pid = cli(*line, "--steps", "4000", "--format", "json").json["pid"]
    eventually(lambda: store.run("s", "default.seed1072"), what="the run of the first")
    told = cli(*line, "--steps", "4001")
    os.kill(pid, signal.SIGTERM)
    assert told.code == 1 and "different options" in told.err
    eventually(lambda: not watch_study("s").launching, what="the end of the first launcher")


@pytest.mark.slow
def test_a_detached_launch_that_is_refused_writes_nothing(
    cli: Cli, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    told = cli("launch", "fake", "--base-run-name", "s", "--seeds", "1", "--detach", "--on", "skypilot")
    assert told.code == 1 and "sky" in told.err, told.err
    assert not store.root.exists()
