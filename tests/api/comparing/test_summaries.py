"""Summaries of tables from elsewhere: who logged how often, who arrived, and windows that are off by one."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairtrial.api.comparing.analysis import Analysis, Question
from fairtrial.api.comparing.analyze import analyze
from fairtrial.core.errors import UserError
from fairtrial.stats.summaries import SummaryRule
from tests.conftest import Answer

Cli = Callable[..., Answer]
Value = Callable[[str, int, float], float]


def table(path: Path, steps: Mapping[str, Sequence[float]], value: Value, seeds: int = 5) -> Path:
    """A long log of two arms; `value` gives what a run of an arm and a seed has at a step."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["variant", "seed", "step", "accuracy"])
        for arm, each in steps.items():
            for seed in range(seeds):
                writer.writerows([arm, seed, step, value(arm, seed, step)] for step in each)
    return path


def noise(arm: str, seed: int, step: float) -> float:
    return float(np.random.default_rng([len(arm), seed, int(step)]).normal(0.5, 0.1))


def codes(analysis: Analysis) -> list[str]:
    return [caution["code"] for caution in analysis.cautions]


def best(path: Path, **question: Any) -> Analysis:
    return analyze(source=path, question=Question(summary=SummaryRule("best"), **question))


def test_an_arm_that_logs_ten_times_as_often_gets_as_many_values(tmp_path: Path) -> None:
    dense = {"base": range(0, 1001, 10), "newer": range(1001)}
    equal = {"base": range(0, 1001, 10), "newer": range(0, 1001, 10)}
    found = best(table(tmp_path / "dense.csv", dense, noise))
    plain = best(table(tmp_path / "equal.csv", equal, noise))
    assert [arm.values for arm in found.arms] == [arm.values for arm in plain.arms]
    assert "uneven logging" in codes(found) and "uneven logging" not in codes(plain)
    [told] = [caution["text"] for caution in found.cautions if caution["code"] == "uneven logging"]
    assert "up to 101 per run, and ignores the other values of newer" in told


def test_last_values_and_areas_need_no_such_caution(tmp_path: Path) -> None:
    path = table(tmp_path / "r.csv", {"base": range(0, 101, 10), "newer": range(101)}, noise)
    for kind in ("last", "auc", "slope"):
        assert "uneven logging" not in codes(analyze(source=path, question=Question(summary=SummaryRule(kind))))


def test_best_of_a_handful_of_values_against_hundreds_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "r.csv", {"base": [0, 500, 1000], "newer": range(0, 1001, 5)}, noise)
    with pytest.raises(UserError, match="share only 3 steps, while some logged 201") as caught:
        best(path)
    assert "the last value or --summary.type auc" in str(caught.value.hint)
    assert analyze(source=path, question=Question(summary=SummaryRule("auc"))).comparisons


def rising(arm: str, seed: int, step: float) -> float:
    return step / 1000 + noise(arm, seed, step) / 100


def last(path: Path, points: int) -> Analysis:
    return analyze(source=path, question=Question(summary=SummaryRule("last", points=points)))


def test_the_mean_of_the_last_points_is_over_the_same_steps_in_all_runs(tmp_path: Path) -> None:
    """Ten points of an arm that logs ten times as often were later ones, of curves that rise alike."""
    steps = range(0, 1001, 10)
    uneven = last(table(tmp_path / "uneven.csv", {"base": steps, "newer": range(1001)}, rising), 10)
    equal = last(table(tmp_path / "equal.csv", {"base": steps, "newer": steps}, rising), 10)
    assert [arm.values for arm in uneven.arms] == [arm.values for arm in equal.arms]
    assert uneven.comparisons[0].verdict == "inconclusive"
    assert "uneven logging" in codes(uneven) and "uneven logging" not in codes(equal)
    [told] = [caution["text"] for caution in uneven.cautions if caution["code"] == "uneven logging"]
    assert "the mean of the last 10 points uses one value per step that all of them logged" in told


@pytest.mark.parametrize("count", [1, 3, 50])
def test_the_mean_of_the_last_points_with_equal_logging_is_never_refused(tmp_path: Path, count: int) -> None:
    steps = range(10, 10 * count + 1, 10)
    found = last(table(tmp_path / "r.csv", {"base": steps, "newer": steps}, noise), 5)
    for arm in found.arms:
        for seed in range(5):
            values = [noise(arm.variant, seed, step) for step in steps][-5:]
            assert arm.values[str(seed)] == pytest.approx(sum(values) / len(values))
    assert "uneven logging" not in codes(found)


def test_the_mean_of_more_points_than_the_runs_have_in_common_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "r.csv", {"base": [0, 500, 1000], "newer": range(0, 1001, 5)}, noise)
    with pytest.raises(UserError, match="the mean of the last 10 points would depend on how often a run was logged"):
        last(path, 10)


@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_best_with_equal_logging_is_never_refused(tmp_path: Path, count: int) -> None:
    steps = range(10, 10 * count + 1, 10)
    found = best(table(tmp_path / "r.csv", {"base": steps, "newer": steps}, noise))
    for arm in found.arms:
        expected = {str(seed): max(noise(arm.variant, seed, step) for step in steps) for seed in range(5)}
        assert arm.values == expected
    assert "uneven logging" not in codes(found)


def test_one_run_that_logs_hardly_at_all_is_listed_and_costs_the_others_nothing(tmp_path: Path) -> None:
    steps = {"base": range(0, 1001, 10), "newer": range(0, 1001, 10)}
    path = table(tmp_path / "r.csv", steps, noise, seeds=8)
    rows = path.read_text().splitlines()
    kept = [row for row in rows if not row.startswith("newer,7,") or row.split(",")[2] in ("0", "500", "1000")]
    path.write_text("\n".join(kept) + "\n")
    found = best(path)
    [left_out] = found.arms[1].left_out
    assert left_out["reason"] == "logged at far fewer steps than the other runs"
    assert found.arms[0].values["7"] == max(noise("base", 7, step) for step in steps["base"])


def test_tasks_carry_the_caution_too(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    table(path, {"base": range(0, 101, 10), "newer": range(101)}, noise)
    rows = path.read_text().splitlines()
    path.write_text("\n".join([f"{rows[0]},task", *(f"{row},{task}" for task in "xyz" for row in rows[1:])]) + "\n")
    assert "uneven logging" in codes(best(path, tasks=True))


# Times


def climbing(arm: str, seed: int, step: float) -> float:
    """base arrives late or never, new soon."""
    return step / (100 + 10 * seed) if arm == "new" else step / (900 + 60 * seed)


def test_a_time_that_some_never_reached_says_who_arrived_and_that_fewer_is_better(tmp_path: Path, cli: Cli) -> None:
    path = table(tmp_path / "r.csv", {"base": range(0, 1001, 10), "new": range(0, 1001, 10)}, climbing)
    line = ["analyze", "--from", str(path), "--summary.type", "time_to", "--summary.threshold", "1"]
    text = " ".join(cli(*line).out.split())
    assert text.startswith("new is better than base: 5 of 5 runs of new and 2 of 5 of base reached 1, and new needs ")
    assert (
        "needs fewer steps: steps until accuracy reaches 1 −" in text and "as restricted mean up to step 1000" in text
    )
    assert "Mann–Whitney (exact, censored runs last)" in text
    turned = cli(*line, "--control", "new", "--candidate", "base", "--format", "json").json["comparisons"][0]
    plain = cli(*line, "--format", "json").json["comparisons"][0]
    assert turned["effect"]["value"] == -plain["effect"]["value"] > 0
    assert turned["p_value"] == plain["p_value"] and turned["verdict"] == "worse"


@pytest.mark.parametrize("words", [["--method", "bca"], ["--method", "t"], ["--power.enabled"], ["--certify"]])
def test_means_bootstraps_and_power_of_times_that_never_came_are_refused(
    tmp_path: Path, cli: Cli, words: list[str]
) -> None:
    path = table(tmp_path / "r.csv", {"base": range(0, 1001, 10), "new": range(0, 1001, 10)}, climbing)
    answer = cli("analyze", "--from", str(path), "--summary.type", "time_to", "--summary.threshold", "1", *words)
    assert answer.code == 1 and "reached the threshold" in " ".join(answer.err.split())


# Windows


@pytest.mark.parametrize("kind", ["auc", "last", "best", "slope"])
@pytest.mark.parametrize("steps", [range(1000), range(1, 1001)], ids=["from 0", "from 1"])
def test_a_window_of_a_thousand_steps_fits_a_run_of_a_thousand_steps(
    tmp_path: Path, cli: Cli, kind: str, steps: range
) -> None:
    path = table(tmp_path / "r.csv", {"base": steps[::9], "new": steps[::9]}, noise, seeds=3)
    found = cli(
        "analyze", "--from", str(path), "--summary.type", kind, "--summary.window", "0:1000", "--format", "json"
    ).json  # fmt: skip
    assert [arm["used"] for arm in found["arms"]] == [3, 3]
    assert found["summary"]["window"] == [steps[0], steps[::9][-1]]
    assert f"over steps {steps[0]} to {steps[::9][-1]}" in found["summary"]["text"]
