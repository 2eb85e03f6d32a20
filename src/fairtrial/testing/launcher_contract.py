"""What every launcher must keep, checked with cells of the `fake` recipe."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from fairtrial.core.options import parse_options, result_options
from fairtrial.core.registry import load_recipe
from fairtrial.core.runs import EXIT_CLAIMED, Status
from fairtrial.core.specs import RunSpec
from fairtrial.job import Request
from fairtrial.launch.contract import Exit, Launcher
from fairtrial.record.claims import Claim
from fairtrial.record.store import Store

MakeLauncher = Callable[[], Launcher]
PATIENCE_S = 60.0


def _request(store: Path, seed: int, **options: float) -> Request:
    recipe = load_recipe("fake")
    parsed = parse_options(recipe.options, {"steps": 5, **options}, where="fake")
    identity = result_options(recipe.options, parsed)
    return Request(RunSpec(recipe="fake", options=parsed.to_dict(), identity=identity, seed=seed), store)


def _collect(launcher: Launcher, count: int) -> dict[str, Exit]:
    exits: dict[str, Exit] = {}
    deadline = time.monotonic() + PATIENCE_S
    while len(exits) < count and time.monotonic() < deadline:
        for end in launcher.poll(0.1):
            assert end.key not in exits, f"{end.key} came back twice"
            exits[end.key] = end
    assert len(exits) == count, f"{count - len(exits)} cells never came back"
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
    request = _request(store, 1)
    claim = Claim(Store(store).paths.run("adhoc", request.spec.run_id))
    with closing(make()) as launcher:
        launcher.submit({"taken": request.to_dict()})
        exits = _collect(launcher, 1)
    claim.release()
    assert exits["taken"].code == EXIT_CLAIMED and exits["taken"].outcome is None


def check_a_finished_cell_is_not_run_again(make: MakeLauncher, store: Path) -> None:
    with closing(make()) as launcher:
        for _ in range(2):
            launcher.submit({"cell": _request(store, 1).to_dict()})
            end = _collect(launcher, 1)["cell"]
    assert end.outcome and end.outcome.already_done


LAUNCHER_CHECKS: tuple[Callable[[MakeLauncher, Path], None], ...] = (
    check_every_cell_comes_back_once,
    check_a_failure_carries_its_reason,
    check_a_claimed_cell_is_said_to_be_claimed,
    check_a_finished_cell_is_not_run_again,
)
