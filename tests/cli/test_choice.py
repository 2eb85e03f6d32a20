"""cost-performance and recommend as a person uses them: files, studies, a family that is trained, and bad input."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial import LabConfig, Source, cost_performance
from fairtrial.core.errors import UserError
from fairtrial.core.paths import RunPaths
from fairtrial.record.store import Store
from tests.conftest import Answer
from tests.harness import make

Cli = Callable[..., Answer]

POINTS = """
- {name: r8, hours: 2.1, accuracy: 0.845, memory: 14, device: a100-80gb, rank: 8}
- {name: r16, hours: 3.2, accuracy: 0.862, memory: 15, device: a100-80gb, rank: 16}
- {name: r32, hours: 5.8, accuracies: [0.868, 0.872, 0.873], seeds: [1, 2, 3], memory: 18, device: a100-80gb, rank: 32}
- {name: r64, hours: 10.4, accuracies: [0.876, 0.877, 0.881], seeds: [1, 2, 3], memory: 22, device: a100-80gb, rank: 64}
- {name: full, hours: 48.2, accuracy: 0.882, memory: 56, device: a100-80gb}
"""


@pytest.fixture
def points(tmp_path: Path) -> Path:
    path = tmp_path / "points.yaml"
    path.write_text(POINTS)
    return path


def test_the_documented_points_have_the_documented_document(cli: Cli, points: Path) -> None:
    found = cli("cost-performance", "--configs", str(points), "--format", "json").json
    assert found["gpu"]["usd_per_hour"] == 3.0 and found["gpu"]["source"] and found["gpu"]["as_of"]
    assert [point["cost"] for point in found["points"]] == pytest.approx([6.30, 9.60, 17.40, 31.20, 144.60])
    assert found["frontier"] == ["r8", "r16", "r32", "r64", "full"]
    assert found["efficiency_winner"] == "r8" and found["marginal"]["to"] == "r16"
    for point in found["points"]:
        assert point["pareto"] and point["dominated_by"] is None and not point["estimated"]
        assert point["savings"] == pytest.approx(144.60 / point["cost"])
        assert (point["frontier_probability"] is None) == (point["ci"] is None)
    assert found["calibration"] is None and found["study"] is None


def test_the_text_says_the_important_thing_first(cli: Cli, points: Path) -> None:
    answer = cli("cost-performance", "--configs", str(points))
    title, underline, empty, first, *_ = answer.out.splitlines()
    assert title == "Cost-Performance Analysis (A100-80GB @ $3.00/hr)" and underline == "=" * len(title) and not empty
    assert answer.code == 0 and first.startswith("5 of 5 configurations on the frontier: r8, r16, r32, r64, full (a100")
    for words in (
        "Config",
        "Hours",
        "Cost",
        "Accuracy",
        "Pareto",
        " $17.40 ",
        " $31.20 ",
        " $144.60 ",
        "10.4 h",
        "a100-80gb at $3.00 an hour",
        "Cost efficiency winner: r8",
        "Best marginal gain: r8 → r16",
    ):
        assert words in answer.out
    assert "Store" not in answer.err, "no store is read"


def test_fifty_dollars_and_085_take_the_31_dollar_point(cli: Cli, points: Path) -> None:
    answer = cli(
        "recommend", "--configs", str(points), "--max-cost", "50", "--min-accuracy", "0.85", "--format", "json"
    )
    found = answer.json
    assert answer.code == 0 and found["recommended"] == {"name": "r64", "card": "a100-80gb", "rank": 64}
    assert found["expected"]["cost"] == pytest.approx(31.20)
    assert [each["constraint"] for each in found["binding"]] == ["max_cost"] and found["binding"][0][
        "without_it"
    ] == "full"
    assert [each["name"] for each in found["alternatives"]] == ["r16", "r32"]
    assert all(sentence.endswith(".") for sentence in found["rationale"])
    cards = [each["card"] for each in found["fits_on"]]
    assert "t4" not in cards and "l4" in cards, "22 GB fit into 24 and not into 16"


def test_a_t4_never_gets_what_does_not_fit_and_takes_longer(cli: Cli, points: Path) -> None:
    found = cli("recommend", "--configs", str(points), "--gpu", "t4", "--format", "json").json
    assert found["recommended"]["name"] == "r16" and found["expected"]["memory"] <= 16
    assert found["expected"]["hours"] == pytest.approx(3.2 / 0.3) and found["expected"]["estimated"]
    assert {each["constraint"] for each in found["binding"]} == {"card_memory"}
    table = cli("cost-performance", "--configs", str(points), "--gpu", "t4")
    assert "≈ 10.7 h" in table.out and "(too large)" in table.out
    assert "not on the frontier: r32, r64, full" in table.out
    document = cli("cost-performance", "--configs", str(points), "--gpu", "t4", "--format", "json").json
    assert document["frontier"] == ["r8", "r16"]
    large = [point for point in document["points"] if not point["fits"]]
    assert {(point["pareto"], point["dominated_by"], point["frontier_probability"]) for point in large} == {
        (False, None, None)
    }


def test_any_card_may_be_asked_for(cli: Cli, points: Path) -> None:
    found = cli("recommend", "--configs", str(points), "--gpu", "any", "--objective", "time", "--format", "json").json
    assert found["recommended"] == {"name": "r8", "card": "b200", "rank": 8}
    assert found["candidates"] == 50 and "out of 5 configurations on 10 cards" in found["rationale"][0]
    costs = [each["cost"] for each in found["alternatives"]]
    assert costs == sorted(costs) and all(each["estimated"] for each in found["fits_on"] if each["card"] != "a100-80gb")


def test_nothing_feasible_is_an_answer_with_exit_code_3(cli: Cli, points: Path) -> None:
    line = ("recommend", "--configs", str(points), "--max-cost", "31.1", "--min-accuracy", "0.872")
    answer = cli(*line, "--format", "json")
    assert answer.code == 3 and answer.json["recommended"] is None and answer.json["expected"] is None
    needed = {each["constraint"]: (each["name"], each["needed"]) for each in answer.json["relaxations"]}
    assert needed["max_cost"] == ("r64", pytest.approx(31.2)) and needed["min_accuracy"] == (
        "r32",
        pytest.approx(0.871),
    )
    text = cli(*line)
    title, underline, _, first, *_ = text.out.splitlines()
    assert title == "Recommendations (Budget: $31.10, Min Accuracy: 0.872)" and underline == "=" * len(title)
    assert text.code == 3 and first == "None of 5 configurations meets every constraint."
    assert "--max-cost 31.2 instead of 31.1 would make r64 feasible." in text.out


def test_two_binding_constraints_get_the_smallest_joint_change(cli: Cli, points: Path, tmp_path: Path) -> None:
    line = ("recommend", "--configs", str(points), "--max-cost", "6", "--min-accuracy", "0.85")
    text = cli(*line)
    [sentence] = [line for line in text.out.splitlines() if line.startswith("Smallest joint change: ")]
    assert "--max-cost 6.3 instead of 6 and --min-accuracy 0.845 instead of 0.85 would make r8 feasible" in sentence
    assert "--max-cost 9.6 instead of 6 would make r16 feasible." in text.out
    joint = cli(*line, "--format", "json").json["joint_relaxation"]
    assert joint["name"] == "r8" and joint["largest_relative_change"] == pytest.approx(0.05)
    assert [each["constraint"] for each in joint["changes"]] == ["max_cost", "min_accuracy"]
    typed = ("recommend", "--configs", str(points), "--max-cost", "6.3", "--min-accuracy", "0.845", "--format", "json")
    assert cli(*typed).json["recommended"]["name"] == "r8"
    rows = list(csv.DictReader(cli(*line, "--format", "csv").out.splitlines()))
    assert [(row["constraint"], row["name"]) for row in rows if row["joint"] == "True"] == [
        ("max_cost", "r8"), ("min_accuracy", "r8"),
    ]  # fmt: skip


def test_constraints_below_ninety_percent_are_cautioned_and_confidence_binds(cli: Cli, points: Path) -> None:
    line = ("recommend", "--configs", str(points), "--min-accuracy", "0.877", "--max-cost", "100", "--format", "json")
    loose = cli(*line).json
    assert loose["recommended"]["name"] == "r64"
    [check] = [each for each in loose["expected"]["constraints"] if each["constraint"] == "min_accuracy"]
    assert 0.5 < check["probability"] < 0.9
    assert "unsure constraint" in {caution["code"] for caution in loose["cautions"]}
    strict = cli(*line, "--confidence", "0.9")
    assert strict.code == 3


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_points_may_be_csv_or_json(cli: Cli, points: Path, tmp_path: Path, suffix: str) -> None:
    import yaml

    rows = yaml.safe_load(POINTS)
    path = tmp_path / f"other.{suffix}"
    if suffix == "json":
        path.write_text(json.dumps({"points": rows}))
    else:
        names = list(dict.fromkeys(name for row in rows for name in row))
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            spread = [{k: " ".join(map(str, v)) if isinstance(v, list) else v for k, v in row.items()} for row in rows]
            writer.writerows(spread)
    first, second = (cli("cost-performance", "--configs", str(p), "--format", "json").json for p in (points, path))
    for found in (first, second):
        found.pop("source")
        for point in found["points"]:
            point["settings"] = {name: str(value) for name, value in point["settings"].items()}
    assert first == second


def test_every_problem_of_a_request_is_told_at_once(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("name,hours,accuracy,memory\na,1,1.2,3\nb,x,nan,\n,,0.5,-1\n")
    (tmp_path / "prices.yaml").write_text(
        "as_of: 2020-01-01\nvalid_until: 2021-01-01\ncards: {t4: {usd_per_hour: -1}}\n"
    )
    answer = cli("recommend", "--configs", "bad.csv", "--prices", "prices.yaml", "--max-cost", "-1", "--max-time", "0")
    assert answer.code == 1 and answer.out == "" and "Traceback" not in answer.err
    for words in (
        "max_cost must be", "max_time must be", "usd_per_hour", "expired on 2021-01-01", "'device' is missing", "between 0 and 1",
        "'x' is not a number", "finite number, not nan", "'name' is missing", "at least 0, not -1",
    ):  # fmt: skip
        assert words in answer.err, words


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "does not contain a list of points"),
        ("[]", "has no points"),
        ("a: [", "not valid YAML"),
        ("- {name: a, hours: 1, accuracy: 0.5, accuracies: [0.9, 0.9], memory: 1, device: t4}", "mean of accuracies"),
        (
            "- {name: a, hours: 1, accuracies: [0.9, 0.8], seeds: [1], memory: 1, device: t4}",
            "need as many seeds, not 1",
        ),
        ("- {name: a, hours: 1, accuracies: [0.9, 0.8], seeds: [1, 1], memory: 1, device: t4}", "same seed twice"),
        ("- {name: a, hours: 1, accuracy: 0.5, memory: 1, device: abacus}", "unknown device 'abacus'"),
    ],
)
def test_bad_files_get_one_clear_sentence(cli: Cli, tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "p.yaml").write_text(content)
    answer = cli("cost-performance", "--configs", "p.yaml")
    assert answer.code == 1 and words in answer.err and "Traceback" not in answer.err


def test_other_metrics_are_free_and_have_a_direction(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "- {name: a, hours: 1, loss: 3.5, memory: 1, device: t4}\n- {name: b, hours: 2, loss: 2.5, memory: 1, device: t4}\n"
    )
    found = cli("cost-performance", "--configs", "p.yaml", "--metric", "loss", "--format", "json").json
    assert found["direction"] == "min" and found["frontier"] == ["a", "b"] and found["efficiency_winner"] is None
    other = cli("cost-performance", "--configs", "p.yaml", "--metric", "loss:max", "--format", "json").json
    assert other["frontier"] == ["a"]
    wrong = cli("cost-performance", "--configs", "p.yaml", "--metric", "loss:up")
    assert wrong.code == 1 and "must be max or min" in wrong.err


def test_memory_is_an_objective_on_request_and_volume_too(cli: Cli, points: Path) -> None:
    line = ("cost-performance", "--configs", str(points), "--format", "json")
    found = cli(*line, "--objectives", "memory,accuracy", "--hypervolume", "memory=100,accuracy=0.8").json
    assert found["objectives"] == ["memory", "accuracy"] and found["hypervolume"] > 0
    assert cli(*line, "--objectives", "beauty,cost").code == 1
    assert cli(*line, "--hypervolume", "cost=1").code == 1
    assert cli(*line, "--hypervolume", "cost").code == 2


def test_a_price_file_replaces_the_prices(cli: Cli, points: Path, tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text(
        "as_of: 2026-11-01\nsource: our contract\ncards: {a100-80gb: {usd_per_hour: 1.0}}\n"
    )
    found = cli("cost-performance", "--configs", str(points), "--prices", "prices.yaml", "--format", "json").json
    assert found["points"][0]["cost"] == pytest.approx(2.1) and found["gpu"]["source"] == "our contract"
    missing = cli("cost-performance", "--configs", str(points), "--prices", "prices.yaml", "--gpu", "t4")
    assert missing.code == 1 and "prices.yaml: unknown card 't4'" in missing.err
    seeds = cli(
        "power",
        "--sesoi",
        "1",
        "--sd",
        "1",
        "--hours-per-run",
        "1",
        "--gpu",
        "a100-80gb",
        "--prices",
        "prices.yaml",
        "--format",
        "json",
    )
    assert seeds.json["cost"] == pytest.approx(seeds.json["hours"])


@pytest.mark.slow
def test_a_picture_shows_the_frontier(cli: Cli, points: Path, tmp_path: Path) -> None:
    answer = cli("cost-performance", "--configs", str(points), "--output", "frontier.svg")
    assert answer.code == 0 and "Wrote frontier.svg" in answer.err
    text = (tmp_path / "frontier.svg").read_text()
    assert "r64" in text and "5 of 5 configurations" in text


QUICK = ("--model", "linear", "--steps", "20", "--labels", "200", "--eval-every", "0")


def test_a_study_is_priced_by_its_measured_hours(cli: Cli, with_data: Store) -> None:
    rates = ("--variant", "a:learning_rate=1e-3", "--variant", "b:learning_rate=1e-2")
    assert cli("launch", "classify", "--base-run-name", "priced", "--seeds", "3", *QUICK, *rates).code == 0
    found = cli("cost-performance", "priced", "--format", "json").json
    assert found["study"] == "priced" and not found["trained"]
    runs = [run for _, e in with_data.directories("priced") if (run := with_data.run("priced", e.name))]
    walls = [run.metadata["timings"]["wall_s"] for run in runs if run.variant == "a"]
    [point] = [point for point in found["points"] if point["name"] == "a"]
    assert point["measured_hours"] == pytest.approx(sum(walls) / 3 / 3600) and point["runs"] == 3
    assert point["hours"] == pytest.approx(point["measured_hours"] * found["calibration"]["performance"])
    assert point["estimated"] and point["settings"] == {"learning_rate": 0.001}
    assert point["frontier_probability"] is not None
    assert cli("cost-performance", "priced", "--format", "json").json == found, "the calibration is kept in the store"
    named = cli("cost-performance", "priced", "--device", "t4", "--gpu", "t4", "--format", "json").json
    assert named["calibration"] is None and not named["points"][0]["estimated"]
    plan = cli("power", "--sesoi", "0.1", "--pilot", "priced:a", "--gpu", "t4", "--format", "json").json
    assert plan["hours_per_run"] == pytest.approx(point["hours"] / 0.3) and "1 thread" in plan["hours_basis"]
    with_data.archive(runs[0].paths)
    partial = cli("cost-performance", "priced", "--format", "json").json
    assert "missing runs" in {caution["code"] for caution in partial["cautions"]}


def test_stacked_runs_have_no_hours_to_price(cli: Cli, with_data: Store) -> None:
    small = ("--model", "linear", "--steps", "20", "--labels", "200", "--runs", "2", "--study", "stacked")
    assert cli("sweep", "classify", "--param", "learning_rate=1e-3,1e-2", *small).code == 0
    answer = cli("cost-performance", "stacked")
    assert answer.code == 1 and "--no-stack" in answer.err


def test_a_run_that_was_lost_counts_as_the_worst_value_and_a_variant_without_runs_is_left_out(
    cli: Cli, store: Store
) -> None:
    still = {"study": "lossy", "noise": 0.0, "steps": 20}
    for seed in (1, 2, 3):
        make(store, "fake", variant="a", seed=seed, plateau=0.8, **still)
        make(store, "fake", variant="b", seed=seed, plateau=0.9, diverge_at=5 if seed == 3 else 0, **still)
        make(store, "fake", variant="c", seed=seed, plateau=0.9, diverge_at=5, **still)
    unsaid = cli("cost-performance", "lossy")
    assert unsaid.code == 1 and "did not record their device" in unsaid.err and "--device" in unsaid.err
    found = cli("cost-performance", "lossy", "--device", "t4", "--format", "json").json
    points = {point["name"]: point for point in found["points"]}
    good, worst = (points[name]["accuracy"] for name in ("b", "a"))
    assert set(points) == {"a", "b"} and points["b"]["lost"] == 1
    final = [run.final["report_accuracy"] for run in store.match(["lossy/b.seed1"])]
    assert good == pytest.approx((2 * final[0] + worst) / 3)
    assert {"no hours", "lost runs in a choice", "synthetic"} <= {caution["code"] for caution in found["cautions"]}


TINY: dict[str, Any] = {
    "steps": 4,
    "eval_every": 0,
    "labels": 100,
    "width": 8,
    "pretrain_steps": 4,
    "checkpoint_every": 0,
}


def test_without_anything_to_price_the_family_is_trained(cli: Cli, with_data: Store) -> None:
    pytest.importorskip("peft")
    settings = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]
    answer = cli("cost-performance", "--runs", "2", *settings, "--format", "json")
    assert answer.code == 0, answer.err
    assert "Training lora-r8, lora-r16, lora-r32, lora-r64, full, 2 runs each." in answer.err
    found = answer.json
    assert found["trained"] and {point["name"] for point in found["points"]} == {
        "lora-r8",
        "lora-r16",
        "lora-r32",
        "lora-r64",
        "full",
    }
    assert all(point["memory"] > 0 and point["memory_basis"].startswith("tensors") for point in found["points"])
    newest = cli("recommend", "--format", "json").json
    assert newest["study"] == found["study"], "the newest study with hours is taken"
    for entry in [entry for _, entry in with_data.directories(found["study"]) if "r64" in entry.name]:
        with_data.archive(RunPaths(Path(entry.path)))
    again = cli("cost-performance", "--format", "json")
    resumed = again.json
    assert "Nothing to price yet: training" in again.err and resumed["trained"] and len(resumed["points"]) == 5, (
        "a family that was stopped is gone on with"
    )
    refused = cli("cost-performance", "--set", "rank=8")
    assert refused.code == 1 and "rank: differs within the family" in refused.err


def test_words_that_would_do_nothing_are_refused(cli: Cli, points: Path) -> None:
    answer = cli("cost-performance", "--configs", str(points), "--runs", "3")
    assert answer.code == 2 and "--runs: only allowed when the default family is trained" in answer.err
    both = cli("cost-performance", "some-study", "--configs", str(points))
    assert both.code == 1 and "exclude each other" in both.err
    assert cli("cost-performance", "--set", "steps").code == 2
    named = cli("cost-performance", "--configs", str(points), "--device", "t4")
    assert named.code == 1 and "names its own device" in named.err
    assert cli("cost-performance", "--configs", str(points), "--runs", "0").code == 2
    assert cli("cost-performance", "--train", "--device", "t4").code == 1


@pytest.mark.parametrize(
    "words",
    [
        ("cost-performance", "--objectives", "beauty,cost"),
        ("cost-performance", "--hypervolume", "foo=3"),
        ("cost-performance", "--gpu", "abacus"),
        ("cost-performance", "--metric", ":max"),
        ("recommend", "--objective", "value", "--metric", "report_loss"),
        ("recommend", "--max-cost", "-1"),
    ],
)
def test_what_cannot_be_answered_is_refused_before_anything_is_trained(
    cli: Cli, store: Store, words: tuple[str, ...]
) -> None:
    answer = cli(*words)
    assert answer.code == 1 and "training" not in answer.err and not store.root.exists()


TWO_CARDS = """
as_of: 2026-11-01
cards:
  small: {usd_per_hour: 1.0, memory_gb: 16, performance: 1.0}
  mid: {usd_per_hour: 4.0, memory_gb: 40, performance: 2.0}
"""


def test_sentences_about_several_cards_name_the_right_ones(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text(TWO_CARDS)
    (tmp_path / "p.yaml").write_text(
        "- {name: m8, hours: 1, accuracy: 0.7, memory: 8, device: small}\n- {name: m30, hours: 2, accuracy: 0.8, memory: 30, device: small}\n"
    )
    line = ("recommend", "--configs", "p.yaml", "--prices", "prices.yaml", "--gpu", "any", "--format", "json")
    bound = cli(*line, "--max-cost", "3").json
    assert bound["recommended"]["name"] == "m8"
    told = " ".join(bound["rationale"])
    assert "Binding: max-cost $3.00. Without it m30 on mid would be chosen" in told
    assert "Binding: the 16.0 GB of small. Without it m30 on small would be chosen" in told.replace("16 GB", "16.0 GB")
    fast = cli(*line, "--objective", "time").json
    assert fast["recommended"]["name"] == "m8" and fast["recommended"]["card"] == "mid"
    assert any("saves about $1.00; its accuracy is the same" in sentence for sentence in fast["rationale"])
    none = cli(*line, "--min-accuracy", "0.75", "--max-cost", "2.5")
    assert none.code == 3
    told = " ".join(none.json["rationale"])
    assert "A card with 30 GB instead of the 16 GB of small would make m30 feasible." in told
    assert "--max-cost 4 instead of 2.5 would make m30 on mid feasible (an estimate)." in told


def test_a_relaxation_can_be_typed_back(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("- {name: a, hours: 0.5034, accuracy: 0.7, memory: 8, device: a100-80gb}\n")
    answer = cli("recommend", "--configs", "p.yaml", "--max-time", "0.50333")
    [sentence] = [line for line in answer.out.splitlines() if line.startswith("--max-time")]
    typed = sentence.split()[1]
    assert answer.code == 3 and cli("recommend", "--configs", "p.yaml", "--max-time", typed).code == 0


def test_the_best_of_several_is_said_to_be_chosen_by_its_own_runs(cli: Cli, tmp_path: Path) -> None:
    rows = [
        f"- {{name: c{n}, hours: 1, values: [0.80, 0.81, {0.82 + n / 1000}], memory: 1, device: t4}}" for n in range(4)
    ]
    (tmp_path / "p.yaml").write_text("\n".join(rows))
    found = cli("recommend", "--configs", "p.yaml", "--gpu", "t4", "--confidence", "0.9", "--format", "json").json
    assert {"chosen of many", "one-arm interval"} <= {caution["code"] for caution in found["cautions"]}
    assert set(found["not_told_apart"]) == {"c0", "c1", "c2"} and "indistinguishable" in " ".join(found["rationale"])


def test_seedless_figures_are_not_covered_by_confidence_and_equal_values_are_no_noise(
    cli: Cli, points: Path, tmp_path: Path
) -> None:
    line = ("recommend", "--configs", str(points), "--min-accuracy", "0.88", "--confidence", "0.95", "--format", "json")
    assert "chance not known" in {caution["code"] for caution in cli(*line).json["cautions"]}
    (tmp_path / "p.yaml").write_text("- {name: a, hours: 1, accuracies: [0.8, 0.8, 0.8], memory: 1, device: t4}\n")
    still = cli("recommend", "--configs", "p.yaml", "--min-accuracy", "0.8", "--gpu", "t4", "--format", "json").json
    assert still["expected"]["constraints"][0]["probability"] is None


def test_a_narrow_terminal_loses_no_figure(points: Path) -> None:
    from io import StringIO

    from rich.console import Console

    from fairtrial.cli.cost_performance import _table

    out = StringIO()
    Console(file=out, width=80).print(_table(cost_performance(Source(configs=points), gpu="t4")))
    assert "…" not in out.getvalue() and "≈ $80.33" in out.getvalue()


def test_the_same_from_python(points: Path) -> None:
    found = cost_performance(Source(configs=points), gpu="l4", terms=LabConfig(level=0.9))
    assert found.frontier.names == ["r8", "r16", "r32", "r64"], "56 GB do not fit into 24"
    with pytest.raises(UserError, match="no study"):
        cost_performance(Source(study="nothing"))
