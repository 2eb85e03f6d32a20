"""The commands as a person or a program calls them."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from fairtrial.core.registry import recipe_names
from fairtrial.core.runs import Status
from fairtrial.record.store import Store
from tests.conftest import Answer, start
from tests.harness import eventually

Cli = Callable[..., Answer]


def test_training_twice_says_that_it_is_done(cli: Cli) -> None:
    first = cli("train", "fake", "--steps", "10", "--format", "json")
    assert first.code == 0 and first.json["already_done"] is False
    assert first.json["run"] == "adhoc/steps=10.seed1072"
    again = cli("train", "fake", "--steps", "10")
    assert again.code == 0 and "already done" in again.out and "--again" in again.err
    assert again.err.startswith("Store: "), "the first line names the store"


def test_again_adds_an_attempt_that_is_no_other_seed(cli: Cli, store: Store) -> None:
    for _ in range(3):
        answer = cli("train", "fake", "--steps", "10", "--again", "--format", "json")
    assert answer.json["run"] == "adhoc/steps=10.seed1072.again3"
    rows = cli("runs", "list", "--format", "json").json["runs"]
    assert {row["seed"] for row in rows} == {1072} and [row["attempt"] for row in rows] == [3, 2, 1]


def test_replace_archives_the_old_run(cli: Cli, store: Store) -> None:
    cli("train", "fake", "--variant", "v")
    refused = cli("train", "fake", "--variant", "v", "--effect", "0.5")
    assert refused.code == 1 and "effect 0.0 → 0.5" in refused.err
    assert cli("train", "fake", "--variant", "v", "--effect", "0.5", "--replace").code == 0
    assert len(list(store.paths.archive("adhoc").iterdir())) == 1
    assert len(cli("runs", "list", "--format", "json").json["runs"]) == 1


@pytest.mark.slow
def test_ctrl_c_in_train_saves_and_the_same_command_goes_on(store: Store) -> None:
    line = ("train", "fake", "--steps", "200", "--step-time", "0.02", "--variant", "v", "--log-every", "1")
    process = start(*line)
    metrics = store.paths.run("adhoc", "v.seed1072").metrics
    eventually(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") > 5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130 and "Traceback" not in err
    run = store.run("adhoc", "v.seed1072")
    assert run is not None and run.status is Status.INTERRUPTED
    process = start("train", "--resume", "v.seed1072", "--format", "json")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    run = store.run("adhoc", "v.seed1072")
    assert run is not None and run.metadata["lineage"]["resumed"][0]["step"] >= 5
    assert json.loads(out)["status"] == "completed"


@pytest.mark.slow
def test_json_mode_prints_exactly_one_document(cli: Cli) -> None:
    lines = [
        ("train", "fake", "--steps", "5"), ("launch", "fake", "--seeds", "2", "--steps", "5"), ("runs", "list"),
        ("runs", "show", "steps=5.seed1072"), ("runs", "tail", "steps=5.seed1072"), ("runs", "export", "*"),
        ("runs", "sql", "select 1 as one"), ("doctor",), ("launch", "fake", "--dry-run"),
        ("runs", "rm", "steps=5.seed1072", "--yes"), ("init",),
    ]  # fmt: skip
    for words in lines:
        answer = cli(*words, "--format", "json")
        assert answer.code == 0, (words, answer.err)
        assert answer.json["schema"] == 1, words


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["json", "csv", "md", "tex", "txt"])
def test_the_suffix_of_the_output_file_chooses_the_format(cli: Cli, tmp_path: Path, suffix: str) -> None:
    cli(
        "launch",
        "fake",
        "--seeds",
        "2",
        "--steps",
        "5",
        "--variant",
        "a_1:",
        "--variant",
        "b:effect=0.1",
        "--base-run-name",
        "s",
    )
    assert cli("runs", "list", "--output", f"out.{suffix}").code == 0
    text = (tmp_path / f"out.{suffix}").read_text()
    assert "seed1072" in text
    if suffix == "csv":
        assert len(list(csv.DictReader(io.StringIO(text)))) == 4
    if suffix == "tex":
        assert r"a\_1" in text and text.startswith(r"\begin{tabular}")


@pytest.mark.parametrize("recipe", recipe_names())
def test_init_writes_a_file_that_launches(cli: Cli, tmp_path: Path, recipe: str) -> None:
    assert cli("init", "--recipe", recipe, "--output", "my study.yaml").code == 0
    content = yaml.safe_load((tmp_path / "my study.yaml").read_text())
    assert content["study"] == "my-study" and content["seeds"] == 15
    dry = cli("launch", "my study.yaml", "--dry-run", "--format", "json")
    assert dry.code == 0, dry.err
    assert len(dry.json["runs"]) == 30
    refused = cli("init", "--output", "my study.yaml")
    assert refused.code == 1 and "--force" in refused.err


@pytest.mark.slow
def test_a_study_file_and_flags_make_the_same_cells(cli: Cli, tmp_path: Path) -> None:
    text = "study: s\nrecipe: fake\noptions: {steps: 5}\nvariants: {a: {}, b: {effect: 0.1}}\nseeds: 2\n"
    (tmp_path / "s.yaml").write_text(text)
    assert len(cli("launch", "s.yaml", "--format", "json").json["made"]) == 4
    flags = ("--base-run-name", "s", "--steps", "5", "--variant", "a", "--variant", "b:effect=0.1", "--seeds", "2")
    assert cli("launch", "fake", *flags, "--format", "json").json["made"] == []
    assert len(cli("launch", "s.yaml", "--seeds", "3", "--format", "json").json["made"]) == 2


def test_the_default_is_fifteen_paired_seeds(cli: Cli) -> None:
    dry = cli("launch", "fake", "--variant", "a", "--variant", "b", "--dry-run", "--format", "json").json["runs"]
    assert len(dry) == 30
    assert [row["variant"] for row in dry[:4]] == ["a", "b", "a", "b"], "pairs are made together"
    assert dry[0]["seed"] == dry[1]["seed"] == 1072


@pytest.mark.slow
def test_tail_follows_a_run_until_it_ends(store: Store) -> None:
    trained = start("train", "fake", "--steps", "60", "--step-time", "0.02", "--variant", "v")
    eventually(lambda: store.paths.run("adhoc", "v.seed1072").metrics.exists() and store.run("adhoc", "v.seed1072"))
    followed = start("runs", "tail", "v.seed1072", "--follow")
    out, err = followed.communicate(timeout=60)
    assert followed.returncode == 0, err
    assert "report_accuracy" in out and out.count("train_loss") == 6
    trained.communicate()


def test_removing_asks_first(cli: Cli) -> None:
    cli("train", "fake", "--steps", "5")
    refused = cli("runs", "rm", "*")
    assert refused.code == 2 and "--yes" in refused.err
    assert cli("runs", "rm", "*", "--yes").code == 0
    empty = cli("runs", "list")
    assert empty.code == 0 and "No runs yet" in empty.err


def test_synthetic_numbers_are_labelled_wherever_they_are_shown(cli: Cli) -> None:
    launched = cli("launch", "fake", "--seeds", "1", "--steps", "5", "--base-run-name", "s", "--variant", "v")
    assert "(synthetic)" in launched.out and "generates its numbers" in launched.out
    assert "(synthetic)" in cli("runs", "list").out
    assert "(synthetic)" in cli("runs", "show", "v.seed1072").out
    assert cli("runs", "list", "--format", "json").json["runs"][0]["synthetic"] is True
    assert "generates its numbers" in cli("train", "fake", "--steps", "5").out


def test_doctor_says_what_is_there(cli: Cli, tmp_path: Path) -> None:
    answer = cli("doctor", "--format", "json")
    names = {check["name"]: check for check in answer.json["checks"]}
    assert names["recipe distill"]["ok"] is True
    assert names["gpu"]["finding"].startswith("unavailable") or names["gpu"]["ok"]
    assert not (tmp_path / "store").exists(), "looking makes nothing"


@pytest.mark.slow
def test_progress_is_for_terminals_and_json_for_pipes(tmp_path: Path) -> None:
    """In a real terminal the bars go to standard error, while standard output stays one document."""
    line = f"{sys.executable} -m fairtrial launch fake --seeds 2 --steps 40 --step-time 0.02 --format json > out.json"
    done = subprocess.run(
        ["script", "-qec", line, "/dev/null"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stdout
    assert json.loads((tmp_path / "out.json").read_text())["arms"][0]["completed"] == 2
    assert "all runs" in done.stdout and "steps" in done.stdout


@pytest.mark.slow
def test_the_python_api_does_what_the_commands_do(tmp_path: Path) -> None:
    import fairtrial

    trained = fairtrial.train("fake", {"steps": 5}, seed=3)
    assert trained.run.status is Status.COMPLETED and "report_accuracy" in trained.run.final
    study = fairtrial.Study.model_validate({"study": "s", "recipe": "fake", "options": {"steps": 5}, "seeds": 2})
    launched = fairtrial.launch(study)
    assert launched.arms[0].completed == 2
    assert len(fairtrial.list_runs()) == 3
    assert fairtrial.query("select count(*) from runs")[1] == [(3,)]
    import fairtrial.train.loop

    assert callable(fairtrial.train), "importing the room does not take the verb's name"


@pytest.mark.slow
def test_launching_from_a_script_does_not_run_the_script_again(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import fairtrial\nopen('ran', 'a').write('x')\n"
        "s = fairtrial.Study.model_validate({'study': 's', 'recipe': 'fake', 'options': {'steps': 5}, 'seeds': 2})\n"
        "fairtrial.launch(s)\n"
    )
    subprocess.run([sys.executable, "mine.py"], cwd=tmp_path, check=True, env={**os.environ})
    assert (tmp_path / "ran").read_text() == "x"


def test_a_run_is_not_listed_as_running_for_ever(store: Store, cli: Cli) -> None:
    process = start("train", "fake", "--steps", "5000", "--step-time", "0.01", "--variant", "v")
    eventually(lambda: store.paths.run("adhoc", "v.seed1072").metrics.exists() and store.run("adhoc", "v.seed1072"))
    assert cli("runs", "list", "--format", "json").json["runs"][0]["status"] == "running"
    process.kill()
    process.communicate()
    time.sleep(0.05)
    assert cli("runs", "list", "--status", "interrupted", "--format", "json").json["runs"][0]["run"] == "v.seed1072"


def test_launch_can_train_runs_together(cli: Callable[..., Answer], with_data: Store) -> None:
    line = (
        "launch",
        "classify",
        "--seeds",
        "1,2",
        "--steps",
        "20",
        "--labels",
        "200",
        "--batch-size",
        "50",
        "--jobs",
        "1",
    )
    assert cli(*line, "--base-run-name", "apart").code == 0
    assert cli(*line, "--base-run-name", "together", "--stack").code == 0
    apart, together = (with_data.run(study, "default.seed1") for study in ("apart", "together"))
    assert apart is not None and together is not None and apart.final == together.final
    assert (apart.metadata["timings"]["stacked"], together.metadata["timings"]["stacked"]) == (1, 2)


def test_a_run_of_another_recipe_is_not_resumed(cli: Callable[..., Answer], store: Store) -> None:
    cli("train", "fake", "--steps", "5", "--seed", "1", "--study", "s", "--variant", "v")
    told = cli("train", "classify", "--resume", "s/v.seed1")
    assert told.code == 1 and "is a run of fake, not of classify" in told.err


def test_a_planned_command_says_nothing_of_what_was_not_given(cli: Callable[..., Answer]) -> None:
    dry = cli(
        "launch", "fake", "--benchmark", "random_score=0", "--benchmark", "human_score=1", "--seeds", "1", "--dry-run"
    )
    assert dry.code == 0 and "None" not in dry.out and "--benchmark human_score=1" in dry.out
