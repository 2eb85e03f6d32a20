"""Tables from elsewhere: what a file says is taken, what it leaves open is refused, and nothing of it is guessed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Answer

Cli = Callable[..., Answer]
SEEDS = (1, 2, 3, 4, 5)


def write(path: str, text: str | bytes) -> str:
    Path(path).write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def rows(arms: str = "ab", gain: float = 0.1) -> list[dict[str, Any]]:
    """A result that is clearly better: five paired seeds with a little noise of their own."""
    return [
        {
            "variant": v,
            "seed": s,
            "accuracy": round(0.5 + gain * (v == "b") + 0.01 * s + 0.001 * (v == "b") * (s % 2), 4),
        }
        for v in arms
        for s in SEEDS
    ]


def csv_of(table: list[dict[str, Any]], header: str | None = None) -> str:
    lines = [",".join(str(value) for value in row.values()) for row in table]
    return "\n".join([header or ",".join(table[0]), *lines]) + "\n"


def comparison(cli: Cli, *words: str) -> dict[str, Any]:
    done = cli("analyze", *words, "--format", "json")
    assert done.code == 0, done.out + done.err
    [found] = done.json["comparisons"]
    return dict(found)


def refused(cli: Cli, *words: str, code: int = 1) -> str:
    done = cli(*words)
    assert done.code == code, done.out + done.err
    assert "Traceback" not in done.err
    return done.err


# Columns that stand there twice.


@pytest.mark.parametrize(
    "header",
    ["variant,seed,accuracy,accuracy", "variant,seed,accuracy, accuracy", "\ufeffvariant,seed,accuracy,accuracy "],
)
def test_a_duplicate_column_is_refused(cli: Cli, header: str) -> None:
    table = [{**row, "again": 1 - row["accuracy"]} for row in rows()]
    told = refused(cli, "analyze", "--from", write("r.csv", csv_of(table, header)), "--metric", "accuracy")
    assert "has the column 'accuracy' twice, as columns 3 and 4" in told


@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
def test_a_key_twice_in_one_row_is_refused(cli: Cli, suffix: str) -> None:
    lines = [json.dumps(row) for row in rows()]
    lines[3] = lines[3][:-1] + ', "accuracy": 0.9}'
    text = "\n".join(lines) if suffix == ".jsonl" else "[" + ",\n".join(lines) + "]"
    told = refused(cli, "analyze", "--from", write(f"r{suffix}", text))
    assert "has the key 'accuracy' twice" in told
    assert suffix == ".json" or "line 4" in told


def test_no_spelling_hides_a_key_that_stands_twice(cli: Cli) -> None:
    """The fast path counts colons: one in a text, an escaped one and a nested one must not make up for a key."""
    hiding = ['"note": "12:30"', '"note": "a\\u003ab"', '"note": {"a": 1}', '"note": ["a:b"]']
    for text in hiding:
        lines = [json.dumps(row) for row in rows()]
        assert comparison(cli, "--from", write("ok.jsonl", "\n".join([line[:-1] + f", {text}}}" for line in lines])))
        lines[3] = lines[3][:-1] + f', {text}, "accuracy": 0.9}}'
        told = refused(cli, "analyze", "--from", write("r.jsonl", "\n".join(lines)), "--metric", "accuracy")
        assert "line 4 has the key 'accuracy' twice" in told, text


def test_two_columns_for_one_role_are_refused_until_one_is_chosen(cli: Cli) -> None:
    table = [{"variant": r["variant"], "seed": r["seed"], "Seed": 9, "accuracy": r["accuracy"]} for r in rows()]
    path = write("r.csv", csv_of(table))
    assert "both 'seed' and 'Seed' may contain the seed; choose one with --seed-column" in refused(
        cli, "analyze", "--from", path
    )
    assert comparison(cli, "--from", path, "--seed-column", "seed", "--metric", "accuracy")["verdict"] == "better"


def test_keys_that_differ_by_spaces_are_refused(cli: Cli) -> None:
    lines = [json.dumps({**row, " accuracy": 0.1}) for row in rows()]
    told = refused(cli, "analyze", "--from", write("r.jsonl", "\n".join(lines)), "--metric", "accuracy")
    assert "which differ only by spaces" in told


# Seeds.


def test_seeds_as_pandas_writes_them_pair(cli: Cli) -> None:
    table = [{**row, "seed": f"{row['seed']}.0" if row["variant"] == "b" else row["seed"]} for row in rows()]
    found = comparison(cli, "--from", write("r.csv", csv_of(table)))
    plain = comparison(cli, "--from", write("plain.csv", csv_of(rows())))
    assert (found["pairing"], found["verdict"]) == ("paired", "better")
    assert found["p_value"] == plain["p_value"]


@pytest.mark.parametrize("spelled", [1, 1.0, "1", "1.0", " 1 ", "1e0", "1.", "+1", "01"])
def test_a_whole_number_is_one_seed_however_it_is_written(cli: Cli, spelled: Any) -> None:
    table = [{**r, "seed": spelled if (r["variant"], r["seed"]) == ("b", 1) else r["seed"]} for r in rows()]
    path = write("r.jsonl", "\n".join(json.dumps(row) for row in table))
    assert comparison(cli, "--from", path)["pairing"] == "paired"


@pytest.mark.parametrize("other", ["1.5", "1a", "seed 1", "1e-1", "0x1", "1_0"])
def test_other_text_is_another_seed(cli: Cli, other: str) -> None:
    table = [{**r, "seed": other if (r["variant"], r["seed"]) == ("b", 1) else r["seed"]} for r in rows()]
    path = write("r.jsonl", "\n".join(json.dumps(row) for row in table))
    assert comparison(cli, "--from", path)["pairing"] == "unpaired"


def test_tasks_and_runs_of_one_number_are_one(cli: Cli) -> None:
    table = [
        {"variant": r["variant"], "task": f"{t}.0" if r["variant"] == "b" else t, "seed": r["seed"],
         "accuracy": r["accuracy"] + t}
        for r in rows() for t in (1, 2)
    ]  # fmt: skip
    done = cli("analyze", "--from", write("r.csv", csv_of(table)), "--tasks", "--format", "json")
    assert done.code == 0, done.err
    assert done.json["tasks"]["tasks"] == ["1", "2"]
    curves = [
        {"variant": r["variant"], "run": "7" if step else "7.0", "seed": r["seed"], "step": f"{step}.0",
         "accuracy": r["accuracy"] * step}
        for r in rows() for step in (0, 10)
    ]  # fmt: skip
    found = comparison(cli, "--from", write("c.csv", csv_of(curves)), "--summary.type", "auc")
    assert (found["n_control"], found["verdict"]) == (5, "better")


def test_one_variant_in_two_spellings_is_refused(cli: Cli) -> None:
    table = [{**r, "variant": {"a": "0.5", "b": "1" if r["seed"] < 3 else "1.0"}[r["variant"]]} for r in rows()]
    assert "spells the same variant as '1' and as '1.0'" in refused(
        cli, "analyze", "--from", write("r.csv", csv_of(table))
    )


# How a run ended.


@pytest.mark.parametrize(
    ("word", "lost"),
    [
        *((word, 0) for word in ("FINISHED", "success", "done", "COMPLETE", "Completed", "ok", "")),
        *((word, 2) for word in ("crashed", "FAILED", "error", "diverged", "failed")),
    ],
)
@pytest.mark.parametrize("column", ["status", "State"])
def test_a_status_of_the_field_is_understood(cli: Cli, column: str, word: str, lost: int) -> None:
    table = [{**row, column: "finished"} for row in rows()]
    table[-1][column] = table[-2][column] = word
    found = comparison(cli, "--from", write("r.csv", csv_of(table)))
    assert found["n_candidate"] == 5 - lost and found["reliability"]["lost_candidate"] == lost


@pytest.mark.parametrize("word", ["killed", "RUNNING", "pending", "Timed out", "preempted"])
def test_an_interrupted_run_is_not_scored(cli: Cli, word: str) -> None:
    table = [{**row, "status": "ok"} for row in rows()]
    table[-1]["status"] = word
    done = cli("analyze", "--from", write("r.csv", csv_of(table)), "--format", "json")
    assert done.code == 0 and [arm["used"] for arm in done.json["arms"]] == [5, 4]
    assert done.json["comparisons"][0]["reliability"]["lost_candidate"] == 0


def test_an_unknown_status_is_refused_with_the_known_ones(cli: Cli) -> None:
    table = [{**row, "status": "terminated" if row["seed"] == 2 else "ok"} for row in rows()]
    path = write("r.csv", csv_of(table))
    told = refused(cli, "analyze", "--from", path)
    assert "line 3: status is 'terminated'" in told and "finished, " in told and "--status-column none" in told
    assert comparison(cli, "--from", path, "--status-column", "none", "--metric", "accuracy")["verdict"] == "better"


def test_a_status_column_can_be_named(cli: Cli) -> None:
    table = [{**row, "outcome": "crashed" if row == rows()[-1] else "finished"} for row in rows()]
    path = write("r.csv", csv_of(table))
    assert comparison(cli, "--from", path, "--status-column", "Outcome")["n_candidate"] == 4
    assert comparison(cli, "--from", path)["n_candidate"] == 5


def test_a_state_that_says_nothing_about_an_end_is_a_column_like_others(cli: Cli) -> None:
    table = [{**row, "state": "Ohio"} for row in rows()]
    assert comparison(cli, "--from", write("r.csv", csv_of(table)))["verdict"] == "better"
    both = [{**row, "status": "ok", "State": "crashed"} for row in rows()]
    assert "may contain the status" in refused(cli, "analyze", "--from", write("b.csv", csv_of(both)))


# Several files.


def test_every_file_counts(cli: Cli) -> None:
    one, two = write("one.csv", csv_of(rows("a"))), write("two.csv", csv_of(rows("b")))
    found = comparison(cli, "--from", one, "--from", two)
    both = comparison(cli, "--from", write("both.csv", csv_of(rows())))
    assert (found["p_value"], found["n_control"]) == (both["p_value"], 5)
    done = cli("analyze", "--from", one, "--from", two, "--format", "json")
    assert done.json["source"] == "one.csv, two.csv"
    assert cli("variance", "--from", one, "--from", write("more.csv", "variant,seed,accuracy\na,6,0.4\n"),
               "--format", "json").json["n"] == 6  # fmt: skip


def test_rows_without_names_of_two_files_are_different_runs(cli: Cli) -> None:
    halves = [
        write(f"{v}.csv", csv_of([{"variant": v, "accuracy": r["accuracy"]} for r in rows(v)])) for v in "ab"
    ]  # fmt: skip
    more = write("c.csv", "variant,accuracy\na,0.52\nb,0.66\n")
    found = comparison(cli, *(word for path in (*halves, more) for word in ("--from", path)))
    assert (found["n_control"], found["n_candidate"]) == (6, 6)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("variant,accuracy\nb,0.5\n", "one.csv has a column for the seed, 'seed'; two.csv has none"),
        ("variant,seed,acc\nb,1,0.5\n", "two.csv has no column 'accuracy'"),
        ("variant,seed,accuracy\na,1,0.5\n", "one.csv and two.csv both have values of variant a, seed 1"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(cli: Cli, text: str, told: str) -> None:
    one, two = write("one.csv", csv_of(rows())), write("two.csv", text)
    assert told in refused(cli, "analyze", "--from", one, "--from", two, "--metric", "accuracy")


def test_a_file_given_twice_is_refused(cli: Cli) -> None:
    path = write("r.csv", csv_of(rows()))
    assert "was given twice" in refused(cli, "analyze", "--from", path, "--from", f"./{path}")


# Headers as other programs write them.


def test_roles_are_recognized_in_capitals_and_with_spaces(cli: Cli) -> None:
    table = [
        {"Variant": r["variant"], " Seed ": r["seed"], "STEP": step, "accuracy": r["accuracy"] * step}
        for r in rows() for step in (1, 2)
    ]  # fmt: skip
    found = comparison(cli, "--from", write("r.csv", csv_of(table)), "--summary.type", "auc")
    assert (found["pairing"], found["verdict"]) == ("paired", "better")


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "index"])
def test_the_index_of_pandas_is_not_a_metric(cli: Cli, name: str) -> None:
    table = [{name: number, **row} for number, row in enumerate(rows())]
    found = comparison(cli, "--from", write("r.csv", csv_of(table)))
    assert (found["metric"], found["verdict"]) == ("accuracy", "better")


def test_a_table_without_a_variant_column_is_told_that_option(cli: Cli) -> None:
    table = [{"algo": r["variant"], "seed": r["seed"], "accuracy": r["accuracy"]} for r in rows()]
    told = refused(cli, "analyze", "--from", write("r.csv", csv_of(table)))
    assert "such as algo, with --variant-column" in told and "--task-column" not in told
    single = [{"algo": "x", "seed": s, "accuracy": s / 9} for s in SEEDS]
    told = refused(cli, "analyze", "--from", write("s.csv", csv_of(single)))
    assert "no variant column" in told and "--variant-column" in told


def test_columns_that_come_late_in_json_lines_are_seen(cli: Cli) -> None:
    table = [{"variant": "a", "seed": s, "accuracy": 0.5 + s / 1e4} for s in range(300)]
    table += [{"variant": "b", "seed": s, "accuracy": 0.6 + s / 1e4, "status": "crashed"} for s in range(300)]
    path = write("r.jsonl", "\n".join(json.dumps(row) for row in table))
    done = cli("analyze", "--from", path, "--format", "json")
    assert done.code == 0 and [arm["used"] for arm in done.json["arms"]] == [300, 0]


# Files that are no tables.


BINARY = {
    "Parquet": b"PAR1\x15\x04", "ZIP": b"PK\x03\x04\x14\0", "gzip": b"\x1f\x8b\x08\0", "binary": b"a,b\n\0\xff\n",
    "UTF-16": "variant,seed\n".encode("utf-16"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BINARY)
def test_a_binary_file_is_named_for_what_it_is(cli: Cli, kind: str) -> None:
    told = refused(cli, "analyze", "--from", write("r.csv", BINARY[kind]))
    assert kind in told and ("UTF-8" in told) and ("Save it as UTF-8" in told) == (kind == "UTF-16")


def test_another_encoding_is_named_with_its_line(cli: Cli) -> None:
    told = refused(cli, "analyze", "--from", write("r.csv", "variant,seed\ncafé,1\n".encode("latin-1")))
    assert "byte 0xe9 in line 2" in told and "Save it as UTF-8" in told


@pytest.mark.slow
def test_pipes_devices_and_folders_are_one_sentence(tmp_path: Path) -> None:
    os.mkfifo("pipe.csv")
    Path("folder.csv").mkdir()
    for path, told in (("pipe.csv", "is a pipe"), ("/dev/zero", "is a pipe, device"), ("folder.csv", "is a folder")):
        for words in (["analyze", "--from", path], ["cost-performance", "--configs", path, "--device", "A10"]):
            done = subprocess.run(
                [sys.executable, "-m", "fairtrial", *words], capture_output=True, text=True, timeout=30, check=False
            )
            assert done.returncode == 1 and told in done.stderr, (words, done.stderr)


def test_a_table_of_any_size_is_read_or_refused_within_its_limits(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    from fairtrial.record import tables

    monkeypatch.setattr(tables, "MOST_BYTES", 2000)
    monkeypatch.setattr(tables, "MOST_LINES", 60)
    monkeypatch.setattr(tables, "MOST_COLUMNS", 20)
    monkeypatch.setattr(tables, "MOST_CELLS", 300)
    monkeypatch.setattr(tables, "MOST_RUNS", 30)
    monkeypatch.setattr(tables, "MOST_VARIANTS", 8)
    monkeypatch.setattr(tables, "MOST_ARRAY_BYTES", 500)
    monkeypatch.setattr(tables, "LONGEST_LINE_BYTES", 400)
    cases = {
        "larger than": ("a.csv", "variant,accuracy\n" + "a,1.00000000000000000000000000000000000000000\n" * 50),
        "more than 60 lines": ("b.csv", "variant,accuracy\n" + "a,1\n" * 60),
        "more than 20 columns": ("c.csv", ",".join(map(str, range(22))) + "\n1\n"),
        "more than 300 cells": ("d.csv", "variant,seed,accuracy\n" + "," * 300 + "\n"),
        "more than 30 runs": ("e.csv", "variant,accuracy\n" + "a,1\nb,2\n" * 16),
        "at most 8 can be compared": ("f.csv", "variant,accuracy\n" + "".join(f"v{n},1\n" for n in range(9))),
        "JSON array of more": ("g.json", json.dumps(rows() + rows())),
        "longer than": ("h.jsonl", json.dumps({"variant": "a" * 400, "accuracy": 1})),
        "different keys": ("i.jsonl", "\n".join(json.dumps({f"k{n}": n}) for n in range(21))),
        "rows or": ("j.json", "[" + ",".join(["{}"] * 61) + "]"),
    }
    for told, (name, text) in cases.items():
        assert told in refused(cli, "analyze", "--from", write(name, text)), told
    assert comparison(cli, "--from", write("ok.csv", csv_of(rows())))["verdict"] == "better"


def test_a_header_is_counted_before_it_is_parsed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairtrial.record import tables

    monkeypatch.setattr(tables, "MOST_COLUMNS", 20)
    monkeypatch.setattr(tables, "csv_records", lambda *_: pytest.fail("the header was parsed"))
    assert "more than 20 columns" in refused(cli, "analyze", "--from", write("c.csv", "," * 30 + "\n"))


# Cells.


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ([1, 2], "is a list, not a number"),
        ({"x": 1}, "is an object, not a number"),
        (True, "is true, not a number; write 1 or 0"),
        ("high", "is 'high', not a number"),
        ("0,85", "write decimals with a point"),
        ("85%", "leave out the percent sign"),
        ("1_000", "is '1_000', not a number"),
        ("١", "not a number"),
        (10**400, "too many digits"),
    ],
)
def test_a_cell_that_is_not_a_number_is_named_with_line_and_column(cli: Cli, cell: Any, told: str) -> None:
    table = rows()
    table[6]["accuracy"] = cell
    path = write("r.jsonl", "\n".join(json.dumps(row) for row in table))
    answer = refused(cli, "analyze", "--from", path)
    assert "r.jsonl, line 7: accuracy " in answer and told in answer


@pytest.mark.parametrize("spelled", ["NaN", "nan", "inf", "-Infinity", "NA", "<NA>", "null", ""])
def test_a_value_that_is_missing_or_not_finite_is_a_lost_run(cli: Cli, spelled: str) -> None:
    table = rows()
    table[6]["accuracy"] = spelled
    assert comparison(cli, "--from", write("r.csv", csv_of(table)))["reliability"]["lost_candidate"] == 1


def test_python_writes_nan_into_json_and_it_is_read(cli: Cli) -> None:
    table = rows()
    table[6]["accuracy"] = float("nan")
    path = write("r.jsonl", "\n".join(json.dumps(row) for row in table))
    assert comparison(cli, "--from", path)["reliability"]["lost_candidate"] == 1


@pytest.mark.parametrize("role", ["seed", "run", "task", "step"])
@pytest.mark.parametrize("cell", [[1], {"a": 1}, True])
def test_a_name_is_text_or_a_number(cli: Cli, role: str, cell: Any) -> None:
    table = [{**row, role: 1 if role != "seed" else row["seed"]} for row in rows()]
    table[4][role] = cell
    path = write("r.jsonl", "\n".join(json.dumps(row) for row in table))
    assert f"line 5: {role} is " in refused(cli, "analyze", "--from", path)


def test_several_problems_are_told_at_once_and_not_all(cli: Cli) -> None:
    table = rows() * 3
    for row in table[2:12]:
        row["accuracy"] = "?"
    told = refused(cli, "analyze", "--from", write("r.csv", csv_of([{**r, "run": n} for n, r in enumerate(table)])),
                   "--metric", "accuracy")  # fmt: skip
    assert told.count("not a number") == 5


def test_a_comma_in_a_number_does_not_shift_the_columns(cli: Cli) -> None:
    text = csv_of(rows()).replace("b,2,0.622", "b,2,0,622").replace("b,2,0.62", "b,2,0,62")
    assert "line 8 has 4 cells, but the header has 3" in refused(cli, "analyze", "--from", write("r.csv", text))


def test_numbers_with_decimal_commas_are_told_how_to_be_written(cli: Cli) -> None:
    text = csv_of(rows()).replace(",", ";").replace(".", ",")
    told = refused(cli, "analyze", "--from", write("r.csv", text))
    assert "has no numeric column" in told and "write decimals with a point" in told


def test_a_quoted_cell_may_hold_newlines_and_must_end(cli: Cli) -> None:
    table = [{**row, "note": '"two\nlines, one cell"'} for row in rows()]
    assert comparison(cli, "--from", write("r.csv", csv_of(table)))["verdict"] == "better"
    table[-1]["note"] = '"never closed'
    assert "a quoted cell is not closed" in refused(cli, "analyze", "--from", write("o.csv", csv_of(table)))
    table[4]["note"] = '"never closed'
    assert "line 11: ',' expected after" in refused(cli, "analyze", "--from", write("o.csv", csv_of(table)))


# Summaries that need steps.


@pytest.mark.parametrize(
    "words",
    [
        ["--summary.type", "time_to", "--summary.threshold", "0.55"],
        ["--summary.type", "time_to", "--summary.threshold", "99"],
        ["--summary.type", "slope"],
        ["--summary.type", "auc"],
        ["--summary.type", "auc", "--summary.window", "0:10"],
        ["--summary.window", "0:10"],
        ["--summary.percent", "0.5"],
    ],
)
def test_a_summary_over_steps_needs_steps(cli: Cli, words: list[str]) -> None:
    told = refused(cli, "analyze", "--from", write("r.csv", csv_of(rows())), *words)
    assert "r.csv has no step column" in told and "--step-column" in told


# Pairs made by hand.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        ('{"control": "s/a.seed1", "control": "s/a.seed2", "candidate": "s/b.seed1"}', "twice"),
        ('{"control": "s/a.seed1", "candidate": "s/b.seed1", "seed": [1]}', "pair 1: seed is a list"),
    ],
)
def test_pairs_are_judged_like_rows(cli: Cli, pairs: str, told: str) -> None:
    assert cli("launch", "fake", "--variant", "a:", "--variant", "b:", "--base-run-name", "s", "--steps", "5",
               "--seeds", "1,2").code == 0  # fmt: skip
    done = cli("analyze", "--pairs", pairs)
    assert done.code in (1, 2) and told in done.err


@pytest.mark.slow
def test_seeds_of_pairs_are_whole_numbers(cli: Cli) -> None:
    assert cli("launch", "fake", "--variant", "a:", "--variant", "b:", "--base-run-name", "s", "--steps", "5",
               "--seeds", "1,2").code == 0  # fmt: skip
    pairs = [{"control": f"s/a.seed{n}", "candidate": f"s/b.seed{n}", "seed": float(n)} for n in (1, 2)]
    done = cli("analyze", "--pairs", json.dumps(pairs), "--format", "json")
    assert done.code == 0 and list(done.json["arms"][0]["values"]) == ["1", "2"]
