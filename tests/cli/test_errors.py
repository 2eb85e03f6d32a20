"""Bad input gets one clear sentence and a hint, the right exit code, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.core.runs import Status
from fairtrial.record.checkpoints import read_checkpoint
from fairtrial.record.series import read_lines
from fairtrial.record.store import Store
from tests.conftest import Answer
from tests.harness import fill_up

Cli = Callable[..., Answer]


def assert_told(answer: Answer, code: int, *parts: str) -> None:
    assert answer.code == code, answer.err
    assert "Traceback" not in answer.err
    lines = [line for line in answer.err.splitlines() if line.startswith(("Error:", "Hint:"))]
    assert lines and lines[0].startswith("Error:")
    for part in parts:
        assert part in "\n".join(lines), answer.err


@pytest.mark.parametrize(
    ("words", "code", "parts"),
    [
        (
            ["nonsense"],
            2,
            [
                "unknown command 'nonsense'; valid: ablation, alpha, analyze, bench, compare, completion, cost-performance, doctor"
            ],
        ),
        (["lunch"], 2, ["did you mean 'launch'?"]),
        (["train", "clasify"], 2, ["unknown recipe 'clasify'; did you mean 'classify'?"]),
        (["train", "fake", "--step", "5"], 2, ["No such option", "--steps"]),
        (["train", "fake", "--steps", "many"], 1, ["steps: must be an integer, not 'many'"]),
        (["train", "fake", "--steps", "0", "--noise", "-1"], 1, ["steps: must be", "noise: must be"]),
        (["train", "fake", "--resume", "x", "--steps", "5"], 2, ["--resume takes no other options"]),
        (["train", "fake", "--again", "--replace"], 2, ["cannot be used together"]),
        (["train", "--resume", "nothing"], 1, ["no run named 'nothing'", "no runs yet"]),
        (["train", "./missing.py"], 1, ["no recipe file", "Built-in recipes"]),
        (["train", "fake", "--variant", "a/b"], 1, ["cannot be a folder name"]),
        (["launch", "missing.yaml"], 1, ["no file missing.yaml", "fairtrial init"]),
        (["launch", "fake", "--seeds", "0"], 1, ["seeds: must be at least 1"]),
        (["launch", "fake", "--seeds", "1,1"], 1, ["each seed may occur only once; repeated: 1"]),
        (["launch", "fake", "--seeds", "x"], 2, ["--seeds: 'x' is neither a number nor a list"]),
        (["launch", "fake", "--variant", "a:efect=1"], 1, ["variant 'a'", "did you mean 'effect'?"]),
        (["launch", "fake", "--variant", "a:x", "--variant", "a:y"], 2, ["'x' does not have the form name=value"]),
        (["launch", "fake", "--variant", "a", "--variant", "a"], 2, ["'a' is given twice"]),
        (["launch", "fake", "--variant", "a:efect=1", "--variant", "b:nose=2"], 1, ["variant 'a'", "variant 'b'"]),
        (["launch", "command", "--", "run", "{lr}"], 1, ["placeholder {lr} has no value"]),
        (["launch", "command"], 1, ["pass the program after '--'"]),
        (["runs", "show", "nothing"], 1, ["no run named 'nothing'"]),
        (["runs", "list", "--where", "nonsense"], 2, ["invalid condition 'nonsense'"]),
        (["runs", "list", "--status", "done"], 2, ["unknown status 'done'"]),
        (["runs", "rm", "nothing"], 1, ["no run named"]),
        (["runs", "sql", "selec 1"], 1, ["selec"]),
        (["runs", "list", "--output", "list.xyz"], 2, ["the suffix of 'list.xyz' does not name a format"]),
        (["runs", "list", "--output", "no/such/folder.json"], 1, ["cannot write no/such/folder.json"]),
        (["init", "--recipe", "nothing"], 1, ["unknown recipe 'nothing'"]),
        (["runs", "list", "--config", "missing.yaml"], 1, ["no file missing.yaml"]),
    ],
)
def test_a_wrong_command_line_is_explained(cli: Cli, words: list[str], code: int, parts: list[str]) -> None:
    assert_told(cli(*words), code, *parts)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "study: s\nrecipe: fake\nvariant: {a: {}}\n",
            ["study.yaml: unknown key 'variant'; did you mean 'variants'?"],
        ),
        ("study: s\nrecipe: fake\nsummary: {typ: last}\n", ["unknown key 'summary.typ'; did you mean 'summary.type'?"]),
        ("study: s\nrecipe: fake\noptions: {efect: 1}\n", ["did you mean 'effect'?"]),
        ("study: s\nrecipe: fake\nsummary: {window: 5:1}\n", ["must be FIRST:LAST in steps"]),
        ("study: a/b\nrecipe: fake\n", ["cannot be a folder name"]),
        ("recipe: fake\n", ["'study' is missing"]),
        ("study: s\nrecipe: fakke\n", ["did you mean 'fake'?"]),
        ("study: s\n  recipe: [\n", ["is not valid YAML at line 2"]),
        ("- 1\n- 2\n", ["does not contain a mapping"]),
        ("", ["does not contain a mapping"]),
        ("study: s\nrecipe: fake\nalpha: 2\nsesoi: -1\nseeds: []\n", ["alpha", "sesoi", "seeds"]),
        ("study: s\nrecipe: fake\nvariants: {}\n", ["needs at least one"]),
    ],
)
def test_a_wrong_study_file_is_explained(cli: Cli, tmp_path: Path, text: str, parts: list[str]) -> None:
    (tmp_path / "study.yaml").write_text(text)
    assert_told(cli("launch", "study.yaml"), 1, *parts)
    assert not (tmp_path / "store").exists()


def test_a_wrong_config_file_is_explained_and_flags_win_over_a_right_one(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("stepz: 5\nformat: json\n")
    assert_told(cli("train", "fake", "--config", "c.yaml"), 1, "unknown option 'stepz'; did you mean 'steps'?")
    (tmp_path / "c.yaml").write_text("steps: 5\neval-every: 2\nformat: json\nseed: 3\n")
    answer = cli("train", "fake", "--config", "c.yaml", "--steps", "7")
    assert answer.code == 0, answer.err
    assert answer.json["run"] == "adhoc/steps=7,eval_every=2.seed3"


def test_json_mode_gives_one_document_even_for_an_error(cli: Cli) -> None:
    answer = cli("train", "fake", "--steps", "0", "--format", "json")
    assert answer.code == 1
    assert answer.json["schema"] == 1 and "steps" in answer.json["error"]["message"]


@pytest.mark.slow
def test_a_missing_extra_is_refused_before_anything_is_launched(tmp_path: Path) -> None:
    code = """
import importlib.util, sys
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in ("torch", "mnist1d") else real(name, *rest)
from fairtrial.cli.app import main
main(["launch", "distill", "--seeds", "1", "--store", "never"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert_told(
        Answer(done.returncode, done.stdout, done.stderr), 1, "needs torch, mnist1d", "pip install 'fairtrial[train]'"
    )
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("leave", [16_384, 40_960, 65_536, 98_304])
def test_a_full_disk_loses_nothing_and_the_run_goes_on_when_there_is_room(
    cli: Cli, small_disk: Path, tmp_path: Path, leave: int
) -> None:
    options = ("--steps", "3000", "--log-every", "1", "--checkpoint-every", "100", "--jitter", "0.1")
    place = Store(small_disk / "store")
    place.root.mkdir()
    ballast = fill_up(small_disk, leave=leave)
    answer = cli("train", "fake", *options, "--variant", "v", "--store", str(place.root))
    assert answer.code in (1, 4)
    assert_told(answer, answer.code, "the disk is full", "Free some space")
    paths = place.paths.run("adhoc", "v.seed1072")
    lines = read_lines(paths.metrics)
    assert not lines.torn, "a line that did not fit was taken back whole"
    run = place.run("adhoc", "v.seed1072")
    if run is not None:
        assert run.status is Status.INTERRUPTED
        if run.metadata["best_checkpoint_step"] is not None:
            read_checkpoint(paths.best, sha256=run.metadata["best_checkpoint_sha256"])
    ballast.unlink()
    again = cli("train", "fake", *options, "--variant", "v", "--store", str(place.root), "--format", "json")
    assert again.code == 0, again.err
    reference = cli("train", "fake", *options, "--variant", "v", "--store", str(tmp_path / "roomy"), "--format", "json")
    assert again.json["final"] == reference.json["final"]


def test_a_launch_onto_a_full_disk_is_told_per_run(cli: Cli, small_disk: Path) -> None:
    (small_disk / "store").mkdir()
    fill_up(small_disk, leave=30_000)
    answer = cli("launch", "fake", "--seeds", "3", "--steps", "500", "--log-every", "1", "--base-run-name", "s", "--store", str(small_disk / "store"))  # fmt: skip
    assert answer.code in (1, 4)
    assert "the disk is full" in answer.out + answer.err
    assert "Traceback" not in answer.err


def test_a_read_only_store_is_refused_at_once(cli: Cli, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for words in (["train", "fake"], ["launch", "fake", "--seeds", "1"]):
        assert_told(cli(*words, "--store", str(small_disk / "store")), 1, "the file system is read-only", "--store")
    assert cli("runs", "list", "--store", str(small_disk)).code == 0


def test_a_read_only_store_can_still_be_listed(cli: Cli, small_disk: Path) -> None:
    assert cli("train", "fake", "--steps", "5", "--store", str(small_disk)).code == 0
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert len(cli("runs", "list", "--store", str(small_disk), "--format", "json").json["runs"]) == 1
    assert cli("runs", "show", "steps=5.seed1072", "--store", str(small_disk)).code == 0


def test_a_file_in_place_of_the_store_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert_told(cli("train", "fake", "--store", "file"), 1, "is a file, not a folder")
    assert_told(cli("runs", "list", "--store", "file"), 1, "is a file, not a folder")


def test_a_diverged_run_is_recorded_and_listed_with_its_reason(cli: Cli, store: Store) -> None:
    answer = cli("train", "fake", "--steps", "50", "--diverge-at", "30", "--variant", "v")
    assert_told(answer, 4, "diverged: train_loss became nan at step 30", "fairtrial runs show")
    [row] = cli("runs", "list", "--format", "json").json["runs"]
    assert row["status"] == "diverged" and row["best_metric_value"] is not None
    rows = read_lines(store.paths.run("adhoc", "v.seed1072").metrics).rows
    assert rows[-1]["train_loss"] == "NaN", "the value that ended it is kept"
    assert cli("train", "fake", "--steps", "50", "--diverge-at", "30", "--variant", "v").code == 0, "it is a result"


def test_a_failed_run_shows_the_end_of_its_log(cli: Cli) -> None:
    assert_told(cli("train", "fake", "--fail-at", "3", "--variant", "v"), 4, "RuntimeError: asked to fail at step 3")
    shown = cli("runs", "show", "v.seed1072")
    assert "failed" in shown.out and "RuntimeError: asked to fail" in shown.out


def test_an_infinite_loss_diverges_too(cli: Cli, with_data: Store) -> None:
    answer = cli(
        "train", "classify", "--steps", "200", "--learning-rate", "1e30", "--log-every", "1", "--eval-every", "1"
    )
    assert_told(answer, 4, "diverged")


def test_a_recipe_file_that_is_no_recipe_is_refused_with_all_it_lacks(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("SUMMARY = 'x'\n")
    assert_told(cli("train", "./empty.py"), 1, "does not define REQUIRES, METRIC, Options, build (or execute)")
    (tmp_path / "broken.py").write_text("import no_such_module\n")
    assert_told(cli("train", "./broken.py"), 1, "cannot be loaded: ModuleNotFoundError")


def test_debug_shows_the_trace(cli: Cli) -> None:
    with pytest.raises(Exception, match="steps"):
        cli("train", "fake", "--steps", "0", "--debug")


@pytest.mark.slow
def test_a_closed_pipe_is_no_error(cli: Cli) -> None:
    cli("launch", "fake", "--seeds", "40", "--steps", "2", "--variant", "v", "--base-run-name", "s")
    line = f"{sys.executable} -m fairtrial runs export 's/*' | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["study,variant,seed,run,attempt,status,step,metric,value", "0"]
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_reader_that_leaves_early_costs_no_file_and_no_exit_code(cli: Cli, tmp_path: Path) -> None:
    """`analyze … | head` must still write its CSV, and still exit 3 where a verdict was required and is missing."""
    cli("launch", "fake", "--seeds", "3", "--steps", "4", "--variant", "a", "--variant", "b", "--base-run-name", "s")
    # A reader that is gone before the first line: the pipe is closed by `true`, and the command waits for that.
    for words, code in ((("--output.csv_path", "runs.csv"), 0), (("--require", "better"), 3)):
        analyze = f"sleep 0.3; {sys.executable} -m fairtrial analyze s {' '.join(words)}"
        line = f"set -o pipefail; ({analyze}; echo $? > code) | true"
        subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
        assert (tmp_path / "code").read_text().strip() == str(code)
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 7
