"""One rule says which way is good, for whatever asks: see core/directions.py."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import fairtrial
from fairtrial.api.comparing.analysis import Question
from fairtrial.api.comparing.analyze import analyze
from fairtrial.core.errors import UserError
from fairtrial.record.checkpoints import read_checkpoint
from fairtrial.record.metadata import load_metadata, write_metadata
from fairtrial.record.store import Store
from tests.conftest import Answer
from tests.own_recipe import PLAIN

SEEDS = (1, 2, 3, 4)
LEVELS = {"base": 0.9, "new": 0.5}
"""The new variant has the lower values."""

PROGRAM = """
import json, sys
out, level, seed, name = sys.argv[1:]
with open(out, "w") as file:
    for step in (1, 2):
        print(json.dumps({"step": step, name: float(level) * (1 + 0.01 * int(seed) ** 2) + 0.001 * step}), file=file)
"""
WITH_LOSSES = """
class Own(Plain):
    def step(self, step, watch):
        self.at = step
        return {"loss": 1.0 / step}

    def evaluate(self, split):
        return {"accuracy": 0.5, "loss": 1.0 / getattr(self, "at", 1), "oddity": 1.0}
"""


def record(name: str, *, study: str = "s", **says: Any) -> None:
    """Two variants on four seeds, by hand; `name` is what they log."""
    for variant, level in LEVELS.items():
        for seed in SEEDS:
            with fairtrial.run(study=study, variant=variant, seed=seed, **says) as run:
                for step in (1, 2, 3):
                    value = level + 0.01 * seed * seed * level - 0.1 * step
                    run.evaluated(step, {name: value}, {"step": step})


def launched(cli: Callable[..., Answer], logged: str, *words: str, form: str = "json") -> Answer:
    Path("p.py").write_text(PROGRAM)
    variants = [word for name, level in LEVELS.items() for word in ("--variant", f"{name}:level={level}")]
    line = (
        "launch",
        "command",
        "--base-run-name",
        "s",
        "--seeds",
        "1,2,3",
        "--metrics",
        "{run_dir}/m.jsonl",
        *variants,
    )
    argv = (sys.executable, "p.py", "{run_dir}/m.jsonl", "{level}", "{seed}", logged)
    return cli(*line, "--format", form, *words, "--", *argv)


def table(path: Path, metric: str, levels: Mapping[str, float] = LEVELS) -> str:
    rows = [f"{v},{s},{level * (1 + 0.01 * s * s)}" for v, level in levels.items() for s in SEEDS]
    path.write_text("\n".join([f"variant,seed,{metric}", *rows]) + "\n")
    return str(path)


def test_a_script_with_a_loss_keeps_the_smallest_and_is_better_for_less(store: Store) -> None:
    record("val_loss", metric="val_loss", best_metric="val_loss")
    run = store.run("s", "base.seed1")
    assert run is not None
    assert (run.metadata["direction"], run.metadata["best_metric_mode"]) == ("min", "min")
    assert run.metadata["best_checkpoint_step"] == 3  # it falls with every step
    assert read_checkpoint(run.paths.best).state["step"] == 3
    found = analyze("s", store=store.root)
    assert (found.comparisons[0].verdict, found.direction) == ("better", "min")


@pytest.mark.parametrize(
    ("says", "hint"),
    [
        ({"metric": "oddity"}, "direction='min'"),
        ({"best_metric": "oddity"}, "best_mode='min'"),
    ],
)
def test_a_script_whose_metric_says_nothing_is_refused_with_what_to_give(says: dict[str, Any], hint: str) -> None:
    with pytest.raises(UserError, match=f"high or a low oddity.*{hint}"):
        fairtrial.run(variant="v", **says)
    assert not Path("store").exists()


def test_what_is_stated_for_one_metric_of_a_script_counts_for_the_same_quantity(store: Store) -> None:
    with fairtrial.run(variant="v", metric="report_oddity", best_metric="eval_oddity", best_mode="min") as run:
        run.log(1, report_oddity=1.0)
    assert (run.metadata["direction"], run.metadata["best_metric_mode"]) == ("min", "min")
    with pytest.raises(UserError, match="contradict each other"):
        fairtrial.run(variant="w", metric="oddity", best_metric="oddity", direction="max", best_mode="min")


def test_a_stated_direction_against_the_name_is_obeyed_with_a_caution(store: Store, cli: Callable[..., Answer]) -> None:
    record("val_loss", metric="val_loss", direction="max")
    found = cli("analyze", "s", "--format", "json").json
    assert (found["verdict"], found["direction"], found["direction_source"]) == ("worse", "max", "recorded")
    assert "direction against the name" in [caution["code"] for caution in found["cautions"]]
    turned = cli("analyze", "s", "--direction", "min", "--format", "json").json
    assert (turned["verdict"], turned["direction_source"]) == ("better", "stated")


def test_a_launch_and_its_analysis_agree_about_a_loss(cli: Callable[..., Answer]) -> None:
    table = launched(cli, "val_loss", "--metric", "val_loss", form="text")
    assert table.code == 0 and "better in 3 of 3" in table.out and "lower is better" in table.out
    found = cli("analyze", "s", "--format", "json").json
    assert (found["verdict"], found["direction"]) == ("better", "min")
    assert "lower is better" in cli("analyze", "s").out


def test_a_launch_says_how_the_direction_was_decided(cli: Callable[..., Answer]) -> None:
    assert launched(cli, "val_loss").json["direction_source"] == "name"
    assert launched(cli, "val_loss", "--direction", "min").json["direction_source"] == "stated"
    assert (
        cli("launch", "fake", "--seeds", "1", "--steps", "2", "--format", "json").json["direction_source"] == "recipe"
    )


def test_a_metric_that_says_nothing_is_refused_before_a_launch(cli: Callable[..., Answer], store: Store) -> None:
    done = launched(cli, "oddity", "--metric", "oddity", form="text")
    assert done.code == 1 and "--direction max or --direction min" in done.err
    assert not list(store.directories())
    assert launched(cli, "oddity", "--metric", "oddity", "--direction", "min").json["direction"] == "min"


def test_without_a_direction_a_launch_calls_nothing_better_and_an_analysis_refuses(cli: Callable[..., Answer]) -> None:
    done = launched(cli, "oddity", form="text")
    assert done.code == 0 and "better in" not in done.out and "--direction" in done.out
    refused = cli("analyze", "s")
    assert refused.code == 1 and "--direction max or --direction min" in refused.err
    assert "lower is better" in cli("analyze", "s", "--direction", "min").out


def test_a_metric_that_nobody_logged_is_an_error_of_the_launch_and_the_runs_are_kept(
    cli: Callable[..., Answer], store: Store
) -> None:
    done = launched(cli, "val_loss", "--metric", "val_los", "--direction", "min", form="text")
    assert done.code == 1 and "val_los" in done.err and "Logged: val_loss" in done.err
    assert len(list(store.directories())) == 6
    again = launched(cli, "val_loss", "--metric", "val_loss")
    assert again.code == 0 and again.json["made"] == []


@pytest.mark.parametrize("command", [("sweep", "fake", "--param", "effect=0,0.1"), ("launch", "fake")])
def test_a_misspelt_metric_of_a_recipe_is_an_error(cli: Callable[..., Answer], command: tuple[str, ...]) -> None:
    done = cli(*command, "--seeds", "2", "--steps", "2", "--metric", "eval_accurracy", "--direction", "max")
    assert done.code == 1 and "eval_accuracy" in done.err


def test_runs_without_the_metric_are_named(cli: Callable[..., Answer]) -> None:
    Path("p.py").write_text(PROGRAM.replace("name: float", "(name if int(seed) < 3 else 'other_loss'): float"))
    line = ("launch", "command", "--base-run-name", "s", "--seeds", "1,2,3", "--metrics", "{run_dir}/m.jsonl")
    argv = (sys.executable, "p.py", "{run_dir}/m.jsonl", "1", "{seed}", "val_loss")
    found = cli(*line, "--metric", "val_loss", "--format", "json", "--", *argv).json
    [caution] = [each for each in found["cautions"] if each["code"] == "metric not logged"]
    assert "s/default.seed3" in caution["text"] and found["arms"][0]["seeds"] == [1, 2]


def test_the_best_checkpoint_of_a_recipe_is_judged_by_its_metrics_name(
    cli: Callable[..., Answer], store: Store, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(PLAIN + WITH_LOSSES)
    words = ("train", "./own.py", "--steps", "4", "--eval-every", "1", "--study", "t")
    assert cli(*words, "--best-metric", "eval_loss", "--variant", "a").code == 0
    run = store.run("t", "a.seed1072")
    assert run is not None and (run.metadata["best_metric_mode"], run.metadata["best_checkpoint_step"]) == ("min", 4)
    refused = cli(*words, "--best-metric", "eval_oddity", "--variant", "b")
    assert refused.code == 1 and "--best-mode max or --best-mode min" in refused.err
    assert store.run("t", "b.seed1072") is None
    mapped = cli(*words, "--benchmark", "best_metric=eval_loss", "--variant", "c")
    assert mapped.code == 0
    third = store.run("t", "c.seed1072")
    assert third is not None and third.metadata["best_metric_mode"] == "min"
    assert cli(*words, "--best-metric", "eval_loss", "--best-mode", "max", "--variant", "d").code == 0
    fourth = store.run("t", "d.seed1072")
    assert fourth is not None and fourth.metadata["best_checkpoint_step"] == 1
    assert "direction against the name" in [caution["code"] for caution in fourth.metadata["cautions"]]


def test_a_table_from_elsewhere_follows_the_rule(cli: Callable[..., Answer], tmp_path: Path) -> None:
    lower = cli("analyze", "--from", table(tmp_path / "a.csv", "kl"), "--format", "json").json
    assert (lower["verdict"], lower["direction"], lower["direction_source"]) == ("better", "min", "name")
    higher = cli("analyze", "--from", table(tmp_path / "b.csv", "score"), "--format", "json").json
    assert (higher["verdict"], higher["direction"]) == ("worse", "max")
    refused = cli("analyze", "--from", table(tmp_path / "c.csv", "oddity"))
    assert refused.code == 1 and "--direction max or --direction min" in refused.err
    inline = cli("analyze", "--from", str(tmp_path / "c.csv"), "--metric", "oddity:min", "--format", "json").json
    assert (inline["verdict"], inline["direction_source"]) == ("better", "stated")


def test_a_second_metric_without_a_direction_is_refused_with_its_own_flag(
    cli: Callable[..., Answer], tmp_path: Path
) -> None:
    path = tmp_path / "two.csv"
    rows = [f"{v},{s},{0.1 * s * s + level},{s + level}" for v, level in LEVELS.items() for s in SEEDS]
    path.write_text("\n".join(["variant,seed,score,oddity", *rows]) + "\n")
    both = ("analyze", "--from", str(path), "--metric", "score")
    refused = cli(*both, "--metric", "oddity")
    assert refused.code == 1 and "--metric oddity:max or oddity:min" in refused.err
    found = cli(*both, "--metric", "oddity:min", "--format", "json").json
    assert [each["direction"] for each in found["secondary"]] == ["min"]


def test_a_colon_that_belongs_to_a_logged_name_is_left_alone(cli: Callable[..., Answer], tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", "loss:max")
    found = cli("analyze", "--from", path, "--metric", "loss:max", "--direction", "min", "--format", "json").json
    assert (found["metric"], found["direction"]) == ("loss:max", "min")


def test_runs_that_recorded_both_directions_are_refused(store: Store, cli: Callable[..., Answer]) -> None:
    record("oddity", metric="oddity", direction="min")
    paths = store.paths.run("s", "new.seed1")
    metadata = load_metadata(paths)
    assert metadata is not None
    write_metadata(paths, {**metadata, "direction": "max"})
    refused = cli("analyze", "s")
    assert refused.code == 1 and "--direction" in refused.err and "others" in refused.err
    found = cli("analyze", "s", "--direction", "min", "--format", "json").json
    assert found["verdict"] == "better"
    assert "recorded directions differ" in [caution["code"] for caution in found["cautions"]]


def test_old_runs_keep_the_direction_that_they_recorded(store: Store) -> None:
    """A name that the table reads one way today does not turn a recorded study around."""
    record("val_loss", metric="val_loss", direction="max")
    assert analyze("s", store=store.root).direction == "max"
    record("val_loss", study="bare")  # nothing recorded: the name decides
    found = analyze("bare", store=store.root, question=Question(metrics=["val_loss"]))
    assert (found.direction, found.direction_source) == ("min", "name")


def test_a_resumed_run_keeps_the_best_mode_that_it_recorded(store: Store) -> None:
    run = fairtrial.run(variant="v", best_metric="eval_loss", best_mode="max")
    run.evaluated(1, {"eval_loss": 0.5}, {"w": 1}, save=True)
    run.release()
    again = fairtrial.run(variant="v", best_metric="eval_loss")
    assert again.resume() is not None
    assert (again.metadata["best_metric_mode"], again.best_step) == ("max", 1)
    again.evaluated(2, {"eval_loss": 0.4}, {"w": 2})
    assert again.best_step == 1
    again.release()


def test_noise_has_no_direction(cli: Callable[..., Answer], tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", "oddity", {"base": 0.9})
    found = cli("variance", "--from", path, "--format", "json")
    assert found.code == 0 and found.json["direction"] is None
    assert cli("variance", "--from", table(tmp_path / "b.csv", "loss", {"base": 0.9}), "--format", "json").json[
        "direction"
    ] == "min"  # fmt: skip


@pytest.mark.parametrize("command", [("cost-performance",), ("recommend", "--max-cost", "100")])
def test_configurations_are_judged_by_the_same_rule(
    cli: Callable[..., Answer], tmp_path: Path, command: tuple[str, ...]
) -> None:
    points = [
        {"name": "a", "hours": 1, "kl": 0.2, "oddity": 1, "memory": 1, "device": "a100-80gb"},
        {"name": "b", "hours": 2, "kl": 0.1, "oddity": 2, "memory": 1, "device": "a100-80gb"},
        {"name": "c", "hours": 3, "kl": 0.3, "oddity": 3, "memory": 1, "device": "a100-80gb"},
    ]
    (tmp_path / "points.json").write_text(json.dumps(points))
    line = (*command, "--configs", "points.json", "--metric")
    found = cli(*line, "kl", "--format", "json").json
    assert (found["direction"], found["direction_source"]) == ("min", "name")
    assert "lower is better" in cli(*line, "kl").out
    refused = cli(*line, "oddity")
    assert refused.code == 1 and "oddity:max or --metric oddity:min" in refused.err
    against = cli(*line, "kl:max", "--format", "json").json
    assert (against["direction"], against["direction_source"]) == ("max", "stated")
    assert "direction against the name" in [caution["code"] for caution in against["cautions"]]


def test_a_sweep_by_a_loss_takes_the_smallest_and_one_without_a_direction_is_refused(
    cli: Callable[..., Answer],
) -> None:
    words = ("sweep", "fake", "--param", "effect=0,0.1", "--seeds", "2", "--steps", "20")
    found = cli(*words, "--metric", "train_loss", "--format", "json").json
    assert (found["direction"], found["direction_source"]) == ("min", "name")
    assert "train_loss (lower is better)" in cli(*words, "--metric", "train_loss").out
    least = cli(*words, "--direction", "min", "--format", "json").json
    assert (least["best"]["value"], least["direction_source"]) == (0.0, "stated")
    assert "direction against the name" in [caution["code"] for caution in least["cautions"]]
    refused = cli("sweep", "fake", "--param", "steps=3,9", "--seeds", "2", "--metric", "train_oddity", "--study", "n")
    assert refused.code == 1 and "--direction max" in refused.err and not Path("store/n").exists()
    own = cli(*words, "--format", "json").json
    assert (own["best"]["value"], own["direction"], own["direction_source"]) == (0.1, "max", "recipe")


def test_the_file_that_init_writes_states_no_direction_for_a_program(cli: Callable[..., Answer]) -> None:
    assert cli("init", "--recipe", "command", "--output", "study.yaml").code == 0
    assert "\ndirection:" not in Path("study.yaml").read_text()
    assert cli("init", "--recipe", "fake", "--output", "other.yaml").code == 0
    assert "\ndirection: max" in Path("other.yaml").read_text()


def test_a_program_that_joins_a_launch_takes_its_direction(cli: Callable[..., Answer], store: Store) -> None:
    Path("p.py").write_text(
        "import fairtrial, sys\nwith fairtrial.run(metric='oddity') as run:\n    run.log(1, oddity=int(sys.argv[1]))\n"
    )
    line = ("launch", "command", "--base-run-name", "s", "--seeds", "1,", "--metric", "oddity", "--direction", "min")
    done = cli(*line, "--format", "json", "--", sys.executable, "p.py", "{seed}")
    assert done.code == 0, done.err
    run = store.run("s", "default.seed1")
    assert run is not None and run.metadata["direction"] == "min"
