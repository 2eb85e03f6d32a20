"""analyze --target and --adjust on recorded runs, registrations and files: what they change, and what they refuse."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fairtrial
from fairtrial.api.comparing.analysis import Question
from fairtrial.api.comparing.analyze import analyze
from fairtrial.api.evidence.preregistered_analysis import analyze_by_plan
from fairtrial.core.errors import UserError
from fairtrial.core.findings import Comparison, Verdict
from fairtrial.core.paths import ProjectPaths
from fairtrial.plan.study import Study
from fairtrial.record.interim_looks import read_interim_looks
from fairtrial.record.store import Store
from fairtrial.record.studies import save_plan
from tests.api.comparing.test_analyze import fill, write
from tests.api.evidence.conftest import ARTIFACT, _own_key, key, register_study, signer  # noqa: F401
from tests.conftest import Answer
from tests.harness import make
from tests.own_recipe import PLAIN

Cli = Callable[..., Answer]


def rows(pairs: int = 12, first_step: int = 0, effect: float = -0.004, seed: int = 3) -> list[dict[str, Any]]:
    """A covariate that explains most of the noise, measured before the first step, and a loss at the end."""
    draw = random.Random(seed)
    found = []
    for run in range(pairs):
        for variant, shift in (("base", 0.0), ("new", effect)):
            luck = draw.gauss(0, 0.01)
            loss = 3.28 + shift + 0.9 * luck + draw.gauss(0, 0.004)
            found += [
                {"variant": variant, "seed": run, "step": first_step, "loss": "", "initial_loss": 10 + luck},
                {"variant": variant, "seed": run, "step": 100, "loss": loss, "initial_loss": ""},
            ]
    return found


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write(tmp_path / "losses.csv", rows())


def asked(table: Path, **question: Any) -> Comparison:
    return analyze(source=table, question=Question(metrics=["loss"], **question)).comparisons[0]


def codes(found: Comparison) -> list[str]:
    return [caution["code"] for caution in found.cautions]


# A target


def test_one_variant_of_a_study_against_a_target(store: Store, cli: Cli) -> None:
    fill(store, base={}, new={"effect": 0.2})
    answer = cli("analyze", "s", "--candidate", "new", "--target", "0.7", "--require", "better")
    assert answer.code == 0
    assert answer.out.startswith("new is better than target 0.7: report_accuracy +0.1")
    assert "one-sample t over 5 runs" in answer.out.splitlines()[0]
    assert "Lost runs of new: none of 5; a failure rate of up to 45 % is still possible." in answer.out
    assert [set(look["seeds"]) for look in read_interim_looks(store, "s")] == [{"new"}]


def test_every_variant_of_a_study_is_a_family_by_holm(store: Store, cli: Cli) -> None:
    fill(store, base={}, new={"effect": 0.2})
    found = cli("analyze", "s", "--target", "0.7", "--format", "json").json
    assert [(each["candidate"], each["adjustment"]) for each in found["comparisons"]] == [
        ("base", "holm"), ("new", "holm"),
    ]  # fmt: skip
    assert found["control"] == "target 0.7" and [arm["variant"] for arm in found["arms"]] == ["base", "new"]
    assert "new is better than target 0.7" in cli("analyze", "s", "--target", "0.7").out.splitlines()[0]


def test_a_file_without_variants_is_one_arm(tmp_path: Path, cli: Cli) -> None:
    path = write(tmp_path / "t.csv", [{"seed": s, "loss": 3.27 + 0.001 * s} for s in range(6)])
    found = cli("analyze", "--from", str(path), "--target", "3.28", "--known-sd", "0.002", "--format", "json").json
    [comparison] = found["comparisons"]
    assert (comparison["verdict"], comparison["method"]) == ("better", "one-sample z")
    assert comparison["target"]["known_sd"] == 0.002


def test_chosen_runs_and_variants_of_other_studies_have_targets_too(store: Store) -> None:
    fill(store, new={"effect": 0.2})
    question = Question(target=0.7)
    for chosen in ({"candidate_run_ids": ["s/new.*"]}, {"candidate": "s:new"}):
        assert analyze(**chosen, question=question, store=store.root).comparisons[0].verdict is Verdict.BETTER  # type: ignore[arg-type]


def test_a_diverged_run_keeps_a_variant_from_beating_the_target(store: Store, cli: Cli) -> None:
    fill(store, new={"effect": 0.2})
    make(store, "fake", study="s", variant="new", seed=9, label="new", steps=20, effect=0.2, diverge_at=3)
    answer = cli("analyze", "s", "--target", "0.7", "--require", "not-worse")
    assert answer.code == 3
    assert answer.out.startswith("1 of 6 runs of new were lost. Inconclusive (attrition): new − target 0.7 is")


@pytest.mark.parametrize(
    "words",
    [
        ["--control", "base"], ["--unpaired"], ["--method", "wilcoxon"], ["--family", "tukey"], ["--certify"],
        ["--ttest.enabled"], ["--power.enabled"], ["--adjust", "initial_loss"], ["--metric", "initial_loss"],
    ],
)  # fmt: skip
def test_an_option_without_effect_is_refused(table: Path, cli: Cli, words: list[str]) -> None:
    answer = cli("analyze", "--from", str(table), "--metric", "loss", "--target", "3.28", *words)
    assert answer.code == 1
    assert "does not apply with --target" in answer.err


@pytest.mark.parametrize("words", [["--known-sd", "1"], ["--target", "inf"], ["--target", "3", "--known-sd", "0"]])
def test_impossible_targets_are_one_sentence(table: Path, cli: Cli, words: list[str]) -> None:
    answer = cli("analyze", "--from", str(table), "--metric", "loss", *words)
    assert answer.code in (1, 2) and answer.err.startswith("Error: ") and "Traceback" not in answer.err


@pytest.mark.parametrize("kind", ["csv", "markdown", "latex"])
def test_a_target_fits_every_format(table: Path, cli: Cli, kind: str) -> None:
    out = cli("analyze", "--from", str(table), "--metric", "loss", "--target", "3.28", "--format", kind).out
    assert "target 3.28" in out and "12" in out


# A covariate


def test_a_covariate_that_was_not_planned_never_changes_the_verdict(table: Path, cli: Cli) -> None:
    plain, found = asked(table), asked(table, adjust="initial_loss")
    assert (found.verdict, found.effect, found.p_value) == (plain.verdict, plain.effect, plain.p_value)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.covariate is not None and not found.covariate.planned
    assert found.covariate.verdict is Verdict.BETTER and (found.covariate.p_value or 1) < 0.01
    shown = cli("analyze", "--from", str(table), "--metric", "loss", "--adjust", "initial_loss").out
    assert shown.startswith("Inconclusive: ")
    assert "Exploratory: adjusted for initial_loss, new − base is −0.00" in shown


@pytest.mark.parametrize(
    ("changed", "question", "why"),
    [
        ({"first_step": 5}, {"adjust": "initial_loss"}, "first logged at step 5"),
        ({"pairs": 7}, {"adjust": "initial_loss"}, "needs at least 8 complete pairs; there are 7"),
        ({"pairs": 1}, {"adjust": "initial_loss"}, "needs at least 8 complete pairs; there are 1"),
        ({}, {"adjust": "initial_loss", "unpaired": True}, "not paired by seed"),
        ({}, {"adjust": "initial_loss", "method": "wilcoxon"}, "needs means and method t"),
        ({}, {"adjust": "loss"}, "which is the value being compared"),
        ({}, {"adjust": "nothing"}, "unknown metric 'nothing'"),
        ({}, {"adjust": "variant:nobody"}, "unknown variant 'nobody'"),
        ({}, {"adjust": "variant:base"}, "a comparison needs two"),
    ],
)
def test_a_covariate_that_cannot_be_used_is_refused_with_the_reason(
    tmp_path: Path, changed: dict[str, Any], question: dict[str, Any], why: str
) -> None:
    with pytest.raises(UserError, match=why):
        asked(write(tmp_path / "t.csv", rows(**changed)), **question)


def test_a_covariate_whose_time_is_unknown_is_cautioned_about(tmp_path: Path) -> None:
    """Without a column of steps nobody can say whether it is from before the change."""
    wide: dict[tuple[Any, Any], dict[str, Any]] = {}
    for row in rows():
        known = wide.setdefault((row["variant"], row["seed"]), {"variant": row["variant"], "seed": row["seed"]})
        known.update({name: row[name] for name in ("loss", "initial_loss") if row[name] != ""})
    found = asked(write(tmp_path / "wide.csv", list(wide.values())), adjust="initial_loss")
    assert "covariate of unknown time" in codes(found)


def test_a_baseline_arm_with_more_seeds_is_set_apart_and_used(tmp_path: Path) -> None:
    draw = random.Random(1)
    found = []
    for seed in range(40):
        luck = draw.gauss(0, 0.01)
        found.append({"variant": "before", "seed": seed, "loss": 3 + luck + draw.gauss(0, 0.001)})
        for variant, gain in (("base", 1.0), ("new", 3.0)) if seed < 10 else ():
            found.append({"variant": variant, "seed": seed, "loss": 3 + gain * luck + draw.gauss(0, 0.001)})
    table = write(tmp_path / "t.csv", found)
    shown = asked(table, adjust="variant:before")
    assert (shown.control, shown.candidate) == ("base", "new")
    assert shown.covariate is not None and shown.covariate.n == 10 and shown.covariate.correlation > 0.9
    assert shown.covariate.centre == pytest.approx(3, abs=0.01)
    with pytest.raises(UserError, match="'before' is one of the compared variants"):
        analyze(source=table, candidate="before", question=Question(metrics=["loss"], adjust="variant:before"))


def record(study: str, pairs: int = 12) -> None:
    """The same numbers as runs of a script."""
    for start in rows(pairs)[::2]:
        end = next(r for r in rows(pairs)[1::2] if (r["variant"], r["seed"]) == (start["variant"], start["seed"]))
        with fairtrial.run(study=study, variant=start["variant"], seed=start["seed"], metric="loss") as run:
            run.log(0, initial_loss=start["initial_loss"])
            run.log(100, loss=end["loss"])


def plan(store: Store, adjust: str | None, pairs: int = 12) -> None:
    study = Study(
        study="s", recipe="fake", variants={"base": {}, "new": {}}, seeds=list(range(pairs)), metric="loss",
        adjust=adjust,
    )  # fmt: skip
    save_plan(store, study.to_dict())


def test_a_covariate_in_the_study_file_makes_the_headline(store: Store, cli: Cli) -> None:
    record("s")
    plan(store, "initial_loss")
    [found] = analyze("s", store=store.root).comparisons
    assert found.covariate is not None and found.covariate.planned
    assert (found.verdict, found.method) == (Verdict.BETTER, "paired t adjusted for initial_loss")
    assert found.effect.low == found.covariate.effect.low and found.tests["df"] == 10
    assert found.covariate.plain_verdict is Verdict.INCONCLUSIVE
    shown = cli("analyze", "s").out
    assert "paired t adjusted for initial_loss over 12 pairs" in shown.splitlines()[0]
    assert "is adjusted for initial_loss, as planned" in shown and "Without the adjustment: −0.00" in shown
    assert cli("analyze", "s", "--adjust", "initial_loss").out.splitlines()[0] == shown.splitlines()[0]
    assert "plans to adjust for initial_loss, not for loss" in cli("analyze", "s", "--adjust", "loss").err


def test_a_planned_covariate_that_cannot_be_used_leaves_the_plain_verdict_and_a_caution(store: Store) -> None:
    record("s", pairs=6)
    plan(store, "initial_loss", pairs=6)
    [found] = analyze("s", store=store.root).comparisons
    assert found.covariate is None and found.method == "paired t"
    assert "planned adjustment not made" in codes(found)


def test_a_study_that_adjusts_for_a_variant_it_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="no variant 'old' in this study"):
        Study(study="s", recipe="fake", adjust="variant:old")


RECIPE = (
    PLAIN.replace("Options = LoopOptions", "")
    + """
import random

class Options(LoopOptions):
    effect: float = option(0.0, "Effect.", role=Role.TRAINING)

class Own(Plain):
    def __init__(self, options, setting):
        super().__init__(options, setting)
        draw = random.Random(setting.streams.seed("init", repr(options.effect)))
        self.luck, self.noise = draw.gauss(0, 0.02), draw.gauss(0, 0.002)

    def step(self, step, watch):
        return {"initial_loss": 1 - self.luck}

    def evaluate(self, split):
        return {"accuracy": 0.5 + self.options.effect + self.luck + self.noise}
"""
)


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Store) -> Any:
    root = tmp_path / "project"
    root.mkdir()
    (root / "artifact.yaml").write_text(ARTIFACT)
    (root / "own.py").write_text(RECIPE)
    study = root / "s.yaml"
    study.write_text(
        "study: s\nrecipe: own.py\noptions: {steps: 2, log_every: 1}\nvariants: {base: {}, new: {effect: 0.01}}\nseeds: 10\n"
    )
    monkeypatch.chdir(root)
    return ProjectPaths(root), study


def test_a_registered_covariate_makes_the_headline_of_the_registered_analysis(registered: Any, store: Store) -> None:
    project, study = registered
    done = register_study(project, study, store, intent={"question": Question(adjust="train_initial_loss")})
    assert done.registration.plan["analysis"]["adjust"] == "train_initial_loss"
    fairtrial.launch(fairtrial.read_study(study), store=store.root)
    found = analyze_by_plan(done.registration.path, store=store.root)
    [comparison] = found.comparisons
    assert comparison.covariate is not None and comparison.covariate.planned
    assert comparison.method == "paired t adjusted for train_initial_loss"
    assert (comparison.covariate.correlation, found.plan and found.plan.deviations) == (
        pytest.approx(-0.99, abs=0.02), [],
    )  # fmt: skip
    same = analyze_by_plan(done.registration.path, asked={"adjust": "train_initial_loss"}, store=store.root)
    assert same.exploratory is None


def test_a_covariate_beyond_the_registration_is_a_deviation_and_exploratory(registered: Any, store: Store) -> None:
    project, study = registered
    done = register_study(project, study, store)
    assert "adjust" not in done.registration.plan["analysis"]  # as in registrations of before
    fairtrial.launch(fairtrial.read_study(study), store=store.root)
    found = analyze_by_plan(done.registration.path, asked={"adjust": "train_initial_loss"}, store=store.root)
    assert found.comparisons[0].covariate is None
    assert found.plan is not None and "other analysis" in [each.kind for each in found.plan.deviations]
    assert found.exploratory is not None
    shown = found.exploratory.comparisons[0].covariate
    assert shown is not None and not shown.planned


@pytest.mark.parametrize(
    ("question", "derive", "why"),
    [
        ({"adjust": "train_initial_loss"}, 5, "needs 8 pairs, but 5 seeds are planned"),
        ({"adjust": "train_initial_loss", "unpaired": True}, None, "needs paired runs"),
        ({"adjust": "variant:old"}, None, "unknown variant 'old'"),
        ({"adjust": "variant:base"}, None, "'base' is one of the compared variants"),
    ],
)
def test_a_plan_that_could_not_be_carried_out_is_refused(
    registered: Any, store: Store, question: dict[str, Any], derive: int | None, why: str
) -> None:
    project, study = registered
    with pytest.raises(UserError, match=why):
        register_study(project, study, store, derive=derive, intent={"question": Question(**question)})


# Sensitivity


def test_a_single_run_that_decides_is_pointed_out_in_one_line(tmp_path: Path, cli: Cli) -> None:
    gains = [0.020, 0.021, 0.019, 0.022, 0.018, 0.020, 0.021, 0.019, 0.020, -0.4]
    lines = [{"variant": v, "seed": s, "accuracy": 0.5 + (g if v == "new" else 0)} for s, g in enumerate(gains)
             for v in ("base", "new")]  # fmt: skip
    shown = cli("analyze", "--from", str(write(tmp_path / "t.csv", lines))).out
    [line] = [each for each in shown.splitlines() if each.startswith("Sensitivity")]
    assert "Hodges–Lehmann +0.0200 [" in line and "20 % trimmed mean +0.0198 [" in line
    assert "disagree with the mean in sign" in line


def test_clean_runs_get_no_such_line_and_the_estimates_in_json(table: Path, cli: Cli) -> None:
    words = ("analyze", "--from", str(table), "--metric", "loss")
    assert "Sensitivity" not in cli(*words).out
    found = cli(*words, "--format", "json").json["comparisons"][0]["sensitivity"]
    assert found["disagrees"] is None and found["hodges_lehmann"]["low"] < found["trimmed"]["value"]
