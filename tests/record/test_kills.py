"""A run killed at any moment and resumed gives the same numbers, bit for bit, as one that was left alone."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial.core.runs import Status
from fairtrial.core.specs import Job
from fairtrial.jobs.run_session import run_cell
from fairtrial.record import checkpoints
from fairtrial.record.checkpoints import read_checkpoint
from fairtrial.record.metadata import load_run
from fairtrial.record.series import read_lines
from fairtrial.record.store import Store
from fairtrial.record.top_checkpoints import list_top_checkpoints
from tests.conftest import link_data
from tests.harness import CountCalls, KillAt, forked, in_small_process, kill_after, make, request_for, series_of, wait

# Every training step is logged and much is saved, so that a kill always falls near something that matters.
FAKE = {"steps": 9, "eval_every": 3, "log_every": 1, "checkpoint_every": 4, "jitter": 0.1}
LEARNING = {
    "model": "mlp",
    "width": 16,
    "steps": 60,
    "eval_every": 7,
    "log_every": 1,
    "checkpoint_every": 10,
    "labels": 300,
}
STUDENT = {
    "strategy": "combined", "student": "cnn", "student_width": 4, "teacher_width": 4, "teacher_steps": 20,
    "steps": 40, "eval_every": 9, "log_every": 1, "checkpoint_every": 8, "labels": 200,
}  # fmt: skip
PLAYING = {
    "steps": 40, "rollout": 16, "epochs": 2, "eval_every": 7, "log_every": 1, "checkpoint_every": 6, "eval_episodes": 3,
    "report_episodes": 3, "episode_limit": 60,
}  # fmt: skip
TALKING = {
    "steps": 12, "groups": 2, "samples": 2, "horizon": 2, "compact_prompts": True, "eval_every": 5, "log_every": 1,
    "checkpoint_every": 3, "eval_episodes": 2, "report_episodes": 2, "episode_decisions": 3, "rank": 4,
}  # fmt: skip


def check_what_a_kill_left(store: Store, killed_lines: int | None = None) -> None:
    """Whatever is on disk is whole: metadata loads, best.pt is the one it names, no line but the last is torn."""
    paths = store.paths.run("s", "v.seed1")
    run = load_run(paths)
    if run is None:
        return
    lines = read_lines(paths.metrics)
    if killed_lines is not None:
        assert len(lines.rows) >= killed_lines
    if not run.status.is_result:
        assert run.status is Status.INTERRUPTED
    if run.metadata["best_checkpoint_step"] is not None:
        best = read_checkpoint(paths.best, sha256=run.metadata["best_checkpoint_sha256"])
        assert best.step == run.metadata["best_checkpoint_step"]
        assert best.details["value"] == run.metadata["best_metric_value"]
        logged = {row["step"]: row.get(best.details["metric"]) for row in lines.rows if best.details["metric"] in row}
        assert logged[best.step] == best.details["value"]
    elif paths.best.exists():
        raise AssertionError("best.pt is there, and the metadata does not know it")


def summary(store: Store) -> tuple[Any, ...]:
    run = store.run("s", "v.seed1")
    assert run is not None and run.status is Status.COMPLETED
    metadata = run.metadata
    last = read_checkpoint(run.paths.last).step
    best = read_checkpoint(run.paths.best, sha256=metadata["best_checkpoint_sha256"])
    top = [(kept.step, kept.value, read_checkpoint(kept.path, sha256=kept.sha256).step)
           for kept in list_top_checkpoints(run.paths, "max")]  # fmt: skip
    files = sorted(path.name for path in run.paths.checkpoints.glob("top-*.pt"))
    assert files == sorted(f"top-{step}.pt" for step, _, _ in top), "a file that nobody knows, or none that is known"
    return (
        series_of(store),
        metadata["best_checkpoint_step"],
        metadata["best_metric_value"],
        last,
        repr(best.state),
        top,
    )


def calls_of(job: Job) -> int:
    """How many file-changing system calls an undisturbed run makes."""
    read_end, write_end = os.pipe()

    def counted() -> None:
        counter = CountCalls()
        counter.install()
        run_cell(job)
        os.write(write_end, str(counter.count).encode())

    assert wait(forked(counted)) == 0
    return int(os.read(read_end, 100))


def killed_at(job: Job, number: int, *, after: bool) -> None:
    def doomed() -> None:
        KillAt(number, after=after).install()
        run_cell(job)

    assert wait(forked(doomed)) == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize(("after", "keep_best"), [(False, 2), (True, 1), (True, 2)])
def test_a_kill_at_every_single_write_of_a_run(tmp_path: Path, after: bool, keep_best: int) -> None:
    """Not a sample: each write, fsync, rename and link that a run makes is its last one once."""
    in_small_process(kill_at_every_write, tmp_path, after, keep_best)


def kill_at_every_write(tmp_path: Path, after: bool, keep_best: int) -> None:
    options = {**FAKE, "keep_best": keep_best}
    reference = Store(tmp_path / "reference")
    make(reference, "fake", **options)
    expected = summary(reference)
    assert len(expected[-1]) == (keep_best if keep_best > 1 else 0)
    total = calls_of(request_for(Store(tmp_path / "count"), "fake", **options))
    assert total > 60
    for number in range(1, total + 1):
        store = Store(tmp_path / f"kill-{number}")
        job = request_for(store, "fake", **options)
        killed_at(job, number, after=after)
        check_what_a_kill_left(store)
        run_cell(job)
        assert summary(store) == expected, f"differs after a kill at call {number}"


@pytest.mark.parametrize(("recipe", "options"), [("classify", LEARNING), ("distill", STUDENT), ("ppo", PLAYING)])
def test_a_killed_training_resumes_with_identical_losses(
    tmp_path: Path, with_data: Store, data_cache: Path, recipe: str, options: dict[str, Any]
) -> None:
    """Model, optimizer, streams and data order: killed again and again at random calls until it is through."""
    make(with_data, recipe, **options)
    expected = summary(with_data)
    chance = random.Random(recipe)
    for attempt in range(6):
        store = link_data(Store(tmp_path / f"store-{attempt}"), data_cache)
        job = request_for(store, recipe, **options)
        kills = 0
        while True:
            number = chance.randrange(5, 120)
            pid = forked(lambda number=number, request=job: (KillAt(number, after=False).install(), run_cell(request)))
            if wait(pid) == 0:
                break
            kills += 1
            check_what_a_kill_left(store)
        assert kills >= 1
        assert summary(store) == expected


@pytest.mark.parametrize(
    ("recipe", "options", "attempts"), [("classify", LEARNING, 12), ("ppo", PLAYING, 8), ("grpo", TALKING, 6)]
)
def test_kills_at_random_moments(
    tmp_path: Path, with_data: Store, data_cache: Path, recipe: str, options: dict[str, Any], attempts: int
) -> None:
    """The clock chooses the moment: inside a step, inside torch, inside the serializer."""
    make(with_data, recipe, **options)
    expected = summary(with_data)

    def begun(name: str) -> tuple[Store, Job, int]:
        store = link_data(Store(tmp_path / name), data_cache)
        job = request_for(store, recipe, **options)
        return store, job, forked(lambda: run_cell(job))

    started = time.monotonic()
    assert wait(begun("undisturbed")[2]) == 0
    takes = time.monotonic() - started
    chance = random.Random(7)
    kills = 0
    for attempt in range(attempts):
        store, job, pid = begun(f"store-{attempt}")
        kills += kill_after(pid, chance.uniform(0.01, takes)) == -signal.SIGKILL
        check_what_a_kill_left(store)
        run_cell(job)
        assert summary(store) == expected
    assert kills >= 1


def half_written(path: Path, payload: dict[str, Any]) -> None:
    """A serializer that is killed when half of the file is there."""
    content = json.dumps(payload).encode()
    path.write_bytes(content[: len(content) // 2])
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_kill_inside_checkpoint_writing_leaves_the_old_checkpoint(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = request_for(store, "fake", **FAKE)
    whole = checkpoints._serialize

    def at_third(path: Path, payload: dict[str, Any]) -> None:
        (half_written if payload["step"] == 8 and "best" not in path.name else whole)(path, payload)

    def doomed() -> None:
        checkpoints._serialize = at_third
        run_cell(job)

    assert wait(forked(doomed)) == -signal.SIGKILL
    check_what_a_kill_left(store)
    assert read_checkpoint(store.paths.run("s", "v.seed1").last).step == 4
    run_cell(job)
    run = store.run("s", "v.seed1")
    assert run is not None and run.metadata["lineage"]["resumed"][0]["step"] == 4


@pytest.mark.slow
def test_no_line_that_was_logged_is_lost(store: Store) -> None:
    """A child says which step it has logged; after a kill every step that it named is in the file."""
    from fairtrial.api.running.script import run as record

    chance = random.Random(3)
    for attempt in range(10):
        read_end, write_end = os.pipe()

        def log_for_ever(write_end: int = write_end, attempt: int = attempt) -> None:
            recorder = record(seed=attempt, study="lines", variant="v", store=store.root)
            for step in range(10_000_000):
                recorder.log(step, loss=1.0 / (step + 1), accuracy=0.5)
                os.write(write_end, step.to_bytes(8, "big"))

        pid = forked(log_for_ever)
        os.close(write_end)
        told = os.read(read_end, 8)  # wait for the first line
        os.set_blocking(read_end, True)
        kill_after(pid, chance.uniform(0.0, 0.02))
        while chunk := os.read(read_end, 1 << 16):
            told = chunk
        os.close(read_end)
        last = int.from_bytes(told[-8:], "big")
        rows = read_lines(store.paths.run("lines", f"v.seed{attempt}").metrics).rows
        assert [row["step"] for row in rows[: last + 1]] == list(range(last + 1))


def test_a_damaged_checkpoint_is_refused_and_the_one_before_is_used(store: Store) -> None:
    job = request_for(store, "fake", **{**FAKE, "steps": 12})
    stop_after_nine: Callable[[], bool] = _counter(9)
    run_cell(job, should_stop=stop_after_nine)
    paths = store.paths.run("s", "v.seed1")
    assert read_checkpoint(paths.last).step == 9
    paths.step(9).write_bytes(b'{"step": 9, "state": {"progress": 0.1}}')
    run_cell(job)
    run = store.run("s", "v.seed1")
    assert run is not None and run.status is Status.COMPLETED
    assert run.metadata["lineage"]["resumed"][0]["step"] == 8
    refused = [row for row in read_lines(paths.events).rows if row["event"] == "checkpoint_refused"]
    assert refused[0]["step"] == 9


def _counter(limit: int) -> Callable[[], bool]:
    seen = iter(range(1, 10_000))
    return lambda: next(seen) >= limit
