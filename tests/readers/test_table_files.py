"""Layouts of tables that people have: read right, or refused with what to say."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import feather, parquet

from fairtrial.core.errors import UserError
from fairtrial.readers.contract import SourceRun
from fairtrial.readers.table_files import TableColumns, TableFilesReader, runs_of_frame
from tests.readers.checking import outcome

Cells = dict[tuple[str | None, str | None, str, float], float]


def cells(runs: list[SourceRun]) -> Cells:
    return {
        (run.variant, run.seed, metric, float(step)): float(value)
        for run in runs
        for metric, series in run.series.items()
        for step, value in zip(series.steps, series.values, strict=True)
    }


def read(tmp_path: Path, text: str, name: str = "t.csv", **columns: Any) -> Cells:
    (tmp_path / name).write_text(text)
    return cells(list(TableFilesReader(TableColumns(**columns)).read(tmp_path / name)))


FINAL = {
    ("a", "1", "acc", 0.0): 0.5,
    ("a", "2", "acc", 0.0): 0.25,
    ("b", "1", "acc", 0.0): 0.75,
    ("b", "2", "acc", 0.0): 1.0,
}
SAME = {
    "long": "variant,seed,metric,value\na,1,acc,0.5\na,2,acc,0.25\nb,1,acc,0.75\nb,2,acc,1\n",
    "a column per metric": "Method,Seed,acc\na,1,0.5\na,2,0.25\nb,1,0.75\nb,2,1\n",
    "semicolons and an index": ";algo;seed;acc\n0;a;1;0.5\n1;a;2;0.25\n2;b;1.0;0.75\n3;b;2.0;1\n",
    "a column per seed": "method,seed1,seed2\na,0.5,0.25\nb,0.75,1\n",
    "a column per seed number": "model,1,2\na,0.5,0.25\nb,0.75,1\n",
    "a column per seed, spelled out": "agent,Seed 1,Seed 2\na,0.5,0.25\nb,0.75,1\n",
    "a column per both": "a_seed1,a_seed2,b_seed1,b_seed2\n0.5,0.25,0.75,1\n",
    "a column per both, dashes": "a-s1,a-s2,b-s1,b-s2\n0.5,0.25,0.75,1\n",
}


@pytest.mark.parametrize("layout", SAME)
def test_layouts_of_final_values_give_the_same_runs(tmp_path: Path, layout: str) -> None:
    assert read(tmp_path, SAME[layout], metric_name="acc") == FINAL


def test_a_column_per_method_is_read_on_request_and_refused_otherwise(tmp_path: Path) -> None:
    text = "seed,a,b\n1,0.5,0.75\n2,0.25,1\n"
    assert read(tmp_path, text, columns_are="methods", metric_name="acc") == FINAL
    with pytest.raises(UserError, match="may be metrics of one method, or methods with one metric"):
        read(tmp_path, text)


def test_curves_with_a_column_per_both(tmp_path: Path) -> None:
    found = read(tmp_path, "step,base_seed1,base_seed2\n0,1,2\n10,3,\n20,nan,4\n")
    assert found[("base", "1", "value", 10.0)] == 3
    assert ("base", "2", "value", 10.0) not in found
    assert len(found) == 5


def test_nested_json_has_keys_with_points(tmp_path: Path) -> None:
    rows = [{"config": {"algo": "a", "seed": s, "lr": 0.1}, "step": 5, "eval": {"acc": s / 2}} for s in (1, 2)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    expected = {("a", "1", "eval.acc", 5.0): 0.5, ("a", "2", "eval.acc", 5.0): 1.0}
    assert read(tmp_path, lines, "t.jsonl") == expected
    assert read(tmp_path, json.dumps(rows), "t.json") == expected
    assert read(tmp_path, lines + '{"conf', "t.jsonl") == expected
    [run, _] = TableFilesReader().read(tmp_path / "t.json")
    assert run.config == {"lr": 0.1}


def test_an_object_with_one_list_of_rows_is_a_table(tmp_path: Path) -> None:
    document = {
        "config": {"algo": "a", "seed": 3},
        "history": [{"step": 1, "loss": 0.5}, {"step": 2, "loss": float("nan")}],
    }
    assert list(read(tmp_path, json.dumps(document), "t.json")) == [("a", "3", "loss", 1.0), ("a", "3", "loss", 2.0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("variant,seed,acc\na,1,0.5\na,1,0.25\n", "two values of acc for a, seed 1"),
        ("variant,acc\na,0.5\na,0.25\n", "two values of acc for a"),
        ("variant,seed,acc\na,1,0.5\na,2\n", "line 3 has 2 cells"),
        ("variant,seed,acc,acc\na,1,0.5,1\n", "twice"),
        ("variant,Variant,seed,acc\na,b,1,0.5\n", "may be the variant column"),
        ("variant,seed,acc\na,1,good\n", "no numeric column"),
        ("a_seed1,a_seed1\n1,2\n", "twice"),
        ("method,seed1,seed2\na,0.5,x\n", "is not a number"),
    ],
)
def test_what_leaves_something_open_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(tmp_path, text)


def frame() -> pyarrow.Table:
    columns = {"algo": ["a", "a", "b", "b"], "seed": [1, 2, 1, 2], "acc": [0.5, 0.25, 0.75, 1.0]}
    return pyarrow.table({**columns, "config": [{"lr": 0.5}] * 4})


def test_parquet_arrow_and_frames(tmp_path: Path) -> None:
    parquet.write_table(frame(), tmp_path / "t.parquet")
    feather.write_feather(frame(), tmp_path / "t.arrow", compression="uncompressed")
    for name in ("t.parquet", "t.arrow"):
        runs = list(TableFilesReader().read(tmp_path / name))
        assert cells(runs) == FINAL
        assert runs[0].config == {"lr": 0.5}
    assert cells(runs_of_frame(frame())) == FINAL
    assert cells(runs_of_frame(frame().to_pandas())) == FINAL


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
def test_damaged_columnar_files_give_a_result_or_a_sentence(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    parquet.write_table(frame(), path) if name == "t.parquet" else feather.write_feather(frame(), path)
    content = path.read_bytes()
    drawn = random.Random(1)
    for _ in range(150):
        changed = bytearray(content)
        if drawn.random() < 0.7:
            changed[drawn.randrange(len(content))] ^= 1 << drawn.randrange(8)
        else:
            del changed[drawn.randrange(len(content)) :]
        path.write_bytes(changed)
        outcome(TableFilesReader(), path)
