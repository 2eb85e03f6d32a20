"""The contract of launchers, checked with cells of the `fake` recipe."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from fairtrial.core.options import parse_options, result_options
from fairtrial.core.paths import RunPaths
from fairtrial.core.registry import load_recipe
from fairtrial.core.runs import EXIT_CLAIMED, Status
from fairtrial.core.specs import Job, RunSpec
from fairtrial.launch.contract import Exit, Launcher
from fairtrial.record.claims import Claim, token_of
from fairtrial.record.series import read_lines
from fairtrial.record.store import Store

MakeLauncher = Callable[[], Launcher]
PATIENCE_S = 60.0


def _request(store: Path, seed: int, **options: float) -> Job:
    recipe = load_recipe("fake")
    parsed = parse_options(recipe.options, {"steps": 5, **options}, where="fake")
    identity = result_options(recipe.options, parsed)
    return Job(RunSpec(recipe="fake", options=parsed.to_dict(), identity=identity, seed=seed), store)


def _collect(launcher: Launcher, count: int) -> dict[str, Exit]:
    exits: dict[str, Exit] = {}
    deadline = time.monotonic() + PATIENCE_S
    while len(exits) < count and time.monotonic() < deadline:
        for end in launcher.poll(0.1):
            assert end.key not in exits, f"{end.key} was reported twice"
            exits[end.key] = end
    assert len(exits) == count, f"{count - len(exits)} cells were never reported"
    return exits


def check_every_cell_comes_back_once(make: MakeLauncher, store: Path) -> None:
    with closing(make()) as launcher:
        for seed in range(5):
            launcher.submit({f"cell {seed}": _request(store, seed).to_dict()})
        exits = _collect(launcher, 5)
    assert all(end.outcome and end.outcome.status is Status.COMPLETED for end in exits.values())
    runs = [Store(store).run("adhoc", f"default.seed{seed}") for seed in range(5)]
    assert all(run and run.status is Status.COMPLETED for run in runs)


def check_a_failure_carries_its_reason(make: MakeLauncher, store: Path) -> None:
    with closing(make()) as launcher:
        launcher.submit({"bad": _request(store, 1, fail_at=2).to_dict()})
        launcher.submit({"nan": _request(store, 2, diverge_at=5).to_dict()})
        exits = _collect(launcher, 2)
    bad, nan = exits["bad"].outcome, exits["nan"].outcome
    assert bad and bad.status is Status.FAILED and "asked to fail" in (bad.reason or "")
    assert nan and nan.status is Status.DIVERGED and "nan" in (nan.reason or "")


def check_a_claimed_cell_is_said_to_be_claimed(make: MakeLauncher, store: Path) -> None:
    job = _request(store, 1)
    claim = Claim(Store(store).paths.run("adhoc", job.spec.run_id))
    with closing(make()) as launcher:
        launcher.submit({"taken": job.to_dict()})
        exits = _collect(launcher, 1)
    claim.release()
    assert exits["taken"].code == EXIT_CLAIMED and exits["taken"].outcome is None


def check_a_finished_cell_is_not_run_again(make: MakeLauncher, store: Path) -> None:
    with closing(make()) as launcher:
        for _ in range(2):
            launcher.submit({"cell": _request(store, 1).to_dict()})
            end = _collect(launcher, 1)["cell"]
    assert end.outcome and end.outcome.already_done


def check_a_task_of_several_cells_tells_of_each(make: MakeLauncher, store: Path) -> None:
    with closing(make()) as launcher:
        launcher.submit({f"cell {seed}": _request(store, seed).to_dict() for seed in (1, 2, 3)})
        exits = _collect(launcher, 3)
    assert all(end.outcome and end.outcome.status is Status.COMPLETED for end in exits.values())


def check_a_cell_that_is_stopped_before_it_starts_comes_back(make: MakeLauncher, store: Path) -> None:
    with closing(make()) as launcher:
        launcher.submit({"cell": _long_request(store).to_dict()})
        launcher.stop("cell", kill=False)
        end = _collect(launcher, 1)["cell"]
    assert end.outcome is None or end.outcome.status is Status.INTERRUPTED


def check_nothing_is_adopted_that_nobody_left(make: MakeLauncher, store: Path) -> None:  # noqa: ARG001
    with closing(make()) as launcher:
        assert launcher.adopt(["cell"]) == []


def check_a_stopped_run_saves_and_is_interrupted(make: MakeLauncher, store: Path) -> None:
    with closing(make()) as launcher:
        run = _running(launcher, store)
        launcher.stop("cell", kill=False)
        end = _collect(launcher, 1)["cell"]
    assert end.lost is None and end.outcome and end.outcome.status is Status.INTERRUPTED
    assert run.last.exists(), "the run exited without saving"


def check_a_killed_run_comes_back(make: MakeLauncher, store: Path) -> None:
    """Check that a killed run is reported, without an outcome or, if its engine asks it to exit first, interrupted."""
    with closing(make()) as launcher:
        _running(launcher, store)
        launcher.stop("cell", kill=True)
        end = _collect(launcher, 1)["cell"]
    assert end.lost is None
    assert end.outcome.status is Status.INTERRUPTED if end.outcome else end.code != 0


def check_a_process_that_is_killed_by_others_comes_back_without_a_word(make: MakeLauncher, store: Path) -> None:
    """It must run on this machine: clusters that are tried have their nodes here."""
    with closing(make()) as launcher:
        run = _running(launcher, store)
        [begun] = [row for row in read_lines(run.events).rows if row["event"] == "run_started"]
        os.kill(begun["pid"], signal.SIGKILL)
        end = _collect(launcher, 1)["cell"]
    assert end.outcome is None and end.code != 0


def check_a_forgotten_cell_is_not_spoken_of_and_can_go_on_elsewhere(make: MakeLauncher, store: Path) -> None:
    with closing(make()) as launcher:
        run = _running(launcher, store)
        lost = token_of(run)
        launcher.forget("cell")
        assert not launcher.has_started("cell")
        launcher.submit({"other": _request(store, 2).to_dict()})
        assert list(_collect(launcher, 1)) == ["other"]
        launcher.submit({"cell": replace(_long_request(store), takeover_token=lost).to_dict()})
        _until(launcher, lambda: launcher.has_started("cell") and (token_of(run) or 0) > (lost or 0))
        launcher.stop("cell", kill=False)
        end = _collect(launcher, 1)["cell"]
    assert end.outcome and end.outcome.status is Status.INTERRUPTED


def check_what_a_launcher_left_running_is_watched_by_the_next_or_ends_with_it(make: MakeLauncher, store: Path) -> None:
    """Check `adopt`. The first launcher is not closed meanwhile, so that it looks killed to the second one."""
    with closing(make()) as first:
        _running(first, store)
        with closing(make()) as second:
            adopted = second.adopt(["cell", "other"])
            assert adopted in ([], [["cell"]])
            if adopted:
                _until(second, lambda: second.has_started("cell"))
                second.stop("cell", kill=False)
                end = _collect(second, 1)["cell"]
                assert end.outcome and end.outcome.status is Status.INTERRUPTED


def _long_request(store: Path) -> Job:
    return _request(store, 1, steps=100_000, step_time=0.02, checkpoint_every=100_000)


def _running(launcher: Launcher, store: Path) -> RunPaths:
    """Submit a long cell, and wait until its process is training."""
    job = _long_request(store)
    launcher.submit({"cell": job.to_dict()})
    paths = Store(store).paths.run("adhoc", job.spec.run_id)
    _until(launcher, lambda: launcher.has_started("cell") and paths.metrics.exists() and paths.metrics.stat().st_size)
    return paths


def _until(launcher: Launcher, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        ended = launcher.poll(0.05)
        assert not ended, f"{ended[0]} was reported too early"
        assert time.monotonic() < deadline, "a cell never started"


LAUNCHER_CHECKS: tuple[Callable[[MakeLauncher, Path], None], ...] = (
    check_every_cell_comes_back_once,
    check_a_failure_carries_its_reason,
    check_a_claimed_cell_is_said_to_be_claimed,
    check_a_finished_cell_is_not_run_again,
    check_a_task_of_several_cells_tells_of_each,
    check_a_cell_that_is_stopped_before_it_starts_comes_back,
    check_nothing_is_adopted_that_nobody_left,
)

PROCESS_CHECKS: tuple[Callable[[MakeLauncher, Path], None], ...] = (
    check_a_stopped_run_saves_and_is_interrupted,
    check_a_killed_run_comes_back,
    check_a_process_that_is_killed_by_others_comes_back_without_a_word,
    check_a_forgotten_cell_is_not_spoken_of_and_can_go_on_elsewhere,
    check_what_a_launcher_left_running_is_watched_by_the_next_or_ends_with_it,
)
"""Checks for launchers whose cells run in separate processes."""
