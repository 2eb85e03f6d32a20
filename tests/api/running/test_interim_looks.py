"""Every view of a difference is recorded in its study, and a verdict says what was looked at before it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fairtrial.api.comparing.analysis import Question
from fairtrial.api.comparing.analyze import analyze, analyze_run_set
from fairtrial.api.comparing.gather import from_study
from fairtrial.api.comparing.shown_comparisons import label_analysis, record_analysis
from fairtrial.api.running.interim_looks import EXPLORATORY, label_and_record_looks
from fairtrial.api.running.launch import launch, run_study
from fairtrial.plan.study import Study
from fairtrial.record.interim_looks import (
    Asked,
    InterimLook,
    came_later,
    first_asked,
    read_interim_looks,
    record_interim_look,
)
from fairtrial.record.store import Store
from fairtrial.stats.summaries import SummaryRule
from tests.conftest import Answer
from tests.harness import make

SEEDS = (1, 2, 3, 4, 5)
ANOTHER = "another question about runs already looked at: first asked for "


def fill(store: Store, seeds: Sequence[int] = SEEDS, study: str = "s", **variants: dict[str, Any]) -> None:
    for variant, options in variants.items():
        for seed in seeds:
            given = {"label": variant, "steps": 20, "eval_every": 5, **options}
            make(store, "fake", study=study, variant=variant, seed=seed, **given)


@pytest.fixture
def two(store: Store) -> Store:
    fill(store, base={}, new={"effect": 0.2})
    return store


def study_of(store: Store, seeds: list[int], **values: Any) -> Study:
    """A study whose runs are there already: what a launch then does is to show them."""
    fill(store, seeds, base={}, new={"effect": 0.2})
    variants = {"base": {"label": "base"}, "new": {"effect": 0.2, "label": "new"}}
    return Study(
        study="s", recipe="fake", options={"steps": 20, "eval_every": 5}, variants=variants, seeds=seeds, **values
    )


def label_of(store: Store, **asked: Any) -> str | None:
    return analyze("s", store=store.root, question=Question(**asked)).comparisons[0].label


# What is recorded.


def test_a_look_records_when_and_what_was_asked_of_which_runs(two: Store) -> None:
    analyze("s", store=two.root, question=Question(side="greater", method="wilcoxon"))
    [row] = read_interim_looks(two, "s")
    assert row.pop("time") > 1e9
    assert row == {
        "metric": "report_accuracy", "method": "wilcoxon", "side": "greater", "summary": "last value", "n": 5,
        "seeds": {"base": list("12345"), "new": list("12345")},
    }  # fmt: skip


def test_an_analysis_records_nothing_and_says_what_is_to_be_recorded(two: Store) -> None:
    asked = Question(metrics=["report_accuracy", "train_loss"])
    analysis = analyze_run_set(from_study(two, "s", asked.metric_query), None, [], asked, two)
    assert not read_interim_looks(two, "s"), "nobody has seen it"
    looks = [look.to_row() for view in analysis.on_view for look in view.looks_at("s")]
    shown = record_analysis(analysis, two)
    assert [{**row, "time": None} for row in read_interim_looks(two, "s")] == [{"time": None, **row} for row in looks]
    assert [row["metric"] for row in looks] == ["report_accuracy", "train_loss"]
    assert shown.comparisons[0].label is None and shown.secondary == analysis.secondary


def test_earlier_looks_label_an_analysis_that_nobody_sees(two: Store) -> None:
    asked = Question(method="wilcoxon")
    analysis = analyze_run_set(from_study(two, "s", asked.metric_query), None, [], asked, two)
    analyze("s", store=two.root)
    before = read_interim_looks(two, "s")
    labelled = label_analysis(analysis, two).comparisons[0]
    assert read_interim_looks(two, "s") == before
    assert labelled == record_analysis(analysis, two).comparisons[0]
    assert labelled.label == f"{ANOTHER}report_accuracy, t, two-sided"


def test_the_table_of_a_launch_is_a_look(store: Store) -> None:
    """D9: `launch` showed differences and recorded nothing."""
    shown = launch(study_of(store, [1, 2, 3]), store=store.root)
    assert shown.differences
    [row] = read_interim_looks(store, "s")
    assert (row["metric"], row["method"], row["side"], row["n"]) == ("report_accuracy", None, None, 3)
    launch(study_of(store, [1, 2, 3]), store=store.root)
    assert len(read_interim_looks(store, "s")) == 1, "the same view of the same runs adds nothing"


def test_a_launch_on_the_command_line_is_a_look_too(store: Store, cli: Callable[..., Answer]) -> None:
    study_of(store, [1, 2, 3, 4])
    words = ("--variant", "base:label=base", "--variant", "new:effect=0.2,label=new", "--steps", "20")
    words += ("--eval-every", "5", "--base-run-name", "s")
    assert cli("launch", "fake", *words, "--seeds", "1,2,3").code == 0
    assert [row["n"] for row in read_interim_looks(store, "s")] == [3]
    told = cli("launch", "fake", *words, "--seeds", "1,2,3,4", "--format", "json").json
    assert "seeds added after looking" in [caution["code"] for caution in told["cautions"]]


def test_filling_a_study_without_showing_it_is_no_look(store: Store) -> None:
    run_study(study_of(store, [1, 2, 3]), store=store.root)
    assert read_interim_looks(store, "s") == []


def test_one_variant_has_no_difference_to_look_at(store: Store) -> None:
    fill(store, [1, 2], only={})
    alone = Study(
        study="s", recipe="fake", options={"steps": 20, "eval_every": 5}, variants={"only": {"label": "only"}}
    )
    launch(alone.model_copy(update={"seeds": [1, 2]}), store=store.root)
    assert read_interim_looks(store, "s") == []


def test_further_metrics_are_on_view_as_well(two: Store) -> None:
    found = analyze("s", store=two.root, question=Question(metrics=["report_accuracy", "train_loss"]))
    assert [row["metric"] for row in read_interim_looks(two, "s")] == ["report_accuracy", "train_loss"]
    assert [each.label for each in (*found.comparisons, *found.secondary)] == [None, "secondary metric"]


# Another question.


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ({"metrics": ["eval_accuracy"]}, "report_accuracy, t, two-sided"),
        ({"method": "wilcoxon"}, "report_accuracy, t, two-sided"),
        ({"side": "greater"}, "report_accuracy, t, two-sided"),
        ({"unpaired": True}, "report_accuracy, t, two-sided"),
        (
            {"metrics": ["train_loss"], "summary": SummaryRule("auc")},
            "report_accuracy (last value), t, two-sided",
        ),
    ],
    ids=["metric", "method", "side", "pairing", "summary"],
)
def test_another_question_about_the_same_runs_is_labelled(two: Store, asked: dict[str, Any], first: str) -> None:
    """D9: a second look by another metric, method, side or summary was not labelled."""
    assert label_of(two) is None
    found = analyze("s", store=two.root, question=Question(**asked))
    assert found.comparisons[0].label == ANOTHER + first
    assert f"Another question about runs already looked at: first asked for {first}." in found.headline
    assert "another question" in [caution["code"] for caution in found.comparisons[0].cautions]
    assert label_of(two, **asked) == ANOTHER + first, "asking it twice does not make it the first question"
    assert label_of(two) is None, "the first question stays the first"


def test_the_question_of_the_study_is_not_another_one_after_its_launch(store: Store) -> None:
    planned = study_of(store, [1, 2, 3], metric="eval_accuracy", summary={"type": "auc"})
    launch(planned, store=store.root)
    assert label_of(store) is None
    assert label_of(store, summary=SummaryRule()) == ANOTHER + "eval_accuracy (mean height of the curve), t, two-sided"


def test_the_first_test_after_a_launch_is_the_first_question(store: Store) -> None:
    launch(study_of(store, [1, 2, 3]), store=store.root)
    assert label_of(store, method="wilcoxon") is None
    assert label_of(store) == ANOTHER + "report_accuracy, wilcoxon, two-sided"


def test_a_look_at_other_runs_is_not_another_question(two: Store) -> None:
    analyze("s", store=two.root)
    fill(two, third={"effect": 0.1})
    found = analyze("s", control="base", candidate="third", store=two.root, question=Question(method="wilcoxon"))
    assert found.comparisons[0].label is None


def test_both_labels_stand_where_seeds_were_added_and_something_else_is_asked(two: Store) -> None:
    label_of(two)
    fill(two, seeds=[6], base={}, new={"effect": 0.2})
    assert label_of(two, method="wilcoxon") == f"{EXPLORATORY}; {ANOTHER}report_accuracy, t, two-sided"


def test_looks_of_older_versions_are_read(two: Store) -> None:
    """They know the metric and the seeds; what they do not know is not held against anyone."""
    record_interim_look(two, "s", metric="report_accuracy", seeds={"base": list("12345"), "new": list("12345")})
    path = two.paths.interim_looks("s")
    old = {k: v for k, v in json.loads(path.read_text()).items() if k in ("time", "metric", "n", "seeds")}
    path.write_text(json.dumps(old) + "\n")
    assert label_of(two, method="wilcoxon") is None
    assert label_of(two, metrics=["eval_accuracy"]) == ANOTHER + "report_accuracy, wilcoxon, two-sided"


# Seeds that were added.


def test_seeds_added_after_a_launch_make_the_verdict_exploratory(store: Store) -> None:
    launch(study_of(store, [1, 2, 3]), store=store.root)
    again = launch(study_of(store, [1, 2, 3, 4, 5]), store=store.root)
    assert "seeds added after looking" in [caution["code"] for caution in again.cautions]
    assert label_of(store) == EXPLORATORY


def test_runs_that_were_lost_while_a_launch_ran_may_be_filled_in(store: Store) -> None:
    """Their number was fixed before the table was shown; what is missing is not chosen by looking."""
    asked = Asked("report_accuracy", summary="last value")
    few, all_of_them = [["1", "2"], ["1", "2", "3"]]
    pair = ("base", "new")
    label_and_record_looks(store, "s", [InterimLook(asked, dict.fromkeys(pair, few), dict.fromkeys(pair, all_of_them))])
    fill(store, seeds=[1, 2, 3], base={}, new={"effect": 0.2})
    assert label_of(store) is None
    fill(store, seeds=[4], base={}, new={"effect": 0.2})
    assert label_of(store) == EXPLORATORY


def test_what_was_planned_excuses_no_look_by_analyze() -> None:
    few, planned = {"a": ["1", "2"], "b": ["1", "2"]}, {"a": ["1", "2", "3"], "b": ["1", "2", "3"]}
    shown = {"metric": "m", "seeds": few, "planned": planned}
    assert not came_later([shown], planned)
    assert came_later([shown, {"metric": "m", "seeds": few}], planned)


def test_looking_at_some_of_the_runs_again_adds_none() -> None:
    whole, some = {"a": ["1", "2"], "b": ["1", "2"]}, {"a": ["2"], "b": ["2"]}
    assert not came_later([{"seeds": whole}, {"seeds": some}], whole)
    assert came_later([{"seeds": some}, {"seeds": whole}], whole)


def test_what_was_asked_first_is_completed_by_the_first_test_of_it() -> None:
    seeds = {"a": ["1"], "b": ["1"]}
    launched = {"metric": "m", "summary": "last value", "method": None, "side": None, "seeds": seeds}
    other = {"metric": "loss", "summary": "last value", "method": "bca", "side": "greater", "seeds": seeds}
    test = {"metric": "m", "summary": "last value", "method": "t", "side": "two-sided", "seeds": seeds}
    assert first_asked([launched, other, test], seeds) == Asked("m", "t", "two-sided", "last value")
    assert first_asked([launched], {"a": ["2"], "b": ["2"]}) is None
    assert first_asked([launched], {"a": ["1"], "c": ["1"]}) is None


# Damage.


@pytest.mark.parametrize("wrong", [{"method": 1}, {"side": []}, {"summary": {}}, {"planned": {"a": [1]}}])
def test_a_look_with_a_wrong_part_is_damaged_and_stops_nobody(two: Store, wrong: dict[str, Any]) -> None:
    row = {"time": 1.0, "metric": "report_accuracy", "n": 1, "seeds": {"base": ["1"], "new": ["1"]}, **wrong}
    two.paths.interim_looks("s").write_text(json.dumps(row) + "\n")
    [found] = analyze("s", store=two.root).comparisons
    assert found.label is None and "looks damaged" in [caution["code"] for caution in found.cautions]


def test_a_store_that_cannot_be_written_says_so(two: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairtrial.record.interim_looks.open_to_append", _refuse)
    [found] = analyze("s", store=two.root).comparisons
    assert "look not noted" in [caution["code"] for caution in found.cautions]


def test_a_full_disk_notes_nothing_and_says_so(two: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    write = __import__("os").write
    monkeypatch.setattr("fairtrial.record.interim_looks.os.write", lambda target, lines: write(target, lines[:9]))
    [found] = analyze("s", store=two.root).comparisons
    assert "look not noted" in [caution["code"] for caution in found.cautions]
    monkeypatch.undo()
    monkeypatch.setattr("os.fsync", lambda _: None)
    analyze("s", store=two.root)
    assert len(two.paths.interim_looks("s").read_text().splitlines()) == 1


def _refuse(_: Any) -> int:
    raise PermissionError("read-only")


# The way out.


def test_no_text_about_looking_leads_back_into_it(two: Store) -> None:
    label_of(two)
    fill(two, seeds=[6], base={}, new={"effect": 0.2})
    [found] = analyze("s", store=two.root, question=Question(method="wilcoxon")).comparisons
    told = [
        each["remedy"] for each in found.cautions if each["code"] in (EXPLORATORY.split(": ")[1], "another question")
    ]
    assert len(told) == 2 and all("a planned number of fresh seeds" in remedy for remedy in told)
    assert "decide" not in " ".join(told)
