"""`fairtrial.run` in anyone's script."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

import fairtrial
from fairtrial.core.errors import FairtrialError
from fairtrial.core.runs import Status
from fairtrial.record import recorder as module
from fairtrial.record.metadata import load_metadata
from fairtrial.record.store import Store
from tests.harness import forked, make, wait


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
        ("import os; os.kill(os.getpid(), 9)", Status.INTERRUPTED, "its process exited without reporting a status"),
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
    with pytest.raises(FairtrialError, match=r"already complete.*replace=True"):
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
        with pytest.raises(FairtrialError, match="requires a state"):
            run.evaluated(2, {"eval_score": 2.0}, save=True)


def cells_of(store: Store, study: str = "adhoc") -> set[tuple[str, int]]:
    found = [store.run(study, entry.name) for _, entry in store.directories()]
    return {(run.variant, run.seed) for run in found if run is not None}


ARGUMENTS = """
import argparse, fairtrial
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--depth", type=int, default=3)
args = parser.parse_args()
with fairtrial.run(SEEDconfig=vars(args)) as run:
    run.log(1, loss=run.seed)
"""


@pytest.mark.slow
@pytest.mark.parametrize("given", ["seed=args.seed, ", ""])
def test_the_seed_in_a_config_is_not_part_of_the_variant(store: Store, tmp_path: Path, given: str) -> None:
    (tmp_path / "train.py").write_text(ARGUMENTS.replace("SEED", given))
    for words in (["--seed", "1"], ["--seed", "2"], ["--seed", "1", "--lr", "0.5"]):
        subprocess.run([sys.executable, "train.py", *words], check=True)
    assert cells_of(store) == {
        ("train-depth=3,lr=0.1", 1),
        ("train-depth=3,lr=0.1", 2),
        ("train-depth=3,lr=0.5", 1),
    }
    run = store.run("adhoc", "train-depth=3,lr=0.1.seed2")
    assert run is not None and run.metadata["options"] == {"lr": 0.1, "depth": 3}


@pytest.mark.parametrize("seed", [2, "2", 2.0])
def test_a_config_with_another_seed_is_refused(store: Store, seed: object) -> None:
    with pytest.raises(FairtrialError, match="but seed=1 was passed"):
        fairtrial.run(seed=1, config={"lr": 0.1, "seed": seed})
    with fairtrial.run(seed=2, config={"lr": 0.1, "seed": seed}, variant="v") as run:
        run.log(1, x=1)
    assert cells_of(store) == {("v", 2)}


@pytest.mark.parametrize("seeded", [{}, {"seed": 3}])
@pytest.mark.parametrize("variant", [None, "v"])
def test_a_run_under_its_earlier_name_is_found_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, seeded: dict[str, int], variant: str | None
) -> None:
    """A run of before: its name ended in a hash, and its config held the seed."""
    from fairtrial.api.running import script
    from fairtrial.core.canonical import content_hash
    from fairtrial.core.specs import RunSpec

    monkeypatch.setattr(sys, "argv", ["train.py"])
    config = {"lr": 0.1, **seeded}
    before = RunSpec("script", config, config, 3, "adhoc", variant or f"train-{content_hash(config)[:8]}")
    with monkeypatch.context() as old:
        old.setattr(script, "script_spec", lambda *_: before, raising=False)
        first = fairtrial.run(seed=3, config=config, variant=variant)
        first.log(1, x=1)
        first.save(1, {"w": 1})
        first.finish(Status.INTERRUPTED)
    again = fairtrial.run(seed=3, config=config, variant=variant)
    saved = again.resume()
    assert saved is not None and saved.step == 1
    again.finish(Status.COMPLETED)
    with pytest.raises(FairtrialError, match="already complete"):
        fairtrial.run(seed=3, config=config, variant=variant)
    assert cells_of(store) == {(before.variant, 3)}


def test_two_configs_never_share_a_name() -> None:
    from fairtrial.api.running.script_names import LONGEST_DERIVED, derived_name
    from fairtrial.core.paths import check_name

    configs: list[dict[str, object]] = [
        {}, {"a": 1}, {"a": "1"}, {"a": 1.0}, {"a": True}, {"a": "true"}, {"a": None}, {"a": "none"}, {"a": "x,b=2"},
        {"a": "x", "b": 2}, {"a": "x/y"}, {"a": "x y"}, {"a": [1]}, {"a": "[1]"}, {"a": {"b": 1}}, {"a=1,b": 2}, {"é": 1},
        {"a": "x" * 200}, {"a": "x" * 201}, {f"key{n}": n for n in range(40)}, {f"key{n}": n for n in range(41)},
    ]  # fmt: skip
    names = [check_name("variant", derived_name(config)) for config in configs]
    assert len(set(names)) == len(configs) and max(map(len, names)) <= LONGEST_DERIVED
    assert names[1].endswith("-a=1") and "key0=0,key1=1" in names[-1]


# The ways in which people write it


@dataclasses.dataclass
class Settings:
    lr: float = 0.1
    seed: int = 7


@pytest.mark.parametrize(
    "config",
    [
        argparse.Namespace(lr=0.1, seed=7),
        Settings(),
        {"lr": 0.1, "seed": 7},
        types.SimpleNamespace(lr=0.1, seed=7),
        types.MappingProxyType({"lr": 0.1, "seed": 7}),
    ],
    ids=lambda config: type(config).__name__,
)
def test_a_config_of_any_usual_kind_names_the_variant_and_the_seed(config: object) -> None:
    with fairtrial.run(config=config) as run:
        assert run.seed == 7
        assert run.metadata.options == {"lr": 0.1}
        assert run.metadata.variant.endswith("-lr=0.1")


@pytest.mark.parametrize("config", [[1, 2], 3, Settings, "lr=0.1"])
def test_a_config_of_another_kind_is_a_sentence(config: object) -> None:
    with pytest.raises(FairtrialError, match=r"config must be a mapping, an argparse\.Namespace or a dataclass, not"):
        fairtrial.run(config=config)


def test_metrics_are_logged_with_the_step_first_or_last(store: Store) -> None:
    with fairtrial.run(variant="v") as run:
        run.log(1, loss=0.5)
        run.log({"loss": 0.25, "eval/acc": 1}, step=2)
        run.log({"loss": 0.1}, step=3, acc=0.9)
        with pytest.raises(FairtrialError, match=r"log\(\) needs a step"):
            run.log({"loss": 1.0})
    rows = [json.loads(line) for line in run.paths.metrics.read_text().splitlines()]
    assert [{k: v for k, v in row.items() if k != "_time"} for row in rows] == [
        {"step": 1, "loss": 0.5},
        {"step": 2, "loss": 0.25, "eval/acc": 1.0},
        {"step": 3, "loss": 0.1, "acc": 0.9},
    ]


def test_finish_ends_a_run_with_the_status_that_it_is_given(store: Store) -> None:
    done = fairtrial.run(variant="v").finish()
    assert done.status is Status.COMPLETED
    fairtrial.run(variant="w").finish(status="failed", reason="out of memory")
    assert status_of(store, "w.seed1072") == (Status.FAILED, "out of memory")
    run = fairtrial.run(variant="x")
    with pytest.raises(FairtrialError, match="unknown status of a finished run 'complete'; did you mean 'completed'"):
        run.finish(status="complete")
    run.finish(status="diverged", reason="loss is NaN")
    run.close()  # a second end changes nothing
    assert status_of(store, "x.seed1072") == (Status.DIVERGED, "loss is NaN")


def test_close_completes_a_run_unless_an_exception_is_on_its_way(store: Store) -> None:
    run = fairtrial.run(variant="v")
    run.log(1, loss=0.5)
    run.close()
    assert status_of(store) == (Status.COMPLETED, None)
    run = fairtrial.run(variant="w")
    with pytest.raises(ZeroDivisionError):
        try:
            _ = 1 / 0
        finally:
            run.close()
    assert status_of(store, "w.seed1072") == (Status.FAILED, "ZeroDivisionError: division by zero")


def test_the_repr_of_a_run_names_it(store: Store) -> None:
    with fairtrial.run(variant="v") as run:
        run.log(3, loss=1)
        assert repr(run) == f"<ScriptRun adhoc/v.seed1072, running, step 3, {run.paths.root}>"
    assert "completed" in repr(run)


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "status"), [("failed", Status.FAILED), ("diverged", Status.DIVERGED)])
def test_a_launched_program_reports_its_status_to_its_job(
    store: Store, tmp_path: Path, ending: str, status: Status
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        f"import fairtrial\nrun = fairtrial.run()\nrun.log(1, loss=1.0)\nrun.finish({ending!r}, 'it was bad')\n"
    )
    run = make(store, "command", argv=[sys.executable, str(script)])
    assert (run.status, run.reason) == (status, "it was bad")
