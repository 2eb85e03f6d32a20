"""What a new user ran into: each of these once ended in a trace, a wrong number or a wrong word."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import fairtrial
from fairtrial.core.errors import FairtrialError
from fairtrial.core.runs import Status
from fairtrial.record.claims import is_claimed
from fairtrial.record.series import read_series
from fairtrial.record.store import Store
from tests.conftest import Answer, start
from tests.harness import eventually, is_alive, make

Cli = Callable[..., Answer]
PYTHON = sys.executable


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], 0),
        (["runs"], 0),
        (["launch"], 0),
        (["train"], 0),
        (["train", "fake", "--seed", "9" * 30], 2),
        (["train", "fake", "--steps", "9" * 30], 1),
        (["runs", "sql", ""], 1),
        (["runs", "sql", "select 170141183460469231731687303715884105727::hugeint as x", "--format", "json"], 0),
        (["runs", "sql", "select '[/x]' as \"[red]\""], 0),
        (["runs", "list", "--output", "/dev/full", "--format", "json"], 1),
    ],
)
def test_no_trace_whatever_is_typed(shell: Callable[..., Answer], words: list[str], code: int) -> None:
    answer = shell(*words)
    assert answer.code == code, answer.err
    assert "Traceback" not in answer.err + answer.out


def test_a_terminal_that_cannot_show_a_sign_is_no_reason_to_fail(shell: Callable[..., Answer]) -> None:
    assert shell("doctor", env={"PYTHONIOENCODING": "ascii"}).code == 0


def test_options_before_the_recipe_are_not_swallowed(cli: Cli) -> None:
    refused = cli("train", "--format", "json", "fake")
    assert refused.code == 2 and "--format must come after the recipe" in refused.err


def test_nothing_can_be_added_to_a_run_that_has_ended(tmp_path: Path) -> None:
    with fairtrial.run(variant="v") as run:
        run.log(1, loss=1.0)
    with (tmp_path / "a").open("w"), (tmp_path / "b").open("w"), pytest.raises(FairtrialError, match="has ended"):
        run.log(2, loss=2.0)
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text() == ""


@pytest.mark.slow
def test_an_attempt_that_starts_over_leaves_nothing_of_the_one_before(cli: Cli, store: Store, tmp_path: Path) -> None:
    program = "import sys\nopen(sys.argv[2], 'w').write(''.join('{{\"step\": %d, \"acc\": {value}}}\\n' % s for s in range({steps})))\nsys.exit({code})\n"
    line = (
        "launch",
        "command",
        "--base-run-name",
        "s",
        "--seeds",
        "1,",
        "--metrics",
        "{run_dir}/m.jsonl",
        "--format",
        "json",
    )
    argv = ("--", PYTHON, "p.py", "{seed}", "{run_dir}/m.jsonl")
    (tmp_path / "p.py").write_text(program.format(value=0.1, steps=100, code=1))
    assert cli(*line, *argv).code == 4
    (tmp_path / "p.py").write_text(program.format(value=0.9, steps=10, code=0))
    done = cli(*line, "--retry-failed", *argv)
    assert done.code == 0 and done.json["arms"][0]["mean"] == 0.9
    assert len(read_series(store.paths.run("s", "default.seed1"))["acc"][0]) == 10


def test_the_best_of_an_attempt_that_was_given_up_is_forgotten(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), fairtrial.run(variant="v", best_metric="acc") as run:
        run.evaluated(900, {"acc": 0.99}, {"w": 1})
        raise ZeroDivisionError
    with fairtrial.run(variant="v", best_metric="acc") as run:
        run.evaluated(1, {"acc": 0.5}, {"w": 2})
    found = store.run("adhoc", "v.seed1072")
    assert found is not None
    assert (found.metadata["best_metric_value"], found.metadata["best_checkpoint_step"]) == (0.5, 1)
    assert dict(found.final) == {"acc": 0.5}


@pytest.mark.parametrize(
    ("metrics", "message"), [("p.py", "must end in"), ("{run_dir}", "must end in"), ("d.csv", "is a folder")]
)
def test_a_users_files_are_never_taken_for_metrics(cli: Cli, tmp_path: Path, metrics: str, message: str) -> None:
    (tmp_path / "p.py").write_text("pass")
    (tmp_path / "d.csv").mkdir()
    answer = cli("launch", "command", "--seeds", "1", "--metrics", metrics, "--", PYTHON, "p.py", "{seed}")
    assert answer.code in (1, 4) and message in answer.err + answer.out
    assert (tmp_path / "p.py").exists() and (tmp_path / "d.csv").is_dir()


@pytest.mark.slow
def test_a_very_long_reason_does_not_end_the_launch(cli: Cli, tmp_path: Path) -> None:
    recipe = (Path(__file__).parent.parent.parent / "src/fairtrial/recipes/fake.py").read_text()
    (tmp_path / "long.py").write_text(recipe.replace('f"asked to fail at step {step}"', '"ü" * 100_000'))
    answer = cli(
        "launch", "./long.py", "--variant", "bad:fail_at=2", "--variant", "good", "--seeds", "2", "--format", "json"
    )
    assert answer.code == 4
    assert [arm["completed"] for arm in answer.json["arms"]] == [0, 2]


def test_a_run_named_by_its_path_is_resumed_where_it_is(cli: Cli, store: Store, tmp_path: Path) -> None:
    process = start(
        "train", "fake", "--steps", "60", "--step-time", "0.02", "--variant", "v", "--checkpoint-every", "5"
    )
    paths = store.paths.run("adhoc", "v.seed1072")
    eventually(lambda: paths.last.exists())
    process.kill()
    process.communicate()
    answer = cli("train", "--resume", str(paths.root), "--store", str(tmp_path / "elsewhere"), "--format", "json")
    assert answer.code == 0 and answer.json["path"] == str(paths.root)
    assert store.run("adhoc", "v.seed1072").status is Status.COMPLETED  # type: ignore[union-attr]


@pytest.mark.slow
def test_ties_are_better_for_nobody(cli: Cli) -> None:
    for direction in ("max", "min"):
        answer = cli(
            "launch",
            "fake",
            "--variant",
            "a:noise=0",
            "--variant",
            "b:noise=0",
            "--seeds",
            "3",
            "--steps",
            "5",
            "--direction",
            direction,
        )
        assert "better in 0 of 3" in answer.out


def test_values_of_a_file_and_of_a_command_line_are_the_same_cell(cli: Cli, tmp_path: Path) -> None:
    study = {
        "study": "s",
        "recipe": "command",
        "options": {"argv": ["true", "{lr}", "{seed}"]},
        "variants": {"a": {"lr": 0.1}},
        "seeds": 1,
    }
    (tmp_path / "s.yaml").write_text(json.dumps(study))
    [row] = cli("launch", "s.yaml", "--dry-run", "--format", "json").json["runs"]
    import shlex

    assert cli(*shlex.split(row["command"])[1:]).code == 0
    assert cli("launch", "s.yaml", "--format", "json").json["made"] == []


@pytest.mark.slow
def test_a_second_ctrl_c_leaves_nothing_running(store: Store, tmp_path: Path) -> None:
    stubborn = "trap '' TERM; echo $$ > pid; (trap '' TERM; echo $BASHPID > child; sleep 300); sleep 300"
    process = start("launch", "command", "--seeds", "1", "--base-run-name", "s", "--", "bash", "-c", stubborn, "{seed}")
    pids = eventually(
        lambda: (tmp_path / "child").exists() and [(tmp_path / name).read_text().strip() for name in ("pid", "child")]
    )
    time.sleep(0.3)
    process.send_signal(2)
    time.sleep(1.0)
    process.send_signal(2)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "Press Ctrl-C again" in err
    for pid in pids:
        eventually(lambda pid=int(pid): not is_alive(pid), timeout=5, what=f"the end of {pid}")


@pytest.mark.slow
def test_strict_does_not_stumble_over_its_own_results(cli: Cli, tmp_path: Path) -> None:
    for command in (
        ["init", "-q"],
        ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    for seeds in ("1", "2"):
        assert (
            cli(
                "launch",
                "fake",
                "--seeds",
                seeds,
                "--steps",
                "5",
                "--strict",
                "--base-run-name",
                "s",
                "--store",
                "runs",
            ).code
            == 0
        )


def test_another_attempt_with_other_options_is_refused(cli: Cli) -> None:
    assert cli("train", "fake", "--variant", "x", "--effect", "0.1").code == 0
    refused = cli("train", "fake", "--variant", "x", "--effect", "0.2", "--again")
    assert refused.code == 1 and "effect 0.1 → 0.2" in refused.err


def test_a_metric_that_a_run_did_not_reach_is_unknown_not_another_one(cli: Cli) -> None:
    cli("train", "fake", "--diverge-at", "20")
    [row] = cli("runs", "list", "--format", "json").json["runs"]
    assert row["metric"] == "report_accuracy" and row["value"] is None


def test_a_name_that_no_run_has_is_a_typing_error(cli: Cli) -> None:
    cli("train", "fake", "--steps", "5")
    refused = cli("runs", "list", "--where", "report_acuracy>0.3")
    assert refused.code == 1 and "did you mean 'report_accuracy'" in refused.err


@pytest.mark.parametrize("content", ["garbage", '{"schema": 1}', "[]", ""])
def test_a_damaged_run_is_listed_and_can_be_removed(cli: Cli, store: Store, content: str) -> None:
    make(store, "fake", study="d", steps=5)
    store.paths.run("d", "v.seed1").metadata.write_text(content)
    listed = cli("runs", "list", "--format", "json")
    assert listed.code == 0 and listed.json["runs"][0]["status"] == "damaged"
    shown = cli("runs", "show", "d/v.seed1")
    assert shown.code == 3 and "damaged" in shown.out and "fairtrial doctor --damage" in shown.out
    assert cli("runs", "rm", "d/v.seed1", "--yes").code == 0
    assert cli("runs", "list", "--format", "json").json["runs"] == []


def test_a_damaged_study_is_said_to_be_damaged(cli: Cli, store: Store) -> None:
    cli("launch", "fake", "--seeds", "1", "--steps", "5", "--base-run-name", "s")
    store.paths.study_plan("s").write_text("{")
    refused = cli("launch", "fake", "--seeds", "2", "--steps", "5", "--base-run-name", "s")
    assert refused.code == 1 and "is not the plan of a study" in refused.err


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fairtrial.run(seed="1"), "seed must be an integer"),  # type: ignore[arg-type]
        (lambda: fairtrial.run(seed=-5), "seed must be an integer"),
    ],
)
def test_a_script_with_a_wrong_seed_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(FairtrialError, match=message):
        call()


def test_a_config_may_hold_paths() -> None:
    with fairtrial.run(config={"out": Path("x"), "lr": 0.1}) as run:
        assert run.metadata["options"] == {"out": "x", "lr": 0.1}
        for metrics in ({1: 2.0}, {"a": 10**400}):
            with pytest.raises(FairtrialError):
                run.log(1, metrics)  # type: ignore[arg-type]
        with pytest.raises(FairtrialError):
            run.log(2**70, x=1.0)


def test_a_forked_worker_does_not_keep_its_parents_run(store: Store, tmp_path: Path) -> None:
    code = """
import fairtrial, os, time
run = fairtrial.run(variant="v")
run.log(1, x=1.0)
if os.fork() == 0:
    open("worker", "w").write(str(os.getpid()))
    time.sleep(60)
time.sleep(60)
"""
    process = subprocess.Popen([PYTHON, "-c", code], cwd=tmp_path)
    worker = int(eventually(lambda: (tmp_path / "worker").exists() and (tmp_path / "worker").read_text()))
    paths = store.paths.run("adhoc", "v.seed1072")
    assert is_claimed(paths)
    process.kill()
    process.wait()
    assert is_alive(worker) and not is_claimed(paths)
    os.kill(worker, 9)


def test_sys_exit_without_with_is_a_failure(store: Store, tmp_path: Path) -> None:
    code = "import sys, fairtrial\nrun = fairtrial.run(variant='v')\nrun.log(1, x=1)\nsys.exit(3)\n"
    assert subprocess.run([PYTHON, "-c", code], cwd=tmp_path, check=False).returncode == 3
    found = store.run("adhoc", "v.seed1072")
    assert found is not None and found.status is Status.FAILED and found.reason == "SystemExit: 3"


def test_a_recipe_file_may_have_modules_beside_it(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "beside_helper.py").write_text("LEVEL = 0.5\n")
    recipe = (Path(__file__).parent.parent.parent / "src/fairtrial/recipes/fake.py").read_text()
    (tmp_path / "with_helper.py").write_text(
        recipe.replace("import math\n", "import math\nfrom beside_helper import LEVEL\n", 1)
    )
    assert cli("train", "./with_helper.py", "--steps", "5").code == 0


def test_a_csv_with_a_byte_order_mark_is_read(cli: Cli, store: Store) -> None:
    code = "open('o.csv','w',encoding='utf-8-sig').write('step,acc,time\\n1,0.5,9\\n')"
    assert (
        cli(
            "launch",
            "command",
            "--base-run-name",
            "s",
            "--seeds",
            "1",
            "--metrics",
            "o.csv",
            "--",
            PYTHON,
            "-c",
            code,
            "{seed}",
        ).code
        == 0
    )
    assert set(read_series(store.paths.run("s", "default.seed1072"))) == {"acc", "time"}


@pytest.mark.slow
def test_small_numbers_are_not_shown_as_zero(cli: Cli) -> None:
    code = "import sys; open(sys.argv[2],'w').write('{{\"step\": 1, \"val_loss\": 3.25e-5}}')"
    answer = cli(
        "launch",
        "command",
        "--base-run-name",
        "s",
        "--seeds",
        "2",
        "--metrics",
        "{run_dir}/m.jsonl",
        "--",
        PYTHON,
        "-c",
        code,
        "{seed}",
        "{run_dir}/m.jsonl",
    )
    assert answer.code == 0 and "3.25e-05" in answer.out


def test_no_color_is_honoured(tmp_path: Path) -> None:
    make(Store(tmp_path / "store"), "fake", steps=5)
    line = f"{PYTHON} -m fairtrial runs list"
    for environment, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        settings = {**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, "TERM": "xterm-256color", **environment}
        done = subprocess.run(
            ["script", "-qec", line, "/dev/null"], capture_output=True, text=True, env=settings, check=True
        )
        assert ("\x1b[32m" in done.stdout) is coloured


def test_an_output_that_could_not_be_written_is_refused_before_the_work(cli: Cli, store: Store) -> None:
    refused = cli("launch", "fake", "--seeds", "2", "--output", "no/folder/x.csv")
    assert refused.code == 1 and not store.root.exists()


@pytest.mark.slow
def test_a_metric_that_nobody_logged_is_an_error_and_the_runs_are_kept(cli: Cli) -> None:
    line = ("launch", "fake", "--base-run-name", "s", "--seeds", "2", "--steps", "5", "--variant", "v")
    answer = cli(*line, "--metric", "report_acuracy", "--direction", "max")
    assert answer.code == 1 and "did you mean 'report_accuracy'?" in answer.err
    assert cli(*line, "--format", "json").json["made"] == []


def test_a_key_that_is_there_twice_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("study: s\nrecipe: fake\nvariants:\n  a: {effect: 1}\n  a: {effect: 2}\n")
    refused = cli("launch", "s.yaml")
    assert refused.code == 1 and "the key 'a' occurs twice" in refused.err


def test_as_many_steps_are_measured_as_were_asked_for(cli: Cli) -> None:
    """`fake` trains for 100 steps unless it is told otherwise."""
    words = ("bench", "fake", "--no-trials", "--format", "json")
    asked = cli(*words, "--max-batches", "200").json
    assert asked["steps"]["taken"] == 200
    assert "short training" not in [caution["code"] for caution in asked["cautions"]]
    short = cli(*words, "--max-batches", "200", "--steps", "50").json
    assert "short training" in [caution["code"] for caution in short["cautions"]]
