"""Tables of means on the command line: verdicts, claims and impossible values, in every format."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fairtrial
from fairtrial.api.comparing.published_claims import PublishedAnalysis
from fairtrial.core.printed import SummaryOptions
from tests.conftest import Answer

Cli = Callable[..., Answer]
TABLE = """\
variant,mean,sd,n
base,0.850,0.010,5
new,0.880,0.012,5
wide,0.880,0.030,5
same,0.851,0.009,5
"""


@pytest.fixture
def table(tmp_path: Path) -> str:
    (tmp_path / "table.csv").write_text(TABLE)
    return "table.csv"


def write(text: str, name: str = "t.csv") -> str:
    Path(name).write_text(text)
    return name


def test_a_table_of_two_means_gets_a_verdict(table: str, cli: Cli) -> None:
    answer = cli("analyze", "--from", table, "--metric", "accuracy", "--candidate", "new")
    assert answer.code == 0 and answer.err == ""
    assert answer.out.startswith("new is better than base: accuracy +0.0300 [+0.0138, +0.0462], +3.5 % (95 % interval")
    assert "no seeds, so the comparison is unpaired" in answer.out and "does not say how many runs failed" in answer.out


def test_the_numbers_are_those_of_the_runs(cli: Cli) -> None:
    """The same runs once as runs and once as a table with all digits: one verdict, and one interval to 1e-9."""
    rng = np.random.default_rng(5)
    runs = {"base": rng.normal(0.8, 0.02, 6), "new": rng.normal(0.83, 0.03, 5)}
    lines = [f"{name},{seed}{name},{value!r}" for name, arm in runs.items() for seed, value in enumerate(arm.tolist())]
    write("variant,seed,accuracy\n" + "\n".join(lines), "runs.csv")
    rows = [f"{name},{float(a.mean())!r},{float(a.std(ddof=1))!r},{len(a)}" for name, a in runs.items()]
    write("variant,mean,sd,n\n" + "\n".join(rows), "means.csv")
    options = ["--metric", "accuracy", "--sesoi", "0.01", "--format", "json"]
    first, second = (cli("analyze", "--from", f"{name}.csv", *options).json for name in ("runs", "means"))
    assert first["verdict"] == second["verdict"]
    [one], [other] = first["comparisons"], second["comparisons"]
    for name in ("effect", "equivalence", "hedges_g"):
        for limit in ("value", "low", "high", "level", "n"):
            assert one[name][limit] == pytest.approx(other[name][limit], rel=1e-9)
    for name in ("significant", "equivalent", "exceeds_sesoi", "not_worse", "pairing", "n_control", "n_candidate"):
        assert one[name] == other[name]
    assert one["p_value"] == pytest.approx(other["p_value"], rel=1e-9)
    assert other["superiority"] is other["correlation"] is other["reliability"] is None and other["diagnostics"] == {}


def test_the_metric_has_to_have_a_direction(table: str, cli: Cli) -> None:
    refused = cli("analyze", "--from", table)
    assert refused.code == 1 and "a high or a low mean is better" in refused.err and "--metric accuracy" in refused.err
    lower = cli("analyze", "--from", table, "--metric", "loss", "--candidate", "new", "--format", "json").json
    assert (lower["verdict"], lower["direction"], lower["direction_source"]) == ("worse", "min", "name")
    stated = cli("analyze", "--from", table, "--metric", "oddity:min", "--candidate", "new", "--format", "json").json
    assert (stated["verdict"], stated["direction_source"]) == ("worse", "stated")
    against = cli("analyze", "--from", table, "--metric", "loss", "--direction", "max", "--candidate", "new").out
    assert "the name suggests the opposite" in against


def test_several_arms_are_one_family(table: str, cli: Cli) -> None:
    found = cli("analyze", "--from", table, "--metric", "accuracy", "--format", "json").json
    assert [each["adjustment"] for each in found["comparisons"]] == ["holm"] * 3
    assert [each["verdict"] for each in found["comparisons"]] == ["better", "inconclusive", "inconclusive"]
    for each in found["comparisons"]:
        excludes = each["effect"]["low"] > 0 or each["effect"]["high"] < 0
        assert excludes == (each["adjusted_p"] <= 0.05)
    levels = [round(each["effect"]["level"], 6) for each in found["comparisons"]]
    assert levels == [round(1 - 0.05 / 3, 6), 0.975, 0.975]
    refused = cli("analyze", "--from", table, "--metric", "accuracy", "--family", "tukey")
    assert refused.code == 1 and "shared seeds" in refused.err
    assert cli("analyze", "--from", table, "--metric", "accuracy", "--family", "bh").code == 0


def test_a_required_verdict_counts(table: str, cli: Cli) -> None:
    line = ["analyze", "--from", table, "--metric", "accuracy"]
    assert cli(*line, "--candidate", "new", "--require", "better").code == 0
    missed = cli(*line, "--claims", "--require", "better", "--format", "json")
    assert missed.code == 3 and missed.json["required"] == {"verdict": "better", "met": False}
    assert cli(*line, "--candidate", "same", "--sesoi", "0.05", "--require", "equivalent").code == 0
    assert cli(*line, "--candidate", "new", "--side", "less", "--require", "better").code == 3


def test_tasks_are_compared_one_by_one(cli: Cli) -> None:
    rows = ["base,a,85.0,0.45,5", "new,a,88.1,0.5,5", "base,b,95.0,0.2,5", "new,b,95.2,0.2,5", "base,c,99.0,0.1,5"]
    name = write("variant,task,mean,se,n\n" + "\n".join(rows) + "\n")
    answer = cli("analyze", "--from", name, "--metric", "accuracy")
    assert answer.out.startswith(
        "new is better than base on a, not distinguishable from base on b (accuracy, Holm over"
    )
    assert "new has no row for task c" in answer.out and "computed as standard errors times √n" in answer.out
    found = cli("analyze", "--from", name, "--metric", "accuracy", "--claims", "--format", "json").json
    assert [(row["task"], row["holds"]) for row in found["claims"]] == [("a", True), ("b", False)]
    assert [arm["sd_from"] for arm in found["arms"]] == ["se"] * 5 and found["arms"][0]["planned"] is None
    refused = cli("analyze", "--from", name, "--metric", "accuracy", "--tasks")
    assert refused.code == 1 and "--tasks needs the runs" in refused.err and "one comparison per task" in refused.err


# Claims


def test_claims_say_what_holds_and_what_the_runs_detect(table: str, cli: Cli) -> None:
    out = cli("analyze", "--from", table, "--metric", "accuracy", "--claims").out
    assert out.startswith("1 of 3 differences from base holds (accuracy, error rate 5 %, Holm over 3 comparisons).")
    assert "detects: the true difference that the printed number of runs detects" in out and "Pass --sesoi" in out


def test_claims_with_a_margin_say_how_many_runs_it_needs(table: str, cli: Cli) -> None:
    line = ["analyze", "--from", table, "--metric", "accuracy", "--claims", "--sesoi", "0.01"]
    out = cli(*line).out
    assert "n needed" in out and "assumes that the true difference equals the margin, not the printed difference" in out
    claims = cli(*line, "--format", "json").json["claims"]
    assert [row["candidate"] for row in claims] == ["new", "wide", "same"]
    assert all(row["n_needed"] > 5 for row in claims)
    assert claims[1]["n_needed"] > claims[0]["n_needed"] > claims[2]["n_needed"]  # by their noise, not their difference
    rows = list(csv.DictReader(io.StringIO(cli(*line, "--format", "csv").out)))
    assert [row["holds"] for row in rows] == ["True", "False", "False"] and rows[0]["n_needed"]
    markdown = cli(*line, "--format", "markdown").out
    assert markdown.startswith("| candidate | control | difference |") and "n needed" in markdown.splitlines()[0]
    assert "tabular" in cli(*line, "--format", "latex").out


def test_all_pairs_are_one_family(table: str, cli: Cli) -> None:
    found = cli("analyze", "--from", table, "--metric", "accuracy", "--claims", "--all-pairs", "--format", "json").json
    assert len(found["claims"]) == 6 and found["sentence"].startswith("2 of 6 differences hold ")
    chosen = ["--candidate", "new", "--candidate", "wide", "--candidate", "same"]
    fewer = cli(
        "analyze", "--from", table, "--metric", "accuracy", "--claims", "--all-pairs", *chosen, "--format", "json"
    )
    assert len(fewer.json["claims"]) == 3 and "base" not in str(fewer.json["claims"])
    assert cli("analyze", "--from", table, "--metric", "accuracy", "--all-pairs").code == 1


@pytest.mark.parametrize("width", [80, 120])
def test_claims_fit_a_terminal(table: str, cli: Cli, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    out = cli("analyze", "--from", table, "--metric", "accuracy", "--claims", "--all-pairs", "--sesoi", "0.01").out
    block = out.split("\n\n")[1]
    assert max(map(len, block.splitlines())) <= 80 and "…" not in block


# What is wrong with a table


def test_impossible_values_are_pointed_out(cli: Cli) -> None:
    name = write("variant,mean,sd,n\nbase,0.850,0.010,5\nnew,0.871,0.012,5\n")
    line = ["analyze", "--from", name, "--metric", "accuracy", "--items", "100"]
    answer = cli(*line)
    assert answer.code == 0 and "Impossible: new: the mean 0.871 cannot be a mean of 5 runs of 100 items" in answer.out
    assert "2 of 2 means could be checked" in answer.out
    found = cli(*line, "--claims", "--format", "json").json
    assert [each["severity"] for each in found["findings"]] == ["impossible"] and found["means_checked"] == 2
    assert "impossible value" in [each["code"] for each in found["cautions"]]
    fine = cli(*line[:-1], "100000").out
    assert "Impossible" not in fine and "no mean could be checked" in fine


def test_a_range_excludes_values(cli: Cli) -> None:
    name = write("variant,mean,sd,n\nbase,0.850,0.600,5\nnew,1.2,0.1,5\n")
    out = cli("analyze", "--from", name, "--metric", "accuracy", "--range", "0:1").out
    assert "too large: 5 values from 0 to 1" in out and "lies outside of the range 0 to 1" in out
    for bad in ("1:0", "1:1"):
        assert cli("analyze", "--from", name, "--metric", "accuracy", "--range", bad).code == 1
    for bad in ("x", "1", "a:b"):
        assert cli("analyze", "--from", name, "--metric", "accuracy", "--range", bad).code == 2


def test_intervals_state_how_they_were_read(cli: Cli) -> None:
    name = write("variant,mean,low,high,n\nbase,0.850,0.836,0.864,4\nnew,0.871,0.857,0.885,4\n")
    out = cli("analyze", "--from", name, "--metric", "accuracy").out
    assert "read as 95 % t intervals of the mean" in out and "would be inconclusive" in out
    wider = cli("analyze", "--from", name, "--metric", "accuracy", "--interval-level", "0.5", "--format", "json").json
    usual = cli("analyze", "--from", name, "--metric", "accuracy", "--format", "json").json
    assert wider["arms"][0]["sd"] > 2 * usual["arms"][0]["sd"]


def test_verdicts_that_rest_on_rounding_are_cautioned(cli: Cli) -> None:
    rough = write("variant,mean,sd,n\nbase,0.85,0.01,5\nnew,0.87,0.01,5\n", "rough.csv")
    assert "within rounding it may be better or inconclusive" in cli("analyze", "--from", rough, "--metric", "acc").out
    fine = write("variant,mean,sd,n\nbase,0.8500,0.0100,5\nnew,0.8700,0.0100,5\n", "fine.csv")
    assert "within rounding" not in cli("analyze", "--from", fine, "--metric", "acc").out
    # A program that drops zeros at the end does not make a table coarse.
    dropped = write("variant,mean,sd,n\nbase,0.8512,0.01,5\nnew,0.87,0.0102,5\n", "dropped.csv")
    assert "within rounding" not in cli("analyze", "--from", dropped, "--metric", "acc").out


def test_arms_without_spread_give_no_verdict(cli: Cli) -> None:
    name = write("variant,mean,sd,n\nbase,0.85,0,5\nnew,0.9,0,5\n")
    out = cli("analyze", "--from", name, "--metric", "accuracy", "--claims", "--sesoi", "0.01", "--format", "json").json
    [claim] = out["claims"]
    assert (claim["holds"], claim["low"], claim["p"], claim["n_needed"]) == (None, None, None, None)
    assert [each["kind"] for each in out["findings"]] == ["no spread"] * 2
    assert "no variation" in cli("analyze", "--from", name, "--metric", "accuracy").out


# What is refused


@pytest.mark.parametrize(("words", "code", "told"), [
    (["--certify"], 1, "--certify needs the runs"), (["--power.enabled"], 1, "--power.enabled needs the runs"),
    (["--method", "bca"], 1, "--method needs the runs"), (["--summary.type", "auc"], 1, "--summary needs the runs"),
    (["--plots", "charts"], 1, "--plots needs the runs"), (["--output", "a.png"], 1, "--output needs the runs"),
    (["--output.csv_path", "a.csv"], 1, "needs the runs"), (["--metric", "loss"], 1, "one metric at a time"),
    (["--candidate", "base"], 1, "'base' is the control"), (["--candidate", "nwe"], 1, "did you mean 'new'"),
    (["--n", "1"], 1, "n must lie between 2"), (["--items", "0"], 1, "items must lie between"),
    (["--interval-level", "95"], 1, "must lie between 0.5"), (["--interval-level", "0.9"], 1, "no interval"),
    (["--plus-minus", "sd"], 1, "no cell with ±"), (["--n", "5"], 1, "has the number of runs in every row"),
    (["--alpha", "0.9"], 1, "alpha must lie between"), (["--items", "nan"], 2, "not a valid integer"),
])  # fmt: skip
def test_what_a_table_cannot_answer_is_refused(words: list[str], code: int, told: str, table: str, cli: Cli) -> None:
    answer = cli("analyze", "--from", table, "--metric", "accuracy", *words)
    assert answer.code == code and told in answer.err
    assert not Path("charts").exists() and not Path("a.png").exists()


def test_options_for_tables_need_one(cli: Cli) -> None:
    refused = cli("analyze", "demo", "--claims")
    assert refused.code == 2 and "--claims needs --from FILE" in refused.err
    runs = write("variant,seed,accuracy\nbase,1,0.85\nbase,2,0.86\nnew,1,0.9\nnew,2,0.91\n")
    assert "requires a table with one mean per arm" in cli("analyze", "--from", runs, "--claims").err
    assert cli("analyze", "--from", runs).code == 0


def test_too_many_comparisons_are_refused(cli: Cli) -> None:
    rows = "".join(f"v{number},0.8,0.1,5\n" for number in range(60))
    name = write(f"variant,mean,sd,n\n{rows}")
    refused = cli("analyze", "--from", name, "--metric", "acc", "--claims", "--all-pairs")
    assert refused.code == 1 and "1,770 comparisons" in refused.err
    assert cli("analyze", "--from", name, "--metric", "acc", "--claims").code == 0


def test_names_from_a_table_do_not_reach_the_terminal_raw(cli: Cli) -> None:
    name = write("variant,mean,sd,n\n\x1b[31mred,0.85,0.01,5\n[bold]new[/bold],0.9,0.01,5\n")
    answer = cli("analyze", "--from", name, "--metric", "accuracy", "--claims", "--items", "7")
    assert answer.code == 0 and "\x1b" not in answer.out and "[bold]new[/bold]" in answer.out


def test_the_same_from_python(table: str) -> None:
    question = fairtrial.Question(metrics=["accuracy"], sesoi=0.01)
    found = fairtrial.analyze(source=table, question=question, summary_table=fairtrial.SummaryOptions(claims=True))
    assert isinstance(found, PublishedAnalysis) and fairtrial.SummaryOptions is SummaryOptions
    assert [claim.holds for claim in found.claims] == [True, False, False]
    assert str(found).startswith("1 of 3 differences")
