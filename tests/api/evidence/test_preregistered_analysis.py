"""An analysis by plan is what was registered, and lists every deviation from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairtrial.api.comparing.analysis import Question
from fairtrial.api.comparing.analyze import analyze
from fairtrial.api.evidence.preregistered_analysis import analyze_by_plan
from fairtrial.core.errors import CheckFailed
from fairtrial.core.paths import ProjectPaths
from fairtrial.record.store import Store
from fairtrial.research.deviations import (
    LocalEvidence,
    RecordedRun,
    StudyRecord,
    find_deviations,
    find_local_deviations,
    unchecked,
)
from fairtrial.research.registration import Registration
from tests.api.evidence.conftest import register_study
from tests.conftest import Answer
from tests.harness import make

ARMS: dict[str, dict[str, Any]] = {"base": {}, "new": {"effect": 0.2, "label": "new"}}


def fill(store: Store, seeds: list[int], **changed: Any) -> None:
    for variant, options in ARMS.items():
        for seed in seeds:
            make(store, "fake", study="s", variant=variant, seed=seed, **{"steps": 20, **options, **changed})


@pytest.fixture
def plan(project: ProjectPaths, study: Path, store: Store) -> Registration:
    return register_study(project, study, store, derive=3).registration


def kinds(found: Any) -> list[str]:
    return [each.kind for each in found.plan.deviations]


def test_a_study_done_as_registered_has_no_deviation(plan: Registration, store: Store) -> None:
    fill(store, plan.seeds)
    found = analyze_by_plan(plan.path, store=store.root)
    assert found.plan is not None and kinds(found) == [] and found.exploratory is None
    assert f"As registered in {plan.name}." in found.headline
    assert "No commit was registered" in found.plan.unchecked[0]
    again = analyze_by_plan(plan.path, store=store.root)
    assert kinds(again) == []  # looking at the whole study breaks no rule


def test_the_registered_question_is_never_another_one(plan: Registration, store: Store) -> None:
    fill(store, plan.seeds)
    analyze("s", store=store.root, question=Question(metrics=["eval_accuracy"]))
    found = analyze_by_plan(plan.path, store=store.root, asked={"side": "greater"})
    assert "nother question" not in found.headline and found.exploratory is not None
    assert "Another question about runs already looked at: first asked for eval_accuracy" in found.exploratory.headline


def test_the_deviations_are_in_text_and_json(plan: Registration, store: Store, cli: Callable[..., Answer]) -> None:
    fill(store, [*plan.seeds[:2], 7])
    make(store, "fake", study="s", variant="third", seed=7, steps=20)
    words = (
        "analyze",
        "--plan",
        str(plan.path),
        "--metric",
        "eval_accuracy",
        "--alpha",
        "0.01",
        "--store",
        str(store.root),
    )
    shown = cli(*words)
    told = json.loads(cli(*words, "--format", "json").out)
    found = [each["kind"] for each in told["plan"]["deviations"]]
    assert found == [
        "extra arms", "extra seeds", "missing seeds", "missing seeds", "stopping rule", "stopping rule",
        "other metric", "other analysis",
    ]  # fmt: skip
    for said in ("extra seeds: not registered, and not used: 7", "1 of 3 registered seeds of base were not run"):
        assert said in shown.out
    assert "Exploratory, not in the registered plan:" in shown.out and "with 6 deviations" in shown.out
    assert (told["metric"], told["exploratory"]["metric"]) == ("report_accuracy", "eval_accuracy")
    assert told["comparisons"][0]["alpha"] == 0.05 and told["comparisons"][0]["n_control"] == 2
    assert "exploratory: beyond the plan" in told["exploratory"]["comparisons"][0]["label"]
    assert told["exploratory"]["comparisons"][0]["n_control"] == 3


def test_an_option_that_was_registered_is_no_deviation(
    plan: Registration, store: Store, cli: Callable[..., Answer]
) -> None:
    fill(store, plan.seeds)
    same = ("--metric", "report_accuracy", "--alpha", "0.05", "--side", "two-sided", "--control", "base", "--certify")
    told = json.loads(
        cli("analyze", "--plan", str(plan.path), *same, "--format", "json", "--store", str(store.root)).out
    )
    assert told["plan"]["deviations"] == [] and told["exploratory"] is None and told["certificate"]
    refused = cli("analyze", "s", "--plan", str(plan.path), "--store", str(store.root))
    assert refused.code == 2 and "--plan and a study cannot be used together" in refused.err


def test_an_ordinary_analysis_of_a_registered_study_says_so(
    plan: Registration, store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fill(store, plan.seeds)
    found = analyze("s", store=store.root)
    assert "Exploratory: not the analysis that was registered." in found.headline
    assert [each["code"] for each in found.cautions if each["code"] == "registered"]
    monkeypatch.chdir(tmp_path)
    assert "Exploratory" not in analyze("s", store=store.root).headline  # nothing here knows of the registration


def test_registered_rules_exclude_runs_and_only_they_do(project: ProjectPaths, study: Path, store: Store) -> None:
    rule = "variant == 'base' and seed == 1072 and final.report_accuracy < 2"
    plan = register_study(project, study, store, intent={"exclusions": [rule]}).registration
    fill(store, plan.seeds)
    found = analyze_by_plan(plan.path, store=store.root)
    out = [each for arm in found.arms for each in arm.left_out]
    assert [(each["run"], each["reason"]) for each in out] == [
        ("s/base.seed1072", f"excluded by the registered rule '{rule}'")
    ]
    assert found.comparisons[0].pairing == "paired" and kinds(found) == []


def test_a_registration_that_was_changed_is_not_followed(plan: Registration, store: Store) -> None:
    fill(store, plan.seeds[:1])
    plan.path.write_bytes(plan.path.read_bytes().replace(b'"alpha": 0.05', b'"alpha": 0.25'))
    with pytest.raises(CheckFailed, match="does not match its hash"):
        analyze_by_plan(plan.path, store=store.root)


def test_a_late_registration_makes_nothing_confirmatory(project: ProjectPaths, study: Path, store: Store) -> None:
    fill(store, [1072, 2043, 3014])
    plan = register_study(project, study, store, late=True).registration
    found = analyze_by_plan(plan.path, store=store.root)
    assert kinds(found) == ["late registration"]
    assert "Exploratory: its registration" in found.headline


# Each deviation by itself.


@pytest.fixture
def done(plan: Registration) -> StudyRecord:
    """Everything as registered."""
    arms = plan.plan["study"]["arms"]
    at = plan.plan["time"] + 60
    return StudyRecord(
        [
            RecordedRun(f"s/{arm}.seed{seed}", arm, seed, arms[arm]["identity"], None, None, None, {}, at)
            for arm in arms for seed in plan.seeds
        ]
    )  # fmt: skip


def one(plan: Registration, study_record: StudyRecord, **changed: Any) -> tuple[str, str]:
    [found] = find_deviations(
        plan, replace(study_record, runs=[replace(study_record.runs[0], **changed), *study_record.runs[1:]])
    )
    return found.kind, found.text


def test_nothing_is_found_where_nothing_differs(plan: Registration, done: StudyRecord) -> None:
    assert find_deviations(plan, done) == []


def test_each_deviation_is_named(plan: Registration, done: StudyRecord) -> None:
    first = done.runs[0]
    changed = {**first.identity, "noise": 0.01}
    assert one(plan, done, identity=changed) == ("changed options", "base: noise 0.02 → 0.01 (1 of 3 runs)")
    assert one(plan, done, data="ab" * 32) == ("changed data", "base: content none → abababab (1 of 3 runs)")
    kind, text = one(plan, done, left_out="failed: out of memory")
    assert kind == "excluded runs" and "out of memory" in text
    kind, text = one(plan, done, began=plan.plan["time"] - 1)
    assert kind == "begun before registration" and "by the author's clock" in text
    kind, text = one(plan, done, versions={"numpy": "0.1"})
    assert kind == "changed versions" and text.startswith("numpy ") and "→ 0.1" in text
    [found] = find_deviations(plan, replace(done, runs=[run for run in done.runs if run.variant == "base"]))
    assert (found.kind, found.text) == ("missing arms", "registered, and without a run: new")
    for said in ({"replaced": ["s/.archive/base.seed1"]}, {"removed": ["s/base.seed1"]}):
        [found] = find_local_deviations(plan, done.runs, LocalEvidence(**said))
        assert found.kind == f"{next(iter(said))} runs"
    [found] = find_deviations(plan, replace(done, repeated=["s/base.seed1.again2"]))
    assert found.kind == "repeated runs"
    [found] = find_deviations(plan, replace(done, amended_by="ab" * 32))
    assert (found.kind, found.text) == ("amended plan", "this plan was replaced by abababababab")
    assert one(plan, done, recipe_file="cd" * 32)[1] == "the file of the recipe none → cdcdcdcd (1 of 6 runs)"


def test_a_comparison_before_all_seeds_were_there_breaks_the_rule(plan: Registration, done: StudyRecord) -> None:
    few = {"time": plan.plan["time"] + 90, "seeds": {arm: [str(plan.seeds[0])] for arm in ("base", "new")}}
    [found] = find_deviations(plan, replace(done, interim_looks=[few]))
    assert found.kind == "stopping rule" and "with 1 of 3 seeds" in found.text
    in_words = replace(plan, plan={**plan.plan, "stopping_rule": "When it rains."})
    assert find_deviations(in_words, replace(done, interim_looks=[few])) == []
    assert "When it rains." in unchecked(in_words)[0]


def test_a_run_that_had_ended_without_a_number_was_there(plan: Registration, done: StudyRecord) -> None:
    """Such as one that a registered rule excludes: looking without it is no look before its time."""
    at = plan.plan["time"] + 90
    look = {"time": at, "seeds": {arm: [str(seed) for seed in plan.seeds[1:]] for arm in ("base", "new")}}
    ended = replace(done, runs=[replace(run, ended=at - 1) for run in done.runs], interim_looks=[look])
    assert find_deviations(plan, ended) == []
    later = replace(done, runs=[replace(run, ended=at + 1) for run in done.runs], interim_looks=[look])
    assert [each.kind for each in find_deviations(plan, later)] == ["stopping rule"]


def test_a_path_that_a_bundle_does_not_tell_is_no_changed_option(plan: Registration, done: StudyRecord) -> None:
    arms = plan.plan["study"]["arms"]
    own = {**arms["base"]["identity"], "label": "/home/me/data/x.csv"}
    plan = replace(
        plan,
        plan={
            **plan.plan,
            "study": {**plan.plan["study"], "arms": {**arms, "base": {**arms["base"], "identity": own}}},
        },
    )

    def told(label: str) -> list[str]:
        runs = [replace(run, identity={**own, "label": label}) if run.variant == "base" else run for run in done.runs]
        return [each.kind for each in find_deviations(plan, replace(done, runs=runs))]

    assert told("~/data/x.csv") == [] == told("/home/me/data/x.csv")
    assert told("~/data/y.csv") == ["changed options"] == told("/home/you/data/x.csv")


def test_code_has_changed_where_its_files_have(plan: Registration, done: StudyRecord) -> None:
    code = {**plan.plan["code"], "git_commit": "a" * 40, "git_dirty_hash": None}
    plan = replace(plan, plan={**plan.plan, "code": code})
    moved = replace(done, runs=[replace(run, commit="b" * 40) for run in done.runs])
    assert find_local_deviations(plan, moved.runs, LocalEvidence(changed_files=lambda _a, _b: [])) == []
    [found] = find_local_deviations(plan, moved.runs, LocalEvidence(changed_files=lambda _a, _b: ["train.py"]))
    assert found.text == "commit aaaaaaaa → bbbbbbbb; 1 file changed: train.py (6 of 6 runs)"
    [found] = find_local_deviations(plan, moved.runs, LocalEvidence())
    assert found.text.endswith("what changed between them is not known here (6 of 6 runs)")
    dirty = replace(done, runs=[replace(run, commit="a" * 40, changes="c" * 64) for run in done.runs])
    [found] = find_deviations(plan, dirty)
    assert found.kind == "changed code" and "uncommitted changes none → cccccccc" in found.text
