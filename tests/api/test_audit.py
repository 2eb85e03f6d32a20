"""The cases of an independent audit, as it found them: through the command line and `fairtrial.compare_samples`.

`benchmarks/step11` lists which test shows which case. Each of them fails on the source before the audit because of what
the audit found, so only names that were there before are used here.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairtrial
from tests.conftest import Answer

Cli = Callable[..., Answer]


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., str]:
    def write(rows: Iterable[Mapping[str, Any]], name: str = "runs.csv") -> str:
        listed = list(rows)
        with (tmp_path / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, list(listed[0]))
            writer.writeheader()
            writer.writerows(listed)
        return str(tmp_path / name)

    return write


Table = Callable[..., str]


def by_seed(**arms: Sequence[float]) -> list[dict[str, Any]]:
    return [{"variant": arm, "seed": seed, "score": x} for arm, each in arms.items() for seed, x in enumerate(each)]


def by_task(scores: Mapping[str, np.ndarray], seed_of: Callable[[int, int], int] | None = None) -> list[dict[str, Any]]:
    """Rows of runs × tasks; cells that are NaN were never run. `seed_of` names the seed of a task and a run."""
    return [
        {"variant": arm, "task": f"t{task}", "seed": seed_of(task, run) if seed_of else run, "score": float(score)}
        for arm, each in scores.items()
        for (run, task), score in np.ndenumerate(each)
        if not math.isnan(score)
    ]


def first(cli: Cli, *words: str) -> dict[str, Any]:
    answer = cli("analyze", *words, "--format", "json")
    assert answer.code in (0, 3), answer.err
    return answer.json["comparisons"][0]  # type: ignore[no-any-return]


def text_of(cli: Cli, *words: str) -> str:
    answer = cli("analyze", *words)
    assert answer.code == 0, answer.err
    return " ".join(answer.out.split())


def codes(cli: Cli, *words: str) -> list[str]:
    document = cli("analyze", *words, "--format", "json").json
    return [each["code"] for each in (*document["cautions"], *document["comparisons"][0]["cautions"])]


def half_width(found: Mapping[str, Any]) -> float:
    return float(found["effect"]["high"] - found["effect"]["low"]) / 2


# D1, lost runs

BASE, NEW = [0.90, 0.91, 0.92, 0.90, 0.91], [0.90, 0.91, math.nan, math.nan, 0.92]


def test_d1_two_diverged_runs_of_five_are_not_equivalent() -> None:
    assert fairtrial.compare_samples(BASE, NEW, paired=True, sesoi=0.05).verdict != "equivalent"


def test_d1_a_gate_does_not_let_diverging_candidates_pass(cli: Cli, table: Table) -> None:
    path = table(by_seed(base=BASE, new=NEW))
    assert cli("analyze", "--from", path, "--sesoi", "0.05", "--require", "not-worse").code == 3


@pytest.mark.parametrize("n", [3, 5, 8, 15])
def test_d1_divergence_in_three_of_ten_runs_is_never_called_equivalent(n: int) -> None:
    rng = np.random.default_rng(n)
    for _ in range(20):
        control, candidate = rng.normal(0.9, 0.01, (2, n))
        candidate[rng.random(n) < 0.3] = math.nan
        if np.isfinite(candidate).all():
            continue
        assert fairtrial.compare_samples(control, candidate, paired=True, sesoi=0.05).verdict != "equivalent"


# D2, luck that a run shares across tasks


def test_d2_luck_shared_across_tasks_is_rarely_called_a_difference(cli: Cli, table: Table) -> None:
    """16 studies of equal arms, 5 runs × 26 tasks, r = 0.6: about half of them used to have a verdict."""
    verdicts = []
    for number in range(16):
        rng = np.random.default_rng([2, number])
        scores = {
            arm: math.sqrt(0.6) * rng.normal(size=(5, 1)) + math.sqrt(0.4) * rng.normal(size=(5, 26))
            for arm in ("base", "new")
        }
        verdicts.append(first(cli, "--from", table(by_task(scores)), "--tasks")["verdict"])
    assert sum(verdict != "inconclusive" for verdict in verdicts) <= 3, verdicts


# D3, families whose arms are not equally noisy


def test_d3_a_noisy_arm_is_not_judged_by_the_noise_of_quiet_ones(cli: Cli, table: Table) -> None:
    """By itself the noisy pair is far from significant; pooled with three quiet arms Tukey called it `better`."""
    quiet = {
        "a": [0.500, 0.502, 0.499, 0.501],
        "b": [0.501, 0.500, 0.502, 0.499],
        "c": [0.499, 0.501, 0.500, 0.502],
        "d": [0.502, 0.499, 0.501, 0.500],
    }
    noisy = [0.85, 0.48, 0.67, 0.80]
    alone = fairtrial.compare_samples(quiet["a"], noisy, paired=True)
    assert alone.p_value is not None and alone.p_value > 0.08
    document = cli("analyze", "--from", table(by_seed(**quiet, noisy=noisy)), "--control", "a", "--format", "json").json
    verdicts = {each["candidate"]: each["verdict"] for each in document["comparisons"]}
    assert verdicts["noisy"] == "inconclusive"


# D4, size and outlook of the same number as the verdict


def test_d4_the_detectable_difference_over_tasks_is_that_of_the_verdict(cli: Cli, table: Table) -> None:
    """One task of another scale dominates the means of runs, and hardly reaches an interquartile mean."""
    rng = np.random.default_rng(4)
    scores = {arm: rng.normal(1, 0.3, (5, 26)) for arm in ("base", "new")}
    for each in scores.values():
        each[:, 0] = rng.normal(1, 100, 5)
    found = first(cli, "--from", table(by_task(scores)), "--tasks")
    assert 0.5 * half_width(found) < found["detectable"] < 4 * half_width(found)


def test_d4_the_detectable_difference_of_a_family_is_that_of_its_test(cli: Cli, table: Table) -> None:
    """78 % power at 0.027 where 0.162 was printed."""
    rng = np.random.default_rng(4)
    luck = rng.normal(0, 0.1, 3)
    arms = {name: luck + rng.normal(0.9, 0.01, 3) for name in "abcdef"}
    found = first(cli, "--from", table(by_seed(**arms)), "--control", "a")
    assert half_width(found) < found["detectable"] < 2.5 * half_width(found)


# D5, the certificate


@pytest.mark.parametrize(("n", "true_coverage"), [(10, 71.9), (15, 79.8)])
def test_d5_the_stated_worst_is_not_above_the_truth(cli: Cli, table: Table, n: int, true_coverage: float) -> None:
    """True coverage of 95 % intervals where 5 to 10 % of the runs of one arm collapse."""
    rng = np.random.default_rng(n)
    path = table(by_seed(base=rng.normal(size=n), new=rng.normal(size=n)))
    stated = cli("analyze", "--from", path, "--certify", "--format", "json").json["certificate"]["worst"]
    assert 100 * stated <= true_coverage + 2


# D6, ragged grids of tasks


def test_d6_a_cell_that_was_never_run_is_not_a_lost_run(cli: Cli, table: Table) -> None:
    rng = np.random.default_rng(6)
    scores = {arm: rng.normal(gain, 0.05, (6, 4)) for arm, gain in (("base", 0.0), ("new", 1.0))}
    scores["new"][5, 2] = math.nan
    text = text_of(cli, "--from", table(by_task(scores)), "--tasks")
    assert "without a valid number" not in text
    assert "With 6 and 5 runs per arm, the failure rate may be as high as 39 % and 45 %" in text


def test_d6_tasks_with_seeds_of_their_own_are_compared(cli: Cli, table: Table) -> None:
    rng = np.random.default_rng(6)
    scores = {arm: rng.normal(gain, 0.05, (3, 6)) for arm, gain in (("base", 0.0), ("new", 1.0))}
    path = table(by_task(scores, seed_of=lambda task, run: 100 * task + run))
    assert first(cli, "--from", path, "--tasks")["verdict"] == "better"


# D7, who logs more often


def test_d7_logging_ten_times_as_often_is_no_gain(cli: Cli, table: Table) -> None:
    verdicts = []
    for number in range(5):
        rng = np.random.default_rng([7, number])
        rows = [
            {"variant": arm, "seed": seed, "step": step, "accuracy": rng.normal(0.5, 0.1)}
            for arm, every in (("base", 10), ("new", 1)) for seed in range(5) for step in range(0, 501, every)
        ]  # fmt: skip
        verdicts.append(first(cli, "--from", table(rows), "--summary.type", "best")["verdict"])
    assert "better" not in verdicts


# D8, times that some runs never reached


def climb(slow: Sequence[float], fast: Sequence[float]) -> list[dict[str, Any]]:
    return [
        {"variant": arm, "seed": seed, "step": step, "accuracy": step / until}
        for arm, each in (("base", slow), ("new", fast)) for seed, until in enumerate(each)
        for step in range(0, 1001, 10)
    ]  # fmt: skip


TIMES = ("--summary.type", "time_to", "--summary.threshold", "1")


def test_d8_a_shorter_time_is_a_negative_difference_and_called_better(cli: Cli, table: Table) -> None:
    path = table(climb([900, 960, 1020, 1080, 1140], [100, 110, 120, 130, 140]))
    found, text = first(cli, "--from", path, *TIMES), text_of(cli, "--from", path, *TIMES)
    assert found["verdict"] == "better" and found["effect"]["value"] < 0
    assert "needs fewer steps" in text and "5 of 5 runs of new and 2 of 5 of base reached 1" in text


def test_d8_p_is_exact_where_censored_runs_are_tied(cli: Cli, table: Table) -> None:
    """Three against three, of which three never arrive: 2 of the 20 deals are as extreme."""
    path = table(climb([2000, 2000, 2000], [100, 110, 120]))
    assert first(cli, "--from", path, *TIMES)["p_value"] == pytest.approx(2 / 20)


# D9, looks at a study

STUDY = ("--variant", "base:effect=0", "--variant", "new:effect=0.05", "--steps", "4", "--base-run-name", "s")


@pytest.mark.slow
def test_d9_the_table_of_a_launch_is_a_look(cli: Cli) -> None:
    assert cli("launch", "fake", *STUDY, "--seeds", "2").code == 0
    assert cli("launch", "fake", *STUDY, "--seeds", "4").code == 0
    assert "seeds added after looking" in str(first(cli, "s")["label"])


@pytest.mark.slow
def test_d9_another_question_about_the_same_runs_is_labelled(cli: Cli) -> None:
    assert cli("launch", "fake", *STUDY, "--seeds", "3").code == 0
    assert first(cli, "s")["label"] is None
    assert "another question" in str(first(cli, "s", "--method", "wilcoxon")["label"])
    assert "another question" in str(first(cli, "s", "--side", "greater")["label"])


def test_d9_the_advice_does_not_lead_into_exploratory(cli: Cli, table: Table) -> None:
    path = table(by_seed(base=[0.1, 0.5, 0.3], new=[0.4, 0.2, 0.5]))
    text = text_of(cli, "--from", path)
    assert "fresh seeds" in text and "more seeds" not in text


# D10, families over tasks and times


def test_d10_intervals_of_a_family_over_tasks_agree_with_its_adjusted_p(cli: Cli, table: Table) -> None:
    """A difference that is significant by itself and not as one of four: its interval must contain zero as well."""
    pattern = np.array([-1.0, 0.5, 1.2, -0.4, -0.3])[:, None]
    scores = {name: np.tile(pattern * (0.01 + k / 1000), 3) for k, name in enumerate(("base", "a", "b", "c"))}
    scores["near"] = scores["base"] + 0.02 * np.array([0.5, 2.5, 1.4, 0.1, 2.3])[:, None]
    document = cli("analyze", "--from", table(by_task(scores)), "--tasks", "--control", "base", "--format", "json").json
    found = {each["candidate"]: each for each in document["comparisons"]}["near"]
    assert found["p_value"] < 0.05 < found["adjusted_p"]
    assert found["effect"]["low"] < 0 < found["effect"]["high"]


def test_d10_equivalence_in_a_family_over_tasks_is_judged_as_one_of_many(cli: Cli, table: Table) -> None:
    noise = np.array([-1.0, 0.5, 1.2, -0.4, -0.3])[:, None] * np.ones((5, 3))
    scores = {"base": np.zeros((5, 3)), **{name: noise * (1 + k / 100) for k, name in enumerate("abcd")}}
    words = ("--from", table(by_task(scores)), "--tasks", "--control", "base", "--sesoi")
    alone = first(cli, *words, "0.95", "--candidate", "a")
    assert alone["verdict"] == "equivalent"
    assert first(cli, *words, "0.95")["verdict"] == "inconclusive"


# D11, windows and pilots


def test_d11_a_window_of_a_thousand_steps_fits_a_run_of_a_thousand_steps(cli: Cli, table: Table) -> None:
    rows = [
        {"variant": arm, "seed": seed, "step": step, "accuracy": seed + step / 1000}
        for arm in ("base", "new") for seed in range(3) for step in range(0, 1000, 9)
    ]  # fmt: skip
    answer = cli(
        "analyze", "--from", table(rows), "--summary.type", "auc", "--summary.window", "0:1000", "--format", "json"
    )
    assert [arm["used"] for arm in answer.json["arms"]] == [3, 3]


def test_d11_power_is_planned_from_a_file(cli: Cli, table: Table) -> None:
    path = table(by_seed(base=[0.1, 0.5, 0.3], new=[0.4, 0.2, 0.5]))
    answer = cli("power", "--from", path, "--sesoi", "0.1", "--format", "json")
    assert answer.code == 0, answer.err


# D12, bootstraps of hardly any runs


def test_d12_two_pairs_of_a_bootstrap_are_no_proof(cli: Cli, table: Table) -> None:
    path = table(by_seed(base=[0.50, 0.52], new=[0.60, 0.68]))
    assert first(cli, "--from", path, "--bootstrap.method", "bca")["verdict"] == "inconclusive"
    assert fairtrial.compare_samples([0.50, 0.52], [0.60, 0.68], paired=True, method="bca").verdict == "inconclusive"


@pytest.mark.parametrize("n", [3, 5])
def test_d12_bootstraps_of_equal_arms_rarely_have_a_verdict(n: int) -> None:
    rng = np.random.default_rng(12)
    studies = rng.normal(size=(100, 2, n))
    found = [fairtrial.compare_samples(*each, paired=True, method="bca", resamples=1000) for each in studies]
    assert sum(each.verdict != "inconclusive" for each in found) <= 10


# Words


def test_words_losses_come_first(cli: Cli, table: Table) -> None:
    text = text_of(cli, "--from", table(by_seed(base=BASE, new=NEW)), "--sesoi", "0.05")
    assert "2 of 5 runs of new" in text and "(base 0 of 5)" in text and "mong the 3 pairs that finished" in text


def test_words_a_small_difference_asks_whether_it_matters(cli: Cli, table: Table) -> None:
    text = text_of(cli, "--from", table(by_seed(base=[0.1, 0.5, 0.3, 0.2], new=[0.2, 0.4, 0.35, 0.3])))
    assert "would settle it if" not in text
    assert "matters, plan" in text and "fresh seeds" in text and "if not, set --sesoi" in text


def test_words_98_runs_are_not_so_few(cli: Cli, table: Table) -> None:
    values = np.random.default_rng(98).normal(size=(2, 98))
    text = text_of(cli, "--from", table(by_seed(base=values[0], new=values[1])))
    assert "so few runs" not in text and "This design detects differences of" in text


def test_words_what_cannot_be_told_apart_is_called_so(cli: Cli, table: Table) -> None:
    rng = np.random.default_rng(1)
    text = text_of(cli, "--from", table(by_seed(SimPLe=rng.normal(size=5), a=rng.normal(size=5), b=rng.normal(size=5))))
    assert "inconclusive against" not in text and "not distinguishable from SimPLe with these runs" in text


def test_words_runs_on_tasks_are_counted_as_runs(cli: Cli, table: Table) -> None:
    rng = np.random.default_rng(26)
    scores = {arm: rng.normal(size=(10, 26)) for arm in ("base", "new")}
    text = text_of(cli, "--from", table(by_task(scores)), "--tasks")
    assert "10 runs × 26 tasks" in text and "used 260" not in text


def test_words_a_certificate_claims_what_was_tried(cli: Cli, table: Table) -> None:
    text = text_of(cli, "--from", table(by_seed(base=BASE, new=[0.91, 0.90, 0.93, 0.92, 0.90])), "--certify")
    assert "worst case" not in text and "worst of the shapes tried" in text


def test_words_a_noisy_arm_is_told_with_its_price(cli: Cli, table: Table) -> None:
    rng = np.random.default_rng(5)
    text = text_of(cli, "--from", table(by_seed(base=rng.normal(0, 0.01, 8), new=rng.normal(0, 1, 8))))
    assert "scatter differently" not in text and "One arm is far noisier" in text and "false verdicts" in text


# Cautions


def test_cautions_a_table_of_pairs_is_not_told_to_be_recorded(cli: Cli, table: Table) -> None:
    path = table(by_seed(base=BASE, new=[0.91, 0.90, 0.93, 0.92, 0.90]))
    assert not [code for code in codes(cli, "--from", path) if "pairs share" in code]
    assert "Record the runs with Fairtrial" not in text_of(cli, "--from", path)


def test_cautions_98_runs_of_one_arm_carry_none(cli: Cli, table: Table) -> None:
    path = table(by_seed(base=np.random.default_rng(98).normal(1, 0.1, 98)))
    document = cli("variance", "--from", path, "--format", "json").json
    assert "one-arm interval" not in json.dumps(document)


def test_cautions_17_runs_against_15_are_not_unequal() -> None:
    rng = np.random.default_rng(17)
    found = fairtrial.compare_samples(rng.normal(size=17), rng.normal(size=15), paired=False)
    assert "unequal n" not in [caution["code"] for caution in found.cautions]


def test_cautions_five_equal_runs_make_one_wonder_about_the_seed(cli: Cli, table: Table) -> None:
    path = table(by_seed(base=[0.5] * 5, new=[0.6, 0.7, 0.65, 0.62, 0.61]))
    assert "does your program use the seed?" in text_of(cli, "--from", path)
