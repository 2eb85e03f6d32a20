"""bench: the steps of train, taken apart, and nothing left behind."""

from __future__ import annotations

import importlib
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial import BenchTerms, bench, train
from fairtrial.api.benchmarking.bench_runs import BENCH_STUDY
from fairtrial.core.options import describe_options, not_benched
from fairtrial.core.registry import load_recipe, recipe_names
from fairtrial.record.store import Store
from tests.conftest import Answer, link_data, start
from tests.harness import eventually, series_of
from tests.own_recipe import PLAIN

Cli = Callable[..., Answer]
bench_runs = importlib.import_module("fairtrial.api.benchmarking.bench_runs")

SMALL = {"labels": 200, "batch_size": 50, "steps": 60}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "fake": ("fake", {"steps": 60, "jitter": 0.1}),
    "accumulated": ("classify", {**SMALL, "accumulate": 2}),
    **{m: ("classify", {**SMALL, "model": m, "schedule": "cosine"}) for m in ("mlp", "cnn", "gru")},
    "distill": ("distill", {**SMALL, "teacher_steps": 8, "teacher_width": 4}),
    "finetune": ("finetune", {**SMALL, "width": 8, "pretrain_steps": 8, "rank": 2}),
}


OBSERVERS: dict[str, dict[str, Any]] = {
    "none": {},
    "whole steps": {"whole_steps": True},
    "resources": {"monitor": True},
    "trace": {"trace_dir": "traces"},
    "all": {"monitor": True, "trace_dir": "traces", "noise_scale": True, "whole_steps": True},
}


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that are measured stay, to be looked at."""
    monkeypatch.setattr(bench_runs.shutil, "rmtree", lambda *_, **__: None)


def losses(store: Store) -> list[tuple[int, str]]:
    """Of the run that was measured: the first that was opened."""
    entries = sorted((entry for _, entry in store.directories(BENCH_STUDY)), key=lambda entry: len(entry.name))
    first = next(entry for entry in entries if entry.name.split(".")[0].endswith("-1"))
    return series_of(store, BENCH_STUDY, first.name)["train_loss"]


@pytest.mark.parametrize("name", CASES)
def test_the_losses_are_those_of_train_bit_by_bit(name: str, with_data: Store, kept: None) -> None:
    recipe, options = CASES[name]
    bench(recipe, options, BenchTerms(batches=40, store=with_data.root, trials=False))
    run = train(recipe, {**options, "checkpoint_every": 0, "eval_every": 0}, store=with_data.root).run
    trained = series_of(with_data, run.study, run.id)["train_loss"]
    measured = losses(with_data)
    assert [step for step, _ in measured] == [10, 20, 30, 40] and measured == trained[:4]


OBSERVED = {**SMALL, "model": "cnn"}


@pytest.fixture(scope="module")
def unobserved(tmp_path_factory: pytest.TempPathFactory, data_cache: Path) -> list[tuple[int, str]]:
    """The losses of a training that nobody looks at."""
    store = link_data(Store(tmp_path_factory.mktemp("unobserved") / "store"), data_cache)
    run = train("classify", {**OBSERVED, "checkpoint_every": 0, "eval_every": 0}, store=store.root).run
    return series_of(store, run.study, run.id)["train_loss"]


@pytest.mark.parametrize("observers", OBSERVERS)
def test_no_set_of_observers_changes_a_loss(
    observers: str, with_data: Store, kept: None, unobserved: list[tuple[int, str]]
) -> None:
    given = {**OBSERVERS[observers], **({"trace_dir": Path("traces")} if "trace_dir" in OBSERVERS[observers] else {})}
    bench("classify", OBSERVED, BenchTerms(batches=40, store=with_data.root, trials=False, **given))
    measured = losses(with_data)
    assert [step for step, _ in measured] == [10, 20, 30, 40] and measured == unobserved[:4]


def test_phases_and_residual_are_the_window(cli: Cli, store: Store) -> None:
    answer = cli("bench", "fake", "--step-time", "0.001", "--max-batches", "60", "--format", "json")
    found = json.loads(answer.out)
    assert answer.code == 0, answer.err
    total = sum(row["seconds"] for row in found["phases"])
    assert total == pytest.approx(found["window_s"], abs=1e-9) and found["phases"][-1]["phase"] == "residual"
    assert found["phases"][0]["phase"] == "forward" and found["phases"][0]["share"] > 0.5
    assert found["step_time"]["p50"]["low"] <= found["step_time"]["p50"]["value"] <= found["step_time"]["p50"]["high"]
    assert found["step_time"]["p99"]["high"] is None, "60 steps cannot bound p99 from above"
    assert found["throughput"]["unit"] == "examples/s" and found["steps"]["taken"] == 60
    assert store.studies() == [] and not (store.root / BENCH_STUDY).exists(), "nothing is left behind"


def test_too_few_steps_are_insufficient(cli: Cli) -> None:
    answer = cli("bench", "fake", "--max-batches", "8")
    assert answer.code == 3 and answer.out.startswith("Insufficient: 8 steps of fake") and "--max-batches" in answer.out


def test_memory_and_arithmetic_are_told(cli: Cli, with_data: Store) -> None:
    line = ("bench", "classify", "--model", "cnn", "--labels", "200", "--batch-size", "50", "--max-batches", "60",
            "--no-trials")  # fmt: skip
    found = cli(*line, "--format", "json").json
    assert found["flops_per_step"] > 0 and found["memory"]["tensor_bytes"]["activations"] > 0
    assert found["throughput"]["unit"] == "examples/s" and {"data", "forward", "backward", "optimizer"} <= {
        row["phase"] for row in found["phases"]
    }
    text = cli(*line, "--run-validation", "--eval-every", "20").out
    assert "evaluation" in text and "Peak tensor memory" in text and "Timer overhead:" in text


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("fake", "--max-batches", "0", "--warmup-batches", "-1"), 1, "max_batches must be at least 1"),
        (("fake", "--sample-ratio", "2"), 1, "sample_ratio must lie between"),
        (("fake", "--sample-ratio", "0.5"), 1, "does not report its steps per epoch"),
        (("fake", "--sample-ratio", "0.5", "--max-batches", "9"), 1, "both set the number of steps"),
        (("fake", "--learning-rates", "0.1"), 1, "has no option learning_rate"),
        (("fake", "--learning-rates", "fast"), 2, "not a comma-separated list of numbers"),
        (("fake", "--batch-sizes", "0,8,8"), 1, "batch_sizes must be at least 1"),
        (("fake", "--estimate-noise-scale"), 1, "provides no gradients"),
        (("fake", "--enable-profiling", "--trace-dir", "/proc/nowhere"), 1, "cannot write traces to /proc/nowhere"),
        (("fake", "--trace-dir", "x"), 2, "--trace-dir needs --enable-profiling"),
        (("fake", "--save", "none/such.json"), 1, "cannot write none/such.json: the folder does not exist"),
        (("fake", "--baseline", "none.json"), 1, "no such baseline file: none.json"),
        (("fake", "--ab", "a", "b", "--save", "x"), 2, "--save cannot be used with --ab or --against"),
        (("fake", "--rounds", "3"), 2, "--rounds is only for"),
        (("fake", "--save", "."), 1, "cannot write .: it is a folder"),
        (("fake", "--against", "steps=9", "--margin", "-2"), 1, "--margin must be between"),
        (("fake", "--against", "steps=9", "--margin", "nan"), 2, "--margin must be a finite number, not nan"),
        (("fake", "--margin", "0.1"), 2, "--margin is only for --baseline, --ab and --against"),
        (("fake", "--processes", "3"), 2, "--processes is only for --save and --baseline"),
        (("fake", "--against", "steps=9", "--no-trials"), 2, "--trials cannot be used with --ab or --against"),
        (("classify", "--max-batches", "5", "--learning-rates", "0.1"), 1, "the loss is logged every 10 steps"),
        (("classify", "--learning-rates", "inf"), 1, "learning_rates must be finite and above 0"),
        (("fake", "--ab", "a", "b", "--level", "2"), 1, "level must lie between"),
        (("fake", "--against", "a"), 2, "'a' does not have the form name=value"),
        (("fake", "--against", "nonsense=1"), 1, "nonsense"),
        (("fake", "--against", "seed=1", "--ab", "a", "b"), 2, "cannot be used together"),
        (("fake", "--warmup-batches", "300"), 1, "leaves none to measure"),
        (("fake", "--checkpoint-every", "5"), 2, "checkpoint-every"),
        (("command", "--", "true"), 1, "runs an external program"),
        (("classify", "--batch-size", "5000"), 4, "batch_size: 5000 is more than the 4000"),
        (("fake", "--fail-at", "1"), 4, "fake could not be measured"),
        (("nonsense",), 2, "nonsense"),
    ],
)
def test_what_cannot_be_measured_is_one_clear_sentence(
    cli: Cli, with_data: Store, words: tuple[str, ...], code: int, told: str
) -> None:
    answer = cli("bench", *words)
    assert (answer.code, "Traceback" in answer.err) == (code, False) and told in answer.err


def test_a_run_that_diverges_is_measured_up_to_there(cli: Cli) -> None:
    answer = cli("bench", "fake", "--diverge-at", "50", "--format", "json")
    assert "diverged while measured" in {caution["code"] for caution in answer.json["cautions"]}
    assert 0 < answer.json["steps"]["taken"] <= 50
    none = cli("bench", "fake", "--diverge-at", "5", "--warmup-batches", "50")
    assert none.code == 3 and none.out.startswith("Insufficient"), "nothing was left after the warm-up"
    document = cli("bench", "fake", "--diverge-at", "5", "--warmup-batches", "50", "--format", "json").json
    assert document["window_s"] is None and document["phases"] == [] and document["steps"]["effective"] is None


@pytest.mark.slow
def test_a_measurement_that_is_stopped_says_so_and_leaves_nothing(store: Store) -> None:
    process = start("bench", "fake", "--step-time", "0.02", "--max-batches", "2000", "--steps", "3000")
    place = store.root / BENCH_STUDY
    eventually(lambda: list(place.glob("*/metrics.jsonl")), what="a step")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and out == "" and "The measurement was discarded" in err and not place.exists()


@pytest.mark.parametrize("name", [name for name in recipe_names() if name != "command"])
def test_bench_takes_the_options_of_train_but_those_with_a_reason(name: str) -> None:
    from fairtrial.cli.bench import command as bench_command
    from fairtrial.cli.train import command as train_command

    recipe = load_recipe(name)
    names = {info.name for info in describe_options(recipe.options)}
    offered = [
        {parameter.name for parameter in group.make_command(recipe, name).params} & names  # type: ignore[attr-defined]
        for group in (train_command, bench_command)
    ]
    assert offered[0] - offered[1] == set(not_benched(recipe.options)) and all(not_benched(recipe.options).values())


LOUD = """
import os
print("loaded")

class Options(LoopOptions):
    leave: bool = option(False, "Ends the program.", role=Role.TRAINING)
    learning_rate: float = option(0.1, "Rate.", role=Role.TRAINING)

class Own(Plain):
    def step(self, step, watch):
        print("step", step)
        os.write(1, b"past Python\\n")
        if self.options.leave:
            raise SystemExit(3)
        return {"quality": 1.0}
"""


@pytest.fixture
def loud(tmp_path: Path) -> str:
    path = tmp_path / "a loud recipe.py"
    path.write_text(PLAIN + LOUD)
    return str(path)


@pytest.mark.slow
def test_a_recipe_that_prints_leaves_standard_output_to_the_document(loud: str) -> None:
    process = start("bench", loud, "--max-batches", "30", "--format", "json", "--no-trials")
    out, err = process.communicate(timeout=120)
    assert process.returncode in (0, 3) and json.loads(out)["steps"]["taken"] == 30
    assert "loaded" in err and "step 30" in err and "past Python" in err


def test_a_recipe_that_leaves_or_has_no_loss_is_told(cli: Cli, loud: str) -> None:
    left = cli("bench", loud, "--leave")
    assert left.code == 4 and "SystemExit: 3" in left.err
    silent = cli("bench", loud, "--learning-rates", "0.1", "--no-trials", "--max-batches", "30")
    assert silent.code == 1 and "reports no loss" in silent.err


def test_rates_that_are_too_small_to_learn_have_not_diverged(cli: Cli, with_data: Store) -> None:
    line = ("bench", "classify", "--labels", "400", "--batch-size", "50", "--max-batches", "40", "--no-trials")
    found = cli(*line, "--learning-rates", "1e-9,1e-3,500", "--format", "json").json["learning_rates"]["rows"]
    assert [row["diverged"] for row in found] == [0, 0, 3]
    assert found[0]["verified"] is None and found[1]["verified"] is True, "an update within rounding tells nothing"


@pytest.mark.slow
def test_a_baseline_is_measured_in_several_processes(cli: Cli, tmp_path: Path) -> None:
    # Many short steps and a fixed warmup: enough steady steps on a busy machine as well.
    line = ("bench", "fake", "--steps", "400", "--step-time", "0.001", "--warmup-batches", "5", "--max-batches", "300",
            "--no-trials", "--processes", "3")  # fmt: skip
    assert cli(*line, "--save", "base.json").code == 0
    assert len(json.loads((tmp_path / "base.json").read_text())["processes"]) == 3
    again = cli(*line, "--baseline", "base.json", "--format", "json")
    assert again.code in (0, 3) and again.json["baseline"]["ratio"]["n"] == 3
    other = cli(*line, "--baseline", "base.json", "--batch-size", "7")
    assert other.code == 1 and "configuration: batch_size 1 → 7" in other.err and "Taking" not in other.err
    few = cli(*line, "--max-batches", "6", "--baseline", "base.json", "--format", "json")
    assert few.code == 3 and few.json["sufficient"] is False and few.json["baseline"] is None
