"""Launching on this machine: real processes, real kills, nothing done twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from fairtrial.core.runs import Status
from fairtrial.record.series import read_lines
from fairtrial.record.store import Store
from tests.conftest import Answer, start
from tests.harness import eventually, is_alive, make, parent_of, series_of

Cli = Callable[..., Answer]
TWO = ("--variant", "a:effect=0", "--variant", "b:effect=0.1", "--base-run-name", "s", "--quiet")


def events(store: Store, run: str, study: str = "s") -> list[str]:
    return [row["event"] for row in read_lines(store.paths.run(study, run).events).rows]


def pids(store: Store, study: str = "s") -> list[int]:
    """The processes that wrote a study's runs."""
    rows = [row for _, entry in store.directories(study) for row in read_lines(Path(entry.path) / "events.jsonl").rows]
    return [row["pid"] for row in rows if "pid" in row]


def test_a_study_is_launched_and_only_what_is_missing_is_run_again(cli: Cli, store: Store) -> None:
    first = cli("launch", "fake", *TWO, "--seeds", "3", "--steps", "20", "--format", "json")
    assert first.code == 0, first.err
    assert len(first.json["made"]) == 6 and first.json["synthetic"] is True
    assert [arm["completed"] for arm in first.json["arms"]] == [3, 3]
    gaps = first.json["differences"][0]
    assert gaps["pairs"] == 3 and gaps["above"] == 3
    again = cli("launch", "fake", *TWO, "--seeds", "4", "--steps", "20", "--format", "json")
    assert again.json["made"] == ["s/a.seed4085", "s/b.seed4085"]
    assert [run["seed"] for run in again.json["runs"][::2]] == [1072, 2043, 3014, 4085]


def test_the_same_variant_with_other_options_is_refused(cli: Cli, store: Store) -> None:
    cli("launch", "fake", *TWO, "--seeds", "1", "--steps", "20")
    refused = cli("launch", "fake", *TWO, "--seeds", "2", "--steps", "30", "--noise", "0.5")
    assert refused.code == 1
    assert "variant 'a' of study 's' exists with different options: noise 0.02 → 0.5, steps 20 → 30" in refused.err
    assert "variant 'b'" in refused.err and "--replace" in refused.err
    assert len(list(store.directories("s"))) == 2
    replaced = cli("launch", "fake", *TWO, "--seeds", "2", "--steps", "30", "--replace")
    assert replaced.code == 0
    assert len(list(store.paths.archive("s").iterdir())) == 2


def test_an_option_that_changes_no_number_may_change(cli: Cli) -> None:
    cli("launch", "fake", *TWO, "--seeds", "1", "--steps", "20")
    again = cli("launch", "fake", *TWO, "--seeds", "1", "--steps", "20", "--checkpoint-every", "5", "--format", "json")
    assert again.code == 0 and again.json["made"] == []


def test_failed_cells_wait_for_retry_failed_and_diverged_ones_are_results(cli: Cli, store: Store) -> None:
    arguments = ("--variant", "ok:effect=0", "--variant", "bad:fail_at=5", "--variant", "nan:diverge_at=10")
    launch = ("launch", "fake", *arguments, "--base-run-name", "s", "--seeds", "1", "--steps", "20")
    first = cli(*launch)
    assert first.code == 4
    assert "1 run of bad failed (seed 1072): RuntimeError: asked to fail at step 5" in first.out
    assert f"Log: {store.paths.run('s', 'bad.seed1072').log}" in first.out
    assert "raise RuntimeError" in cli("runs", "show", "s/bad.seed1072").out, "the tail of its log is shown"
    assert "1 run of nan diverged (seed 1072): train_loss became nan at step 10" in first.out
    assert events(store, "bad.seed1072").count("run_started") == 1
    assert cli(*launch).code == 4
    assert "run_resumed" not in events(store, "bad.seed1072")
    assert cli(*launch, "--retry-failed").code == 4
    assert events(store, "bad.seed1072").count("run_resumed") == 1
    assert events(store, "nan.seed1072").count("run_started") == 1
    assert "run_resumed" not in events(store, "nan.seed1072")


def test_two_launchers_do_no_work_twice(store: Store) -> None:
    line = ("launch", "fake", *TWO, "--seeds", "6", "--steps", "20", "--step-time", "0.01", "--format", "json")
    both = [start(*line), start(*line)]
    answers = [json.loads(process.communicate(timeout=90)[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    runs = [entry.name for _, entry in store.directories("s")]
    assert len(runs) == 12
    for run in runs:
        assert events(store, run).count("run_started") == 1
        assert "run_resumed" not in events(store, run)
    made = [set(answer["made"]) for answer in answers]
    assert not made[0] & made[1] and len(made[0] | made[1]) == 12
    assert all(len(answer["runs"]) == 12 for answer in answers)


def test_a_launcher_takes_over_what_another_left_behind(store: Store) -> None:
    line = ("launch", "fake", *TWO, "--seeds", "1", "--steps", "50", "--step-time", "0.05", "--jobs", "2")
    first = start(*line)
    eventually(lambda: len(pids(store)) == 2)
    second = start(*line, "--format", "json")
    time.sleep(1.0)
    first.kill()
    out, err = second.communicate(timeout=90)
    assert second.returncode == 0, err
    assert len(json.loads(out)["made"]) == 2
    first.communicate()


def test_ctrl_c_saves_stops_and_the_same_command_goes_on(tmp_path: Path, store: Store) -> None:
    options = {"steps": 100, "step_time": 0.02, "checkpoint_every": 40, "log_every": 1, "jitter": 0.1}
    flags = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    line = ("launch", "fake", *flags, "--variant", "v", "--base-run-name", "s", "--seeds", "1,2")
    process = start(*line)
    eventually(lambda: len(list(store.directories("s"))) == 2 and len(pids(store)) == 2)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Stopped" in err and "Traceback" not in err
    for seed in (1, 2):
        run = store.run("s", f"v.seed{seed}")
        assert run is not None and run.status is Status.INTERRUPTED and run.reason == "stopped by Ctrl-C"
        assert run.paths.last.exists(), "the step that was reached is saved"
    process = start(*line)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    reference = Store(tmp_path / "reference")
    make(reference, "fake", **options)
    assert series_of(store) == series_of(reference)


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGHUP, signal.SIGHUP]])
def test_a_launcher_that_is_asked_to_end_does_what_ctrl_c_does(store: Store, signals: list[signal.Signals]) -> None:
    """A terminal that is closed says so twice, and that is no second Ctrl-C."""
    process = start(
        "launch", "fake", *TWO, "--seeds", "1,", "--steps", "2000", "--step-time", "0.02", "--log-every", "1",
        preexec_fn=partial(signal.signal, signal.SIGHUP, signal.SIG_DFL),  # nohup would have it ignored
    )  # fmt: skip
    eventually(lambda: len(pids(store)) == 2, what="two runs")
    for number in signals:
        process.send_signal(number)
        time.sleep(0.1)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "run the same command again to resume" in err and "Killing" not in err
    for run in ("a.seed1", "b.seed1"):
        found = store.run("s", run)
        assert found and found.status is Status.INTERRUPTED and found.paths.last.exists()


def test_a_launcher_below_nohup_goes_on_when_its_terminal_is_closed(store: Store) -> None:
    """What nohup has ignored stays ignored, by the launcher and by every process that it starts."""
    process = start(
        "launch", "fake", *TWO, "--seeds", "1,", "--steps", "60", "--step-time", "0.02", "--log-every", "1",
        preexec_fn=partial(signal.signal, signal.SIGHUP, signal.SIG_IGN), start_new_session=True,
    )  # fmt: skip
    eventually(lambda: len(pids(store)) == 2, what="two runs")
    os.killpg(process.pid, signal.SIGHUP)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    for run in ("a.seed1", "b.seed1"):
        found = store.run("s", run)
        assert found and found.status is Status.COMPLETED


def test_a_killed_launcher_leaves_no_worker_behind(store: Store) -> None:
    process = start("launch", "fake", *TWO, "--seeds", "1", "--steps", "5000", "--step-time", "0.01", "--jobs", "2")
    eventually(lambda: len(pids(store)) == 2)
    workers = pids(store)
    assert all(map(is_alive, workers))
    process.kill()
    eventually(lambda: not any(map(is_alive, workers)), timeout=8, what="the end of the workers")
    process.communicate()
    for variant in "ab":
        run = store.run("s", f"{variant}.seed1072")
        assert run is not None and run.status is Status.INTERRUPTED


def test_a_killed_server_takes_its_workers_along(store: Store) -> None:
    process = start("launch", "fake", *TWO, "--seeds", "1", "--steps", "5000", "--step-time", "0.01", "--jobs", "2")
    eventually(lambda: len(pids(store)) == 2)
    workers = pids(store)
    server = parent_of(workers[0])
    os.kill(server, signal.SIGKILL)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1 and "the job server exited unexpectedly" in err
    eventually(lambda: not any(map(is_alive, workers)), timeout=8, what="the end of the workers")


@pytest.mark.parametrize("retries", [0, 1])
def test_a_killed_worker_is_noticed_and_tried_again_on_request(store: Store, retries: int) -> None:
    line = (
        "launch",
        "fake",
        "--variant",
        "v",
        "--base-run-name",
        "s",
        "--seeds",
        "1,",
        "--steps",
        "100",
        "--step-time",
        "0.02",
    )
    process = start(*line, "--checkpoint-every", "10", "--retries", str(retries), "--format", "json")
    eventually(lambda: store.paths.run("s", "v.seed1").last.exists())
    os.kill(pids(store)[0], signal.SIGKILL)
    out, _ = process.communicate(timeout=60)
    run = store.run("s", "v.seed1")
    assert run is not None
    if retries:
        assert process.returncode == 0 and run.status is Status.COMPLETED
        assert run.metadata["lineage"]["resumed"][0]["step"] >= 10
    else:
        assert process.returncode == 4
        assert run.status is Status.INTERRUPTED and run.reason == "its process was killed by SIGKILL"
        assert json.loads(out)["runs"][0]["reason"] == run.reason


def test_a_run_that_takes_too_long_is_stopped_and_can_go_on(cli: Cli, store: Store) -> None:
    line = (
        "launch",
        "fake",
        "--variant",
        "v",
        "--base-run-name",
        "s",
        "--seeds",
        "1,",
        "--steps",
        "100",
        "--step-time",
        "0.03",
    )
    stopped = cli(*line, "--timeout", "1")
    assert stopped.code == 4
    run = store.run("s", "v.seed1")
    assert run is not None and run.status is Status.INTERRUPTED and run.reason == "timed out after 1 s"
    assert cli(*line).code == 0, "the next launch resumes it"
    run = store.run("s", "v.seed1")
    assert run is not None and run.metadata["lineage"]["resumed"]


def test_more_than_one_thread_gets_a_process_of_its_own(with_data: Store, cli: Cli) -> None:
    line = ("launch", "classify", "--model", "linear", "--steps", "20", "--threads", "2", "--seeds", "1")
    done = cli(*line, "--base-run-name", "s", "--variant", "v", "--format", "json")
    assert done.code == 0, done.err
    assert done.json["arms"][0]["completed"] == 1


def test_a_dry_run_prints_commands_that_make_the_very_same_cells(cli: Cli, store: Store) -> None:
    dry = cli("launch", "fake", *TWO, "--seeds", "2", "--steps", "20", "--label", "two words", "--dry-run")
    assert dry.code == 0 and not store.root.exists()
    commands = dry.out.strip().splitlines()
    assert len(commands) == 4
    done = subprocess.run(
        commands[3].replace("fairtrial", "python -m fairtrial", 1), shell=True, capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": f"{Path(os.sys.executable).parent}:{os.environ['PATH']}"},  # type: ignore[attr-defined]
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    launched = cli("launch", "fake", *TWO, "--seeds", "2", "--steps", "20", "--label", "two words", "--format", "json")
    assert sorted(launched.json["made"]) == ["s/a.seed1072", "s/a.seed2043", "s/b.seed1072"]


def test_strict_refuses_a_dirty_tree(cli: Cli, tmp_path: Path) -> None:
    for command in (
        ["init", "-q"],
        ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    line = (
        "launch",
        "fake",
        *TWO,
        "--seeds",
        "1",
        "--steps",
        "5",
        "--strict",
        "--store",
        str(tmp_path.parent / "elsewhere"),
    )
    assert cli(*line, "--format", "json").code == 0
    (tmp_path / "new.py").write_text("x = 1\n")
    refused = cli(*line)
    assert refused.code == 1 and "uncommitted changes" in refused.err


def test_a_study_ends_with_the_commands_to_run_next(cli: Cli) -> None:
    done = cli("launch", "fake", *TWO, "--seeds", "1", "--steps", "5", "--base-run-name", "my study")
    commands = [line.strip() for line in done.out.split("Next:")[1].strip().splitlines()]
    import shlex

    for command in commands:
        _, *words = shlex.split(command)
        assert cli(*words).code == 0, command


def test_a_frozen_run_is_ended_and_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRTRIAL_PULSE_S", "0.1")
    line = ("launch", "fake", "--variant", "v", "--base-run-name", "s", "--seeds", "1,", "--lost-after", "1")
    process = start(*line, "--steps", "60", "--step-time", "0.02", "--checkpoint-every", "10")
    eventually(lambda: store.paths.run("s", "v.seed1").step(10).exists())
    os.kill(pids(store)[-1], signal.SIGSTOP)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "s/v.seed1: no heartbeat for 1 s; rescheduling it." in err
    assert events(store, "v.seed1").count("run_resumed") == 1


def test_a_run_that_hangs_is_stopped_where_that_was_asked_for(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lives, so it is not lost; it makes no step, so it hangs."""
    monkeypatch.setenv("FAIRTRIAL_PULSE_S", "0.1")
    line = ("launch", "fake", "--variant", "v", "--base-run-name", "s", "--seeds", "1,", "--hung-after", "1")
    process = start(*line, "--steps", "3", "--step-time", "3", "--lost-after", "2")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 4
    assert "no progress for 1 s" in err and "no heartbeat" not in err


def test_no_run_is_taken_for_lost_before_it_could_give_a_sign_of_life(
    cli: Cli, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for flag in ("--lost-after", "--hung-after"):
        told = cli("launch", "fake", *TWO, flag, "2")
        assert told.code == 1 and f"{flag} 2 is too short: a run writes a heartbeat every 5 s" in told.err
        assert "Pass 15 or more" in told.err
    told = cli("launch", "fake", *TWO, "--lost-after", "20", "--store", "s3://lab/here")
    assert told.code == 1 and "every 15 s" in told.err and "Pass 45 or more" in told.err
    assert not store.root.exists()
    monkeypatch.setenv("FAIRTRIAL_PULSE_S", "0.1")
    assert cli("launch", "fake", *TWO, "--seeds", "1", "--steps", "3", "--lost-after", "1").code == 0


def test_more_than_this_machine_has_is_refused(cli: Cli, store: Store) -> None:
    told = cli("launch", "fake", *TWO, "--cpus", "9999", "--memory", "999999")
    assert told.code == 1 and "--cpus 9999: this machine has only " in told.err
    assert "--memory 999999: this machine has " in told.err
    assert not store.root.exists()


SEER = """
import os, time
from fairtrial.core.options import LoopOptions
from fairtrial.core.specs import Metric

SUMMARY, REQUIRES, EXTRA, METRIC = "Says which card it sees.", (), None, Metric("card", "max")

class Options(LoopOptions):
    pass

class Seer:
    def step(self, step, events):
        time.sleep(0.15)
        return {"card": float(os.environ["CUDA_VISIBLE_DEVICES"]), "at": time.time()}

    def evaluate(self, split):
        return {"card": float(os.environ["CUDA_VISIBLE_DEVICES"])}

    def state(self):
        return {}

    def load_state(self, state): ...

def build(options, context):
    return Seer()
"""


def test_runs_that_go_on_at_the_same_time_see_different_cards(
    cli: Cli, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "seer.py").write_text(SEER)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,7,9")
    answer = cli(
        "launch", "./seer.py", "--base-run-name", "s", "--seeds", "5", "--gpus", "2", "--steps", "2", "--log-every", "1"
    )
    assert answer.code == 0, answer.err
    runs = [run for _, entry in store.directories("s") if (run := store.run("s", entry.name))]
    spans = sorted(
        (run.metadata["timings"]["created"], run.metadata["timings"]["ended"], run.final["train_card"]) for run in runs
    )
    assert {card for _, _, card in spans} == {3.0, 7.0}
    for begun, ended, card in spans:
        others = [c for b, e, c in spans if b < ended and e > begun and (b, e) != (begun, ended)]
        assert card not in others, "two runs shared a card"


def test_cards_that_are_not_there_are_refused_before_anything_is_written(
    cli: Cli, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    refused = cli("launch", "fake", "--gpus", "2")
    assert refused.code == 1 and "--gpus 2: no NVIDIA driver responds" in refused.err
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert "$CUDA_VISIBLE_DEVICES names 1" in cli("launch", "fake", "--gpus", "2").err
    assert "several runs on one" in cli("launch", "fake", "--gpus", "1", "--jobs", "2").err
    assert not store.root.exists()
