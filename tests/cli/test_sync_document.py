"""The validation steps of the reference document, on programs that resemble its own: learn-model, benchmark-training."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.conftest import Answer

Cli = Callable[..., Answer]

EXCLUDED = {
    "epochs": ["epoch"],
    "logging": ["log-dir", "tensorboard-histogram-frequency", "tensorboard-histogram-module"],
    "output": ["model-dir"],
    "storage": ["output-gcs", "gcs-bucket-name", "gcs-base-path", "output-s3", "s3-bucket-name"],
    "checkpoint": [
        "resume-from", "start-epoch", "resume-backbone-from", "resume-policy-head-from", "resume-value-head-from",
        "resume-reachable-head-from", "resume-legal-moves-head-from",
    ],
    "freezing": ["freeze-backbone", "trainable-layers"],
    "architecture": [
        "vit-embed-dim", "vit-num-layers", "vit-num-heads", "vit-mlp-ratio", "vit-dropout", "gradient-checkpointing",
    ],
    "stages": ["stage1-threshold", "stage2-threshold", "stage1-max-epochs", "stage2-max-epochs"],
    "stage batch and rate": [
        "stage1-batch-size", "stage2-batch-size", "stage1-learning-rate", "stage2-learning-rate",
    ],
}  # fmt: skip
"""Every option that the document lists as a legitimate exclusion, under the category that we sort it into."""
SHARED = ["batch-size", "learning-rate", "optimizer", "loss", "model-architecture"]
NEW = {"label-smoothing": "Smooth the labels.", "lr-scheduler": "Schedule of the learning rate."}
BENCH_ONLY = ["warmup-batches", "max-batches"]


def options(names: dict[str, str]) -> str:
    return "".join(f"@click.option('--{name}', help={told!r})\n" for name, told in names.items())


def write_programs(folder: Path, *, in_bench: list[str], accepted: list[str]) -> tuple[str, str]:
    said = {name: f"Set {name}." for name in [*SHARED, *(each for names in EXCLUDED.values() for each in names)]}
    (folder / "learn.py").write_text(
        f"import click\n@click.command()\n{options({**said, **NEW})}def learn_model(**given): ...\n"
    )
    bench = {name: said.get(name) or NEW.get(name) or "Only measured." for name in [*SHARED, *BENCH_ONLY, *in_bench]}
    parameters = ", ".join(name.replace("-", "_") for name in accepted)
    (folder / "utility.py").write_text(
        f"import click\n@click.command()\n{options(bench)}def benchmark_training(**given): ...\n"
        f"def interface({parameters}): ...\n"
    )
    return "learn.py:learn_model", "utility.py:benchmark_training"


@pytest.fixture
def incomplete(tmp_path: Path) -> tuple[str, str]:
    return write_programs(tmp_path, in_bench=[], accepted=[*SHARED, *BENCH_ONLY])


def reasons(cli: Cli, programs: tuple[str, str], tmp_path: Path, *leave: str) -> str:
    """An exclusion file with the reasons that the report suggests."""
    missing = cli("sync", *programs, "--format", "json").json["missing"]
    suggested = {
        each["name"]: each["suggestion"].partition("=")[2].rstrip("'") for each in missing if each["suggestion"]
    }
    kept = {name: reason for name, reason in suggested.items() if name not in leave}
    (tmp_path / "excluded.yaml").write_text(yaml.safe_dump(kept))
    return "excluded.yaml"


def test_every_exclusion_of_the_document_is_a_category(cli: Cli, incomplete: tuple[str, str]) -> None:
    """Steps 2 and 4: what may be excluded and why, and what has to be added."""
    missing = {each["name"]: each for each in cli("sync", *incomplete, "--format", "json").json["missing"]}
    for category, names in EXCLUDED.items():
        assert {(missing[name]["category"], missing[name]["add_to"]) for name in names} == {(category, "exclusions")}
    assert {name: missing[name]["add_to"] for name in NEW} == dict.fromkeys(NEW, "bench")
    assert len(missing) == len(NEW) + sum(map(len, EXCLUDED.values()))


def test_the_first_report_is_that_of_the_document(cli: Cli, incomplete: tuple[str, str]) -> None:
    """Step 1: the options of both commands, under their names."""
    lines = cli("sync", *incomplete).out.splitlines()
    only = len(NEW) + sum(map(len, EXCLUDED.values()))
    assert lines[:4] == [
        "=== CLI Option Sync Report ===", f"Common options: {len(SHARED)}", f"learn-model only: {only}",
        "benchmark-training only: 2",
    ]  # fmt: skip
    begin = lines.index("Options in learn-model but NOT in benchmark-training:")
    assert {line.strip() for line in lines[begin + 1 : begin + 1 + only]} >= {"--epoch", "--label-smoothing"}
    begin = lines.index("Options in benchmark-training but NOT in learn-model:")
    assert lines[begin + 1 : begin + 3] == ["  --warmup-batches", "  --max-batches"]


def test_a_new_option_of_training_fails_the_report(cli: Cli, incomplete: tuple[str, str], tmp_path: Path) -> None:
    """Steps 3 to 5: status, counts, both lists, the interface function and the test."""
    file = reasons(cli, incomplete, tmp_path, "log-dir")
    (tmp_path / "check.py").write_text("raise SystemExit(1)")
    answer = cli(
        "sync", *incomplete, "--exclude-file", file, "--interface", "utility.py:interface",
        "--run-test", f"{sys.executable} check.py",
    )  # fmt: skip
    assert answer.code == 3
    excluded = sum(map(len, EXCLUDED.values())) - 1
    second = answer.out.partition("=== Benchmark Training Sync Report ===\n")[2]
    assert second.startswith(
        f"\nStatus: FAIL\n\nCommon options: 5\nlearn-model only (excluded): {excluded}\n"
        "learn-model only (MISSING - action required): 3\nbenchmark-training only: 2\n"
    )
    assert (
        "Missing options that need to be added to benchmark-training:\n"
        "  --label-smoothing: Smooth the labels. [training]\n"
        "  --lr-scheduler: Schedule of the learning rate. [training]\n"
    ) in second
    assert (
        "Missing options that need to be added to the exclusion list:\n"
        "  --log-dir: what is logged does not change a step (Set log-dir.) [logging]\n"
    ) in second
    assert "Parameters of utility.py:interface:\n  batch_size, " in second
    assert "Test result: FAIL\n" in second


def test_when_everything_is_in_step_the_report_passes(cli: Cli, tmp_path: Path) -> None:
    programs = write_programs(tmp_path, in_bench=list(NEW), accepted=[*SHARED, *BENCH_ONLY, *NEW])
    file = reasons(cli, programs, tmp_path)
    (tmp_path / "check.py").write_text("")
    answer = cli(
        "sync", *programs, "--exclude-file", file, "--interface", "utility.py:interface", "--forbid",
        "hcpe-*=training does not take this format", "--run-test", f"{sys.executable} check.py",
    )  # fmt: skip
    assert answer.code == 0, answer.out
    assert "Status: PASS\n" in answer.out and "Test result: PASS\n" in answer.out
    assert "learn-model only (MISSING - action required): 0\n" in answer.out
    assert "Warning" not in answer.out, "none of the document's exclusions looks like a mistake"


def test_an_option_that_bench_must_not_have_is_a_gap(cli: Cli, tmp_path: Path) -> None:
    """Step 6: no option for a format that neither command takes."""
    rule = ("--forbid", "hcpe-*=training does not take this format")
    programs = write_programs(tmp_path, in_bench=[*NEW, "hcpe-dir"], accepted=[])
    document = cli("sync", *programs, *rule, "--format", "json").json
    assert document["forbidden"] == [
        {"name": "hcpe-dir", "pattern": "hcpe-*", "reason": "training does not take this format"}
    ]
    assert "1 option that BENCH must not have" in document["gaps"] and not document["stale_exclusions"]
    assert "Forbidden options:\n  --hcpe-dir" in cli("sync", *programs, *rule).out
    other = cli("sync", *reversed(programs), *rule, "--format", "json").json
    assert [each["name"] for each in other["excluded"]] == ["hcpe-dir"] and not other["forbidden"]


def test_the_categories_can_be_edited(cli: Cli, incomplete: tuple[str, str], tmp_path: Path) -> None:
    shown = cli("sync", "--show-categories")
    assert shown.code == 0 and shown.out.startswith("# ")
    (tmp_path / "categories.yaml").write_text(shown.out)
    line = ("sync", *incomplete, "--categories", "categories.yaml", "--format", "json")
    assert cli(*line).json == cli("sync", *incomplete, "--format", "json").json
    document = yaml.safe_load(shown.out)
    document["categories"] = [
        {"name": "ours", "patterns": ["label-smoothing"], "reason": "it costs nothing"},
        *(each for each in document["categories"] if each["name"] != "architecture"),
    ]
    (tmp_path / "categories.yaml").write_text(yaml.safe_dump(document))
    found = {each["name"]: each for each in cli(*line).json["missing"]}
    assert found["label-smoothing"]["suggestion"] == "--exclude 'label-smoothing=it costs nothing'"
    assert found["vit-embed-dim"]["add_to"] == "bench" and found["gradient-checkpointing"]["add_to"] == "bench"


def test_all_problems_of_a_categories_file_are_told_at_once(
    cli: Cli, incomplete: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "bad.yaml").write_text(
        "categorys: 1\ncategories:\n- {name: a, pattern: [x]}\n- {name: '', patterns: []}\n- 5\n"
        "- {name: b, patterns: [1, ''], reason: null}\n- {name: c, patterns: text}\n"
    )
    answer = cli("sync", *incomplete, "--categories", "bad.yaml")
    assert answer.code == 1 and answer.out == ""
    for part in (
        "unknown key 'categorys'; did you mean 'categories'?", "category 1 ('a'): unknown key 'pattern'; did you mean "
        "'patterns'?", "category 1 ('a'): the key 'patterns' is missing", "category 2: 'name' must be text, not ''",
        "category 2: 'patterns' must be a list with at least one pattern", "category 3 must have the keys name and patterns",
        "category 4 ('b'): 'reason' must be text, not None", "category 4 ('b'): the pattern 1 must be text",
        "category 4 ('b'): the pattern '' must have 1 to 100 characters", "category 5 ('c'): 'patterns' must be a list",
        "--show-categories",
    ):  # fmt: skip
        assert part in answer.err, answer.err
    (tmp_path / "bad.yaml").write_text("- a\n")
    assert "does not contain a mapping" in cli("sync", *incomplete, "--categories", "bad.yaml").err
    assert "no file none.yaml" in cli("sync", *incomplete, "--categories", "none.yaml").err
