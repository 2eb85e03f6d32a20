"""Several attempts at one run, several programs in one attempt, copies of a store: one truth."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import fairtrial
from fairtrial.core.runs import Status
from fairtrial.record.metadata import load_metadata
from fairtrial.record.recorder import Recorder
from fairtrial.record.series import read_series
from fairtrial.record.store import Store
from tests.conftest import Answer, start
from tests.harness import eventually, forked, wait

PYTHON = sys.executable


def recorder(store: Store, metric: str = "acc", mode: str = "max") -> Recorder:
    return fairtrial.run(variant="v", store=store.root, best_metric=metric, best_mode=mode)  # type: ignore[arg-type]


def best(store: Store) -> tuple[object, object, object]:
    metadata = load_metadata(store.paths.run("adhoc", "v.seed1072"))
    assert metadata is not None
    return metadata["best_metric_name"], metadata["best_metric_value"], metadata["best_checkpoint_step"]


def test_a_copied_store_says_the_same(store: Store, tmp_path: Path) -> None:
    """The columns of an earlier attempt are not taken for those of a later one, whatever the times of the files."""
    run = recorder(store)
    for step in range(1, 11):
        run.log(step, x=step)
    run.save(10, {"w": 1})
    run.finish(Status.INTERRUPTED, "stopped")
    again = recorder(store)
    assert again.resume() is not None
    for step in range(11, 21):
        again.log(step, x=step)
    again.release()
    shutil.copytree(store.root, tmp_path / "copy")
    for root in (store.root, tmp_path / "copy"):
        assert read_series(Store(root).paths.run("adhoc", "v.seed1072"))["x"][0].tolist() == list(range(1, 21))


def test_a_forked_child_that_ends_does_not_end_the_run(store: Store, tmp_path: Path) -> None:
    code = "import fairtrial, os, sys\nrun = fairtrial.run(variant='v')\nrun.log(1, x=1)\nif os.fork() == 0:\n    sys.exit(0)\nos.wait()\nrun.log(2, x=2)\nos.kill(os.getpid(), 9)\n"
    subprocess.run([PYTHON, "-c", code], cwd=tmp_path, check=False)
    run = store.run("adhoc", "v.seed1072")
    assert run is not None and run.status is Status.INTERRUPTED


def test_a_best_by_another_metric_is_not_the_best(store: Store) -> None:
    first = recorder(store, "acc", "max")
    first.evaluated(1, {"acc": 0.1}, {"w": 1}, save=True)
    first.release()
    second = recorder(store, "loss", "min")
    assert second.resume() is not None
    second.evaluated(2, {"loss": 0.4}, {"w": 2})
    second.release()
    assert best(store) == ("loss", 0.4, 2)


def test_a_resume_goes_back_to_the_best_of_its_checkpoint(store: Store) -> None:
    """Best 0.7 at 5, saved at 10, best 0.9 at 15, killed. The next attempt is at 10 again, where 0.7 was the best."""
    first = recorder(store)
    first.evaluated(5, {"acc": 0.7}, {"w": 5})
    first.save(10, {"w": 10})
    first.evaluated(15, {"acc": 0.9}, {"w": 15})
    first.release()
    second = recorder(store)
    assert second.resume() is not None
    assert best(store) == ("acc", 0.7, 5) and second.best_state() == {"w": 5}
    second.evaluated(15, {"acc": 0.6}, {"w": 150})
    assert best(store) == ("acc", 0.7, 5)
    second.evaluated(20, {"acc": 0.8}, {"w": 20})
    second.release()
    assert best(store) == ("acc", 0.8, 20)


def test_what_a_kill_left_half_done_is_swept_away(store: Store) -> None:
    def doomed() -> None:
        run = recorder(store)
        run.save(1, {"w": 1})
        (run.paths.checkpoints / ".best-2.pt").write_bytes(b"never announced")
        (run.paths.checkpoints / ".step-2.pt.77.tmp").write_bytes(b"half")
        os.kill(os.getpid(), 9)

    assert wait(forked(doomed)) == -9
    with recorder(store) as run:
        run.resume()
        assert sorted(path.name for path in run.paths.checkpoints.iterdir()) == ["last.pt", "step-1.pt"]


STEPPING = """
import fairtrial, json, os, sys, time
run = fairtrial.run(best_metric="acc")
saved = run.resume()
out = open(sys.argv[2], "a", buffering=1)
for step in range(saved.step + 1 if saved else 1, 41):
    time.sleep(0.02)
    out.write(json.dumps({"step": step, "copied": step}) + "\\n")
    run.evaluated(step, {"acc": step / 100}, {"w": step}, save=step % 5 == 0)
"""


@pytest.mark.slow
def test_a_joined_program_resumes_below_a_new_launch_with_metrics_of_its_own(store: Store, tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(STEPPING)
    line = ("launch", "command", "--base-run-name", "s", "--seeds", "1,", "--metrics", "{run_dir}/m.jsonl")
    argv = ("--", PYTHON, "p.py", "{seed}", "{run_dir}/m.jsonl")
    paths = store.paths.run("s", "default.seed1")
    first = start(*line, *argv)
    eventually(lambda: paths.step(10).exists())
    first.kill()
    first.communicate()
    second = start(*line, *argv)
    _, err = second.communicate(timeout=60)
    assert second.returncode == 0, err
    run = store.run("s", "default.seed1")
    assert run is not None and run.status is Status.COMPLETED
    assert run.metadata["lineage"]["resumed"][0]["step"] >= 5
    assert run.metadata["best_metric_value"] == 0.4 and run.paths.best.exists()
    assert read_series(paths)["acc"][0].tolist() == list(range(1, 41))


def test_two_programs_of_one_attempt_add_to_one_run(cli: Callable[..., Answer], store: Store, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import fairtrial\nrun = fairtrial.run(best_metric='acc')\nrun.evaluated(1, {'acc': 0.5}, {'w': 1}, save=True)\n"
    )
    (tmp_path / "evaluate.py").write_text("import fairtrial\nfairtrial.run().log(1, report_acc=0.4)\n")
    both = f"{PYTHON} train.py && {PYTHON} evaluate.py"
    for _ in range(2):
        answer = cli(
            "launch", "command", "--base-run-name", "s", "--seeds", "1,", "--replace", "--", "sh", "-c", both, "{seed}"
        )
        assert answer.code == 0, answer.err
        run = store.run("s", "default.seed1")
        assert run is not None and dict(run.final) == {"acc": 0.5, "report_acc": 0.4}
        assert run.metadata["best_metric_value"] == 0.5


def test_a_killed_program_goes_on_with_the_next_launch(
    store: Store, cli: Callable[..., Answer], tmp_path: Path
) -> None:
    code = "import os, sys\nif not os.path.exists('second'):\n    open('second', 'w').close()\n    os.kill(os.getpid(), 9)\n"
    (tmp_path / "p.py").write_text(code)
    line = ("launch", "command", "--base-run-name", "s", "--seeds", "1,", "--", PYTHON, "p.py", "{seed}")
    assert cli(*line).code == 4
    run = store.run("s", "default.seed1")
    assert run is not None and run.status is Status.INTERRUPTED and "SIGKILL" in (run.reason or "")
    assert cli(*line).code == 0
