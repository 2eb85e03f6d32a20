"""Who may write a run: one process; and one that was taken for dead and lives on may not."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from pathlib import Path

import pytest

from fairtrial.core.runs import Status
from fairtrial.job import Request, run_cell
from fairtrial.record.claims import Claim, ClaimedElsewhere, ClaimLost, token_of
from fairtrial.record.metadata import new_metadata
from fairtrial.record.pulse import PULSE_VARIABLE, read_pulse
from fairtrial.record.recorder import Recorder
from fairtrial.record.series import read_lines
from fairtrial.record.store import Store
from tests.harness import eventually, forked, make, request_for, series_of, wait

OPTIONS = {"steps": 60, "step_time": 0.02, "checkpoint_every": 10, "log_every": 1, "jitter": 0.1}


def begun(store: Store, *, over: int | None = None) -> Recorder:
    request = request_for(store, "fake", **OPTIONS)
    paths = store.paths.run("s", "v.seed1")
    return Recorder.create(paths, new_metadata(request.spec, {}, synthetic=True), Claim(paths, over=over))


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
            Claim(paths, over=wrong)
    held.fence.check()
    taken = Claim(paths, over=1)
    assert taken.token == 2
    with pytest.raises(ClaimLost, match="given to another process"):
        held.fence.check()
    with pytest.raises(ClaimedElsewhere):
        Claim(paths, over=1)


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
            won.append(Claim(paths, over=held.token))
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
    recorder.close()


def test_a_frozen_process_that_wakes_up_finds_its_run_with_another(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole story with real processes: frozen, given to another in the middle, woken up, ended by itself."""
    monkeypatch.setenv(PULSE_VARIABLE, "0.05")
    request = request_for(store, "fake", **OPTIONS)
    paths = store.paths.run("s", "v.seed1")
    zombie = forked(lambda: run_cell(request))
    beat = eventually(lambda: (b := read_pulse(paths)) and b.saved >= 20 and b, what="a run that has saved")
    os.kill(zombie, signal.SIGSTOP)
    other = forked(lambda: run_cell(Request(request.spec, request.store, over=beat.token)))
    eventually(lambda: (b := read_pulse(paths)) and b.token == 2 and b.step > 30, what="the other going on")
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
