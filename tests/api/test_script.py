"""`fairtrial.run` in anyone's script."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fairtrial
from fairtrial.core.errors import FairtrialError
from fairtrial.core.runs import Status
from fairtrial.record import recorder as module
from fairtrial.record.metadata import load_metadata
from fairtrial.record.store import Store
from tests.harness import forked, wait


def status_of(store: Store, run: str = "v.seed1072") -> tuple[Status, str | None]:
    found = store.run("adhoc", run)
    assert found is not None
    return found.status, found.reason


@pytest.mark.parametrize(
    ("ending", "status", "reason"),
    [
        ("pass", Status.COMPLETED, None),
        ("raise ValueError('bad')", Status.FAILED, "ValueError: bad"),
        ("import sys; sys.exit(0)", Status.COMPLETED, None),
        ("import sys; sys.exit(3)", Status.FAILED, "SystemExit: 3"),
        ("raise KeyboardInterrupt", Status.INTERRUPTED, "KeyboardInterrupt"),
        ("import os; os.kill(os.getpid(), 9)", Status.INTERRUPTED, "its process ended without a word"),
    ],
)
def test_how_a_script_ends_is_recorded(
    store: Store, tmp_path: Path, ending: str, status: Status, reason: str | None
) -> None:
    text = f"import fairtrial\nwith fairtrial.run(variant='v') as run:\n    run.log(1, loss=0.5)\n    {ending}\n"
    (tmp_path / "script.py").write_text(text)
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, check=False)
    found, why = status_of(store)
    assert found is status
    assert why is None if reason is None else reason in (why or "")


@pytest.mark.parametrize(("ending", "status"), [("pass", Status.COMPLETED), ("1 / 0", Status.FAILED)])
def test_a_script_without_with_is_done_when_it_ends(store: Store, tmp_path: Path, ending: str, status: Status) -> None:
    (tmp_path / "script.py").write_text(
        f"import fairtrial\nrun = fairtrial.run(variant='v')\nrun.log(1, x=1)\n{ending}\n"
    )
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, check=False)
    assert status_of(store)[0] is status


def test_the_same_cell_twice_is_refused_with_what_to_do() -> None:
    with fairtrial.run(variant="v", config={"lr": 1}) as run:
        run.log(1, loss=1.0)
    with pytest.raises(FairtrialError, match=r"already done.*replace=True"):
        fairtrial.run(variant="v", config={"lr": 1})
    with pytest.raises(FairtrialError, match="another config"):
        fairtrial.run(variant="v", config={"lr": 2})
    with fairtrial.run(variant="v", config={"lr": 2}, replace=True) as again:
        again.log(1, loss=1.0)
        with pytest.raises(FairtrialError, match="another process"):
            fairtrial.run(variant="v", config={"lr": 2})


def test_configs_without_a_variant_are_told_apart(store: Store) -> None:
    for rate in (1, 2):
        with fairtrial.run(config={"lr": rate}) as run:
            run.log(1, x=1)
    assert len(list(store.directories())) == 2


def test_a_misspelt_best_metric_is_said_aloud(store: Store) -> None:
    with fairtrial.run(variant="v", best_metric="eval_acuracy", best_mode="max") as run:
        run.evaluated(1, {"eval_accuracy": 0.5}, {"w": 1})
    found = store.run("adhoc", "v.seed1072")
    assert found is not None and found.metadata["cautions"][0]["code"] == "no best checkpoint"


def test_a_kill_between_saving_and_keeping_the_best_does_not_lose_the_best(store: Store) -> None:
    """`evaluated` without a state, then `save`: killed inside `save`, the best must be there or come again."""
    scores = {1: 0.1, 2: 0.9, 3: 0.3, 4: 0.4}

    def train(kill_at: int | None) -> None:
        run = fairtrial.run(variant="v", best_metric="eval_score", store=store.root)
        saved = run.resume()
        for step in range(saved.step + 1 if saved else 1, 5):
            run.evaluated(step, {"eval_score": scores[step]})
            if step == kill_at:
                module.link_file = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
            run.save(step, {"w": step})
        run.finish(Status.COMPLETED)

    assert wait(forked(lambda: train(kill_at=2))) == -9
    assert wait(forked(lambda: train(kill_at=None))) == 0
    metadata = load_metadata(store.paths.run("adhoc", "v.seed1072"))
    assert metadata is not None
    assert (metadata["best_checkpoint_step"], metadata["best_metric_value"]) == (2, 0.9)


def test_evaluated_can_save_as_well() -> None:
    with fairtrial.run(variant="v", best_metric="eval_score") as run:
        assert run.evaluated(1, {"eval_score": 1.0}, {"w": 1}, save=True)
        assert run.paths.step(1).exists() and run.paths.best.exists()
        with pytest.raises(FairtrialError, match="needs the state"):
            run.evaluated(2, {"eval_score": 2.0}, save=True)
