"""Who may write a run: one process; and one that was taken for dead and lives on may not."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import fairtrial
from fairtrial.core.paths import JOIN_VARIABLE, TOKEN_VARIABLE
from fairtrial.core.registry import LoadedRecipe
from fairtrial.core.runs import EXIT_CLAIMED, Outcome, Status
from fairtrial.core.specs import Job
from fairtrial.jobs.run_session import run_cell, run_stack
from fairtrial.jobs.server import run_task
from fairtrial.record import claims
from fairtrial.record.claims import Claim, ClaimedElsewhere, ClaimLost, token_of
from fairtrial.record.heartbeat import HEARTBEAT_VARIABLE, read_heartbeat
from fairtrial.record.metadata import new_metadata
from fairtrial.record.recorder import Recorder
from fairtrial.record.series import read_lines
from fairtrial.record.store import Store
from tests.harness import eventually, forked, make, request_for, series_of, wait

OPTIONS = {"steps": 60, "step_time": 0.02, "checkpoint_every": 10, "log_every": 1, "jitter": 0.1}


def begun(store: Store, *, over: int | None = None) -> Recorder:
    job = request_for(store, "fake", **OPTIONS)
    paths = store.paths.run("s", "v.seed1")
    return Recorder.create(paths, new_metadata(job.spec, {}, synthetic=True), Claim(paths, takeover_token=over))


def test_tokens_grow_with_every_claim(store: Store) -> None:
    paths = store.paths.run("s", "v.seed1")
    for expected in (1, 2, 3):
        claim = Claim(paths)
        assert claim.token == expected == token_of(paths)
        claim.release()


def test_only_the_claim_that_is_known_to_be_lost_is_taken_over(store: Store) -> None:
    paths = store.paths.run("s", "v.seed1")
    held = Claim(paths)
    for wrong in (None, 0, 2):
        with pytest.raises(ClaimedElsewhere):
            Claim(paths, takeover_token=wrong)
    held.fence.check()
    taken = Claim(paths, takeover_token=1)
    assert taken.token == 2
    with pytest.raises(ClaimLost, match="another process took over this run"):
        held.fence.check()
    with pytest.raises(ClaimedElsewhere):
        Claim(paths, takeover_token=1)


def test_a_lost_claim_is_fenced_off_also_where_its_lock_is_not_seen(store: Store) -> None:
    """On a file system that keeps locks to one machine, the lock of the other one looks free."""
    paths = store.paths.run("s", "v.seed1")
    held = Claim(paths)
    fcntl.flock(held._descriptor or 0, fcntl.LOCK_UN)
    later = Claim(paths)
    assert later.token == 2
    with pytest.raises(ClaimLost):
        held.fence.check()
    later.fence.check()


def test_of_many_that_take_over_at_once_one_does(store: Store) -> None:
    paths = store.paths.run("s", "v.seed1")
    held = Claim(paths)
    won: list[Claim] = []

    def take() -> None:
        try:
            won.append(Claim(paths, takeover_token=held.token))
        except ClaimedElsewhere:
            return

    takers = [threading.Thread(target=take) for _ in range(8)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    assert len(won) == 1 and token_of(paths) == 2


def test_nothing_that_a_lost_writer_does_is_seen(store: Store) -> None:
    old = begun(store)
    old.log(1, loss=1.0)
    old.save(1, {"w": 1})
    new = begun(store, over=1)
    assert new.resume() is not None
    new.log(2, loss=0.5)
    before = {path: path.read_bytes() for path in sorted(new.paths.root.rglob("*")) if path.is_file()}
    for write in (
        lambda: old.log(2, loss=9.0),
        lambda: old.save(2, {"w": 9}),
        lambda: old.event("evaluated", step=2, metrics={}),
        lambda: old.update(reason="I am still here"),
        lambda: old.finish(Status.COMPLETED),
    ):
        with pytest.raises(ClaimLost):
            write()
    os.write(old._metrics_file, b'{"step": 2, "loss": 9.0}\n')  # one that had asked just before it was fenced off
    assert {path: path.read_bytes() for path in sorted(new.paths.root.rglob("*")) if path.is_file()} == before
    old.close()
    new.finish(Status.COMPLETED)


def test_a_directory_that_is_gone_is_not_written_to(store: Store, tmp_path: Path) -> None:
    recorder = begun(store)
    recorder.paths.root.rename(tmp_path / "elsewhere")
    with pytest.raises(ClaimLost, match="is gone"):
        recorder.log(1, loss=1.0)
    recorder.release()


def test_a_frozen_process_that_wakes_up_finds_its_run_with_another(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole story with real processes: frozen, given to another in the middle, woken up, ended by itself."""
    monkeypatch.setenv(HEARTBEAT_VARIABLE, "0.05")
    job = request_for(store, "fake", **OPTIONS)
    paths = store.paths.run("s", "v.seed1")
    zombie = forked(lambda: run_cell(job))
    beat = eventually(lambda: (b := read_heartbeat(paths)) and b.saved >= 20 and b, what="a run that has saved")
    os.kill(zombie, signal.SIGSTOP)
    other = forked(lambda: run_cell(Job(job.spec, job.store, takeover_token=beat.token)))
    eventually(lambda: (b := read_heartbeat(paths)) and b.token == 2 and b.step > 30, what="the other going on")
    os.kill(zombie, signal.SIGCONT)
    assert wait(other) == 0
    assert wait(zombie) == 1, "it must not end as if all were well"
    run = store.run("s", "v.seed1")
    assert run is not None and run.status is Status.COMPLETED
    events = [row["event"] for row in read_lines(paths.events).rows]
    assert events.count("run_ended") == 1 and events.count("run_resumed") == 1
    reference = Store(tmp_path / "reference")
    make(reference, "fake", **OPTIONS)
    assert series_of(store) == series_of(reference)


def test_a_run_gives_signs_of_life_while_it_is_set_up(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(HEARTBEAT_VARIABLE, "0.05")
    job = request_for(store, "fake", **OPTIONS)
    paths, go = store.paths.run("s", "v.seed1"), tmp_path / "go"

    def slow_data(*_: object) -> None:
        eventually(go.exists)

    monkeypatch.setattr(LoadedRecipe, "data", slow_data)
    made = forked(lambda: run_cell(job))
    first = eventually(lambda: read_heartbeat(paths), what="a sign of life before the first step")
    eventually(lambda: (b := read_heartbeat(paths)) and b.at > first.at, what="another one")
    assert first.token == 1 and first.step == 0 and not paths.metadata.exists()
    go.touch()
    assert wait(made) == 0


def test_one_lost_claim_of_a_stack_ends_that_run_alone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HEARTBEAT_VARIABLE, "0.02")
    options = {"steps": 60, "step_time": 0.02, "checkpoint_every": 0, "log_every": 100, "eval_every": 0}
    jobs = [request_for(store, "fake", variant=name, **options) for name in ("a", "b", "c")]
    told: dict[str, tuple[int, Outcome | None]] = {}
    lost = store.paths.run("s", "b.seed1")

    def take() -> None:
        eventually(lambda: (b := read_heartbeat(lost)) and b.token == 1)
        Claim(lost, takeover_token=1)

    thief = threading.Thread(target=take)
    thief.start()
    run_stack(jobs, lambda spec, code, outcome: told.update({spec.variant: (code, outcome)}))
    thief.join()
    assert told.pop("b") == (EXIT_CLAIMED, None)
    assert {outcome and outcome.status for _, outcome in told.values()} == {Status.COMPLETED}


def test_a_program_that_joins_after_its_run_was_given_away_joins_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = begun(store)
    paths = old.paths
    monkeypatch.setenv(JOIN_VARIABLE, str(paths.root))
    monkeypatch.setenv(TOKEN_VARIABLE, "1")
    Recorder.attach(paths, 1).close()
    new = begun(store, over=1)
    before = paths.metrics.read_bytes(), paths.events.read_bytes()
    with pytest.raises(ClaimLost, match="another process took over the run of this program"):
        fairtrial.run(seed=1)
    assert (paths.metrics.read_bytes(), paths.events.read_bytes()) == before
    old.close()
    new.finish(Status.COMPLETED)


def test_a_job_whose_run_was_given_away_says_that_another_has_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that its launcher waits for that one, instead of calling the run interrupted."""
    job = request_for(store, "fake", **OPTIONS)
    told: list[tuple[int, Outcome | None]] = []
    lost = Claim(store.paths.run("s", "v.seed1"))
    Claim(lost.paths, takeover_token=lost.token)
    monkeypatch.setattr("fairtrial.jobs.run_session.Claim", lambda *_, **__: lost)
    run_task({"k": job}, lambda _key, code, outcome: told.append((code, outcome)), lambda: False, lambda *_: None)
    assert told == [(EXIT_CLAIMED, None)]


def test_the_program_of_a_command_is_told_the_token_of_its_claim(store: Store, tmp_path: Path) -> None:
    code = f"import os; print('token', os.environ[{TOKEN_VARIABLE!r}])"
    make(store, "command", argv=[sys.executable, "-c", code])
    assert "token 1" in store.paths.run("s", "v.seed1").log.read_text()


def test_whoever_takes_a_claim_and_whoever_takes_it_over_do_so_one_after_the_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that, both could hold the same token, and the files of one would be taken from under it."""
    paths = store.paths.run("s", "v.seed1")
    Claim(paths).release()
    real, inside = claims._put_new_lock, threading.Event()
    taken: list[Claim] = []

    def slowly(*arguments: Any) -> Any:
        inside.set()
        time.sleep(0.2)
        return real(*arguments)

    monkeypatch.setattr(claims, "_put_new_lock", slowly)
    first = threading.Thread(target=lambda: taken.append(Claim(paths)))
    first.start()
    inside.wait()
    with pytest.raises(ClaimedElsewhere):
        Claim(paths, takeover_token=1)  # by then it is no longer the claim that was known to be lost
    first.join()
    assert taken[0].token == 2
    taken[0].fence.check()
    taken[0].release()
