"""The laboratory as a person uses it: real trainings, interrupted and gone on with, as text, JSON and pictures."""

from __future__ import annotations

import importlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pytest

from fairtrial import LabConfig, Study
from fairtrial.api.lab.ablation import plan_ablation
from fairtrial.api.lab.compare import plan_compare
from fairtrial.api.lab.sweep import plan_range_sweep
from fairtrial.core.canonical import content_hash
from fairtrial.core.runs import Run, Status
from fairtrial.recipes.data import load_data
from fairtrial.record.interim_looks import read_interim_looks
from fairtrial.record.store import Store
from tests.conftest import Answer, link_data, start
from tests.harness import eventually, one_at_a_time, series_of

Cli = Callable[..., Answer]
compare_module, ablation_module = (
    importlib.import_module(f"fairtrial.api.lab.{word}") for word in ("compare", "ablation")
)

TEACHER = ("--teacher-steps", "10", "--teacher-width", "4")
SMALL = (*TEACHER, "--steps", "30", "--eval-every", "10", "--checkpoint-every", "10", "--labels", "200")
CNN = (*SMALL, "--student-width", "4")
SWEEP = ("temperature", "--start", "1", "--end", "3", "--step", "1", "--runs", "2")
SWEPT = (*SWEEP, *SMALL, "--format", "json")
COMPARED = ("compare", "--strategies", "kd,attention,combined", "--runs", "3", *CNN)
MATCHED = ("compare", "--strategies", "combined", "--runs", "2", *CNN, "--compute-matched", "--study", "m")
ABLATED = ("ablation", "--runs", "2", "--all-pairs", *CNN)


@pytest.fixture
def launched(cli: Cli, with_data: Store, data_cache: Path, shared: Path) -> Cli:
    """What a command said when it was launched in an empty store, which with its runs is now the store of this test.

    A launch takes seconds, so tests that look at the same runs share one; each has a copy that is its own.
    """

    def get(*line: str) -> Answer:
        kept = shared / f"launched-{content_hash(line)[:12]}"
        shutil.rmtree(with_data.root)
        with one_at_a_time(kept.with_suffix(".lock")):
            if not (kept / "answer.json").exists():
                shutil.rmtree(kept, ignore_errors=True)
                answer = cli(*line, "--store", str(link_data(Store(kept / "store"), data_cache).root))
                assert answer.code == 0, answer.err
                (kept / "answer.json").write_text(json.dumps(vars(answer)))
        shutil.copytree(kept / "store", with_data.root, symlinks=True)
        return Answer(**json.loads((kept / "answer.json").read_text()))

    return get


def test_a_temperature_sweep_has_the_documented_document(cli: Cli, launched: Cli) -> None:
    answer = launched(*SWEPT)
    found = answer.json
    assert found["schema"] == 1 and found["sweep_type"] == "temperature"
    assert found["range"] == {"start": 1.0, "end": 3.0, "step": 1.0}
    assert [row["temperature"] for row in found["results"]] == [1.0, 2.0, 3.0]
    for row in found["results"]:
        assert row["runs"] == 2 and row["std_dev"] is not None and row["loss"] > 0
        assert row["ci"][0] < row["accuracy"] < row["ci"][1]
    best = found["best"]
    assert best["temperature"] == found["best_temperature"] and best["temperature"] in best["set"]
    assert best["confirmed"] is None and found["confirmation"] is None
    assert {"mean_accuracy", "variance"} <= set(found["statistical_analysis"])
    codes = {caution["code"] for caution in found["cautions"]}
    assert {"one teacher", "fewer labels", "best of many"} <= codes
    assert cli(*SWEPT).json == found, "asked again, it says the same"


def test_the_sweep_is_a_study_that_other_commands_open(cli: Cli, launched: Cli) -> None:
    name = launched(*SWEPT).json["study"]
    assert "6 runs: 6 completed" in cli("runs", "list", "--study", name).err
    analysis = cli("analyze", name, "--format", "json").json
    assert analysis["metric"] == "report_accuracy", "what was selected by eval is judged by report"
    assert len(analysis["comparisons"]) == 2
    shown = cli("runs", "show", f"{name}/temperature=1.0.seed1072").out
    assert "3 runs were trained together" in shown


def test_the_text_says_the_best_value_and_its_set(cli: Cli, launched: Cli) -> None:
    launched(*SWEPT)
    answer = cli(*SWEEP, *SMALL)
    assert answer.out.startswith("Temperature Sweep Results\n=========================\n\n")
    assert re.search(r"^Temp +Accuracy +95 % interval +Loss +Std Dev", answer.out, re.MULTILINE)
    assert re.search(r"^Best temperature: [123]\.0 \(accuracy: 0\.\d+\)$", answer.out, re.MULTILINE)
    assert "Tukey over 3 values × 2 seeds" in answer.out
    assert answer.err.startswith("Store: ")


@pytest.mark.parametrize(("line", "pairs"), [(COMPARED, 6), (ABLATED, 6)], ids=["compare", "ablation"])
def test_the_differences_of_a_laboratory_command_are_looks_at_its_study(
    cli: Cli, launched: Cli, with_data: Store, line: Sequence[str], pairs: int
) -> None:
    study = launched(*line, "--format", "json").json["study"]
    rows = read_interim_looks(with_data, study)
    assert len(rows) == pairs
    assert {(row["metric"], row["method"], row["side"], row["summary"]) for row in rows} == {
        ("report_accuracy", "t", "two-sided", "last value")
    }
    found = cli("analyze", study, "--format", "json").json
    assert [each["label"] for each in found["comparisons"]] == [None] * len(found["comparisons"])
    other = cli("analyze", study, "--side", "greater", "--format", "json").json
    assert "another question" in other["comparisons"][0]["label"]


@pytest.mark.slow
def test_one_run_has_no_standard_deviation(cli: Cli) -> None:
    answer = cli("sweep", "fake", "--param", "effect=0,0.1", "--runs", "1", "--format", "json")
    assert answer.code == 0
    assert [row["std_dev"] for row in answer.json["results"]] == [None, None]
    assert [row["ci"] for row in answer.json["results"]] == [None, None]
    assert answer.json["best"]["set"] is None
    text = cli("sweep", "fake", "--param", "effect=0,0.1", "--runs", "1").out
    assert "The values cannot be compared: too few runs" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("temperature", "--step", "0"), "temperature: step must be above 0, not 0"),
        (("temperature", "--step", "-1"), "temperature: step must be above 0, not -1"),
        (("temperature", "--step", "nan"), "--step must be a finite number, not nan"),
        (("temperature", "--start", "8", "--end", "1"), "temperature: the range is reversed, from 8 to 1"),
        (("temperature", "--start", "0"), "temperature: must be greater than 0, not 0.0"),
        (("temperature", "--runs", "0"), "runs must be at least 1, not 0"),
        (("temperature", "--level", "95"), "level must lie between 0.5 and 1, not 95"),
        (("temperature", "--baseline", "4"), "a baseline is only used with --confirm"),
        (("alpha", "--end", "1.1"), "alpha: must be less than or equal to 1, not 1.1"),
        (("alpha", "--step", "0.3"), "alpha: steps of 0.3 from 0 do not reach 1"),
        (("sweep", "distill", "--param", "temprature=1,2"), "did you mean 'temperature'?"),
        (("sweep", "distill"), "nothing to sweep"),
        (("sweep", "distill", "--param", "temperature=1:2"), "temperature: '1:2' is not a valid range"),
        (("sweep", "fake", "--param", "effect=1,2", "--param", "noise=1,2,3", "--zip"), "effect has 2, noise has 3"),
        (("compare", "--strategies", "kd,magic"), "unknown strategy 'magic'"),
        (("compare", "--student", "mlp"), "attention_loss needs models with spatial maps (cnn, gru, transformer)"),
        (("ablation", "--components", "temperature,magic"), "unknown component 'magic'"),
        (("ablation", "--also", "temperature+magic"), "--also temperature+magic: unknown component 'magic'"),
        (("ablation", "--base", "nowhere.yaml"), "no file nowhere.yaml"),
        (("temperature", "--study", "x" * 100, "--confirm", "2"), "the name of the study must have at most 90"),
        (("sweep", "distill", "--param", "report_set=1,2", "--confirm", "2"), "report_set cannot be swept"),
    ],
)
def test_what_cannot_be_swept_is_said_before_anything_starts(
    cli: Cli, store: Store, words: tuple[str, ...], message: str
) -> None:
    answer = cli(*words)
    assert answer.code in (1, 2)
    assert message in answer.err
    assert "Traceback" not in answer.err and answer.out == ""
    assert not store.root.exists() or not store.studies()


def test_unknown_strategies_and_components_list_what_is_valid(cli: Cli) -> None:
    strategies = cli("compare", "--strategies", "kdd,magic").err
    assert all(name in strategies for name in ("none", "kd", "mse", "attention", "progressive", "combined"))
    assert "kdd" in strategies and "magic" in strategies, "all problems at once"
    components = cli("ablation", "--components", "magic").err
    assert all(name in components for name in ("temperature", "soft_targets", "attention_loss", "layer_matching"))


def test_json_goes_to_a_pipe_while_progress_is_shown_on_the_terminal(launched: Cli) -> None:
    launched(*SWEPT)  # for its teacher
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "fairtrial", *SWEPT, "--study", "shown"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    shown = b""
    while True:
        try:
            chunk = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        shown += chunk
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert json.loads(out)["best"]["temperature"] in (1.0, 2.0, 3.0)
    assert b"all runs" in shown and b"left" in shown, "a bar for the whole, and the time left"


def test_a_sweep_that_is_interrupted_goes_on_to_the_same_result(
    cli: Cli, launched: Cli, with_data: Store, tmp_path: Path
) -> None:
    launched(*SWEPT)  # for its teacher
    whole = Store(tmp_path / "whole")
    shutil.copytree(with_data.root, whole.root, symlinks=True)
    line = ("temperature", "--start", "1", "--end", "4", "--step", "1", "--runs", "2", "--jobs", "1", *TEACHER,
            "--steps", "800", "--checkpoint-every", "40", "--study", "t", "--format", "json")  # fmt: skip
    process = start(*line)
    first = with_data.paths.run("t", "temperature=1.0.seed1072").checkpoints
    eventually(lambda: len(list(first.glob("step-*.pt"))) >= 2, timeout=60, what="two checkpoints")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err
    runs = [run for _, entry in with_data.directories("t") if (run := with_data.run("t", entry.name))]
    assert len(runs) == 8 and {run.status for run in runs} == {Status.INTERRUPTED}
    results = []
    for store in (with_data, whole):
        answer = cli(*line, "--store", str(store.root))
        assert answer.code == 0, answer.err
        results.append(answer.json["results"])
    assert results[0] == results[1]
    for run in runs:
        assert series_of(with_data, "t", run.id) == series_of(whole, "t", run.id)
        again = with_data.run("t", run.id)
        assert again and again.metadata["lineage"]["resumed"], "it went on, it did not begin again"


def test_a_grid_that_grows_keeps_what_is_finished(cli: Cli, launched: Cli) -> None:
    name = launched(*SWEPT).json["study"]
    answer = cli("temperature", "--start", "1", "--end", "3", "--step", "0.5", "--runs", "3", *SMALL, "--study", name)
    assert answer.code == 0 and "15 runs; 6 already recorded" in answer.err
    other = cli("temperature", *SMALL[:-2], "--labels", "300", "--study", name)
    assert other.code == 1 and "labels 200 → 300" in other.err, "other settings under an old name are refused"


def test_without_a_stack_the_numbers_are_the_same(cli: Cli, launched: Cli, with_data: Store) -> None:
    stacked = launched(*SWEPT).json["results"]
    alone = cli(*SWEPT, "--study", "b", "--no-stack").json["results"]
    assert stacked == alone
    run = with_data.run("b", "temperature=1.0.seed1072")
    assert run and run.metadata["timings"]["stacked"] == 1 and run.metadata["timings"]["wall_s"] > 0


@pytest.fixture
def published_data(with_data: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data that are kept already are not generated again: only what is fresh takes its time."""

    def kept() -> dict[str, Any]:
        data = load_data("mnist1d", with_data.cache)
        return {
            f"{split}_{part}": data.array(f"{split}_{part}") for split in ("train", "eval", "report") for part in "xy"
        }

    monkeypatch.setattr("fairtrial.recipes.data.mnist1d.make", kept)


def test_a_winner_is_confirmed_on_fresh_seeds_and_fresh_data(
    cli: Cli, launched: Cli, with_data: Store, published_data: None
) -> None:
    launched(*SWEPT)
    answer = cli(*SWEPT, "--confirm", "3", "--baseline", "7")
    assert answer.code == 0, answer.err
    confirmation = answer.json["confirmation"]
    assert answer.json["best"]["confirmed"] == confirmation["accuracy"] and confirmation["runs"] == 3
    assert confirmation["baseline"] == "temperature=7.0" and confirmation["verdict"]
    swept, fresh = (
        [run for _, entry in with_data.directories(name) if (run := with_data.run(name, entry.name))]
        for name in (answer.json["study"], confirmation["study"])
    )
    assert not {run.seed for run in swept} & {run.seed for run in fresh}
    data = [{run.metadata["data"]["sha256"] for run in runs} for runs in (swept, fresh)]
    assert len(data[0]) == len(data[1]) == 1 and data[0] != data[1]
    text = cli(*SWEEP, *SMALL, "--confirm", "3", "--baseline", "7").out
    assert "Confirmed on 3 fresh seeds: accuracy" in text and "temperature=7.0" in text


def test_strategies_are_compared_with_the_baseline_and_their_costs(cli: Cli, launched: Cli) -> None:
    found = launched(*COMPARED, "--format", "json").json
    assert {row["name"] for row in found["strategies"]} == {"none", "kd", "attention", "combined"}
    for row in found["strategies"]:
        assert row["time_s"] > 0 and row["memory_gb"] > 0 and row["runs"] == 3 and row["ci"] is not None
    memory = {row["name"]: row["memory_gb"] for row in found["strategies"]}
    assert memory["combined"] > memory["none"]
    assert found["family"]["pairs"] == 6 == len(found["comparisons"])
    for pair in found["significant"]:
        assert set(pair) == {"better", "worse", "p", "p_adjusted", "delta", "ci"} and pair["delta"] > 0
    text = cli(*COMPARED).out
    assert "Memory (GB)" in text and "Strategy" in text
    title, underline, empty, first, *_ = text.splitlines()
    assert (title, underline, empty) == ("Strategy Comparison Results", "=" * 27, "")
    assert first.split()[1:3] in (["has", "the"], ["is", "best"])
    settled = "Statistical significance (p < 0.05, adjusted for 6 comparisons):"
    assert (settled in text) == bool(found["significant"])


@pytest.fixture
def known_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run of a strategy takes half as long again as one of the baseline: no stopwatch decides a test."""

    def time_of(runs: Sequence[Run]) -> float | None:
        return None if not runs else 1.0 if runs[0].variant == "none" else 1.5

    monkeypatch.setattr(compare_module, "_time", time_of)


def test_the_matched_baseline_trains_as_long_as_the_slowest(
    cli: Cli, launched: Cli, with_data: Store, known_times: None
) -> None:
    line = (*MATCHED, "--format", "json")
    found = launched(*line).json
    assert {row["name"] for row in found["strategies"]} == {"none", "none-matched", "combined"}
    assert any(caution["code"] == "matched by time" for caution in found["cautions"])
    run = with_data.run(found["study"], "none-matched.seed1072")
    assert run and run.metadata["options"]["steps"] == 45 and run.metadata["options"]["strategy"] == "none"
    again = cli(*line).json
    assert again["strategies"] == found["strategies"], "once decided, the number of steps stays"


def test_an_ablation_takes_away_what_it_says(cli: Cli, launched: Cli) -> None:
    found = launched(*ABLATED, "--format", "json").json
    assert found["baseline"]["accuracy"] is not None and found["baseline"]["options"]["strategy"] == "combined"
    removed = [row["removed"] for row in found["rows"]]
    assert removed[:3] == [["temperature"], ["attention_loss"], ["layer_matching"]] and len(removed) == 6
    for row in found["rows"]:
        assert row["delta"] == pytest.approx(row["accuracy"] - found["baseline"]["accuracy"])
    assert [each["components"] for each in found["interactions"]] == removed[3:]
    text = cli(*ABLATED).out
    assert text.startswith("Ablation Study Results\n======================\n\n")
    assert re.search(r"^Full model +0\.\d+ +baseline", text, re.MULTILINE) and "Interactions:" in text


BASE = "strategy: combined\ntemperature: 4.0\nalpha: 0.5\n"


def test_a_base_file_of_three_options_gives_the_same_student(cli: Cli, launched: Cli, tmp_path: Path) -> None:
    found = launched(*ABLATED, "--format", "json").json
    (tmp_path / "config.yaml").write_text(BASE)
    components = ("--components", "temperature, attention_loss,layer_matching ")
    answer = cli(*ABLATED, "--base", "config.yaml", *components, "--format", "json")
    assert "14 runs; 14 already recorded" in answer.err, "no run was trained again"
    assert answer.json == found


def test_a_component_that_does_nothing_is_flagged(cli: Cli, launched: Cli, tmp_path: Path) -> None:
    launched(*SWEPT)  # for its teacher
    (tmp_path / "base.yaml").write_text(
        "soft_targets: true\nmatching_weight: 1e-40\nstrategy: progressive\nstudent: mlp\n"
    )
    line = ("ablation", "--base", "base.yaml", "--components", "soft_targets,layer_matching", "--runs", "2", *SMALL)
    found = cli(*line, "--format", "json").json
    rows = {row["removed"][0]: row for row in found["rows"]}
    assert rows["layer_matching"]["identical_to"] == ["full"] and rows["soft_targets"]["identical_to"] == []
    assert any(caution["code"] == "identical rows" for caution in found["cautions"])
    assert "identical to full" in cli(*line).out


@pytest.mark.parametrize(
    ("base", "problems"),
    [
        (
            "strategy: kd",
            ["attention_loss: strategy kd has no such term", "layer_matching: strategy kd has no such term"],
        ),
        ("strategy: attention\nlayer_matching: true", ["temperature: only soft_targets uses it"]),
        (
            "temperature: 1\nattention_loss: false",
            ["temperature: it is already 1", "attention_loss: it is switched off"],
        ),
        ("matching_weight: 0", ["layer_matching: matching_weight is 0"]),
        ("alpha: 0", ["temperature: only soft_targets", "attention_loss: alpha is 0", "layer_matching: alpha is 0"]),
    ],
)
def test_a_base_without_the_component_is_refused_before_anything_is_trained(
    cli: Cli, store: Store, tmp_path: Path, base: str, problems: list[str]
) -> None:
    (tmp_path / "config.yaml").write_text(base)
    answer = cli("ablation", "--base", "config.yaml")
    assert answer.code == 1 and answer.err.count("the base does not use") == len(problems)
    assert all(f"the base does not use {problem}" in answer.err for problem in problems)
    assert not store.root.exists() or not store.studies()


@pytest.mark.parametrize(
    "words",
    [
        SWEEP,
        ("sweep", "fake", "--param", "effect=0:0.05:0.01", "--param", "noise=0.01,0.02"),
        ("sweep", "classify", "--param", "learning_rate=log:1e-3:1e-2:3", "--model", "linear", "--steps", "20"),
    ],
)
def test_every_format_and_picture_of_a_sweep(cli: Cli, launched: Cli, tmp_path: Path, words: tuple[str, ...]) -> None:
    line = (*words, *(SMALL if words is SWEEP else ()))
    if words is SWEEP:
        launched(*SWEPT)
    for suffix in ("csv", "md", "tex", "json", "txt", "png", "svg"):
        answer = cli(*line, "--output", f"out.{suffix}")
        assert answer.code == 0, answer.err
        assert (tmp_path / f"out.{suffix}").stat().st_size > 100
    title, underline = (tmp_path / "out.txt").read_text().splitlines()[:2]
    assert title.endswith(" Sweep Results") and underline == "=" * len(title)
    assert (tmp_path / "out.md").read_text().startswith("| ")
    picture = (tmp_path / "out.svg").read_text()
    assert "Higher eval_accuracy is better." in picture and ("Synthetic" in picture) == ("fake" in words)
    header = (tmp_path / "out.csv").read_text().splitlines()[0]
    assert "accuracy" in header and "std_dev" in header and "low" in header


def test_pictures_of_strategies_and_ablations(cli: Cli, launched: Cli, tmp_path: Path) -> None:
    launched(*COMPARED, "--format", "json")
    assert cli("compare", "--strategies", "kd", "--runs", "2", *CNN, "--output", "c.svg").code == 0
    launched(*ABLATED, "--format", "json")
    assert cli("ablation", "--components", "temperature", "--runs", "2", *CNN, "--output", "a.svg").code == 0
    compared, ablated = (tmp_path / "c.svg").read_text(), (tmp_path / "a.svg").read_text()
    assert all(name in compared for name in (">kd<", ">none<", "baseline"))
    assert "without temperature" in ablated and "change in report_accuracy from the full model" in ablated
    assert all("Higher report_accuracy is better." in picture for picture in (compared, ablated))


@pytest.mark.slow
def test_a_setting_that_diverges_is_a_result_and_never_wins(cli: Cli) -> None:
    answer = cli("sweep", "fake", "--param", "diverge_at=0,5", "--runs", "3", "--format", "json")
    found: dict[str, Any] = answer.json
    assert answer.code == 4, "some runs diverged"
    assert found["best"]["value"] == 0 and found["results"][1]["lost"] == 3
    assert any(caution["code"] == "lost runs in a sweep" for caution in found["cautions"])


def test_help_lists_the_options_of_the_command_first(cli: Cli) -> None:
    for word in ("temperature", "alpha", "compare", "ablation"):
        text = cli(word, "--help").out
        assert text.index("\nHow to run:") < text.index("\nRecipe distill:") < text.index("\nTraining loop:")
        assert f"--{word} " not in text.replace(f"fairtrial {word}", ""), "what is swept is no fixed setting"
    assert "--param" in cli("sweep", "distill", "--help").out
    assert "distill" in cli("sweep").out


def test_other_settings_are_another_study_and_the_same_are_the_same() -> None:
    def name(plan: Callable[..., Study], *arguments: Any, **options: Any) -> str:
        return plan(*arguments, options=options).study

    compare, ablation, temperature = plan_compare, plan_ablation, partial(plan_range_sweep, "temperature", step=1)
    assert name(compare) == name(compare, student="cnn", learning_rate="0.01") == "compare"
    assert name(ablation) == name(ablation, strategy="combined", learning_rate=0.01) == "ablation"
    assert name(ablation) == name(partial(ablation, base={"strategy": "combined", "temperature": 4, "alpha": 0.5}))
    assert name(temperature, 1, 8) == name(temperature, 2, 4, alpha="0.5") == "temperature"
    others = [
        name(compare, student="mlp"), name(compare, learning_rate=0.005), name(compare, labels=100),
        name(ablation, ["temperature"], strategy="kd"), name(ablation, learning_rate=0.005),
        name(ablation, student="gru"),
        name(temperature, 1, 8, student="linear"), name(temperature, 1, 8, steps=10), name(temperature, 1, 8, steps=11),
    ]  # fmt: skip
    assert len(set(others)) == len(others)
    assert not {"compare", "ablation", "temperature"} & set(others)


@pytest.mark.slow
def test_a_metric_that_nobody_logged_loses_nothing(cli: Cli) -> None:
    line = ("sweep", "fake", "--param", "effect=0,0.1", "--runs", "2", "--study", "s")
    answer = cli(*line, "--metric", "nonsense", "--direction", "max")
    assert answer.code == 1 and "unknown metric 'nonsense'" in answer.err
    again = cli(*line)
    assert again.code == 0 and "4 runs; 4 already recorded" in again.err
    assert cli("analyze", "s").code == 0


@pytest.mark.slow
def test_a_list_of_seeds_may_come_from_a_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "how.yaml").write_text("seeds: [1, 2, 3]\nparam: effect=0,0.1\n")
    found = cli("sweep", "fake", "--config", "how.yaml", "--format", "json").json
    assert [row["runs"] for row in found["results"]] == [3, 3]


def test_the_matched_baseline_survives_a_replacement(
    cli: Cli, launched: Cli, with_data: Store, known_times: None
) -> None:
    launched(*MATCHED, "--format", "json")
    answer = cli(*MATCHED, "--replace", "--format", "json")
    assert answer.code == 0, answer.err
    archived = [path.name for path in with_data.paths.archive("m").iterdir()]
    for run in ("none.seed1072", "none-matched.seed1072"):
        assert sum(name.startswith(run) for name in archived) == 1, "everything is made anew once"


def test_what_the_help_says_is_what_the_functions_do() -> None:
    """Defaults stand in the command line, so that help is instant, and in the functions: they must not drift."""
    for word in ("compare", "ablation"):
        line, function = (importlib.import_module(f"fairtrial.{room}.{word}") for room in ("cli", "api.lab"))
        assert line.RUNS == function.RUNS
    assert ",".join(compare_module.STRATEGIES) == importlib.import_module("fairtrial.cli.compare").DEFAULT
    assert ",".join(ablation_module.COMPONENTS) == importlib.import_module("fairtrial.cli.ablation").DEFAULT
    assert LabConfig().runs == importlib.import_module("fairtrial.cli.sweep").RUNS


@pytest.mark.slow
def test_a_metric_of_a_foreign_program_keeps_its_name(cli: Cli, tmp_path: Path) -> None:
    program = "import json, sys; print(json.dumps({'step': 1, 'reward_mean': float(sys.argv[1])}), file=open(sys.argv[2], 'w'))"
    (tmp_path / "p.py").write_text(program)
    line = (
        "sweep",
        "command",
        "--param",
        "x=1,2",
        "--runs",
        "2",
        "--metric",
        "reward_mean",
        "--metrics",
        "{run_dir}/m.jsonl",
    )
    answer = cli(*line, "--", sys.executable, "p.py", "{x}.{seed}", "{run_dir}/m.jsonl")
    assert "Reward_mean" in answer.out and "(reward_mean: 2." in answer.out, answer.err


def test_of_equal_strategies_the_first_is_named_and_the_other_is_not_worse() -> None:
    order = compare_module._worst_first(
        {"none": numpy.array([0.1, 0.2, 0.3]), "kd": numpy.array([0.3, 0.2, 0.1]), "mse": numpy.array([0.0, 0.1, 0.1])},
        "max",
    )
    assert order == ["mse", "kd", "none"]
