"""Errands outlive their launcher, and say once how their cells ended: shown on a queue of plain processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fairtrial.core.errors import UserError
from fairtrial.core.runs import EXIT_CLAIMED, Outcome, Status
from fairtrial.jobs.mailbox import FolderMailbox, RemoteJob
from fairtrial.launch.contract import Exit
from fairtrial.launch.remote_jobs import JobStage, JobState, RemoteJobLauncher
from fairtrial.record.claims import Claim
from fairtrial.record.store import Store
from fairtrial.testing import LAUNCHER_CHECKS, PROCESS_CHECKS
from tests.harness import eventually, is_alive, make, request_for, series_of


class Processes:
    """The smallest engine: a process per job, found again by its number."""

    word = "processes"
    ask_s = 0.1

    def __init__(self, home: Path) -> None:
        self.home = home
        self.ours: dict[str, subprocess.Popen[bytes]] = {}

    def hand_over(self, remote_jobs: Sequence[str]) -> list[str]:
        return [self.start(remote_job) for remote_job in remote_jobs]

    def start(self, remote_job: str) -> str:
        argv = [sys.executable, "-m", "fairtrial.jobserver", "errand", str(self.home), remote_job]
        process = subprocess.Popen(argv, start_new_session=True)
        self.ours[str(process.pid)] = process
        return str(process.pid)

    def states(self, jobs: Collection[str]) -> Mapping[str, JobState]:
        running = {job for job in jobs if self._is_running(job)}
        return {job: JobState(JobStage.RUNNING) for job in running}

    def _is_running(self, job: str) -> bool:
        if job in self.ours:
            return self.ours[job].poll() is None
        return is_alive(int(job))

    def cancel(self, jobs: Collection[str]) -> None:
        for job in jobs:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(job), signal.SIGTERM)

    def last_words(self, job: str) -> str:
        return ""

    def clear(self, job: str) -> None: ...

    def close(self) -> None: ...

    def end(self) -> None:
        for process in self.ours.values():
            process.kill()
            process.wait()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def queue(home: Path) -> Iterator[Processes]:
    queue = Processes(home)
    yield queue
    queue.end()


def launcher(queue: Processes) -> RemoteJobLauncher:
    return RemoteJobLauncher(queue, FolderMailbox(queue.home), slots=4)


def next_exits(launcher: RemoteJobLauncher) -> list[Exit]:
    found: list[Exit] = eventually(lambda: launcher.poll(0.05), timeout=60, what="an exit")
    return found


def claims(home: Path) -> list[Path]:
    return list(home.glob("*.claim-*.json"))


def keep(check: Callable[..., None], folder: Path) -> None:
    queue = Processes(folder / "home")
    try:
        check(lambda: launcher(queue), folder / "store")
    finally:
        queue.end()


def test_a_queue_of_processes_keeps_the_contract(tmp_path: Path) -> None:
    """All checks at once, each with a store of its own: they wait far longer than they compute."""
    with ThreadPoolExecutor(16) as pool:
        kept = {
            check: pool.submit(keep, check, tmp_path / check.__name__) for check in LAUNCHER_CHECKS + PROCESS_CHECKS
        }
    broken = {check.__name__: error for check, done in kept.items() if (error := done.exception())}
    assert not broken


def test_an_errand_that_is_started_again_takes_its_cell_over_from_the_start_before(
    queue: Processes, home: Path, store: Store
) -> None:
    make(store, "fake", study="alone", steps=40, step_time=0.05, checkpoint_every=5)
    job = request_for(store, "fake", steps=40, step_time=0.05, checkpoint_every=5)
    remote_job = RemoteJob(FolderMailbox(home), "twice")
    remote_job.post(queue.word, {"cell": job.to_dict()})
    first = queue.start("twice")
    eventually(lambda: claims(home), what="the first start's claim")
    second = queue.start("twice")
    assert queue.ours[first].wait(60) == 0, "the first start lives on, and notices that it lost its cell"
    assert remote_job.answer(0) is None, "nobody hears of that"
    assert queue.ours[second].wait(60) == 0
    code, outcome = remote_job.answer(0) or (None, None)
    assert code == 0 and outcome and outcome.status is Status.COMPLETED
    assert series_of(store) == series_of(store, "alone")


def test_a_start_that_was_frozen_before_its_answer_does_not_speak_for_its_successor(
    queue: Processes, home: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had seen that the errand is its own, and writes only when another start has it."""
    ours = launcher(queue)
    ours.submit({"cell": request_for(store, "fake", steps=2000, step_time=0.05).to_dict()})
    eventually(lambda: ours.poll(0.05) or claims(home), what="the claim")
    [name] = {note.name.partition(".")[0] for note in claims(home)}
    frozen = RemoteJob(FolderMailbox(home), name)
    monkeypatch.setattr(RemoteJob, "is_ours", True)
    frozen.record_answer(0, 1, Outcome(Status.FAILED, "what the earlier start thought"))
    frozen.record_claim(0, 0)
    frozen.finish()
    assert ours.poll(0.6) == [], "the cell is still being made"
    assert (RemoteJob(FolderMailbox(home), name).claim(0) or 0) > 0, "the latest token is known"
    ours.stop("cell", kill=False)
    [end] = next_exits(ours)
    assert end.outcome and end.outcome.status is Status.INTERRUPTED
    ours.close()
    assert not list(home.iterdir())


def test_a_start_repeats_what_the_one_before_has_answered(queue: Processes, home: Path, store: Store) -> None:
    requests = {seed: request_for(store, "fake", seed=seed, steps=5).to_dict() for seed in (1, 2)}
    remote_job = RemoteJob(FolderMailbox(home), "twice")
    remote_job.post(queue.word, {f"cell {seed}": request for seed, request in requests.items()})
    remote_job.start(None)
    remote_job.record_answer(0, 7, None)
    assert queue.ours[queue.start("twice")].wait(60) == 0
    assert remote_job.latest_start != remote_job.attempt_id
    assert remote_job.answer(0) == (7, None), "it was not made again"
    code, outcome = remote_job.answer(1) or (None, None)
    assert code == 0 and outcome and outcome.status is Status.COMPLETED


def test_a_cell_that_somebody_else_has_is_not_taken_over(queue: Processes, home: Path, store: Store) -> None:
    job = request_for(store, "fake", steps=5)
    claim = Claim(store.paths.run("s", job.spec.run_id))
    remote_job = RemoteJob(FolderMailbox(home), "twice")
    remote_job.post(queue.word, {"cell": job.to_dict()})
    remote_job.start(None)  # an earlier start that had not got as far as a claim
    assert queue.ours[queue.start("twice")].wait(60) == 0
    claim.release()
    assert remote_job.answer(0) == (EXIT_CLAIMED, None)


def test_a_job_that_its_engine_asks_to_leave_saves_and_gives_no_answer(
    queue: Processes, home: Path, store: Store
) -> None:
    request = request_for(store, "fake", steps=2000, step_time=0.05)
    remote_job = RemoteJob(FolderMailbox(home), "asked")
    remote_job.post(queue.word, {"cell": request.to_dict()})
    job = queue.start("asked")
    eventually(lambda: claims(home), what="the claim")
    queue.cancel([job])
    assert queue.ours[job].wait(60) == 128 + signal.SIGTERM
    assert remote_job.answer(0) is None
    run = store.run("s", "v.seed1")
    assert run is not None and run.status is Status.INTERRUPTED and run.paths.last.exists()


def test_a_job_that_is_gone_without_a_word_is_lost(queue: Processes, home: Path, store: Store) -> None:
    ours = launcher(queue)
    ours.submit({"cell": request_for(store, "fake", steps=2000, step_time=0.05).to_dict()})
    eventually(lambda: ours.poll(0.05) or claims(home), what="the claim")
    next(iter(queue.ours.values())).kill()
    [end] = next_exits(ours)
    assert end.outcome is None and end.lost
    ours.close()
    assert not list(home.iterdir()), "nothing is left of it"


def test_a_successor_adopts_what_runs_and_clears_what_is_gone(queue: Processes, home: Path, store: Store) -> None:
    requests: dict[str, Any] = {
        f"cell {seed}": request_for(store, "fake", seed=seed, steps=60, step_time=0.05).to_dict() for seed in (1, 2)
    }
    first = launcher(queue)
    for key, request in requests.items():
        first.submit({key: request})
    eventually(lambda: first.poll(0.05) or len(claims(home)) == 2, what="both claims")
    lost, _ = queue.ours.values()
    lost.kill()
    lost.wait()
    second = launcher(Processes(home))  # the first was killed: it does nothing more
    assert second.adopt(["cell 1", "cell 2", "cell 3"]) == [["cell 2"]]
    [end] = next_exits(second)
    assert end.key == "cell 2" and end.outcome and end.outcome.status is Status.COMPLETED
    second.close()
    assert not list(home.iterdir())


def test_what_one_of_two_launchers_stops_is_lost_to_the_other(queue: Processes, home: Path, store: Store) -> None:
    first, second = launcher(queue), launcher(Processes(home))
    first.submit({"cell": request_for(store, "fake", steps=2000, step_time=0.05).to_dict()})
    eventually(lambda: first.poll(0.05) or claims(home), what="the claim")
    assert second.adopt(["cell"]) == [["cell"]]
    first.stop("cell", kill=False)
    [end] = next_exits(second)
    assert end.lost == "another launcher stopped it"


def test_a_machine_with_another_version_says_so(
    queue: Processes, home: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairtrial.jobs.mailbox.__version__", "99")
    ours = launcher(queue)
    ours.submit({"cell": request_for(store, "fake").to_dict()})
    [end] = next_exits(ours)
    assert end.outcome and end.outcome.status is Status.FAILED and "the launcher has 99" in (end.outcome.reason or "")
    ours.close()


def test_an_engine_that_cannot_be_reached_is_asked_again(
    queue: Processes, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals, reach = [None, None], queue.hand_over
    monkeypatch.setattr(queue, "hand_over", lambda remote_jobs: refusals.pop() if refusals else reach(remote_jobs))
    ours = launcher(queue)
    ours.submit({"cell": request_for(store, "fake", steps=5).to_dict()})
    [end] = next_exits(ours)
    assert end.outcome and end.outcome.status is Status.COMPLETED
    ours.close()


def test_what_runs_is_not_started_again_because_its_engine_does_not_answer(
    queue: Processes, home: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = launcher(queue)
    first.submit({"cell": request_for(store, "fake", steps=2000, step_time=0.05).to_dict()})
    eventually(lambda: first.poll(0.05) or claims(home), what="the claim")
    silences, states = [None, None], queue.states
    monkeypatch.setattr(queue, "states", lambda jobs: silences.pop() if silences else states(jobs))
    assert launcher(queue).adopt(["cell"]) == [["cell"]], "it was asked again"
    monkeypatch.setattr(queue, "states", lambda _: None)
    refusing = launcher(queue)
    with pytest.raises(UserError, match="processes does not report the state of 1 job of an earlier launcher"):
        refusing.adopt(["cell"])
    refusing.close()
    assert next(iter(queue.ours.values())).poll() is None, "the job goes on"
