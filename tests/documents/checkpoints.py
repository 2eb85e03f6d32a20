"""Document 003: normalized scores and the best checkpoint."""

from __future__ import annotations

from typing import Any

from tests.documents.desk import Desk
from tests.documents.places import metadata
from tests.documents.records import Check, Item, line, option, point, suite

DOCUMENT = "003"
AT = "trained"
FAKE = "train fake --steps 20 --eval-every 5 --format json"
PPO = "train ppo --steps 2 --eval-every 1 --eval-episodes 2 --report-episodes 2 --format json"
REFERENCES = "--benchmark random_score=0.1 --benchmark human_score=0.9"
SCORE = "eval_human_normalized_score"


def items() -> list[Item]:
    section = "Task 3: best checkpoint"
    tests = "pytest -q tests/test_benchmarking.py tests/test_checkpoint_workflows.py"
    our_tests = (
        "the tests are ours: these items, tests/record/test_best_checkpoint.py and tests/api/running/test_evaluate.py"
    )
    return [
        line(DOCUMENT, "Task 1: tests", tests, "train fake --steps 20 --eval-every 5 --study p --variant p "
             f"{REFERENCES} --format json", at=AT, keys=["best_metric_value", f"final.{SCORE}"], differs=our_tests),
        suite(DOCUMENT, "Task 5: verification", "pytest -q"),
        point(DOCUMENT, section, "`checkpoints/best.pt`", "`checkpoints/best.pt`", best_file),
        point(DOCUMENT, section, "the best checkpoint tracks the best `eval_return_mean`", "the same, for ppo and grpo",
              tracks),
        point(DOCUMENT, section, "`benchmark.best_metric`, default `eval_return_mean` / max",
              "the recipe's primary metric: `eval_return_mean` for ppo and grpo, `eval_accuracy` for the others",
              default_metric, differs="a classifier has no return, so its default is its own metric"),
        point(DOCUMENT, section, "`benchmark.best_metric`", "`benchmark: {best_metric: …}`",
              selects("best_metric=eval_human_normalized_score", SCORE, "best_metric_name")),
        point(DOCUMENT, section, "`benchmark.best_metric_mode`", "`benchmark: {best_metric_mode: max|min}`", mode),
        *(point(DOCUMENT, section, f"`{key}` in metadata.json and in what a trainer returns", f"`{key}`", kept(key))
          for key in ("best_metric_name", "best_metric_value", "best_checkpoint_step", "best_checkpoint_path")),
        option(DOCUMENT, "Task 2: normalization", "`benchmark.random_score`, `benchmark.human_score`",
               f"{FAKE} --study r --variant r {REFERENCES}", "--benchmark human_score=0.8 --replace", f"final.{SCORE}",
               at=AT),
        point(DOCUMENT, "Task 2: normalization", "human-random scaling", f"`{SCORE}` = (x − random) / (human − random) · scale",
              formula),
        point(DOCUMENT, "Task 2: normalization", "`evaluate_checkpoint(...)` returns the normalized metric",
              "`fairtrial evaluate RUN`", evaluated),
        point(DOCUMENT, "Task 2: normalization", "serialization and restore of the benchmark config",
              "`options.benchmark` of metadata.json, and `runs show`", restored),
        point(DOCUMENT, "Task 4: documentation", "an example with random_score, human_score, best_metric",
              "the commented study file of `fairtrial init`", commented),
    ]  # fmt: skip


def best_file(desk: Desk) -> None:
    path = desk.run(AT, f"{FAKE} --study b --variant b").json["path"]
    assert (desk.folder(AT) / path / "checkpoints" / "best.pt").is_file()


def tracks(desk: Desk) -> None:
    """Among several evaluations the best one is kept, and it is the largest of them."""
    told = desk.run(AT, f"{PPO} --study t --variant t").json
    assert told["best_metric_name"] == "eval_return_mean"
    rows = desk.run(AT, "runs export t/t.seed1072 --metric eval_return_mean --format json").json
    values = [row["value"] for row in (rows["rows"] if isinstance(rows, dict) else rows)]
    assert len(values) == 2 and told["best_metric_value"] == max(values)


def default_metric(desk: Desk) -> None:
    assert desk.run(AT, f"{FAKE} --study b --variant b").json["best_metric_name"] == "eval_accuracy"
    assert desk.run(AT, f"{PPO} --study t --variant t").json["best_metric_name"] == "eval_return_mean"


def selects(given: str, expected: Any, key: str) -> Check:
    def check(desk: Desk) -> None:
        before = desk.run(AT, f"{FAKE} --study b --variant b").json
        after = desk.run(AT, f"{FAKE} --study c --variant {key} {REFERENCES} --benchmark {given}").json
        assert before[key] != after[key] == expected

    return check


def mode(desk: Desk) -> None:
    best, worst = (
        desk.run(AT, f"{FAKE} --study m --variant {each} {REFERENCES} --benchmark best_metric={SCORE} "
                     f"--benchmark best_metric_mode={each}").json["best_checkpoint_step"]
        for each in ("max", "min")
    )  # fmt: skip
    assert best == 20 and worst == 5, "accuracy rises, so the lowest is the first"


def kept(key: str) -> Check:
    def check(desk: Desk) -> None:
        told = desk.run(AT, f"{FAKE} --study b --variant b").json
        assert told[key] is not None and metadata(desk.folder(AT), "b/b.seed1072")[key] == told[key]

    return check


def formula(desk: Desk) -> None:
    final = desk.run(AT, f"{FAKE} --study n --variant n {REFERENCES} --benchmark scale=10").json["final"]
    assert abs(final[SCORE] - (final["eval_accuracy"] - 0.1) / (0.9 - 0.1) * 10) < 1e-12


def evaluated(desk: Desk) -> None:
    desk.run(AT, f"{FAKE} --study n --variant n {REFERENCES} --benchmark scale=10")
    assert SCORE in desk.run(AT, "evaluate n/n.seed1072 --format json").json["metrics"]


def restored(desk: Desk) -> None:
    desk.run(AT, f"{FAKE} --study n --variant n {REFERENCES} --benchmark scale=10")
    saved = metadata(desk.folder(AT), "n/n.seed1072")["options"]["benchmark"]
    assert (saved["random_score"], saved["human_score"], saved["scale"]) == (0.1, 0.9, 10)
    assert "random_score" in desk.run(AT, "runs show n/n.seed1072").out


def commented(desk: Desk) -> None:
    assert desk.run(AT, "init --recipe ppo --output documented.yaml").code == 0
    text = (desk.folder(AT) / "documented.yaml").read_text()
    assert all(word in text for word in ("random_score", "human_score", "best_metric"))
