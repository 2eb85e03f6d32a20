"""analyze, from recorded runs and from files: what is compared, what is left out, and what is said about it."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairtrial
from fairtrial.api.comparing.analysis import Question, require
from fairtrial.api.comparing.analyze import analyze
from fairtrial.core.directions import direction_by_name
from fairtrial.core.errors import CheckFailed, UserError
from fairtrial.core.findings import Verdict
from fairtrial.core.readers import Columns
from fairtrial.record.store import Store
from fairtrial.stats.fairness import judge_fairness
from fairtrial.stats.summaries import SummaryRule
from tests.conftest import Answer
from tests.harness import edit_metadata, make

SEEDS = (1, 2, 3, 4, 5)


def fill(store: Store, study: str = "s", seeds: Sequence[int] = SEEDS, **variants: dict[str, Any]) -> None:
    """Runs of the fake recipe: real files of made-up numbers with a known effect."""
    for variant, options in variants.items():
        for seed in seeds:
            make(store, "fake", study=study, variant=variant, seed=seed, label=variant, steps=20, **options)


@pytest.fixture
def two(store: Store) -> Store:
    fill(store, base={}, new={"effect": 0.2})
    return store


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    names = list(rows[0])
    lines = [",".join(names), *(",".join(str(row.get(name, "")) for name in names) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


# Recorded runs.


def test_a_clear_effect_is_better_and_its_size_is_right(two: Store) -> None:
    [found] = analyze("s", store=two.root).comparisons
    assert found.verdict is Verdict.BETTER
    assert found.effect.low is not None and found.effect.low < 0.2 < (found.effect.high or 0)
    assert (found.pairing, found.n_control) == ("paired", 5)


def test_the_streams_that_pairs_shared_are_named(two: Store) -> None:
    assert analyze("s", store=two.root).comparisons[0].streams == "init, order"


def test_a_run_that_failed_at_once_does_not_hide_what_the_other_pairs_shared(two: Store) -> None:
    """D: the person was told to record runs with Fairtrial that were recorded with it."""
    for variant, effect in {"base": 0.0, "new": 0.2}.items():
        make(two, "fake", study="s", variant=variant, seed=6, label=variant, steps=20, effect=effect, fail_at=1)
    assert analyze("s", store=two.root).comparisons[0].streams == "init, order"


def test_pairs_of_a_table_or_of_a_script_carry_a_note_and_no_caution(
    store: Store, tmp_path: Path, cli: Callable[..., Answer]
) -> None:
    """D: `pairs share nothing known` came with every table, and told users of Fairtrial to use Fairtrial."""
    values = {"base": (0.10, 0.13, 0.12), "new": (0.21, 0.20, 0.24)}
    rows = [{"variant": v, "seed": n, "accuracy": x} for v, each in values.items() for n, x in enumerate(each)]
    for variant, each in values.items():
        for seed, value in enumerate(each):
            with fairtrial.run(seed=seed, study="own", variant=variant, store=store.root) as run:
                run.log(1, accuracy=value)
    for words in (("--from", str(write(tmp_path / "t.csv", rows))), ("own", "--metric", "accuracy")):
        text = cli("analyze", *words)
        assert text.code == 0 and "\nPaired by seed; correlation within pairs" in text.out
        assert "Record the runs" not in text.out and "share" not in text.out


@pytest.mark.parametrize("words", [("analyze",), ("variance", "--variant", "base")], ids=["analyze", "variance"])
def test_a_metric_that_is_the_same_in_all_runs_is_pointed_out(
    tmp_path: Path, cli: Callable[..., Answer], words: tuple[str, ...]
) -> None:
    """D: five runs with a standard deviation of 0.0000 carried no caution."""
    values = {"base": [0.5] * 5, "new": [0.6, 0.7, 0.65, 0.62, 0.61]}
    rows = [{"variant": v, "seed": n, "accuracy": x} for v, each in values.items() for n, x in enumerate(each)]
    found = cli(*words, "--from", str(write(tmp_path / "t.csv", rows)), "--format", "json").json
    told = [each["text"] for each in found["cautions"] if each["code"] == "same over seeds"]
    assert told == ["The metric is identical for all seeds of base: does your program use the seed?"]


def test_runs_that_score_the_same_on_every_task_are_pointed_out(tmp_path: Path) -> None:
    def rows(base: Callable[[int, int], float]) -> list[dict[str, Any]]:
        return [
            {"variant": variant, "task": task, "seed": seed, "score": score(task, seed)}
            for variant, score in {"base": base, "new": lambda task, seed: task + seed / 10}.items()
            for task in range(3) for seed in range(4)
        ]  # fmt: skip

    def told(base: Callable[[int, int], float]) -> list[str]:
        path = write(tmp_path / "t.csv", rows(base))
        found = analyze(source=path, columns=Columns(task="task"), question=Question(tasks=True))
        return [each["text"] for each in found.cautions if each["code"] == "same over seeds"]

    assert len(told(lambda task, _: float(task))) == 1
    assert told(lambda task, seed: task * seed / 7) == [], "one task on which no run scores is nothing strange"


def test_control_and_candidate_can_be_chosen(two: Store) -> None:
    fill(two, third={"effect": -0.2})
    found = analyze("s", control="new", candidate="third", store=two.root).comparisons
    assert [(f.control, f.candidate, f.verdict) for f in found] == [("new", "third", Verdict.WORSE)]


def test_variants_of_different_studies_are_compared(store: Store) -> None:
    fill(store, "a", base={})
    fill(store, "b", new={"effect": 0.2})
    analysis = analyze(control="a:base", candidate="b:new", store=store.root)
    assert analysis.comparisons[0].verdict is Verdict.BETTER


def test_chosen_runs_are_compared(two: Store) -> None:
    analysis = analyze(control_run_ids=["s/base.*"], candidate_run_ids=["s/new.*"], store=two.root)
    assert analysis.comparisons[0].verdict is Verdict.BETTER


def test_pairs_can_be_made_by_hand(two: Store) -> None:
    pairs = [
        {"control": f"s/base.seed{a}", "candidate": f"s/new.seed{b}"}
        for a, b in zip(SEEDS, (2, 3, 4, 5, 1), strict=True)
    ]
    [found] = analyze(pairs=pairs, store=two.root).comparisons
    assert (found.pairing, found.n_control, found.verdict) == ("paired", 5, Verdict.BETTER)


@pytest.mark.parametrize(
    "pairs", [[], [{"control": "s/base.seed1"}], ["x"], [{"control": "a", "candidate": "b", "c": 1}]]
)
def test_pairs_that_are_none_are_refused(two: Store, pairs: list[Any]) -> None:
    with pytest.raises(UserError):
        analyze(pairs=pairs, store=two.root)


def test_a_run_in_two_pairs_is_refused(two: Store) -> None:
    pair = {"control": "s/base.seed1", "candidate": "s/new.seed1"}
    with pytest.raises(UserError, match="more than one pair"):
        analyze(pairs=[pair, pair], store=two.root)


def test_a_run_in_both_arms_is_refused(two: Store) -> None:
    with pytest.raises(UserError, match="both arms"):
        analyze(control_run_ids=["s/base.*"], candidate_run_ids=["s/base.seed1"], store=two.root)


def test_more_variants_are_judged_as_a_family(two: Store) -> None:
    fill(two, third={"effect": 0.0})
    analysis = analyze("s", store=two.root)
    assert [f.adjustment for f in analysis.comparisons] == ["max-spread", "max-spread"]
    assert all(f.adjusted_p is not None and f.p_value is not None for f in analysis.comparisons)
    assert "new is better than base" in str(analysis) and "third is not distinguishable from base" in str(analysis)


@pytest.mark.parametrize("family", ["holm", "bh"])
def test_a_family_can_be_judged_pair_by_pair(two: Store, family: str) -> None:
    fill(two, third={})
    analysis = analyze("s", store=two.root, question=Question(family=family))
    assert [f.verdict for f in analysis.comparisons] == [Verdict.BETTER, Verdict.INCONCLUSIVE]


def test_diverged_runs_are_outcomes(store: Store) -> None:
    fill(store, base={}, new={"effect": 0.06})
    for seed in (6, 7):
        fill(store, seeds=[seed], base={})
        make(store, "fake", study="s", variant="new", seed=seed, label="new", steps=20, effect=0.06, diverge_at=5)
    analysis = analyze("s", store=store.root)
    [found] = analysis.comparisons
    assert (found.verdict, found.reason) == (Verdict.INCONCLUSIVE, "attrition")
    assert found.reliability is not None and found.reliability.lost_candidate == 2
    assert "2 of 7 runs of new diverged (base 0 of 7). Among the 5 pairs that finished" in str(found)
    assert [arm.used for arm in analysis.arms] == [7, 5]
    assert all("diverged" in (each["reason"] or "") for each in analysis.arms[1].left_out)


def test_repeated_attempts_are_not_further_seeds(two: Store, cli: Callable[..., Answer]) -> None:
    again = ["train", "fake", "--study", "s", "--variant", "base", "--seed", "1", "--label", "base", "--steps", "20"]
    assert cli(*again, "--again").code == 0
    analysis = analyze("s", store=two.root)
    assert analysis.arms[0].used == 5
    assert "repeated attempts" in [caution["code"] for caution in analysis.cautions]


def test_planned_cells_that_were_never_started_are_counted(store: Store, cli: Callable[..., Answer]) -> None:
    launch = [
        "launch",
        "fake",
        "--variant",
        "base:",
        "--variant",
        "new:effect=0.2",
        "--base-run-name",
        "s",
        "--steps",
        "20",
    ]
    assert cli(*launch, "--seeds", "4").code == 0
    assert cli("runs", "rm", "s/new.seed1072", "--yes", "--purge").code == 0
    analysis = analyze("s", store=store.root)
    assert [(a.planned, a.started, a.used) for a in analysis.arms] == [(4, 4, 4), (4, 3, 3)]
    assert analysis.comparisons[0].pairing == "paired"
    assert "missing runs" in [caution["code"] for caution in analysis.cautions]


def test_cells_that_one_arm_never_started_take_no_seed_from_the_others(
    store: Store, cli: Callable[..., Answer]
) -> None:
    words = ("--variant", "base:", "--variant", "full:effect=0.1", "--variant", "part:effect=0.2", "--steps", "4")
    assert cli("launch", "fake", *words, "--base-run-name", "s", "--seeds", "1,2,3,4,5").code == 0
    make(store, "fake", study="s", variant="full", seed=6, label="full", steps=4, effect=0.1, fail_at=1)
    assert cli("runs", "rm", "s/part.seed2", "s/part.seed5", "--yes").code == 0

    def compared(**asked: Any) -> dict[str, Any]:
        found = analyze("s", store=store.root, question=Question(**asked)).comparisons
        assert {each.pairing for each in found} == {"paired"}
        return {each.candidate: each for each in found}

    plain = compared()
    assert {name: each.n_candidate for name, each in plain.items()} == {"full": 5, "part": 3}
    assert [each.reliability.lost_candidate for each in plain.values()] == [1, 0]
    filled = compared(failure_value=0.0)
    assert {name: each.n_candidate for name, each in filled.items()} == {"full": 5, "part": 3}, "seed 6 has no partner"


def test_seeds_added_after_a_look_make_the_verdict_exploratory(two: Store) -> None:
    assert analyze("s", store=two.root).comparisons[0].label is None
    assert analyze("s", store=two.root).comparisons[0].label is None
    fill(two, seeds=[6], base={}, new={"effect": 0.2})
    [found] = analyze("s", store=two.root).comparisons
    assert found.label == "exploratory: seeds added after looking"
    assert "Exploratory: seeds added after looking." in str(found)
    looks = [json.loads(line) for line in (two.root / "s" / "looks.jsonl").read_text().splitlines()]
    assert [look["n"] for look in looks] == [5, 6]


def test_a_look_is_a_look_whoever_is_called_the_control(two: Store) -> None:
    analyze("s", store=two.root)
    fill(two, seeds=[6], base={}, new={"effect": 0.2})
    assert analyze("s", control="new", candidate="base", store=two.root).comparisons[0].label is not None


def test_variance_and_power_do_not_count_as_a_look(two: Store, cli: Callable[..., Answer]) -> None:
    assert cli("variance", "s:base").code == 0
    assert cli("power", "--sesoi", "0.01", "--pilot", "s:base").code == 0
    assert not (two.root / "s" / "looks.jsonl").exists()


@pytest.mark.slow
def test_the_same_question_gives_the_same_bytes(two: Store, cli: Callable[..., Answer]) -> None:
    state = np.random.get_state()[1].tolist()  # type: ignore[union-attr, index]
    answers = [cli("analyze", "s", "--format", "json", "--method", "bca", "--certify").out for _ in range(2)]
    assert answers[0] == answers[1]
    assert np.random.get_state()[1].tolist() == state  # type: ignore[union-attr, index]


def test_what_the_study_decided_applies_unless_one_says_otherwise(store: Store, cli: Callable[..., Answer]) -> None:
    (Path("study.yaml")).write_text(
        "study: s\nrecipe: fake\noptions: {steps: 20, eval_every: 5}\nvariants: {base: {}, new: {effect: 0.01}}\nseeds: 5\n"
        "sesoi: 0.3\nalpha: 0.1\nmetric: eval_accuracy\nsummary: {type: auc, window: '5:20'}\n"
    )
    assert cli("launch", "study.yaml").code == 0
    found = cli("analyze", "study.yaml", "--format", "json").json
    assert (found["metric"], found["summary"]["type"], found["summary"]["window"]) == ("eval_accuracy", "auc", [5, 20])
    assert (found["comparisons"][0]["alpha"], found["verdict"]) == (0.1, "equivalent")
    assert cli("analyze", "s", "--sesoi", "0.0001", "--format", "json").json["verdict"] != "equivalent"


def test_a_window_that_a_run_does_not_cover_lists_the_run(two: Store) -> None:
    make(two, "fake", study="s", variant="base", seed=6, label="base", steps=10)
    make(two, "fake", study="s", variant="new", seed=6, label="new", steps=20, effect=0.2)
    rule = SummaryRule(type="auc", window=(10, 20))
    analysis = analyze("s", store=two.root, question=Question(metrics=["train_loss"], summary=rule))
    [left] = analysis.arms[0].left_out
    assert left["seed"] == "6" and "too short" in (left["reason"] or "")
    lost = analysis.comparisons[0].reliability
    assert lost is not None and (lost.lost_control, lost.runs_control) == (1, 6)


def test_a_metric_that_nobody_logged_is_an_error_with_the_nearest_name(two: Store) -> None:
    with pytest.raises(UserError, match="did you mean 'eval_accuracy'"):
        analyze("s", store=two.root, question=Question(metrics=["eval_acuracy"]))


def test_losses_are_to_be_small(two: Store) -> None:
    analysis = analyze("s", store=two.root, question=Question(metrics=["train_loss"]))
    assert analysis.direction == "min"


def test_further_metrics_are_shown_but_do_not_decide(two: Store) -> None:
    analysis = analyze(
        "s", store=two.root, question=Question(metrics=["report_accuracy", "eval_accuracy", "train_loss"])
    )
    assert [found.metric for found in analysis.secondary] == ["eval_accuracy", "train_loss"]
    assert all(found.label == "secondary metric" for found in analysis.secondary)


def test_arms_that_differ_beyond_the_declared_change_are_cautioned(store: Store) -> None:
    fill(store, "a", base={})
    for seed in SEEDS:
        make(store, "fake", study="b", variant="new", seed=seed, label="new", steps=40, effect=0.2)
    analysis = analyze(control="a:base", candidate="b:new", store=store.root)
    cautions = [c["text"] for c in analysis.comparisons[0].cautions if c["code"] == "undeclared difference"]
    assert any("training budget" in text and "20 vs. 40" in text for text in cautions)
    assert not any("effect" in text for text in cautions)


def test_a_model_of_another_size_is_cautioned(with_data: Store) -> None:
    for seed in (1, 2):
        for model in ("linear", "mlp"):
            make(with_data, "classify", study="s", variant=model, seed=seed, steps=5, model=model, labels=100)
    analysis = analyze("s", store=with_data.root)
    assert "other size" in [caution["code"] for caution in analysis.comparisons[0].cautions]
    sizes = analysis.fairness["mlp"].sizes["parameters"]
    assert sizes[0] and sizes[1] and sizes[1] > sizes[0]


def test_only_runs_since_another_can_be_taken(two: Store) -> None:
    fill(two, seeds=[8, 9], base={}, new={"effect": 0.2})
    analysis = analyze("s", store=two.root, question=Question(since="s/base.seed8"))
    assert [arm.used for arm in analysis.arms] == [2, 2]


@pytest.mark.parametrize(("sesoi", "wanted", "met"), [
    (None, "better", True), (None, "equivalent", False), (None, "not-worse", True), (0.9, "equivalent", True),
    (0.9, "not-worse", True), (0.9, "better", False),
])  # fmt: skip
def test_a_required_verdict_is_met_or_raises(two: Store, sesoi: float | None, wanted: str, met: bool) -> None:
    analysis = analyze("s", store=two.root, question=Question(sesoi=sesoi))
    if met:
        require(analysis, wanted)
    else:
        with pytest.raises(CheckFailed):
            require(analysis, wanted)


def test_an_open_question_is_not_not_worse(store: Store) -> None:
    fill(store, base={}, new={})
    with pytest.raises(CheckFailed):
        require(analyze("s", store=store.root), "not-worse")


def test_unpaired_is_welch(two: Store) -> None:
    [found] = analyze("s", store=two.root, question=Question(unpaired=True)).comparisons
    assert (found.pairing, found.method) == ("unpaired", "Welch t")


def test_one_variant_alone_is_no_comparison(store: Store) -> None:
    fill(store, base={})
    with pytest.raises(UserError, match="a comparison needs two"):
        analyze("s", store=store.root)


# Files from elsewhere.


def test_a_wide_file_is_read(tmp_path: Path) -> None:
    rows = [{"variant": v, "seed": s, "acc": 0.5 + 0.1 * (v == "b") + 0.01 * s} for v in "ab" for s in SEEDS]
    rows[3]["acc"] += 0.003
    [found] = analyze(source=write(tmp_path / "r.csv", rows)).comparisons
    assert (found.verdict, found.pairing, found.metric) == (Verdict.BETTER, "paired", "acc")


def test_runs_of_one_name_in_two_variants_are_two_runs(tmp_path: Path) -> None:
    rows = [
        {"agent": a, "run": r, "it": i, "value": (a == "b") + i + 0.1 * r * r} for a in "ab" for r in (1, 2, 3) for i in (0, 1)
    ]  # fmt: skip
    rows[-1]["value"] += 0.05
    columns = Columns(variant="agent", seed="run", step="it")
    question = Question(metrics=["value"], direction="max", summary=SummaryRule(type="auc"))
    analysis = analyze(source=write(tmp_path / "r.csv", rows), columns=columns, question=question)
    assert analysis.arms[1].mean is not None and analysis.arms[0].mean is not None
    assert analysis.arms[1].mean - analysis.arms[0].mean == pytest.approx(1, abs=0.02)


def test_what_runs_export_writes_can_be_analysed(two: Store, cli: Callable[..., Answer]) -> None:
    assert cli("runs", "export", "s/*", "--output", "all.csv").code == 0
    found = cli("analyze", "--from", "all.csv", "--metric", "report_accuracy", "--format", "json").json
    here = cli("analyze", "s", "--metric", "report_accuracy", "--format", "json").json
    assert found["comparisons"][0]["effect"]["value"] == here["comparisons"][0]["effect"]["value"]


def test_a_jsonl_file_is_read_and_its_nan_is_a_lost_run(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    rows = [{"variant": v, "seed": s, "acc": 0.5 + 0.3 * (v == "b") + 0.01 * s * s} for v in "ab" for s in SEEDS]
    rows[-1]["acc"] = None  # type: ignore[assignment]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    analysis = analyze(source=path)
    lost = analysis.comparisons[0].reliability
    assert lost is not None and (lost.lost_candidate, lost.how) == (1, "were lost")
    assert analysis.arms[1].left_out[0]["reason"] == "last is not finite"


def test_without_seeds_runs_are_not_paired(tmp_path: Path) -> None:
    rows = [{"variant": v, "acc": 0.5 + 0.3 * (v == "b") + 0.01 * s * s} for v in "ab" for s in SEEDS]
    [found] = analyze(source=write(tmp_path / "r.csv", rows)).comparisons
    assert (found.pairing, found.n_control, found.n_candidate) == ("unpaired", 5, 5)


@pytest.mark.parametrize(("text", "told"), [
    ("", "no rows"), ("variant,seed,acc\n", "no rows"), ("variant,seed,acc\na,1,0.5\nb,1,high\n", "line 3: acc is 'high'"),
    ("variant,seed\na,1\n", "no numeric column"), ("\x00\x01", "is a binary file"),
    ("variant,seed,acc,f1\na,1,1,1\nb,1,1,2\n", "2 possible metrics"),
    ("variant,seed,acc\na,1,0.5\na,1,0.6\nb,1,0.7\n", "more than one value for variant a, seed 1"),
    ("variant,seed,step,acc\na,1,1,0.5\na,1,,0.6\n", "line 3: step is empty"),
])  # fmt: skip
def test_a_bad_file_is_one_clear_sentence(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "r.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=re.escape(told)):
        analyze(source=path)


def test_an_unknown_column_is_named_with_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", [{"agent": "a", "acc": 1.0}])
    with pytest.raises(UserError, match="did you mean 'agent'"):
        analyze(source=path, columns=Columns(variant="agnt"))


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no file"):
        analyze(source=tmp_path / "none.csv")


def test_times_that_never_came_are_ranked_last(tmp_path: Path) -> None:
    rows = [
        {"variant": v, "seed": s, "step": i, "acc": i * (0.1 if v == "b" else 0.01 if s < 4 else 0.08)}
        for v in "ab" for s in range(1, 9) for i in range(11)
    ]  # fmt: skip
    question = Question(summary=SummaryRule(type="time_to", threshold=0.5))
    [found] = analyze(source=write(tmp_path / "r.csv", rows), question=question).comparisons
    assert found.method.startswith("Mann–Whitney")
    assert (found.tests["reached_control"], found.tests["reached_candidate"]) == (5 / 8, 1.0)
    assert found.verdict is Verdict.BETTER and found.effect.low is None and found.detectable is None
    with pytest.raises(UserError, match="needs every run to reach"):
        analyze(source=tmp_path / "r.csv", question=Question(summary=question.summary, method="bca", unpaired=True))


# Many tasks.


def task_rows(tasks: int, effect: float = 0.5) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    return [
        {"variant": v, "seed": s, "task": f"t{t}", "score": round(effect * (v == "b") + rng.normal(), 6)}
        for v in "ab" for s in SEEDS for t in range(tasks)
    ]  # fmt: skip


def test_tasks_are_not_mixed_up_silently(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cover 3 tasks"):
        analyze(source=write(tmp_path / "r.csv", task_rows(3)))


@pytest.mark.parametrize(("tasks", "statistic"), [(3, "mean"), (26, "iqm")])
def test_few_tasks_take_the_mean_and_many_the_iqm(tmp_path: Path, tasks: int, statistic: str) -> None:
    analysis = analyze(source=write(tmp_path / "r.csv", task_rows(tasks, 2.0)), question=Question(tasks=True))
    [found] = analysis.comparisons
    assert analysis.tasks is not None and analysis.tasks["statistic"] == statistic
    assert found.method == "jackknife by run, paired t" and found.verdict is Verdict.BETTER
    improvement = analysis.tasks["probability_of_improvement"]["b"]
    assert 0 < improvement["low"] < improvement["value"] < improvement["high"] <= 1
    assert improvement["method"] == "probability of improvement, jackknife by run"


def test_iqm_over_few_tasks_carries_a_caution(tmp_path: Path) -> None:
    question = Question(tasks=True, statistic="iqm")
    [found] = analyze(source=write(tmp_path / "r.csv", task_rows(3)), question=question).comparisons
    assert "few tasks" in [caution["code"] for caution in found.cautions]


def test_studies_can_be_tasks(store: Store) -> None:
    for study in ("one", "two"):
        fill(store, study, base={}, new={"effect": 0.2})
    analysis = analyze(["one", "two"], store=store.root, question=Question(tasks=True))
    assert analysis.comparisons[0].verdict is Verdict.BETTER
    with pytest.raises(UserError, match="--tasks"):
        analyze(["one", "two"], store=store.root)


def test_a_lost_task_is_an_outcome(tmp_path: Path) -> None:
    rows = task_rows(3, 1.0)
    rows[-1]["score"] = math.nan
    [found] = analyze(source=write(tmp_path / "r.csv", rows), question=Question(tasks=True)).comparisons
    assert found.reliability is not None and found.reliability.lost_candidate == 1


# What reviews found.


def test_a_candidate_alone_is_set_against_the_first_variant(two: Store) -> None:
    fill(two, third={"effect": -0.2})
    found = analyze("s", candidate="third", store=two.root).comparisons
    assert [(f.control, f.candidate, f.adjustment) for f in found] == [("base", "third", None)]
    with pytest.raises(UserError, match="did you mean 'third'"):
        analyze("s", candidate="thirt", store=two.root)
    with pytest.raises(UserError, match="is the control"):
        analyze("s", candidate="base", store=two.root)


def test_looks_are_known_by_the_runs_and_not_by_what_the_arms_are_called(two: Store) -> None:
    analyze(control="s:base", candidate="s:new", store=two.root)
    fill(two, seeds=[6], base={}, new={"effect": 0.2})
    [found] = analyze(control_run_ids=["s/base.*"], candidate_run_ids=["s/new.*"], store=two.root).comparisons
    assert found.label is not None


def test_seeds_added_to_one_arm_alone_are_noticed(store: Store) -> None:
    fill(store, base={})
    fill(store, seeds=[1, 2, 3], new={"effect": 0.2})
    assert analyze("s", store=store.root).comparisons[0].label is None
    fill(store, seeds=[4, 5], new={"effect": 0.2})
    assert analyze("s", store=store.root).comparisons[0].label is not None


def test_a_damaged_note_of_a_look_keeps_nobody_from_looking(two: Store) -> None:
    analyze("s", store=two.root)
    path = two.paths.interim_looks("s")
    path.write_bytes(b'[1]\n{"torn\n' + path.read_bytes() + b'{"time": 1')
    fill(two, seeds=[6], base={}, new={"effect": 0.2})
    assert analyze("s", store=two.root).comparisons[0].label is not None
    assert path.read_bytes().endswith(b"}\n")


def test_a_lost_run_does_not_vanish_with_its_missing_partner(store: Store) -> None:
    fill(store, base={}, new={"effect": 0.06})
    for seed in (6, 7, 8):
        make(store, "fake", study="s", variant="new", seed=seed, label="new", steps=20, effect=0.06, diverge_at=5)
    [found] = analyze("s", store=store.root, question=Question()).comparisons
    assert found.reliability is not None and found.reliability.lost_candidate == 3
    assert found.verdict is Verdict.INCONCLUSIVE


def test_pairs_of_different_seeds_share_no_stream(two: Store) -> None:
    pairs = [{"control": f"s/base.seed{a}", "candidate": f"s/new.seed{b}"} for a, b in ((1, 2), (2, 3), (3, 1))]
    assert analyze(pairs=pairs, store=two.root).comparisons[0].streams == "none"


def test_runs_without_common_steps_have_no_common_area(tmp_path: Path) -> None:
    rows = [
        {"variant": v, "seed": s, "step": i * (1 if v == "a" else 100) + (0 if v == "a" else 5), "acc": i + s * s}
        for v in "ab" for s in SEEDS for i in range(1, 5)
    ]  # fmt: skip
    with pytest.raises(UserError, match="no steps in common"):
        analyze(source=write(tmp_path / "r.csv", rows), question=Question(summary=SummaryRule(type="auc")))


def test_last_values_at_different_ends_are_cautioned(tmp_path: Path) -> None:
    rows = [
        {"variant": v, "seed": s, "step": i, "acc": i + 0.1 * s * s + 0.01 * i * s}
        for v, last in (("a", 10), ("b", 20)) for s in SEEDS for i in range(last + 1)
    ]  # fmt: skip
    analysis = analyze(source=write(tmp_path / "r.csv", rows))
    assert "different ends" in [caution["code"] for caution in analysis.cautions]
    assert [arm.used for arm in analysis.arms] == [5, 5]


def test_diverged_runs_do_not_set_the_window(store: Store) -> None:
    fill(store, base={}, new={"effect": 0.1})
    for seed in range(6, 14):
        for variant in ("base", "new"):
            make(store, "fake", study="s", variant=variant, seed=seed, label=variant, steps=20, diverge_at=4)
    analysis = analyze(
        "s", store=store.root, question=Question(metrics=["train_loss"], summary=SummaryRule(type="auc"))
    )
    assert analysis.summary["window"] is not None and analysis.summary["window"][1] == 20


def test_a_metric_of_one_value_has_no_area(two: Store) -> None:
    message = "report_accuracy has one value per run; the summary auc needs a curve"
    with pytest.raises(UserError, match=message) as refused:
        analyze("s", store=two.root, question=Question(summary=SummaryRule(type="auc")))
    assert refused.value.hint == "Choose one with --metric: train_loss."


def test_a_file_that_no_reader_recognizes_is_named_with_the_installed_readers(tmp_path: Path) -> None:
    file = tmp_path / "base.1.kvlog"
    file.write_text("epoch=1 acc=0.5\nepoch=2 acc=0.6\n")
    message = "no reader recognizes base.1.kvlog, and as a table it has no columns of numbers"
    for metrics in (["acc"], []):
        with pytest.raises(UserError, match=message) as refused:
            analyze(source=file, question=Question(metrics=metrics))
        assert "table" in (refused.value.hint or "")


def test_two_files_have_possible_metrics(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.csv", "b.csv")]
    for seed, file in enumerate(files):
        file.write_text(f"variant,seed,acc,f1\na,{seed},1.5,1.5\nb,{seed},1.5,2.5\n")
    with pytest.raises(UserError, match=r"a\.csv, b\.csv have 2 possible metrics: acc, f1"):
        analyze(source=files)


def test_the_direction_of_a_second_metric_is_its_own(two: Store) -> None:
    question = Question(metrics=["train_loss", "report_accuracy"], direction="min")
    assert analyze("s", store=two.root, question=question).secondary[0].direction == "max"


def test_speeds_are_not_times() -> None:
    names = ("tokens_per_s", "steps/s", "eval_loss", "wall_s", "lifetime", "accuracy")
    assert [direction_by_name(name) for name in names] == ["max", "max", "min", "min", None, "max"]


def test_uncommitted_changes_on_one_side_are_unfair() -> None:
    facts = {"commit": "c", "options": {}, "versions": {}, "machine": {}}
    found = judge_fairness(
        [{**facts, "changes": "none"}], [{**facts, "changes": "x" * 64}], names=("a", "b"), declared=[], roles={}
    )
    assert ["uncommitted changes" in caution["text"] for caution in found.cautions] == [True]


AMD = {"cpu": "AMD EPYC", "cpu_model": "AuthenticAMD family 25 model 1", "cpu_features": ["avx2"],
       "torch_instruction_set": "AVX2"}  # fmt: skip
NEWER = {**AMD, "cpu_model": "AuthenticAMD family 25 model 17", "cpu_features": ["avx2", "avx512f"],
         "torch_instruction_set": "AVX512"}  # fmt: skip


def processor_cautions(control: list[dict[str, Any]], candidate: list[dict[str, Any]]) -> list[str]:
    sides = [
        [{"options": {}, "seed": seed, "processor": each} for seed, each in enumerate(side)]
        for side in (control, candidate)
    ]
    found = judge_fairness(*sides, names=("a", "b"), declared=[], roles={})
    return [caution["text"] for caution in found.cautions if caution["code"] == "other processor"]


def test_processors_of_one_name_and_different_kinds_are_cautioned() -> None:
    [text] = processor_cautions([AMD, AMD], [NEWER, NEWER])
    assert text.startswith(
        "a ran on AMD EPYC (AuthenticAMD family 25 model 1, torch uses AVX2), b on AMD EPYC (AuthenticAMD family 25 "
        "model 17, torch uses AVX512, with avx512f)."
    )


def test_pairs_that_shared_a_machine_need_no_caution() -> None:
    assert processor_cautions([AMD, NEWER], [AMD, NEWER]) == []
    [text] = processor_cautions([AMD, NEWER], [NEWER, NEWER])
    assert text.startswith("In 1 of 2 pairs a ran on")


def test_a_processor_that_an_older_version_did_not_record_is_not_compared() -> None:
    old = {**dict.fromkeys(AMD), "cpu": "AMD EPYC"}
    assert processor_cautions([old], [NEWER]) == [] == processor_cautions([{}], [NEWER])
    assert len(processor_cautions([old], [{**NEWER, "cpu": "Intel"}])) == 1


def with_commit(store: Store, run: str, commit: str | None, changes: str | None = None) -> None:
    paths = store.paths.run("s", run)
    environment = json.loads(paths.metadata.read_bytes())["environment"]
    known = {"git_commit": commit, "git_dirty": commit and bool(changes), "git_dirty_hash": changes}
    edit_metadata(paths, environment={**environment, **known})
    os.utime(paths.root)  # a run that is put there whole, as every other writer does, changes its folder


def test_code_that_cannot_be_named_is_cautioned(two: Store) -> None:
    codes = {caution["code"] for caution in analyze("s", store=two.root).cautions}
    assert "unknown commit" in codes and not codes & {"dirty tree", "mixed commits"}
    runs = sorted(run.name.partition("/")[2] for run in two.match(["s/*"]))
    for run in runs:
        with_commit(two, run, "a" * 40)
    codes = {caution["code"] for caution in analyze("s", store=two.root).cautions}
    assert not codes & {"unknown commit", "dirty tree", "mixed commits"}
    with_commit(two, runs[-1], "b" * 40, "f" * 64)
    found = {caution["code"]: caution["text"] for caution in analyze("s", store=two.root).cautions}
    assert found["dirty tree"] and "2 commits (aaaaaaaaaaaa, bbbbbbbbbbbb)" in found["mixed commits"]


def test_a_gap_that_shrinks_is_better(tmp_path: Path) -> None:
    question = Question(tasks=True, statistic="optimality_gap", gamma=5.0)
    [found] = analyze(source=write(tmp_path / "r.csv", task_rows(22, 1.0)), question=question).comparisons
    assert found.verdict is Verdict.BETTER and (found.effect.value or 0) < 0


def test_a_threshold_of_nothing_is_not_taken_for_none(tmp_path: Path) -> None:
    """No score is below 0, so all gaps are closed; the default of 1 would leave most of them open."""
    question = Question(tasks=True, statistic="optimality_gap", gamma=0.0)
    rows = [{**row, "score": abs(row["score"])} for row in task_rows(3)]
    found = analyze(source=write(tmp_path / "r.csv", rows), question=question).tasks
    assert found is not None
    assert {arm: each["optimality_gap"]["value"] for arm, each in found["aggregates"].items()} == {"a": 0.0, "b": 0.0}
    assert {rank["value"] for rank in found["ranking"]} == {0.0}


def test_a_task_that_a_seed_never_had_is_named_and_is_not_a_lost_run(tmp_path: Path) -> None:
    """Scored as lost, a cell that nobody ran would cap the verdict."""
    rows = task_rows(3, 4.0)[:-1]
    analysis = analyze(source=write(tmp_path / "r.csv", rows), question=Question(tasks=True))
    [found] = analysis.comparisons
    assert found.reliability is not None and not found.reliability.any and found.verdict is Verdict.BETTER
    assert found.n_control == found.n_candidate == len(SEEDS) - 1
    assert "not run on 1 task; not scored" in [each["reason"] for each in analysis.arms[1].left_out]
    assert "runs not on all tasks" in [caution["code"] for caution in analysis.cautions]


def own_seed_rows(tasks: int, runs: int, effect: float) -> list[dict[str, Any]]:
    rng = np.random.default_rng(2)
    return [
        {"variant": v, "seed": 1000 * t + 10 * s + (v == "b"), "task": f"t{t}", "score": effect * (v == "b") + rng.normal()}
        for v in "ab" for t in range(tasks) for s in range(runs)
    ]  # fmt: skip


def test_a_published_layout_with_seeds_by_task_is_judged_in_seconds(tmp_path: Path) -> None:
    """55 tasks with five seeds of their own: once 275 runs that each had lost 54 tasks, and no result after minutes."""
    path = write(tmp_path / "r.csv", own_seed_rows(55, 5, 0.5))
    begun = time.process_time()
    analysis = analyze(source=path, question=Question(tasks=True))
    assert time.process_time() - begun < 5
    [found] = analysis.comparisons
    assert (
        found.verdict is Verdict.BETTER
        and found.reliability is not None
        and not found.reliability.any
        and found.pairing == "unpaired"
    )
    assert found.method == "jackknife by run within each task, Satterthwaite t" and found.tests["df"] > 50
    assert analysis.arms[0].left_out == [] and analysis.arms[0].planned == 275
    assert analysis.tasks is not None and analysis.tasks["layout"] == "seeds by task"
    assert [rank["seeds"] for rank in analysis.tasks["ranking"]] == [5, 5]
    assert len(analysis.tasks["scores_by_task"]["a"]["t0"]) == 5


def test_runs_without_seeds_go_by_their_own_name_on_every_task(tmp_path: Path) -> None:
    """A run that was evaluated on many tasks is one run: its luck may be on all of them."""
    rows = [{"run": f"run-{row.pop('seed')}", **row} for row in task_rows(4, 2.0)]
    analysis = analyze(source=write(tmp_path / "r.csv", rows), question=Question(tasks=True))
    [found] = analysis.comparisons
    assert found.pairing == "unpaired" and (found.n_control, found.n_candidate) == (len(SEEDS), len(SEEDS))
    assert found.method == "jackknife by run, Welch t"


def test_a_task_that_one_variant_was_not_run_on_is_left_out_with_a_caution(tmp_path: Path) -> None:
    rows = [row for row in task_rows(4, 2.0) if (row["variant"], row["task"]) != ("b", "t3")]
    analysis = analyze(source=write(tmp_path / "r.csv", rows), question=Question(tasks=True))
    assert analysis.tasks is not None and analysis.tasks["tasks"] == ["t0", "t1", "t2"]
    assert "tasks left out" in [caution["code"] for caution in analysis.cautions]
    apart = [row for row in rows if row["variant"] == "a" or row["task"] == "t9"] + [
        {"variant": "b", "seed": "1", "task": "t9", "score": 1.0}
    ]
    with pytest.raises(UserError, match="no task was run by every variant"):
        analyze(source=write(tmp_path / "s.csv", apart), question=Question(tasks=True, unpaired=True))


def test_the_stratified_bootstrap_stands_beside_the_verdict_and_does_not_change_it(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", task_rows(22, 0.3))
    plain = analyze(source=path, question=Question(tasks=True))
    asked = analyze(source=path, question=Question(tasks=True, method="percentile", resamples=500))
    assert plain.tasks is not None and "stratified_bootstrap" not in plain.tasks
    assert asked.tasks is not None
    beside = asked.tasks["stratified_bootstrap"]["b"]
    assert beside["method"] == "stratified bootstrap of the iqm over 22 tasks" and beside["low"] < beside["high"]
    assert asked.comparisons[0].to_dict() == plain.comparisons[0].to_dict()


@pytest.mark.parametrize("statistic", ["trimmed", "olympic"])
def test_trimmed_and_olympic_means_can_be_asked_for(tmp_path: Path, statistic: str) -> None:
    question = Question(tasks=True, statistic=statistic)
    [found] = analyze(source=write(tmp_path / "r.csv", task_rows(6, 2.0)), question=question).comparisons
    assert found.verdict is Verdict.BETTER and found.metric is not None and found.metric.startswith(statistic)
    assert "few tasks" not in [caution["code"] for caution in found.cautions]


@pytest.mark.parametrize(
    "more",
    [
        {"certify": True},
        {"ttest": True},
        {"power": True},
        {"family": "tukey"},
        {"method": "bca"},
        {"method": "sign-flip"},
        {"method": "bca", "statistic": "mean"},
    ],
)
def test_what_does_not_apply_over_tasks_is_refused(tmp_path: Path, more: dict[str, Any]) -> None:
    path = write(tmp_path / "r.csv", task_rows(22))
    with pytest.raises(UserError, match="does not apply over tasks"):
        analyze(source=path, question=Question(tasks=True, **more))


def test_a_short_row_is_no_variant_called_none(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("acc,seed,variant\n0.5,1,a\n0.6,2,a\n0.7,1,b\n0.9,2,b\n0.8\n")
    names = [arm.variant for arm in analyze(source=tmp_path / "r.csv").arms]
    assert "None" not in names


def test_the_first_attempt_of_a_seed_in_a_file_counts(tmp_path: Path) -> None:
    rows = [
        {"variant": v, "seed": s, "attempt": t, "acc": 0.5 + 0.1 * (v == "b") + 0.01 * s * s + 5 * t}
        for v in "ab" for s in SEEDS for t in (0, 1)
    ]  # fmt: skip
    analysis = analyze(source=write(tmp_path / "r.csv", rows), question=Question(metrics=["acc"]))
    assert analysis.arms[0].mean is not None and analysis.arms[0].mean < 1


def test_a_damaged_plan_is_one_clear_sentence(store: Store, cli: Callable[..., Answer]) -> None:
    launch = ["launch", "fake", "--variant", "a:", "--variant", "b:effect=0.2", "--base-run-name", "s", "--steps", "20"]
    assert cli(*launch, "--seeds", "3").code == 0
    plan = json.loads(store.paths.study_plan("s").read_text())
    del plan["checksum"]  # as a person leaves it who edits the file on purpose
    store.paths.study_plan("s").write_text(json.dumps({**plan, "summary": {"typ": "auc"}}))
    answer = cli("analyze", "s")
    assert answer.code == 1 and "did you mean 'type'" in answer.err
