"""analyze, variance and power as a person or a program calls them."""

from __future__ import annotations

import csv
import io
import math
import random
import re
import shlex
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest

from fairtrial.core.plugin_registry import ADJUSTMENTS, METHODS, SUMMARIES, PluginKind, plugin_names
from fairtrial.record.store import Store
from tests.api.comparing.test_analyze import fill
from tests.conftest import Answer
from tests.harness import make

Cli = Callable[..., Answer]


@pytest.fixture
def two(store: Store) -> Store:
    fill(store, base={}, new={"effect": 0.2})
    return store


def values(path: Path, mean: float, cv: float, n: int = 6) -> Path:
    """A file of n values with exactly this mean and coefficient of variation."""
    raw = [float(i) for i in range(n)]
    middle = sum(raw) / n
    sd = math.sqrt(sum((x - middle) ** 2 for x in raw) / (n - 1))
    lines = [f"{seed},{mean + cv * mean * (x - middle) / sd!r}" for seed, x in enumerate(raw)]
    path.write_text("\n".join(["seed,acc", *lines]) + "\n")
    return path


def test_the_verdict_is_the_first_line(two: Store, cli: Cli) -> None:
    answer = cli("analyze", "s")
    assert answer.code == 0
    assert answer.out.startswith("new is better than base: report_accuracy +0.2")
    assert "95 % interval, paired t over 5 pairs" in answer.out.splitlines()[0]
    assert answer.err.startswith("Store: ")


def test_a_run_that_was_removed_is_named_as_such(two: Store, cli: Cli) -> None:
    """A result without runs that somebody put away must say so: they may have been chosen."""
    name = sorted(run.name for run in two.match(["s/new.*"]))[0]
    assert cli("runs", "rm", name, "--yes").code == 0
    text = cli("analyze", "s").out
    assert f"1 run was made and then removed: {name.removeprefix('s/')}." in text
    assert "removed after it was made" in text and "do not exist yet" not in text and "not started" not in text


def test_further_metrics_are_named(two: Store, cli: Cli) -> None:
    text = cli("analyze", "s", "--metric", "report_accuracy", "train_loss").out
    assert "new, train_loss" in text.partition("Secondary metrics")[2]


def test_what_is_open_says_what_would_settle_it(store: Store, cli: Cli) -> None:
    fill(store, base={}, new={"effect": 0.001})
    line = cli("analyze", "s").out.splitlines()[0]
    assert line.startswith("Inconclusive: new − base")
    assert re.search(r"This design detects differences of [\d.]+ with 80 % power\.", line)
    assert re.search(r"If a difference as small as [\d.]+ matters, plan [\d,]+ fresh seeds per arm; if not", line)


def test_a_required_verdict_that_is_missing_exits_with_3(two: Store, cli: Cli) -> None:
    assert cli("analyze", "s", "--require", "better").code == 0
    refused = cli("analyze", "s", "--require", "equivalent", "--format", "json")
    assert refused.code == 3
    assert "required 'equivalent', but new is better" in refused.err


def test_json_holds_the_verdict_and_both_intervals(two: Store, cli: Cli) -> None:
    found = cli("analyze", "s", "--sesoi", "0.05", "--format", "json").json
    assert (found["schema"], found["verdict"]) == (1, "better")
    [comparison] = found["comparisons"]
    assert (comparison["significant"], comparison["equivalent"], comparison["exceeds_sesoi"]) == (True, False, True)
    assert comparison["effect"]["low"] < comparison["equivalence"]["low"]
    assert (comparison["effect"]["level"], comparison["equivalence"]["level"]) == (0.95, 0.9)
    assert set(comparison["diagnostics"]) == {"shapiro_wilk_p", "levene_p", "bimodality"}
    assert [arm["planned"] for arm in found["arms"]] == [5, 5]


@pytest.mark.parametrize("kind", ["csv", "markdown", "latex"])
def test_a_table_has_a_row_per_comparison(two: Store, cli: Cli, kind: str) -> None:
    fill(two, third={"effect": 0.1})
    out = cli("analyze", "s", "--format", kind).out
    assert "new" in out and "third" in out and "better" in out


def test_the_number_of_every_run_can_be_written(two: Store, cli: Cli) -> None:
    assert cli("analyze", "s", "--output.csv_path", "runs.csv").code == 0
    rows = list(csv.DictReader(io.StringIO(Path("runs.csv").read_text())))
    assert len(rows) == 10 and set(rows[0]) == {"variant", "seed", "metric", "value"}


def test_the_method_can_be_named_in_two_ways(two: Store, cli: Cli) -> None:
    one = cli("analyze", "s", "--method", "bca", "--format", "json").json
    two_ = cli("analyze", "s", "--bootstrap.method", "bca", "--format", "json").json
    assert one == two_
    assert one["comparisons"][0]["bootstrap"]["method"] == "BCa bootstrap"
    assert one["comparisons"][0]["method"] == "paired t", "five pairs are too few for a bootstrap to be the verdict"
    assert cli("analyze", "s", "--method", "t", "--bootstrap.method", "bca").code == 2


def test_other_things_can_be_shown_beside_the_verdict(two: Store, cli: Cli) -> None:
    answer = cli("analyze", "s", "--method", "bca", "--ttest.enabled", "--power.enabled", "--format", "json").json
    assert answer["comparisons"][0]["tests"]["ttest"]["df"] == 4
    assert [row["power"] for row in answer["power"]["rows"]] == [0.8, 0.9, 0.95]
    text = cli("analyze", "s", "--power.enabled", "--ttest.enabled", "--method", "bca").out
    assert "a true difference of" in text and "Student's t" in text


def test_the_certificate_is_shown(two: Store, cli: Cli) -> None:
    text = cli("analyze", "s", "--certify").out
    assert "no shape can be ruled out" in text and "collapsing" in text


def test_resamples_reach_the_bootstrap(two: Store, cli: Cli) -> None:
    line = ["analyze", "s", "--method", "percentile", "--format", "json"]
    tests = [cli(*line, "--bootstrap.n_resamples", str(n)).json["comparisons"][0]["tests"] for n in (200, 300)]
    assert [test["bootstrap"]["resamples"] for test in tests] == [200, 300]


def test_resamples_alone_show_a_bootstrap_next_to_the_default(two: Store, cli: Cli) -> None:
    [found] = cli("analyze", "s", "--bootstrap.n_resamples", "300", "--format", "json").json["comparisons"]
    [plain] = cli("analyze", "s", "--format", "json").json["comparisons"]
    assert found["effect"] == plain["effect"] and found["tests"]["bootstrap"]["resamples"] == 300
    assert found["bootstrap"]["low"] is not None and plain["bootstrap"] is None
    assert "For comparison, the BCa bootstrap interval of new − base: [" in cli(
        "analyze", "s", "--bootstrap.n_resamples", "300"
    ).out.replace("\n", " ")
    assert cli("analyze", "s", "--bootstrap.n_resamples", "300", "--method", "sign-flip").code == 2


def test_lost_runs_can_be_given_a_number(two: Store, cli: Cli) -> None:
    make(two, "fake", study="s", variant="base", seed=6, label="base", steps=20)
    make(two, "fake", study="s", variant="new", seed=6, label="new", steps=20, effect=0.2, diverge_at=5)
    assert cli("analyze", "s", "--require", "not-worse").code == 3
    text = cli("analyze", "s", "--failure-value", "0.5").out
    assert "1 of 6 runs of new diverged (base 0 of 6) and count as 0.5. Including them, " in text.splitlines()[0]
    assert "Failure rate: new 1 of 6, base 0 of 6; difference +17 points [" in text.replace("\n", " ")


def test_the_seed_reaches_the_bootstrap(two: Store, cli: Cli) -> None:
    line = ["analyze", "s", "--method", "percentile", "--format", "json", "--bootstrap.n_resamples", "200"]
    lows = [cli(*line, "--seed", seed).json["comparisons"][0]["bootstrap"]["low"] for seed in ("0", "1", "0")]
    assert lows[0] == lows[2] != lows[1]


def _scores(folder: Path, *, own_seeds: bool) -> str:
    lines = ["variant,task,seed,score"]
    for number, variant in enumerate(("base", "new")):
        for task in range(22):
            for seed in range(4):
                name = f"{1000 * task + 10 * seed + number}" if own_seeds else f"{seed}"
                lines.append(f"{variant},t{task},{name},{task + number + 0.1 * ((7 * task + 3 * seed + number) % 5)}")
    path = folder / "scores.csv"
    path.write_text("\n".join(lines))
    return str(path)


def test_runs_over_tasks_are_told_as_runs_times_tasks(tmp_path: Path, cli: Cli) -> None:
    text = cli("analyze", "--from", _scores(tmp_path, own_seeds=False), "--tasks", "--direction", "max").out
    assert "4 runs × 22 tasks" in text and "jackknife by run, paired t over 4 pairs" in text
    assert "stratified bootstrap" not in text


def test_seeds_by_task_are_told_as_runs_on_each_task(tmp_path: Path, cli: Cli) -> None:
    text = cli("analyze", "--from", _scores(tmp_path, own_seeds=True), "--tasks", "--direction", "max").out
    assert "4 runs on each of 22 tasks" in text and "Left out" not in text


def test_the_stratified_bootstrap_is_shown_as_what_it_is(tmp_path: Path, cli: Cli) -> None:
    line = ["analyze", "--from", _scores(tmp_path, own_seeds=False), "--tasks", "--direction", "max"]
    text = cli(*line, "--bootstrap.method", "percentile", "--bootstrap.n_resamples", "200").out
    assert "stratified bootstrap of the iqm over 22 tasks" in text and "The verdict treats a run as the unit" in text


@pytest.mark.parametrize(("words", "code", "told"), [
    (["analyze"], 1, "nothing to analyze"),
    (["analyze", "nowhere"], 1, "study"),
    (["analyze", "s", "--control", "bass", "--candidate", "new"], 1, "did you mean 'base'"),
    (["analyze", "s", "--from", "x.csv"], 1, "cannot be combined"),
    (["analyze", "s", "--alpha", "0.7"], 1, "alpha must lie between"),
    (["analyze", "s", "--sesoi", "-1"], 1, "sesoi must be a positive number"),
    (["analyze", "s", "--method", "permutation"], 1, "is for unpaired runs"),
    (["analyze", "s", "--summary.window", "5:1"], 1, "must end after it begins"),
    (["analyze", "s", "--summary.window", "five"], 2, "FIRST:LAST"),
    (["analyze", "s", "--summary.window", "1:5", "--summary.percent", "0.5"], 1, "not both"),
    (["analyze", "s", "--summary.type", "time_to"], 1, "needs --summary.threshold"),
    (["analyze", "s", "--summary.percent-window", "first"], 2, "needs --summary.percent"),
    (["analyze", "s", "--pairs", "{"], 2, "not valid JSON"),
    (["analyze", "s", "--variant-column", "x"], 2, "needs --from"),
    (["analyze", "s", "--statistic", "iqm"], 2, "needs --tasks"),
    (["analyze", "s", "--tasks"], 1, "task of the runs is unknown"),
    (["analyze", "s", "--target", "1", "--bootstrap.n_resamples", "100"], 1, "--bootstrap.n_resamples does not apply"),
    (
        ["analyze", "s", *["--summary.type", "time_to", "--summary.threshold", "2", "--bootstrap.n_resamples", "100"]],
        1,
        "the bootstrap has no mean to use",
    ),
    (["analyze", "s", "--family", "tukey", "--unpaired"], 1, "Tukey's limit applies only to two-sided paired"),
    (["analyze", "s", "--since", "nothing"], 1, "no run named"),
    (["analyze", "--control-run-ids", "s/base.*"], 1, "both --control-run-ids"),
    (["variance"], 1, "no runs given"),
    (["variance", "s"], 1, "belong to 2 variants"),
    (["variance", "s:base", "--threshold", "0"], 1, "must be positive"),
    (["variance", "s:base", "--threshold", "0.1", "--threshold-abs", "1"], 1, "cannot be combined"),
    (["power"], 1, "--sesoi is required"),
    (["power", "--sesoi", "0.1"], 1, "the noise is unknown: pass --sd, earlier runs with --pilot, or a result file"),
    (["power", "--sesoi", "0.1", "--sd", "1", "--pilot", "s:base"], 1, "--sd and --pilot each set the noise"),
    (["power", "--superiority", "0.7", "--sd", "1"], 1, "--superiority needs no noise: omit --sd"),
    (["power", "--sesoi", "0.1", "--sd", "1", "--variant", "a"], 1, "--variant applies to --from"),
    (["power", "--sesoi", "0.1", "--sd", "1", "--seed-column", "a"], 2, "needs --from"),
    (["power", "--sesoi", "0.1", "--sd", "1", "--assurance", "0.8"], 1, "--assurance is about the noise of a pilot"),
    (["variance", "s:base", "--by-stream", "--threshold", "0.1"], 2, "--by-stream cannot be used with --threshold"),
    (["variance", "s:base", "--by-stream", "--seed", "1"], 2, "--by-stream cannot be used with --seed"),
    (["variance", "s:base", "--by-stream", "--output", "v.png"], 2, "--by-stream cannot be used with a chart"),
    (["variance", "--by-stream"], 1, "no runs given"),
    (["variance", "s", "--by-stream"], 1, "differ in more than their random streams: effect"),
    (["power", "--sesoi", "0.1", "--sd", "1", "--alpha", "2"], 1, "--alpha must lie"),
    (["power", "--sesoi", "0.1", "--pilot", "s:base", "--design", "paired"], 1, "does not show how strongly pairs correlate"),
    (["power", "--sesoi", "0.1", "--sd", "1", "--gpu", "t5"], 1, "valid: a100-80gb, a10g"),
])  # fmt: skip
def test_a_wrong_request_is_one_clear_sentence(two: Store, cli: Cli, words: list[str], code: int, told: str) -> None:
    answer = cli(*words)
    assert answer.code == code, answer.err
    assert told in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize(("cv", "n"), [(0.05, 7), (0.10, 18), (0.20, 64)])
def test_variance_gives_the_number_that_the_noise_asks_for(tmp_path: Path, cli: Cli, cv: float, n: int) -> None:
    path = values(tmp_path / "v.csv", mean=0.8, cv=cv)
    found = cli("variance", "--from", str(path), "--metric", "acc", "--threshold", "0.05", "--format", "json").json
    assert found["last"]["n_min"] == n
    low, high = found["last"]["n_range"]
    assert low < n < high


def test_variance_looks_at_area_and_slope_of_curves(store: Store, cli: Cli) -> None:
    fill(store, base={"eval_every": 5})
    found = cli("variance", "s:base", "--format", "json").json
    assert found["metric"] == "eval_accuracy" and {"auc", "derivative"} <= set(found)
    assert found["auc"]["n"] == 5 and found["auc"]["curve"][0]["n"] == 2


@pytest.mark.slow
def test_variance_ends_with_what_to_do(store: Store, cli: Cli) -> None:
    line = ["launch", "fake", "--variant", "base:", "--base-run-name", "s", "--eval-every", "5", "--steps", "20"]
    assert cli(*line, "--seeds", "5").code == 0
    assert "n = 5 is enough" in cli("variance", "s:base", "--threshold", "0.5").out
    text = cli("variance", "s:base", "--threshold", "0.01").out
    found = re.search(r"run \d+ more seeds: fairtrial (launch .* --seeds \d+)$", text, re.MULTILINE)
    assert found is not None
    assert cli(*shlex.split(found[1])).code == 0, "the command that is given works"
    assert "is enough" in cli("variance", "s:base", "--threshold", "0.01").out or "more seeds" in text


@pytest.mark.slow
def test_variance_of_a_study_that_was_looked_at_asks_for_fresh_seeds(store: Store, cli: Cli) -> None:
    variants = ("--variant", "base:", "--variant", "new:effect=0.1")
    line = ["launch", "fake", *variants, "--base-run-name", "s", "--eval-every", "5", "--steps", "20"]
    assert cli(*line, "--seeds", "5").code == 0
    text = cli("variance", "s:base", "--threshold", "0.01").out
    assert not re.search(r"run \d+ more seeds", text)
    assert "adding seeds now would make its verdict exploratory" in " ".join(text.split())
    found = re.search(r"plan (\d+) fresh seeds: fairtrial (launch .*)$", text, re.MULTILINE)
    assert found is not None
    assert cli(*shlex.split(found[2])).code == 0, "the command that is given works"
    fresh = cli("analyze", "s-fresh", "--format", "json").json
    assert fresh["arms"][0]["used"] == int(found[1]) and fresh["comparisons"][0]["label"] is None
    old = cli("analyze", "s", "--format", "json").json
    assert not set(fresh["arms"][0]["values"]) & set(old["arms"][0]["values"])
    assert "looked at" not in cli("variance", "s:base", "--threshold", "0.5").out, (
        "5 are enough: nothing is to be added"
    )


def test_a_mean_near_zero_refuses_the_relative_rule(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "z.csv").write_text("seed,x\n1,-1\n2,1\n3,0.2\n")
    text = cli("variance", "--from", "z.csv", "--metric", "x").out
    assert "Cannot tell" in text and "--threshold-abs" in text
    found = cli("variance", "--from", "z.csv", "--metric", "x", "--threshold-abs", "0.5", "--format", "json").json
    assert found["last"]["n_min"] is not None


@pytest.mark.parametrize(("words", "seeds"), [
    (["--sesoi", "0.5", "--sd", "1", "--design", "unpaired"], 64),
    (["--sesoi", "1", "--sd", "1", "--design", "paired"], 10),
    (["--superiority", "0.75", "--power", "0.95"], 29),
    (["--sesoi", "1", "--sd", "1", "--correlation", "0.5"], 10),
])  # fmt: skip
def test_power_gives_the_closed_form_values(cli: Cli, words: list[str], seeds: int) -> None:
    assert cli("power", *words, "--format", "json").json["seeds"] == seeds


def test_power_plans_the_mean_power_over_what_a_pilot_leaves_open(two: Store, cli: Cli) -> None:
    found = cli("power", "--sesoi", "0.02", "--pilot", "s:base", "--format", "json").json
    assert found["design"] == "unpaired" and found["seeds"] > found["seeds_at_sd"]
    assert found["freedom"] == 4 and found["assurance"] is None and found["sd_upper"] is None
    bound = cli("power", "--sesoi", "0.02", "--pilot", "s:base", "--assurance", "0.8", "--format", "json").json
    assert bound["seeds"] > found["seeds"] and bound["sd_upper"] > found["sd"] == bound["sd"]
    pilots = ("power", "--sesoi", "0.02", "--pilot", "s:base", "--pilot", "s:new")
    unsaid = cli(*pilots, "--gpu", "t4")
    assert unsaid.code == 1 and "--hours-per-run" in unsaid.err, "hours from who knows where are not priced on a card"
    both = cli(*pilots, "--price-per-hour", "0.5", "--format", "json").json
    assert both["design"] == "paired" and both["cost"] == pytest.approx(0.5 * both["hours"])


@pytest.mark.slow
def test_charts_are_written_where_asked(two: Store, cli: Cli) -> None:
    answer = cli("analyze", "s", "--plots", "charts", "--metric", "eval_accuracy")
    assert answer.code == 0
    assert {"paired_differences.png", "difference_distribution.png"} <= {path.name for path in Path("charts").iterdir()}
    assert cli("analyze", "s", "--output", "main.svg").out.startswith("new is better")
    assert Path("main.svg").read_text().startswith("<svg")
    fill(two, more={"eval_every": 5})
    assert cli("variance", "s:more", "--output", "v.png").code == 0
    assert Path("v.png").read_bytes().startswith(b"\x89PNG")
    assert cli("variance", "s:more", "--output", "v.svg").code == 0
    assert ">more: " in Path("v.svg").read_text() and "Synthetic" in Path("v.svg").read_text()


def text_of(path: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", Path(path).read_text())).split())


def drawn(cli: Cli, monkeypatch: pytest.MonkeyPatch, *line: str) -> dict[str, str]:
    """The words of every chart of an analysis, by the name of its file; charts are written as SVG, to be read."""
    monkeypatch.setattr("fairtrial.api.comparing.plots.SUFFIX", ".svg")
    assert cli("analyze", *line, "--plots", "charts").code == 0
    return {path.stem: text_of(str(path)) for path in Path("charts").iterdir()}


@pytest.mark.slow
def test_curves_stand_for_a_metric_that_has_one_value(store: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, base={"eval_every": 5}, new={"effect": 0.2, "eval_every": 5})
    found = drawn(cli, monkeypatch, "s")
    curves = found["learning_curves"]
    assert "eval_accuracy (the curve of report_accuracy) ends at" in curves
    assert "The verdict is about report_accuracy, which has one value per run. Higher report_accuracy" in curves
    assert set(found) == {
        "learning_curves", "bootstrap_distribution", "normality", "paired_differences", "difference_distribution",
    }  # fmt: skip
    assert all("Synthetic: the recipe makes its numbers up." in words for words in found.values())
    assert all("base" in words and "new" in words and "report_accuracy" in words for words in found.values())


@pytest.mark.slow
def test_a_bootstrap_distribution_has_the_interval_that_is_printed(
    two: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ["s", "--bootstrap.n_resamples", "500", "--bootstrap.method", "studentized"]
    words = drawn(cli, monkeypatch, *line)["bootstrap_distribution"]
    [found] = cli("analyze", *line, "--format", "json").json["comparisons"]
    assert found["method"] == "studentized bootstrap"
    assert "means of 500 resamples" in words and f"+{found['effect']['low']:.4f}"[:6] in words


@pytest.mark.slow
def test_normality_is_a_diagnostic_of_pairs_or_of_arms(two: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    [found] = cli("analyze", "s", "--format", "json").json["comparisons"]
    words = drawn(cli, monkeypatch, "s")["normality"]
    p = found["diagnostics"]["shapiro_wilk_p"]["differences"]
    assert f"Shapiro–Wilk p = {p:.2g}, n = 5" in words and "it never changes the test" in words
    alone = drawn(cli, monkeypatch, "s", "--unpaired")["normality"]
    assert alone.count("Shapiro–Wilk p = ") == 2 and "values of report_accuracy" in alone


@pytest.mark.slow
def test_many_comparisons_keep_the_folder_small(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "a variant with a very long name that goes on and on and on, number"
    noise = random.Random(1)
    rows = [f'"{long} {v}",{s},{0.1 * v + noise.gauss(0, 0.01)}' for v in range(15) for s in range(5)]
    Path("r.csv").write_text("\n".join(["variant,seed,acc", *rows]) + "\n")
    found = drawn(cli, monkeypatch, "--from", "r.csv")
    assert len(found) == 3 + 2 * 4
    assert "the first 12 of 14" in found["bootstrap_distribution"] and "The first 12 of 14" in found["normality"]
    assert "number 12" in found["normality"] and "number 13" not in found["normality"]


@pytest.mark.slow
def test_a_study_ends_with_the_command_that_judges_it(cli: Cli) -> None:
    line = [
        "launch",
        "fake",
        "--variant",
        "a:",
        "--variant",
        "b:effect=0.1",
        "--seeds",
        "3",
        "--base-run-name",
        "my study",
    ]
    assert "fairtrial analyze 'my study'" in cli(*line, "--steps", "10").out


def test_a_missed_requirement_is_in_the_one_document(two: Store, cli: Cli) -> None:
    answer = cli("analyze", "s", "--require", "equivalent", "--format", "json")
    assert answer.code == 3 and answer.json["required"] == {"verdict": "equivalent", "met": False}


def test_options_can_come_from_a_file_under_their_own_names(two: Store, cli: Cli) -> None:
    Path("c.yaml").write_text("metric: eval_accuracy\nsummary.type: best\nalpha: 0.1\n")
    found = cli("analyze", "s", "--config", "c.yaml", "--format", "json").json
    assert (found["metric"], found["summary"]["type"], found["comparisons"][0]["alpha"]) == (
        "eval_accuracy",
        "best",
        0.1,
    )


@pytest.mark.slow
def test_charts_of_names_that_look_alike_are_all_kept(cli: Cli) -> None:
    rows = [f"{v},{s},{0.1 * i + 0.01 * s * s}" for i, v in enumerate(("base", "my/new", "my new")) for s in range(4)]
    Path("r.csv").write_text("\n".join(["variant,seed,acc", *rows]) + "\n")
    assert cli("analyze", "--from", "r.csv", "--plots", "p").code == 0
    assert len(list(Path("p").glob("paired_differences-my_new*"))) in (0, 2)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_narrow_terminals_keep_the_names(two: Store, cli: Cli, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    from fairtrial.api.comparing.analyze import analyze
    from fairtrial.cli._verdict_text import show_analysis

    fill(two, third={"effect": 0.1})
    console = Console(width=width, file=io.StringIO(), no_color=True)
    show_analysis(console, analyze("s", store=two.root))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "third" in text.split("minus")[-1]


@pytest.mark.parametrize(("option", "kind"), [("family", ADJUSTMENTS), ("method", METHODS), ("kind", SUMMARIES)])
def test_the_command_offers_every_method_summary_and_adjustment_that_there_is(option: str, kind: PluginKind) -> None:
    from fairtrial.cli import analyze as module

    offered = next(each for each in module.command.params if each.name == option).type
    assert list(offered.choices) == plugin_names(kind)  # type: ignore[attr-defined]
