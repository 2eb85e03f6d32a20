"""Which tables are tables of means, what their cells say, and what is refused about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairtrial.core.errors import UserError
from fairtrial.core.printed import PrintedArm, SummaryOptions, plus_minus_in, printed_in
from fairtrial.core.readers import Columns
from fairtrial.record.summary_tables import read_summary_table
from fairtrial.record.tables import read_table

HEAD = "variant,mean,sd,n\n"


def rows_of(
    text: str, tmp_path: Path, *metrics: str, columns: Columns | None = None, name: str = "t.csv", **options: Any
) -> list[PrintedArm] | None:
    path = tmp_path / name
    path.write_text(text)
    read = read_summary_table(read_table(path, columns or Columns()), metrics, SummaryOptions(**options))
    return None if read is None else read.arms(read.variants)


def refused(text: str, tmp_path: Path, *metrics: str, **options: Any) -> UserError:
    with pytest.raises(UserError) as caught:
        rows_of(text, tmp_path, *metrics, **options)
    return caught.value


# Recognition


@pytest.mark.parametrize("header", [
    "variant,mean,sd,n", "Variant,Mean,STD,Runs", "variant,avg,stdev,seeds", "variant,mean,stderr,count",
    "variant,mean,sem,num_seeds", "variant,mean,ci,n", "variant,acc_mean,acc_std,acc_count", "variant,acc mean,acc std,n",
    "variant,eval/acc/mean,eval/acc/std,n", "variant,top1.mean,top1.se,n_runs",
])  # fmt: skip
def test_columns_are_known_by_their_names(header: str, tmp_path: Path) -> None:
    found = rows_of(f"{header}\nbase,0.85,0.01,5\nnew,0.87,0.02,6\n", tmp_path)
    assert found is not None
    assert [(arm.variant, arm.n, arm.mean.value) for arm in found] == [("base", 5, 0.85), ("new", 6, 0.87)]


def test_limits_are_read_as_an_interval(tmp_path: Path) -> None:
    found = rows_of("variant,mean,ci_lower,ci_upper,n\nbase,0.85,0.84,0.86,5\n", tmp_path)
    assert found is not None and found[0].limits is not None and found[0].spread == "interval"
    assert [str(limit) for limit in found[0].limits] == ["0.84", "0.86"]


@pytest.mark.parametrize(("text", "metrics"), [
    ("variant,seed,mean,std\nbase,1,0.85,0.1\nnew,1,0.9,0.1\n", ()),  # a seed: rows are runs
    ("variant,run,mean,std\nbase,1,0.85,0.1\n", ()),
    ("variant,step,mean,std\nbase,1,0.85,0.1\n", ()),
    ("variant,accuracy\nbase,0.85\nnew,0.9\n", ()),
    ("variant,mean\nbase,0.85\nnew,0.9\n", ()),  # no spread
    ("variant,metric,value\nbase,mean,0.85\nnew,sd,0.9\n", ()),
    ("variant,mean,std\nbase,0.85,0.1\nbase,0.86,0.1\n", ()),  # several rows per arm, and no n
    ("variant,mean,std,n\nbase,0.85,0.1,9\nbase,0.86,0.1,9\n", ("mean",)),  # its column is named as the metric
    ("variant,acc_mean,acc_std,loss\nbase,0.85,0.1,9\nbase,0.86,0.1,9\n", ("loss",)),
])  # fmt: skip
def test_tables_of_runs_are_left_alone(text: str, metrics: tuple[str, ...], tmp_path: Path) -> None:
    assert rows_of(text, tmp_path, *metrics) is None


def test_options_for_means_refuse_a_table_of_runs(tmp_path: Path) -> None:
    error = refused("variant,seed,accuracy\nbase,1,0.85\n", tmp_path, claims=True)
    assert "--claims requires a table with one mean per arm" in error.message and "column for the seed" in error.message
    assert "no columns for a mean" in refused("variant,accuracy\nbase,0.85\n", tmp_path, n=5).message


def test_json_and_several_files_are_read_too(tmp_path: Path) -> None:
    rows = [{"variant": "base", "mean": 0.85, "sd": 0.01, "n": 5}, {"variant": "new", "mean": 1, "sd": 0.5, "n": 5.0}]
    found = rows_of(json.dumps(rows), tmp_path, name="t.json")
    assert found is not None and [arm.n for arm in found] == [5, 5]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    assert rows_of(lines, tmp_path, name="t.jsonl") is not None
    for number, row in enumerate(("base,0.85,0.01,5", "new,0.87,0.02,6")):
        (tmp_path / f"{number}.csv").write_text(f"{HEAD}{row}\n")
    table = read_table([tmp_path / "0.csv", tmp_path / "1.csv"], Columns())
    both = read_summary_table(table, (), SummaryOptions())
    assert both is not None and both.variants == ["base", "new"]


def test_tasks_and_metrics_tell_rows_apart(tmp_path: Path) -> None:
    text = "variant,task,metric,mean,sd,n\n" + "".join(
        f"{variant},{task},{metric},0.8,0.1,5\n" for variant in "ab" for task in (1, 2) for metric in ("acc", "loss")
    )
    found = rows_of(text, tmp_path, "loss")
    assert found is not None and [(arm.variant, arm.task) for arm in found] == [
        ("a", "1"),
        ("a", "2"),
        ("b", "1"),
        ("b", "2"),
    ]
    assert "several metrics: acc, loss" in refused(text, tmp_path).message
    assert "unknown metric 'los'" in refused(text, tmp_path, "los").message


def test_one_of_several_metrics_is_chosen(tmp_path: Path) -> None:
    text = "variant,acc_mean,acc_sd,loss_mean,loss_sd,n\na,0.8,0.1,2,0.2,5\nb,0.9,0.1,3,0.2,5\n"
    found = rows_of(text, tmp_path, "loss")
    assert found is not None and [arm.mean.value for arm in found] == [2.0, 3.0]
    assert "several metrics: acc, loss" in refused(text, tmp_path).message
    assert "unknown metric" in refused(text, tmp_path, "reward").message


# Cells


@pytest.mark.parametrize(("cell", "sides"), [
    ("0.871 ± 0.012", ("0.871", "0.012")), ("0.871±.012", ("0.871", ".012")), ("87 +/- 1", ("87", "1")),
    (r"$0.871 \pm 0.012$", ("0.871", "0.012")), ("0.871", None), ("a ± b ± c", None), (0.871, None), (None, None),
])  # fmt: skip
def test_plus_minus_is_taken_apart(cell: Any, sides: tuple[str, str] | None) -> None:
    assert plus_minus_in(cell) == sides


def test_plus_minus_needs_to_be_explained(tmp_path: Path) -> None:
    text = "variant,accuracy\nbase,0.850 ± 0.010\nnew,0.871 ± 0.012\n"
    error = refused(text, tmp_path, n=5)
    assert "the meaning of ± is unknown" in error.message and "--plus-minus: sd" in (error.hint or "")
    assert len(error.problems) == 1
    for kind in ("sd", "se", "ci"):
        found = rows_of(text, tmp_path, n=5, plus_minus=kind)
        assert found is not None and found[0].spread == ("interval" if kind == "ci" else kind)


def test_plus_minus_may_not_contradict_a_column(tmp_path: Path) -> None:
    text = "variant,mean,sd,n\nbase,0.850 ± 0.010,0.01,5\nnew,0.871 ± 0.012,0.01,5\n"
    assert "both mean and sd contain the sd" in refused(text, tmp_path, plus_minus="sd").message
    found = rows_of(text, tmp_path, plus_minus="ci")
    assert found is not None and found[0].half_width is not None and found[0].spread == "sd"


@pytest.mark.parametrize(("row", "told"), [
    ("base,0.85,-0.01,5", "a spread cannot be negative"), ("base,0.85,0.01,1", "a spread needs at least 2 runs"),
    ("base,0.85,0.01,0", "a spread needs at least 2 runs"), ("base,0.85,0.01,5.5", "must be an integer"),
    ("base,0.85,0.01,1e9", "at most 1,000,000"), ("base,0.85,x,5", "sd is 'x', not a number"),
    ("base,nan,0.01,5", "mean is nan, not a finite number"), ("base,0.85,inf,5", "sd is inf, not a finite number"),
    ("base,85%,0.01,5", "leave out the percent sign"), ('base,"0,85",0.01,5', "write decimals with a point"),
    ("base,1e200,0.01,5", "too large or too small"), ("base,0.85,1e-200,5", "too large or too small"),
    ("base,,0.01,5", "mean is empty"), ("base,0.85,,5", "base has no spread"),
    ("base,0.85,0.01,", "the number of runs behind"), ("base,0.85,0.01,many", "n is 'many', not a number"),
    (",0.85,0.01,5", "variant is empty"),
])  # fmt: skip
def test_bad_values_get_a_sentence_with_their_line(row: str, told: str, tmp_path: Path) -> None:
    error = refused(f"{HEAD}{row}\nnew,0.87,0.01,5\n", tmp_path, claims=True)
    assert told in error.message and "t.csv, line 2" in error.message


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    error = refused(f"{HEAD}base,x,-1,1.5\nnew,0.87,-2,0\n", tmp_path)
    assert len([error.message, *error.problems]) == 5
    many = "".join(f"v{number},x,0.1,5\n" for number in range(20))
    assert refused(HEAD + many, tmp_path).problems[-1] == "15 more cells cannot be used"


def test_only_the_chosen_rows_have_to_be_whole(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"{HEAD}base,0.85,0.01,5\nnew,0.87,0.01,5\nold,0.80,,\n")
    read = read_summary_table(read_table(tmp_path / "t.csv", Columns()), (), SummaryOptions())
    assert read is not None and len(read.arms(["base", "new"])) == 2
    with pytest.raises(UserError, match="old has no spread"):
        read.arms(["base", "old"])


def test_a_table_without_a_single_mean_is_refused(tmp_path: Path) -> None:
    assert "no row with a mean" in refused(f"{HEAD}bas", tmp_path).message


def test_limits_must_be_two_and_in_order(tmp_path: Path) -> None:
    head = "variant,mean,low,high,n\n"
    assert "the other limit, high, is missing" in refused(f"{head}a,0.8,0.7,,5\nb,1,0,2,5\n", tmp_path).message
    assert "low 0.9 is above high 0.7" in refused(f"{head}a,0.8,0.9,0.7,5\nb,1,0,2,5\n", tmp_path).message


def test_rows_of_one_arm_are_refused_with_both_lines(tmp_path: Path) -> None:
    error = refused(f"{HEAD}base,0.85,0.01,5\nnew,0.9,0.1,5\nbase,0.86,0.01,5\n", tmp_path)
    assert error.message == "t.csv, line 2 and line 4 are both rows of base"
    assert "--task-column" in (error.hint or "")


def test_two_columns_for_one_statistic_are_refused(tmp_path: Path) -> None:
    error = refused("variant,mean,sd,std,n\na,1,2,3,5\nb,1,2,3,5\n", tmp_path)
    assert "both 'sd' and 'std' may be the sd" in error.message


def test_a_table_without_variants_says_which_column_may_hold_them(tmp_path: Path) -> None:
    error = refused("method,mean,sd,n\nbase,0.85,0.01,5\nnew,0.9,0.1,5\n", tmp_path)
    assert "such as method" in (error.hint or "")
    text = "method,mean,sd,n\nbase,0.85,0.01,5\nnew,0.9,0.1,5\n"
    assert rows_of(text, tmp_path, columns=Columns(variant="method")) is not None


def test_n_fills_what_the_table_leaves_open_and_nothing_else(tmp_path: Path) -> None:
    found = rows_of("variant,mean,sd\nbase,0.85,0.01\nnew,0.9,0.1\n", tmp_path, n=7)
    assert found is not None and [arm.n for arm in found] == [7, 7]
    partly = rows_of(f"{HEAD}base,0.85,0.01,5\nnew,0.9,0.1,\n", tmp_path, n=7)
    assert partly is not None and [arm.n for arm in partly] == [5, 7]
    error = refused(f"{HEAD}base,0.85,0.01,5\nnew,0.9,0.1,5\n", tmp_path, n=7, plus_minus="sd", interval_level=0.9)
    assert ["--n" in error.message, "--plus-minus" in error.problems[0], "--interval-level" in error.problems[1]] == [
        True
    ] * 3


def test_without_n_the_option_is_named(tmp_path: Path) -> None:
    error = refused("variant,mean,sd\nbase,0.85,0.01\nnew,0.9,0.1\n", tmp_path)
    assert "the number of runs" in error.message and "--n" in (error.hint or "")


# Printed numbers


@pytest.mark.parametrize(("cell", "unit"), [
    ("0.870", 0.001), ("87", 1), ("8.7e1", 1), ("1.5e-3", 1e-4), (0.25, 0.01), (3, 1), ("0", 1), ("0.00", 0.01),
    ("0e-9999", 1e-40), (" 0.5 ", 0.1), ("0." + "1" * 60, 1e-17), ("-0.0", 0.1),
])  # fmt: skip
def test_the_last_digit_is_known(cell: Any, unit: float) -> None:
    found = printed_in(cell)
    assert found is not None and float(found.unit) == pytest.approx(unit)
    assert float(found.low) <= found.value <= float(found.high)


@pytest.mark.parametrize("cell", ["", "x", None, True, "nan", "inf", "1e999", "1e-300", 10**200, "1_000", "٣", [], {}])
def test_what_is_not_a_usable_number_is_none(cell: Any) -> None:
    assert printed_in(cell) is None
